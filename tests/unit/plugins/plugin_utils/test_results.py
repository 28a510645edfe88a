# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import multiprocessing
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import results


def row(run_id: str, status: str = "ok", **more: Any) -> dict[str, Any]:
    return {"run_id": run_id, "status": status, **more}


@pytest.fixture
def campaign(tmp_path: Path) -> results.Campaign:
    return results.Campaign.create(tmp_path, "c1", {"schema": results.SCHEMA, "campaign_id": "c1"})


def test_create_open_and_latest(tmp_path: Path, campaign: results.Campaign) -> None:
    assert os.readlink(tmp_path / "latest") == "c1"
    results.Campaign.create(tmp_path, "c2", {"schema": results.SCHEMA, "campaign_id": "c2"})
    assert os.readlink(tmp_path / "latest") == "c2"
    assert results.Campaign.open(tmp_path, "latest").load()["campaign_id"] == "c2"
    assert results.Campaign.open(tmp_path, "c1").load()["campaign_id"] == "c1"
    with pytest.raises(results.ResultsError, match=r"there is no campaign c3 in .*: there are c1, c2"):
        results.Campaign.open(tmp_path, "c3")
    with pytest.raises(results.ResultsError, match="exists already"):
        results.Campaign.create(tmp_path, "c1", {})


def test_a_file_named_latest_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "latest").write_text("mine")
    results.Campaign.create(tmp_path, "c1", {"schema": results.SCHEMA})
    assert (tmp_path / "latest").read_text() == "mine"


def test_an_id_is_no_path(tmp_path: Path, campaign: results.Campaign) -> None:
    with pytest.raises(results.ResultsError):
        results.Campaign.open(tmp_path / "c1", "../c1")


def test_ids_sort_by_time() -> None:
    name = results.new_campaign_id(datetime(2026, 1, 31, 14, 25, 1, tzinfo=UTC))
    assert name.startswith("20260131-142501-")
    assert len(name) == 20


def test_unknown_schema_is_refused(tmp_path: Path, campaign: results.Campaign) -> None:
    campaign.save({"schema": 1})  # its plans know nothing of blocks that are added
    with pytest.raises(results.ResultsError, match="is of schema 1, and this version of the collection reads 2 only"):
        campaign.load()


@pytest.mark.parametrize("torn", [b'{"run_id": "r2", "sta', b"\xff\xfe{", b'"text"\n', b"[1]\n", b"\n\n"])
def test_a_torn_line_costs_itself_only(campaign: results.Campaign, torn: bytes) -> None:
    campaign.append_row(row("r1"))
    with (campaign.path / "runs.jsonl").open("ab") as file:
        file.write(torn)
    assert [r["run_id"] for r in campaign.rows()] == ["r1"]
    campaign.append_row(row("r3"))
    assert [r["run_id"] for r in campaign.rows()] == ["r1", "r3"]


def _append(path: str, worker: int) -> None:
    for number in range(50):
        results.Campaign(Path(path)).append_row(row(f"{worker}-{number}", text="x" * 20_000))


def test_processes_append_whole_lines(campaign: results.Campaign) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_append, args=(str(campaign.path), n)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    lines = (campaign.path / "runs.jsonl").read_bytes().splitlines()
    assert len(lines) == 200
    assert {json.loads(line)["run_id"] for line in lines} == {f"{w}-{n}" for w in range(4) for n in range(50)}


def test_resume_repeats_what_is_not_ok(campaign: results.Campaign) -> None:
    for one in (
        row("a", "failed"),
        row("a"),
        row("b", "unreachable"),
        row("c"),
        row("c", "failed"),
        row("d", "failed"),
    ):
        campaign.append_row(one)
    assert campaign.finished() == {"a", "c"}
    assert {r["run_id"]: r["status"] for r in campaign.rows()} == {
        "a": "ok",
        "b": "unreachable",
        "c": "ok",
        "d": "failed",
    }


def test_text_is_kept_as_it_is(campaign: results.Campaign) -> None:
    campaign.append_row(row("a", message="{{ x }} ü \n \\xe9 \udce9"))
    (found,) = campaign.rows()
    assert found["message"] == "{{ x }} ü \n \\xe9 \\udce9"


def test_journal_keeps_the_last_outcome(campaign: results.Campaign) -> None:
    campaign.note("reach", "a", {"status": "unreachable", "message": "x"})
    campaign.note("reach", "a", {"status": "ok", "message": ""})
    assert campaign.journal()["reach", "a"]["status"] == "ok"
    campaign.note("blocks", "l", {"last": 4})
    campaign.restart_journal([campaign.journal()["blocks", "l"]])
    assert campaign.journal() == {("blocks", "l"): {"step": "blocks", "key": "l", "last": 4}}
    campaign.restart_journal([])
    assert campaign.journal() == {}


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "x.json"
    results.write_json(target, {"a": 1})
    with pytest.raises(TypeError):
        results.write_json(target, {"a": object()})
    assert json.loads(target.read_text()) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]
