# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Figures of real copies on the lab against other means of measuring the same copy, and faults planted in such copies.

Clocks are compared where it may take longer, in tests/bench."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ..bench import lab as tools
from .conftest import REPOSITORY, Play, start

#: CPU seconds may differ by the larger of these; one of so many copies has to agree: on a busy machine a reading from
#: outside can itself come late.
CPU_SHARE, CPU_S, TRIES = 0.1, 0.03, 3

WIRE_SHARE = 0.02
#: Ethernet, IPv4, and TCP with timestamps, of a full packet. A virtual device counts them once for a segment that it is
#: to cut, tc for each packet.
HEADERS_SHARE = 66 / 1514

FILE_BYTES = 100_000
#: What tar makes of a directory and three such files: a header of 512 bytes each, and content filled up to 512.
STREAM_BYTES = 512 + 3 * (512 + -(-FILE_BYTES // 512) * 512)


@pytest.fixture(scope="module")
def made(lab: None) -> tools.Lab:
    return tools.Lab(REPOSITORY / "inventory")


@pytest.fixture(scope="module")
def groups(made: tools.Lab) -> Iterator[tools.TargetCgroups]:
    held = tools.TargetCgroups(made, "lan-1g")
    yield held
    held.close()


def program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("label", ["tar|ssh", "scp", "rsync -a", "tar|nc"])
def test_cpu_time_is_that_of_time_and_of_the_control_group(
    made: tools.Lab, groups: tools.TargetCgroups, tmp_path: Path, label: str
) -> None:
    """Both ends of one copy: its stages run below time -v, its target's sshd and receivers in control groups."""
    src = made.tree("lan-1g", "large", 0.04)
    programs = tools.timing_programs(tmp_path / "bin")
    found = []
    for _try in range(TRIES):
        with groups.counting():
            record = made.copy("lan-1g", label, src, programs)
        readings = {"source": tools.timed_s(record), "target": groups.cpu_s()}
        pairs = [(tools.cpu_s(record, end), right) for end, right in readings.items()]
        if all(abs(ours - right) <= max(CPU_SHARE * right, CPU_S) for ours, right in pairs):
            return
        found.append(pairs)
    pytest.fail(f"CPU seconds, (record, other) of source and target: {found}")


class TestAnotherLogin:
    """One that ends during a copy: its cost cannot be told from ours, so there is no figure."""

    @pytest.fixture
    def copied(self, made: tools.Lab) -> Callable[[Callable[[], object]], dict[str, Any]]:
        """The record of a copy during which something was done."""

        def copy(meanwhile: Callable[[], object]) -> dict[str, Any]:
            src = made.tree("lan-100m", "large", 0.01)
            made.clear("lan-100m")
            with made.module("lan-100m", "tar_ssh", made.module_args("lan-100m", src)) as process:
                while not tools.sends(process.pid):
                    assert process.poll() is None, process.stdout.read()
                    time.sleep(0.01)
                meanwhile()
                assert tools.sends(process.pid), "the copy was over before"
                record = tools.record_of(process)
            made.clear("lan-100m")
            assert (record["status"], record["message"]) == ("ok", "")
            return record

        return copy

    def is_noticed(self, record: dict[str, Any]) -> None:
        assert "foreign-session" in record["flags"]
        assert record["cpu"]["target"] is None
        assert record["cpu"]["source"]["user_s"] > 0
        assert record["host_cpu"]["target"]["user_s"] > 0

    def test_that_came_and_went(self, made: tools.Lab, copied: Any) -> None:
        self.is_noticed(copied(lambda: subprocess.run([*made.ssh("lan-1g"), "true"], check=True)))

    def test_that_was_there_before(self, made: tools.Lab, copied: Any) -> None:
        with subprocess.Popen([*made.ssh("lan-1g"), "echo here; cat"], stdin=-1, stdout=-1) as login:
            assert login.stdin is not None
            assert login.stdout is not None
            assert login.stdout.readline() == b"here\n"
            self.is_noticed(copied(login.stdin.close))

    def test_that_stays_costs_nothing(self, made: tools.Lab, copied: Any) -> None:
        with subprocess.Popen([*made.ssh("lan-1g"), "echo here; cat"], stdin=-1, stdout=-1) as login:
            assert login.stdout is not None
            assert login.stdout.readline() == b"here\n"
            record = copied(lambda: None)
        assert "foreign-session" not in record["flags"]
        assert record["cpu"]["target"]["basis"] == "sshd-children"


@pytest.mark.parametrize(
    ("link", "scale", "label"),
    [("lan-1g", 0.04, "tar|ssh"), ("lan-100m", 0.01, "tar|ssh"), ("lan-100m", 0.01, "tar|gzip|nc")],
)
def test_wire_bytes_are_those_of_ip_and_tc(made: tools.Lab, link: str, scale: float, label: str) -> None:
    src = made.tree(link, "large", scale)
    readings = []
    # A run in check mode sends all that a run sends beside its copy.
    for more in ({"_ansible_check_mode": True}, {}):
        before = made.counted(link)
        record = made.copy(link, label, src, **more)
        readings.append(made.counted(link).since(before))
    right = readings[1].since(readings[0])
    wire = record["wire"]
    assert wire["tx_bytes"] == pytest.approx(right.tx_bytes, rel=WIRE_SHARE)
    assert wire["rx_bytes"] == pytest.approx(right.rx_bytes, rel=WIRE_SHARE)
    assert -HEADERS_SHARE - WIRE_SHARE / 2 <= wire["tx_bytes"] / right.shaped_bytes - 1 <= WIRE_SHARE


def test_the_ceiling_of_100_mbit_is_what_is_left_of_it_for_goodput(made: tools.Lab) -> None:
    assert 90 <= made.ceiling_mbit("lan-100m", 1) <= 97


@pytest.fixture(scope="module")
def src(made: tools.Lab) -> Path:
    path = made.data_dir / "lab-a" / "data" / "five files"
    path.mkdir(parents=True)
    for number in range(5):
        (path / f"file {number}").write_bytes(bytes([number]) * FILE_BYTES)
    return path


class TestPlantedFault:
    """Every program ends with 0, and the copy is not the source."""

    def copy(self, made: tools.Lab, label: str, src: Path, **more: Any) -> dict[str, Any]:
        record = made.copy("lan-100m", label, src, verify="sha256", **more)
        assert [stage["rc"] for stage in record["stages"]] == [0] * (4 if label == "tar|nc" else 2)
        return record

    @pytest.mark.parametrize("label", ["tar|ssh", "tar|nc"])
    @pytest.mark.parametrize(
        ("damage", "mismatches"),
        [
            (":", []),
            # Size and time of modification stay.
            (
                'touch -r "$2/file 3" "$2.time"; tail -c +50001 "$2/file 3" | head -c 1 | tr "\\000-\\377" "\\001-\\377\\000" | '
                'dd of="$2/file 3" bs=1 seek=50000 conv=notrunc 2>&1; touch -r "$2.time" "$2/file 3"; rm "$2.time"',
                ["content: file 3"],
            ),
            ('rm "$2/file 2"', ["missing: file 2"]),
        ],
    )
    def test_in_the_destination(
        self, made: tools.Lab, src: Path, tmp_path: Path, label: str, damage: str, mismatches: list[str]
    ) -> None:
        """The target's tar is one that damages what it has extracted; it comes first on the agent's path."""
        program(tmp_path / "bin/tar", f'/usr/bin/tar "$@" || exit\ncase "$*" in *-xpf*) {damage};; esac\nexit 0')
        program(tmp_path / "python", f'PATH={tmp_path}/bin:$PATH exec python3 "$@"')
        record = self.copy(made, label, src, target_python=str(tmp_path / "python"))
        assert record["verified"]["mismatches"] == mismatches
        assert record["status"] == ("corrupt" if mismatches else "ok")

    def test_in_the_stream(self, made: tools.Lab, src: Path, tmp_path: Path) -> None:
        """It is cut behind the third file, where tar is content with it."""
        cut = f'/usr/bin/tar "$@" | {{ head -c {STREAM_BYTES}; cat >/dev/null; }}'
        program(tmp_path / "bin/tar", f'case "$*" in *-cf*) {cut};; *) exec /usr/bin/tar "$@";; esac')
        record = self.copy(made, "tar|ssh", src, path=tmp_path / "bin")
        assert record["status"] == "corrupt"
        lost = record["verified"]["mismatches"]
        assert len(lost) == 2
        assert all(name.startswith("missing: file ") for name in lost)

    def test_in_a_stream_that_nobody_answers_for(self, made: tools.Lab, src: Path, tmp_path: Path) -> None:
        cut = f'{{ head -c {STREAM_BYTES}; cat >/dev/null; }} | /usr/bin/nc "$@"'
        program(tmp_path / "bin/nc", f'case "$*" in *-N*) {cut};; *) exec /usr/bin/nc "$@";; esac')
        record = self.copy(made, "tar|nc", src, path=tmp_path / "bin")
        assert record["status"] == "corrupt"
        assert "truncated" in record["flags"]
        assert f"but {STREAM_BYTES} of the stream's" in record["message"]


def test_a_link_that_carries_more_than_its_ceiling_is_flagged(made: tools.Lab, play: Play, tmp_path: Path) -> None:
    """The lab's link becomes ten times as fast after its ceiling has been measured, and before the first copy."""
    variables: dict[str, Any] = {
        "bulkcopy_results_dir": str(tmp_path),
        "bulkcopy_datasets": [{"name": "large", "shape": "large", "scale": 0.01}],
        "bulkcopy_methods": ["tar|ssh", "tar|nc"],
        "bulkcopy_blocks": 1,
        "bulkcopy_warmups": 0,
        "bulkcopy_ceiling_s": 1,
        "bulkcopy_keep_lab": True,
    }
    journal = tmp_path / "latest" / "prepare.jsonl"

    def looked_at(link: str) -> bool:
        steps = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
        return any((step["step"], step["key"]) == ("link", link) for step in steps)

    with start("playbooks/benchmark.yml", **variables) as process:
        assert process.stdout is not None
        while not looked_at("lan-100m"):
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.05)
        made.set_rate("lan-100m", "1gbit")
        changed = datetime.now(UTC)
        try:
            out = process.communicate(timeout=300)[0]
        finally:
            made.set_rate("lan-100m", "100mbit")
    rows = [json.loads(line) for line in (tmp_path / "latest/runs.jsonl").read_text().splitlines()]
    assert len(rows) == 4, out
    for row in rows:
        assert datetime.fromisoformat(row["started"]) > changed
        assert row["status"] == "ok", out
        assert ("above-ceiling" in row["flags"]) == (row["link"]["name"] == "lan-100m")
