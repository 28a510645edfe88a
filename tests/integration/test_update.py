# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Updates between two hosts of the lab: what each method leaves, compared with the source by diff."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _dataset

from .conftest import REPOSITORY, Play

METHODS: list[dict[str, Any]] = [
    *yaml.safe_load((REPOSITORY / "playbooks/vars/methods.yml").read_text())["bulkcopy_standard_methods"],
    {"label": "rsync in place", "module": "rsync", "args": {"inplace": True}},
    {"label": "rsync x2", "module": "rsync", "args": {"streams": 2}},
    {"label": "rsyncd x2", "module": "rsync_daemon", "args": {"streams": 2}},
    {"label": "tar|ssh x2", "module": "tar_ssh", "args": {"streams": 2}},
    {"label": "tar|nc x2", "module": "tar_nc", "args": {"streams": 2}},
]
#: Those that can delete what has vanished from the source.
DELETE = {"rsync -a", "rsync -az", "rsync -a -W", "rsync --zc=zstd", "rsync --zc=lz4", "rsync in place", "rsyncd -a"}
DELETE |= {"rclone --transfers 8"}
#: Those that send no more than what differs, or every changed file whole.
LITTLE = DELETE | {"fpsync -n 4", "rsync -a x8", "rsync x2", "rsyncd x2"}

HOME = Path("/var/tmp/linkops-bulkcopy-lab")
FIRST, SECOND = HOME / "lab-a/data/first", HOME / "lab-a/data/second"
COPIES, SCRATCH = HOME / "lab-b/updates", HOME / "lab-b/scratch"
KEYS = "/run/linkops-bulkcopy-lab/"
LINK = {
    "address": "198.18.2.2",
    "ssh_user": "root",
    "ssh_identity_file": KEYS + "id_ed25519",
    "ssh_known_hosts": KEYS + "known_hosts",
    "source_name": "lab-a",
    "target_name": "lab-b",
}
TOKEN = "of this test"
BASE = SCRATCH / "base" / "one"

#: Of 200 files.
CHANGED, GREW, APPEARED, VANISHED = 3, 2, 4, 5


def said(*argv: str | Path) -> str:
    return subprocess.run(list(map(str, argv)), stdout=subprocess.PIPE, text=True, check=True).stdout


def listed(tree: Path) -> list[str]:
    """Every name with its attributes, and what every file holds."""
    names = said("find", tree, "-mindepth", "1", "-printf", r"%P %y %m %U:%G %s %T@\n").splitlines()
    return sorted(names) + sorted(said("find", tree, "-type", "f", "-exec", "sha256sum", "{}", "+").splitlines())


@pytest.fixture(scope="module")
def trees(lab: None) -> None:
    """Version 1 and version 2 on the source, and version 1 on the target, once for each method."""
    _dataset.present(str(FIRST), [_dataset.Part("a", 200, 20_000, directories=10)])
    shares = {"changed": CHANGED, "grew": GREW, "appeared": APPEARED, "vanished": VANISHED}
    _dataset.present_update(str(SECOND), str(FIRST), {kind: number / 200 for kind, number in shares.items()}, 1)
    COPIES.mkdir(parents=True)
    for number in range(len(METHODS)):
        subprocess.run(["cp", "-a", FIRST, COPIES / str(number)], check=True)


