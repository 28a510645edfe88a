# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible_collections.linkops.bulkcopy.plugins.action import run as action
from ansible_collections.linkops.bulkcopy.plugins.module_utils._record import new_record
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import plan as plans
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.results import SCHEMA, Campaign

LINK = {"device": "eth1", "mtu": 1500, "rtt_ms": 0.2, "connect_s": 0.3, "ceiling_Bps": None}
SSH = {"cipher": "aes128-gcm@openssh.com", "mac": "implicit", "compression": "none"}
PLAIN = {"cipher": "chacha20-poly1305@openssh.com", "mac": "implicit", "compression": "none"}
VARIANT = {"ssh_options": [], "compression": False, "cipher": None, "mac": None}
VARIANTS = [
    {**VARIANT, "negotiated": PLAIN},
    {**VARIANT, "compression": True, "negotiated": {**PLAIN, "compression": "zlib@openssh.com"}},
    {**VARIANT, "ssh_options": ["Ciphers=x"], "negotiated": SSH},
]


def make_plan(**overrides: Any) -> plans.Plan:
    return plans.make_plan(
        profile={
            "blocks": 2,
            "warmups": 1,
            "timeout_s": 60,
            "datasets": [{"name": "mine", "path": "/srv/mine"}],
            "methods": [
                {"label": "tar|ssh", "module": "tar_ssh", "args": {"ssh_options": ["Ciphers=x"]}},
                *({"label": f"m{n}", "module": "scp", "args": {"ssh_compression": True}} for n in range(9)),
            ],
        },
        profile_name="test",
        overrides=overrides,
        links=[
            {
                "name": "one",
                "source": "a",
                "target": "b",
                "address": "198.18.1.2",
                "ssh_port": 2222,
                "ssh_options": ["Ciphers=y"],
            }
        ],
        hosts={"a": plans.Host("198.18.0.1"), "b": plans.Host("198.18.0.2", scratch_dir="/scratch")},
        standard_methods=[],
        seed=11,
    )


