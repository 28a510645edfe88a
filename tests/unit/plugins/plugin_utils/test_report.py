# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import csv
import dataclasses
import io
import json
from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils._record import new_record
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import plan as plans
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import report

# What DESIGN section 7 lists.
METHOD_KEYS = {
    "label",
    "module",
    "args",
    "n",
    "median_s",
    "ci_s",
    "ratio_to_best",
    "ratio_ci",
    "throughput_Bps",
    "efficiency",
    "cpu_s_per_GB",
    "cpu_percent",
    "verdict",
    "provisional",
    "reason",
    "flags",
}
LABELS = ("tar|nc", "tar|ssh", "a method with a very long label indeed", "scp -O", "scp")
# Seconds of each method in blocks 1 to 3; 100 MB each.
SECONDS = {
    "tar|nc": (10.0, 10.2, 10.1),
    "tar|ssh": (10.1, 10.3, 10.2),
    "a method with a very long label indeed": (20.0, 20.5, 20.2),
    "scp": (12.0, 12.4, 12.2),
}


def make_plan() -> plans.Plan:
    return plans.make_plan(
        profile={
            "blocks": 3,
            "datasets": [{"name": "mine", "path": "/srv/mine"}],
            "methods": [{"label": label, "module": "scp", "args": {}} for label in LABELS],
        },
        profile_name="test",
        overrides={},
        links=[
            {"name": "good", "source": "a", "target": "b"},
            {"name": "dead", "source": "c", "target": "b"},
        ],
        hosts={"a": plans.Host("198.18.0.1"), "b": plans.Host("198.18.0.2"), "c": plans.Host("198.18.0.3")},
        standard_methods=[],
        seed=7,
    )


def make_rows(plan: plans.Plan) -> list[dict[str, Any]]:
    rows = []
    for cell in plan.cells:
        row = new_record()
        row.update(run_id=cell.run_id, status="ok", block=cell.block, warmup=cell.warmup)
        row["link"]["name"] = cell.link
        row["dataset"].update(name="mine", files=3, bytes=100_000_000)
        row["method"].update(label=cell.label, encrypted=cell.label != "tar|nc")
        if cell.link == "dead":
            row.update(status="unreachable", message="source c: did not answer: no route\nto host")
        elif cell.label == "scp -O":
            row.update(status="failed", message="scp: {{ gone }} | `x`\nsecond line")
        elif cell.warmup:
            row["total_s"] = 999.0
        else:
            row["total_s"] = SECONDS[cell.label][cell.block - 1]
            row["cpu"]["source"] = {"user_s": 1.0, "system_s": 0.5, "percent": 15.0, "basis": "rusage"}
            row["flags"] = ["setup-dominated"] if cell.label == "scp" else []
            if cell.label == "tar|ssh":
                row["cpu"]["target"] = {"user_s": 0.2, "system_s": 0.3, "percent": 5.0, "basis": "sshd-children"}
        rows.append(row)
    return rows


@pytest.fixture
def summary() -> report.Summary:
    plan = make_plan()
    facts = {"good": {"rtt_ms": 0.2, "connect_s": 0.3, "ceiling_Bps": 12_000_000.0}}
    return report.summarise("c1", "test", plan, make_rows(plan), facts)


def test_summary_has_the_keys_of_the_design(summary: report.Summary) -> None:
    data = json.loads(json.dumps(summary.as_dict()))
    assert set(data) == {"schema", "campaign_id", "links"}
    for link in data["links"]:
        assert set(link) == {"name", "ceiling_Bps", "rtt_ms", "connect_s", "results"}
        for result in link["results"]:
            assert set(result) == {"dataset", "scenario", "methods", "recommended", "reason"}
            assert sorted(method["label"] for method in result["methods"]) == sorted(LABELS)
            for method in result["methods"]:
                assert set(method) == METHOD_KEYS
                assert set(method["cpu_s_per_GB"]) == set(method["cpu_percent"]) == {"source", "target"}
                assert method["provisional"] is True


def test_figures(summary: report.Summary) -> None:
    methods = {method["label"]: method for method in summary.as_dict()["links"][0]["results"][0]["methods"]}
    ssh = methods["tar|ssh"]
    assert (ssh["n"], ssh["median_s"]) == (3, 10.2)  # warm-ups count for nothing
    assert ssh["throughput_Bps"] == pytest.approx(100e6 / 10.2, rel=1e-5)
    assert ssh["efficiency"] == pytest.approx(100e6 / 10.2 / 12e6, rel=1e-5)
    assert ssh["ratio_to_best"] == pytest.approx((10.1 * 10.3 * 10.2 / (10.0 * 10.2 * 10.1)) ** (1 / 3), rel=1e-5)
    assert ssh["ratio_ci"][0] < ssh["ratio_to_best"] < ssh["ratio_ci"][1]
    assert ssh["cpu_s_per_GB"] == {"source": 15.0, "target": 5.0}
    assert methods["scp"]["cpu_s_per_GB"] == {"source": 15.0, "target": None}
    assert {label: method["verdict"] for label, method in methods.items()} == {
        "tar|nc": "best",
        "tar|ssh": "equivalent",
        "scp": "slower",
        "a method with a very long label indeed": "slower",
        "scp -O": "disqualified",
    }
    assert methods["scp -O"]["reason"] == "3 of 3 runs failed: scp: {{ gone }} | `x`"
    assert methods["scp -O"]["median_s"] is None


def test_recommends_what_is_encrypted(summary: report.Summary) -> None:
    good, dead = summary.links
    assert good.results[0].recommended == "tar|ssh"
    assert (dead.results[0].recommended, dead.results[0].reason) == (None, "no method was measured")