def played(play: Play, directory: Path, tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What each task returned."""
    given: list[dict[str, Any]] = []
    for number, task in enumerate(tasks):
        given.append({"name": f"Task {number}", **task, "register": f"task_{number}", "ignore_errors": True})
    results = ", ".join(f"task_{number}" for number in range(len(tasks)))
    given.append(
        {
            "name": "Keep what they returned",
            "ansible.builtin.copy": {
                "content": "{{ [" + results + "] | to_json }}",
                "dest": str(directory / "results.json"),
                "mode": "0600",
            },
            "delegate_to": "localhost",
        }
    )
    (directory / "tasks.yml").write_text(json.dumps([{"hosts": "lab-a", "gather_facts": False, "tasks": given}]))
    done = play(directory / "tasks.yml")
    assert done.returncode == 0, done.stdout
    found: list[dict[str, Any]] = json.loads((directory / "results.json").read_text())
    return found


@pytest.fixture(scope="module")
def records(trees: None, play: Play, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """An update by each method, of a copy of its own; the records by label."""
    tasks = [
        {
            f"linkops.bulkcopy.{method['module']}": {
                "src": str(SECOND),
                "dest": str(COPIES / str(number)),
                "update": True,
                "label": method["label"],
                **LINK,
                **method.get("args", {}),
            }
        }
        for number, method in enumerate(METHODS)
    ]
    found = played(play, tmp_path_factory.mktemp("updates"), tasks)
    return {result["record"]["method"]["label"]: result["record"] for result in found}


@pytest.mark.parametrize(("number", "label"), [(number, method["label"]) for number, method in enumerate(METHODS)])
class TestEachMethod:
    def test_the_target_is_version_2(self, records: dict[str, Any], number: int, label: str) -> None:
        lines = subprocess.run(
            ["diff", "-rq", SECOND, COPIES / str(number)], stdout=subprocess.PIPE, text=True, check=False
        ).stdout.splitlines()
        # what vanished from the source may be there still, and nothing else differs
        assert all(line.startswith(f"Only in {COPIES / str(number)}") for line in lines), lines
        assert len(lines) == (0 if label in DELETE else VANISHED)

    def test_it_says_so(self, records: dict[str, Any], number: int, label: str) -> None:
        record = records[label]
        assert (record["status"], record["message"], record["scenario"]) == ("ok", "", "update")
        assert record["verified"]["mismatches"] == []
        assert record["verified"]["not_kept"].get("deletions", 0) == (0 if label in DELETE else VANISHED)
        assert record["dataset"]["files"] == 200 - VANISHED + APPEARED

    def test_it_sent_what_such_a_method_sends(self, records: dict[str, Any], number: int, label: str) -> None:
        sent, whole = records[label]["wire"]["tx_bytes"], 200 * 20_000
        # seven new or changed files and two tenths of one are 3.6 % of all; compressors win nothing from random bytes
        assert sent < 0.2 * whole if label in LITTLE else sent > 0.5 * whole

    def test_it_has_no_rate(self, records: dict[str, Any], number: int, label: str) -> None:
        # most of the tree was there before
        assert records[label]["throughput_Bps"] is None
        assert not {"above-ceiling", "wire-too-small"} & set(records[label]["flags"])


def test_each_copy_in_the_scratch_folder_begins_with_version_1(
    trees: None, play: Play, tmp_path_factory: pytest.TempPathFactory
) -> None:
    SCRATCH.mkdir(mode=0o700, parents=True)
    (SCRATCH / ".linkops-bulkcopy").write_text(json.dumps({"token": TOKEN}))
    common = {"dest": str(SCRATCH), "scratch_token": TOKEN, **LINK}
    base = {"linkops.bulkcopy.base": {"src": str(FIRST), "name": "one", **common}}
    update = {"src": str(SECOND), "scratch": True, "update": True, "base": "one", **common}
    runs = [
        {"linkops.bulkcopy.rsync": {**update, "inplace": True}},
        {"linkops.bulkcopy.rsync": update},
        {"linkops.bulkcopy.tar_ssh": update},
        {"linkops.bulkcopy.scp": update},
        {"linkops.bulkcopy.rsync": {**update, "inplace": True}},
    ]
    directory = tmp_path_factory.mktemp("scratch")
    (put,) = played(play, directory, [base])
    assert (put["changed"], put["base"]["files"]) == (True, 200)
    assert subprocess.run(["diff", "-r", FIRST, BASE], check=False).returncode == 0
    before = listed(BASE)
    results = played(play, directory, runs)
    assert [result["record"]["status"] for result in results] == ["ok"] * 5
    left = [result["record"]["verified"]["not_kept"].get("deletions", 0) for result in results]
    assert left == [0, 0, VANISHED, VANISHED, 0]
    # The last run found as much to do as the first.
    first, last = results[0]["record"]["wire"]["tx_bytes"], results[-1]["record"]["wire"]["tx_bytes"]
    assert last == pytest.approx(first, rel=0.1)
    assert listed(BASE) == before
    assert sorted(path.name for path in SCRATCH.iterdir()) == [".linkops-bulkcopy", "base"]
    # It lies there already; one that was spoilt is put there again.
    assert [result["changed"] for result in played(play, directory, [base])] == [False]
    next(path for path in BASE.rglob("*") if path.is_file()).write_bytes(b"spoilt")
    assert [result["changed"] for result in played(play, directory, [base])] == [True]
    assert listed(BASE) == before


def test_what_a_copy_begins_with_must_be_there(
    trees: None, play: Play, tmp_path_factory: pytest.TempPathFactory
) -> None:
    dest = COPIES / "0"
    runs = [
        ({"dest": str(SCRATCH), "scratch": True, "update": True, "base": "none"}, "No such file"),
        ({"dest": str(SCRATCH), "scratch": True, "update": True}, "update and base belong together"),
        ({"dest": str(dest), "update": True, "base": "one"}, "base is what a copy in a scratch directory begins with"),
        ({"dest": str(dest)}, "is not empty"),
    ]
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(mode=0o700, parents=True)
    (SCRATCH / ".linkops-bulkcopy").write_text(json.dumps({"token": TOKEN}))
    tasks = [{"linkops.bulkcopy.rsync": {"src": str(SECOND), **LINK, **given}} for given, _message in runs]
    results = played(play, tmp_path_factory.mktemp("refused"), tasks)
    for result, (_given, message) in zip(results, runs, strict=True):
        assert result["failed"]
        assert message in result["msg"]


@pytest.fixture(scope="module")
def campaign(nothing_left: None, play: Play, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Full copies and updates of 400 files, of which 4 differ, and of a tree that somebody else made."""
    directory = tmp_path_factory.mktemp("campaign")
    (directory / "theirs").mkdir()
    (directory / "theirs/file").write_bytes(b"content")
    links = yaml.safe_load((REPOSITORY / "inventory/group_vars/all.yml").read_text())["bulkcopy_links"]
    done = play(
        "playbooks/benchmark.yml",
        bulkcopy_results_dir=str(directory / "results"),
        bulkcopy_links=links[1:2],
        bulkcopy_scenarios=["full", "update"],
        bulkcopy_datasets=[
            {"name": "small", "shape": "small", "scale": 0.2},
            {"name": "theirs", "path": str(directory / "theirs")},
        ],
        bulkcopy_methods=["rsync -a", "tar|ssh", "scp"],
        bulkcopy_blocks=2,
        bulkcopy_warmups=0,
        bulkcopy_ceiling_s=0,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout, (directory / "results/latest").resolve()


def test_a_campaign_measures_updates_of_generated_trees(campaign: tuple[str, Path]) -> None:
    out, directory = campaign
    rows = [json.loads(line) for line in (directory / "runs.jsonl").read_text().splitlines()]
    assert len(rows) == (2 + 1) * 3 * 2
    assert {(row["status"], row["message"]) for row in rows} == {("ok", "")}
    updates = [row for row in rows if row["scenario"] == "update"]
    assert [row["dataset"]["name"] for row in updates] == ["small"] * 6
    for row in updates:
        assert row["verified"]["mismatches"] == []
        assert row["verified"]["not_kept"].get("deletions", 0) == (0 if row["method"]["label"] == "rsync -a" else 1)
        assert row["throughput_Bps"] is None
    assert "no update of theirs: of an existing tree there is no older version" in out
    assert "small (update): use " in out


def test_a_campaign_says_what_updates_take(campaign: tuple[str, Path]) -> None:
    (link,) = json.loads((campaign[1] / "summary.json").read_text())["links"]
    found = {(result["dataset"], result["scenario"]): result["methods"] for result in link["results"]}
    assert set(found) == {("small", "full"), ("theirs", "full"), ("small", "update")}
    sent = {method["label"]: method["sent_bytes"] for method in found["small", "update"]}
    # 40 MB whole; or one new file and one of other content, of 100 kB each, a tenth of one, and the list of 400 names
    assert 210_000 < sent["rsync -a"] < 400_000
    assert 40e6 < min(sent["tar|ssh"], sent["scp"]) < 50e6
    for method in found["small", "update"]:
        assert (method["throughput_Bps"], method["efficiency"], method["limiter"]) == (None, None, None)
    report = (campaign[1] / "report.md").read_text()
    assert "names that had vanished from the source are still on the target with " in report
