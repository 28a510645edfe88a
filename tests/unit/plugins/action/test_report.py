# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from ansible_collections.linkops.bulkcopy.plugins.action import report as action
from ansible_collections.linkops.bulkcopy.plugins.module_utils._record import new_record
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import plan as plans
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.results import SCHEMA, Campaign


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(action, "display", SimpleNamespace(display=lines.append))
    return lines


@pytest.fixture
def results(tmp_path: Path) -> Path:
    plan = plans.make_plan(
        profile={
            "blocks": 1,
            "warmups": 0,
            "datasets": [{"name": "mine", "path": "/x"}],
            "methods": [{"label": "{{ 7 * 7 }}", "module": "scp"}, {"label": "b", "module": "scp"}],
        },
        profile_name="test",
        overrides={},
        links=[{"name": "one", "source": "a", "target": "b"}],
        hosts={"a": plans.Host("1"), "b": plans.Host("2")},
        standard_methods=[],
        seed=1,
    )
    campaign = Campaign.create(
        tmp_path,
        "c1",
        {
            "schema": SCHEMA,
            "campaign_id": "c1",
            "profile": "test",
            "plan": plan.as_dict(),
            "prepared": {"links": {"one": {"link": {"connect_s": 0.25}}}},
        },
    )
    for number, cell in enumerate(plan.cells):
        row = new_record()
        row.update(run_id=cell.run_id, status="ok", total_s=1.0 + number)
        row["link"]["name"] = "one"
        row["method"].update(label=cell.label, encrypted=True)
        campaign.append_row(row)
    return tmp_path


def call(results: Path, check_mode: bool = False, **args: Any) -> dict[str, Any]:
    plugin = action.ActionModule(
        task=mock.MagicMock(args={"results_dir": str(results), **args}, check_mode=check_mode, async_val=0),
        connection=mock.MagicMock(_shell=SimpleNamespace(tmpdir=None)),
        play_context=mock.MagicMock(),
        loader=mock.MagicMock(),
        templar=mock.MagicMock(),
        shared_loader_obj=mock.MagicMock(),
    )
    result: dict[str, Any] = plugin.run(task_vars={})
    return result


def test_writes_and_prints_the_latest_campaign(results: Path, shown: list[str]) -> None:
    result = call(results)
    folder = results / "c1"
    assert {p.name for p in folder.iterdir()} == {
        "campaign.json",
        "runs.jsonl",
        "summary.json",
        "summary.csv",
        "report.md",
        "report.html",
    }
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["links"][0]["connect_s"] == 0.25
    assert "{{ 7 * 7 }}" in shown[0]
    assert shown[-1] == f"2 of 2 planned runs ended ok. Results: {folder}"
    facts = result["facts"]["a"]["links"]["one"]
    assert len(facts["records"]) == 2
    assert facts["verdicts"] == summary["links"][0]["results"]


def test_takes_a_folder_or_an_id(results: Path, shown: list[str]) -> None:
    assert call(results, campaign="c1")["campaign_id"] == "c1"
    assert call(Path("/nowhere"), campaign=str(results / "c1"))["campaign_id"] == "c1"
    assert "there is no campaign c9" in call(results, campaign="c9")["msg"]


def test_check_mode_prints_only(results: Path, shown: list[str]) -> None:
    call(results, check_mode=True)
    assert shown
    assert not (results / "c1" / "summary.json").exists()


def test_the_link_as_it_was_before_and_after() -> None:
    one = {
        "link": {"rtt_ms": 1.0, "ceiling_Bps": 10},
        "flags": ["shell-not-clean"],
        "source": {"hostname": "h", "fingerprint": {"kernel": "6.1"}},
        "target": {"hostname": "h"},
    }
    prepared = {"links": {"one": one, "dead": {"status": "unreachable"}}}
    after = {"rtt_ms": 2.0, "ceiling_Bps": 8, "connect_s": 0.3}
    assert action.link_facts(prepared, {("link-again", "one"): {"result": {"link": after}}}) == {
        "one": {
            "rtt_ms": 1.0,
            "ceiling_Bps": 10,
            "flags": ["shell-not-clean"],
            "rtt_end_ms": 2.0,
            "ceiling_end_Bps": 8,
            "connect_end_s": 0.3,
            "fingerprints": {"source": {"kernel": "6.1"}},
        },
        "dead": {"flags": [], "rtt_end_ms": None, "ceiling_end_Bps": None, "connect_end_s": None, "fingerprints": {}},
    }


@pytest.fixture
def hard(tmp_path: Path) -> Path:
    """A campaign in which b keeps hard links and a does not."""
    plan = plans.make_plan(
        profile={
            "blocks": 1,
            "warmups": 0,
            "scenarios": ["full", "fidelity"],
            "datasets": [{"name": "mine", "path": "/x"}],
            "methods": [{"label": "a", "module": "scp"}, {"label": "b", "module": "scp"}],
        },
        profile_name="test",
        overrides={},
        links=[{"name": "one", "source": "a", "target": "b"}],
        hosts={"a": plans.Host("1"), "b": plans.Host("2")},
        standard_methods=[],
        seed=1,
    )
    content = {"schema": SCHEMA, "campaign_id": "c2", "profile": "test", "plan": plan.as_dict()}
    campaign = Campaign.create(tmp_path, "c2", content)
    for cell in plan.cells:
        row = new_record()
        row.update(run_id=cell.run_id, status="ok", total_s=1.0 if cell.label == "a" else 2.0)
        row["link"]["name"] = "one"
        row["method"].update(label=cell.label, encrypted=True)
        if cell.scenario == "fidelity":
            case = {"id": "hardlinks", "what": "two names of one file", "names": 4, "detail": ""}
            case.update({"kept": 0, "outcome": "lost"} if cell.label == "a" else {"kept": 4, "outcome": "kept"})
            row["fidelity"] = {"cases": [case]}
        campaign.append_row(row)
    return tmp_path


def test_another_requirement_may_be_made_with_the_report(hard: Path, shown: list[str]) -> None:
    assert call(hard)["facts"]["a"]["links"]["one"]["verdicts"][0]["recommended"] == "a"
    result = call(hard, require=["hardlinks"])
    one = result["facts"]["a"]["links"]["one"]
    assert one["verdicts"][0]["recommended"] == "b"
    assert one["fidelity"]["reason"] == "what is required (hardlinks) is kept by b"
    assert "disqualified: does not keep hardlinks: 0 of 4 names kept, lost" in shown[2]


def test_a_requirement_that_was_not_measured_is_refused(results: Path, hard: Path, shown: list[str]) -> None:
    assert "campaign c1 did not measure what methods keep" in call(results, campaign="c1", require=["acls"])["msg"]
    assert "there is no 'acl' that a copy could keep or lose" in call(hard, require=["acl"])["msg"]
    # it was to be measured, and the record has no such case
    verdicts = call(hard, require=["acls"])["facts"]["a"]["links"]["one"]["verdicts"]
    assert verdicts[0]["recommended"] is None
    assert "acls could not be measured: there is no such case in its record" in verdicts[0]["reason"]