def test_one_corrupt_run_disqualifies() -> None:
    plan = make_plan()
    rows = make_rows(plan)
    bad = next(cell for cell in plan.cells if cell.label == "tar|nc" and cell.block == 2 and not cell.warmup)
    next(row for row in rows if row["run_id"] == bad.run_id).update(status="corrupt", message="1 file differs")
    methods = {m.label: m for m in report.summarise("c", "p", plan, rows, {}).links[0].results[0].methods}
    assert methods["tar|nc"].verdict == "disqualified"
    assert methods["tar|nc"].reason == "1 of 3 runs corrupt: 1 file differs"
    assert methods["tar|nc"].n == 2
    assert methods["tar|nc"].median_s == pytest.approx(10.05)
    assert methods["tar|ssh"].verdict == "best"


def test_an_unreachable_moment_is_not_the_methods_fault() -> None:
    plan = make_plan()
    rows = make_rows(plan)
    bad = next(cell for cell in plan.cells if cell.label == "tar|nc" and cell.block == 2 and not cell.warmup)
    next(row for row in rows if row["run_id"] == bad.run_id).update(status="unreachable", message="gone")
    result = report.summarise("c", "p", plan, rows, {}).links[0].results[0]
    assert (result.blocks, result.methods[0].label, result.methods[0].n) == (2, "tar|nc", 2)
    assert result.methods[0].reason.startswith("2 complete blocks;")


def test_noise_floor_from_the_copies() -> None:
    plan = plans.make_plan(
        profile={
            "blocks": 5,
            "warmups": 0,
            "datasets": [{"name": "mine", "path": "/x"}],
            "methods": [{"label": "m", "module": "scp"}],
        },
        profile_name="t",
        overrides={},
        links=[{"name": "l", "source": "a", "target": "b"}],
        hosts={"a": plans.Host("1"), "b": plans.Host("2")},
        standard_methods=[],
        seed=1,
    )
    rows = []
    for cell in plan.cells:
        row = new_record()
        row.update(run_id=cell.run_id, status="ok", total_s=1.02 if cell.replica else 1.0)
        rows.append(row)
    result = report.summarise("c", "p", plan, rows, {}).links[0].results[0]
    assert result.noise_floor == pytest.approx(0.02)
    assert result.methods[0].n == 5


def test_table_fits_and_says_everything(summary: report.Summary) -> None:
    table = report.table(summary)
    assert max(len(line) for line in table.splitlines()) <= 100
    assert "PROVISIONAL" in table
    assert "1  tar|nc" in table
    assert "a method with a ver~" in table
    assert "disqualified: 3 of 3 runs failed: scp: {{ gone }} | `x`" in table
    assert "=> use tar|ssh: as fast as the best and encrypted" in table
    assert "not measured: 3 of 3 runs unreachable: source c: did not answer: no route" in table
    assert "a setup-dominated: set-up takes over 20 %" in table


def test_every_table_fits_in_100_columns() -> None:
    method = report.MethodResult(
        label="x" * 60,
        module="m",
        args={},
        n=999,
        median_s=99999.999,
        ci_s=None,
        ratio_to_best=123.45,
        ratio_ci=(100.01, 150.99),
        throughput_Bps=12345.6e6,
        efficiency=None,
        cpu_s_per_GB={"source": None, "target": None},
        cpu_percent={"source": 6400.0, "target": 6400.0},
        verdict="equivalent",
        provisional=True,
        reason="",
        flags=("one", "two", "three"),
        encrypted=True,
    )
    result = report.Result("d", "full", 1, 1, 3, None, 12, (method,), None, "y" * 150)
    link = report.LinkResult("l" * 40, "s" * 40, "t" * 40, "a" * 20, None, None, None, (result,))
    table = report.table(report.Summary("c", "p", (link,), (), 1, 1))
    assert max(len(line) for line in table.splitlines()) <= 100


def test_missing_names_links_and_methods(summary: report.Summary) -> None:
    good, dead = summary.missing
    assert good == "link good, mine, scp -O: 4 runs failed: scp: {{ gone }} | `x`"
    assert dead == ("link dead: none of its 20 runs was measured (unreachable: source c: did not answer: no route)")
    assert (summary.ok, summary.planned) == (16, 40)


def test_missing_sees_runs_that_were_never_made() -> None:
    plan = make_plan()
    rows = [row for row in make_rows(plan) if row["link"]["name"] == "good" and row["block"] != 3]
    found = report.summarise("c", "p", plan, rows, {}).missing
    assert "link good, mine, 5 methods: 5 runs not run" in found
    assert "link dead: none of its 20 runs was measured (no run was made)" in found


def test_csv_reads_back(summary: report.Summary) -> None:
    lines = list(csv.DictReader(io.StringIO(report.as_csv(summary))))
    assert len(lines) == 10
    first = lines[0]
    assert (first["link"], first["label"], first["verdict"], first["median_s"]) == ("good", "tar|nc", "best", "10.1")
    assert [line["label"] for line in lines if line["recommended"] == "True"] == ["tar|ssh"]
    assert {line["median_s"] for line in lines if line["link"] == "dead"} == {""}


def test_markdown_tables_survive_odd_characters(summary: report.Summary) -> None:
    text = report.markdown(dataclasses.replace(summary, profile="./my_own_profile.yml"))
    assert "Profile ./my\\_own\\_profile.yml; " in text
    assert "tar\\|nc" in text
    assert "\\{\\{ gone \\}\\} \\| \\`x\\`" in text
    head = next(line for line in text.splitlines() if line.startswith("| #"))
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.replace("\\|", "").count("|") == head.count("|"), line