class Bench:
    """A campaign on disk, and the action on top of a host that does what it is told."""

    def __init__(self, path: Path) -> None:
        self.plan = make_plan()
        self.campaign = Campaign.create(path, "c1", {})
        self.set(links={"one": {"status": "ok", "message": "", "link": LINK, "ssh_variants": VARIANTS}})
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.cells = list(self.plan.cells)

    def set(
        self,
        links: dict[str, Any] | None = None,
        trees: dict[str, Any] | None = None,
        space: dict[str, Any] | None = None,
        resumed: bool = False,
    ) -> None:
        tree = {"path": "/srv/mine", "files": 2, "directories": 1, "bytes": 100, "digest": "d"}
        tree.update(compressibility=1.0, compressibility_basis="zstd -1")
        self.campaign.save(
            {
                "schema": SCHEMA,
                "campaign_id": "c1",
                "resumed": resumed,
                "plan": self.plan.as_dict(),
                "prepared": {
                    "links": links or {"one": {"status": "ok", "message": "", "link": LINK, "ssh_variants": VARIANTS}},
                    "trees": trees or {"a:mine": {"status": "ok", "message": "", "tree": tree}},
                    "space": space or {},
                },
            }
        )

    def run(self, cell: plans.Cell, outcome: Any, check_mode: bool = False) -> dict[str, Any]:
        """C(outcome): what the module returns, or the exception that running it raises."""
        task = mock.MagicMock(
            args={"campaign": str(self.campaign.path), "run_id": cell.run_id, "scratch_token": "t"},
            check_mode=check_mode,
            async_val=0,
        )
        plugin = action.ActionModule(
            task=task,
            connection=mock.MagicMock(_shell=SimpleNamespace(tmpdir=None)),
            play_context=mock.MagicMock(),
            loader=mock.MagicMock(),
            templar=mock.MagicMock(),
            shared_loader_obj=mock.MagicMock(),
        )

        def execute(module_name: str, module_args: dict[str, Any], task_vars: dict[str, Any]) -> Any:
            self.calls.append((module_name, module_args))
            if isinstance(outcome, Exception):
                raise outcome
            return dict(outcome)

        with mock.patch.object(plugin, "_execute_module", side_effect=execute):
            result: dict[str, Any] = plugin.run(task_vars={})
        return result

    def rows(self) -> list[dict[str, Any]]:
        lines = (self.campaign.path / "runs.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(action.ActionModule, "_silent", {})
    monkeypatch.setattr(action.ActionModule, "_unwritable", {})
    monkeypatch.setattr(action.ActionModule, "_read", {})
    monkeypatch.setattr(action.ActionModule, "_decided", {})
    return Bench(tmp_path)


def record(status: str = "ok", **more: Any) -> dict[str, Any]:
    data = new_record()
    data.update(status=status, setup_s=0.0, wall_s=2.0, total_s=2.0, throughput_Bps=50.0, **more)
    data["method"].update(encrypted=True, streams=1, versions={"ssh": "9"}, paths={"ssh": "/usr/bin/ssh"})
    return data


def ok(**more: Any) -> dict[str, Any]:
    return {"changed": True, "record": record(**more), "ansible_facts": {"bulkcopy": {}}}


CRASH = {
    "failed": True,
    "_ansible_parsed": False,
    "msg": "Module result deserialization failed.",
    "module_stdout": "",
    "module_stderr": "Traceback\n" + "x" * 5000 + "MemoryError: {{ x }}\n",
    "rc": 1,
}


@pytest.mark.parametrize(
    ("outcome", "status", "message"),
    [
        (ok(), "ok", ""),
        ({"failed": True, "msg": "m", "record": record("corrupt", message="1 differs")}, "corrupt", "1 differs"),
        ({"failed": True, "msg": "scp: no {{ x }}", "record": record("failed")}, "failed", "scp: no {{ x }}"),
        ({"failed": True, "msg": "m", "record": record("timeout", message="60 s")}, "timeout", "60 s"),
        ({"failed": True, "msg": "m", "record": record("unsupported", message="no nc")}, "unsupported", "no nc"),
        ({"failed": True, "msg": "bad option", "exception": None}, "failed", "bad option"),
        ({"failed": True, "msg": "late", "record": record("ok")}, "failed", "late"),
        (CRASH, "failed", "MemoryError: {{ x }}"),
        ({"failed": True, "module_stdout": "not json", "module_stderr": "", "rc": 0}, "failed", "not json"),
        ({"changed": False}, "failed", "linkops.bulkcopy.{} returned no record of its run"),
        ({"unreachable": True, "msg": "no route"}, "unreachable", "no route"),
        (AnsibleConnectionFailure("no route"), "unreachable", "no route"),
        (AnsibleError("sudo: a password is required"), "failed", "sudo: a password is required"),
    ],
)
def test_every_outcome_is_exactly_one_row(bench: Bench, outcome: Any, status: str, message: str) -> None:
    cell = bench.cells[4]
    result = bench.run(cell, outcome)
    assert not result.get("failed")
    assert not result.get("unreachable")
    (row,) = bench.rows()
    assert (row["status"], result["status"]) == (status, status)
    expected = message.format("scp" if cell.label != "tar|ssh" else "tar_ssh") if "{}" in message else message
    assert row["message"].endswith(expected)
    assert len(row["message"]) < 1000
    assert set(row) == set(new_record())
    assert (row["run_id"], row["campaign_id"], row["block"]) == (cell.run_id, "c1", cell.block)


def test_lays_what_the_campaign_knows_over_the_record(bench: Bench) -> None:
    cell = next(cell for cell in bench.cells if cell.label == "tar|ssh" and not cell.warmup)
    bench.run(cell, ok())
    (row,) = bench.rows()
    assert row["link"] == {"name": "one", "source": "a", "target": "b", "address": "198.18.1.2", **LINK}
    assert row["dataset"] == {
        "name": "mine",
        "files": 2,
        "directories": 1,
        "bytes": 100,
        "linked_bytes": None,
        "compressibility": 1.0,
        "compressibility_basis": "zstd -1",
        "digest": "d",
    }
    assert row["method"] == {
        "label": "tar|ssh",
        "module": "linkops.bulkcopy.tar_ssh",
        "args": {"ssh_options": ["Ciphers=x"]},
        "encrypted": True,
        "streams": 1,
        "versions": {"ssh": "9"},
        "paths": {"ssh": "/usr/bin/ssh"},
        "ssh": SSH,
    }
    compressed = next(cell for cell in bench.cells if cell.label == "m0" and not cell.warmup)
    bench.run(compressed, ok())
    assert bench.rows()[1]["method"]["ssh"] == {**PLAIN, "compression": "zlib@openssh.com"}
    assert {key: row[key] for key in ("warmup", "block", "position", "replica", "seed", "scenario")} == {
        "warmup": False,
        "block": cell.block,
        "position": cell.position,
        "replica": 0,
        "seed": 11,
        "scenario": "full",
    }


def test_hands_the_module_its_options(bench: Bench) -> None:
    cell = next(cell for cell in bench.cells if cell.label == "tar|ssh")
    bench.run(cell, ok())
    ((module, args),) = bench.calls
    assert module == "linkops.bulkcopy.tar_ssh"
    assert args == {
        "src": "/srv/mine",
        "dest": "/scratch",
        "address": "198.18.1.2",
        "ssh_port": 2222,
        "source_name": "a",
        "target_name": "b",
        "scratch": True,
        "scratch_token": "t",
        "label": "tar|ssh",
        "timeout_s": 60,
        "verify": "sha256",
        "cache": "warm",
        "manifest": "/var/tmp/linkops-bulkcopy/data/mine.manifest",
        "ssh_options": ["Ciphers=x", "Ciphers=y"],
    }


@pytest.mark.parametrize(
    ("change", "flagged"),
    [
        ({"total_s": 1.49}, True),  # 0.3 s to connect are 20.1 %
        ({"total_s": 1.51}, False),
        ({"total_s": 1.0, "setup_s": 0.1, "encrypted": False}, False),  # its login was before the clock
        ({"total_s": 1.0, "setup_s": 0.3, "encrypted": False}, True),
    ],
)
def test_flags_what_is_mostly_set_up(bench: Bench, change: dict[str, Any], flagged: bool) -> None:
    data = record()
    data["method"]["encrypted"] = change.pop("encrypted", True)
    data.update(change)
    bench.run(bench.cells[0], {"record": data})
    assert ("setup-dominated" in bench.rows()[0]["flags"]) is flagged


@pytest.mark.parametrize(
    ("state", "status", "message"),
    [
        ({"links": {"one": {"status": "unreachable", "message": "source a: gone"}}}, "unreachable", "source a: gone"),
        ({"trees": {"a:mine": {"status": "failed", "message": "no tree"}}}, "failed", "no tree"),
        ({"space": {"one": {"a:mine": "no room"}}}, "failed", "no room"),
    ],
)
def test_what_could_not_be_prepared_is_not_tried(
    bench: Bench, state: dict[str, Any], status: str, message: str
) -> None:
    bench.set(**state)
    bench.run(bench.cells[0], AssertionError("must not run"))
    (row,) = bench.rows()
    assert (row["status"], row["message"], bench.calls) == (status, message, [])


def test_a_silent_source_is_tried_once_more_and_then_left_alone(bench: Bench) -> None:
    for cell in bench.cells:
        bench.run(cell, AnsibleConnectionFailure("timed out"))
    # 30 runs: the first, ten given up, one more try, and the rest given up
    assert len(bench.calls) == 2
    rows = bench.rows()
    assert [row["status"] for row in rows] == ["unreachable"] * 30
    tried = [number for number, row in enumerate(rows) if row["message"] == "timed out"]
    assert tried == [0, 11]
    assert rows[1]["message"].startswith("not tried: the source did not answer")


def test_a_source_that_comes_back_is_measured(bench: Bench) -> None:
    gone: Callable[[], Exception] = lambda: AnsibleConnectionFailure("timed out")  # noqa: E731
    for number, cell in enumerate(bench.cells[:15]):
        bench.run(cell, gone() if number < 11 else ok())
    assert [row["status"] for row in bench.rows()] == ["unreachable"] * 11 + ["ok"] * 4


def test_a_resumed_campaign_skips_what_is_ok(bench: Bench) -> None:
    bench.run(bench.cells[0], ok())
    bench.run(bench.cells[1], {"failed": True, "msg": "x"})
    bench.set(resumed=True)
    action.ActionModule._read.clear()
    assert bench.run(bench.cells[0], ok())["skipped"] is True
    bench.run(bench.cells[1], ok())
    assert [row["status"] for row in bench.rows()] == ["ok", "failed", "ok"]


def test_check_mode_writes_no_row(bench: Bench) -> None:
    stages = [{"end": "source", "argv": ["tar", "cf"]}, {"end": "target", "argv": ["tar", "xf"]}]
    result = bench.run(bench.cells[0], {"changed": True, "record": record("planned", stages=stages)}, check_mode=True)
    assert not (bench.campaign.path / "runs.jsonl").exists()
    assert (result["status"], result["argv"]) == ("planned", [["tar", "cf"], ["tar", "xf"]])


def test_an_unknown_run_fails(bench: Bench) -> None:
    cell = bench.cells[0]
    result = bench.run(plans.Cell(**{**vars(cell), "run_id": "0" * 16}), ok())
    assert result["failed"] is True


def test_hands_on_the_interpreter_and_no_other_fact(bench: Bench) -> None:
    outcome = {**ok(), "ansible_facts": {"bulkcopy": {"x": 1}, "discovered_interpreter_python": "/usr/bin/python3"}}
    assert bench.run(bench.cells[0], outcome)["ansible_facts"] == {"discovered_interpreter_python": "/usr/bin/python3"}


def test_a_killed_playbook_leaves_nothing_at_work(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """kill -9 of ansible-playbook does not reach the process in which the runs of a link are made."""
    monkeypatch.setattr(action, "end_orphan", mock.Mock(side_effect=SystemExit))
    with pytest.raises(SystemExit):
        bench.run(bench.cells[0], {"record": new_record()})
    assert bench.calls == []
    assert not (bench.campaign.path / "runs.jsonl").exists()


def test_what_cannot_be_recorded_is_not_run(bench: Bench) -> None:
    (bench.campaign.path / "runs.jsonl").symlink_to("/dev/full")
    first = bench.run(bench.cells[0], {"record": {**new_record(), "status": "ok"}})
    assert (first["status"], first["tried"]) == ("failed", True)
    assert "runs.jsonl: No space left on device" in first["message"]
    second = bench.run(bench.cells[1], {"record": {**new_record(), "status": "ok"}})
    assert (second["status"], second["tried"]) == ("failed", False)
    assert "not tried: cannot write" in second["message"]
    assert len(bench.calls) == 1


def test_any_output_shows_why_a_run_did_not_end_well(bench: Bench) -> None:
    good = bench.run(bench.cells[0], {"record": {**new_record(), "status": "ok"}})
    bad = bench.run(bench.cells[1], {"failed": True, "msg": "no", "record": {**new_record(), "status": "failed"}})
    assert "_ansible_verbose_always" not in good
    assert bad["_ansible_verbose_always"] is True
    assert not bad.get("failed")


def test_blocks_end_when_the_intervals_are_narrow(bench: Bench) -> None:
    bench.plan = plans.make_plan(
        profile={
            "blocks": 3,
            "max_blocks": 5,
            "warmups": 0,
            "replica": False,
            "datasets": [{"name": "mine", "path": "/srv/mine"}],
            "methods": [{"label": "one", "module": "scp"}, {"label": "two", "module": "scp"}],
        },
        profile_name="test",
        overrides={},
        links=[{"name": "one", "source": "a", "target": "b"}],
        hosts={"a": plans.Host("198.18.0.1"), "b": plans.Host("198.18.0.2")},
        standard_methods=[],
        seed=1,
    )
    bench.set()
    seconds = {"one": [1.0, 1.2, 0.9, 1.0, 1.0], "two": [2.0, 1.7, 2.2, 2.0, 2.0]}  # far apart, and wide
    results = []
    for cell in bench.plan.cells:
        given = record()
        given["total_s"] = seconds[cell.label][cell.block - 1]
        results.append(bench.run(cell, {"record": given, "changed": True}))
    assert len(bench.calls) == 2 * 5

    bench.calls.clear()
    (bench.campaign.path / "runs.jsonl").unlink()
    action.ActionModule._decided.clear()
    results = []
    for cell in bench.plan.cells:
        given = record()
        given["total_s"] = {"one": 1.0, "two": 2.0}[cell.label] * (1 + 0.001 * (cell.block % 2))
        results.append(bench.run(cell, {"record": given, "changed": True}))
    assert len(bench.calls) == len(bench.rows()) == 2 * 3
    assert [result.get("skipped", False) for result in results] == [False] * 6 + [True] * 4
    assert "every interval is within 5 %" in results[-1]["msg"]
    noted = bench.campaign.journal()["blocks", "one\nmine\nfull"]
    assert noted["last"] == 3


def test_a_copy_of_hard_cases_is_asked_what_became_of_them(bench: Bench) -> None:
    bench.plan = make_plan(scenarios=["fidelity"], require=["hardlinks"])
    tree = {"path": "/srv/fidelity", "files": 90, "directories": 40, "bytes": 100, "digest": "d"}
    bench.set(trees={"a:fidelity": {"status": "ok", "message": "", "tree": tree}})
    cell = bench.plan.cells[0]
    cases = [
        {"id": name, "what": "", "names": 1, "kept": outcome == "kept", "outcome": outcome, "detail": ""}
        for name, outcome in (("hardlinks", "kept"), ("acls", "lost"), ("owners", "not-made"))
    ]
    given = ok(fidelity={"cases": cases})
    result = bench.run(cell, given)
    assert (bench.calls[0][1]["fidelity"], bench.calls[0][1]["src"]) == (
        True,
        "/var/tmp/linkops-bulkcopy/data/fidelity",
    )
    assert (result["blocks"], result["kept"]) == (1, "1 of 2 cases")
    (row,) = bench.rows()
    assert (row["scenario"], row["fidelity"], row["dataset"]["files"]) == ("fidelity", {"cases": cases}, 90)
    # a login of 0.3 s in a copy of 0.4 s says nothing of it
    given["record"]["total_s"] = 0.4
    bench.run(bench.plan.cells[1], given)
    assert "setup-dominated" not in bench.rows()[1]["flags"]


def test_other_copies_are_not_asked(bench: Bench) -> None:
    assert bench.run(bench.cells[0], ok())["kept"] is None
    assert "fidelity" not in bench.calls[0][1]
