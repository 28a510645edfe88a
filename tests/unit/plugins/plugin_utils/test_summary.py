# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils._record import new_record
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import plan as plans
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import summary as summaries

from .conftest import LABELS, make_plan, make_rows

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


def test_summary_has_the_keys_of_the_design(summary: summaries.Summary) -> None:
    data = json.loads(json.dumps(summary.as_dict()))
    assert set(data) == {"schema", "campaign_id", "links"}
    for link in data["links"]:
        assert set(link) >= {"name", "ceiling_Bps", "rtt_ms", "connect_s", "results"}
        for result in link["results"]:
            assert set(result) >= {"dataset", "scenario", "methods", "recommended", "reason"}
            assert sorted(method["label"] for method in result["methods"]) == sorted(LABELS)
            for method in result["methods"]:
                assert set(method) >= METHOD_KEYS
                assert set(method["cpu_s_per_GB"]) == set(method["cpu_percent"]) == {"source", "target"}
                assert method["provisional"] is True


def test_figures(summary: summaries.Summary) -> None:
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


def test_recommends_what_is_encrypted(summary: summaries.Summary) -> None:
    good, dead = summary.links
    assert good.results[0].recommended == "tar|ssh"
    assert (dead.results[0].recommended, dead.results[0].reason) == (None, "no method was measured")


def test_one_corrupt_run_disqualifies() -> None:
    plan = make_plan()
    rows = make_rows(plan)
    bad = next(cell for cell in plan.cells if cell.label == "tar|nc" and cell.block == 2 and not cell.warmup)
    next(row for row in rows if row["run_id"] == bad.run_id).update(status="corrupt", message="1 file differs")
    methods = {m.label: m for m in summaries.summarise("c", "p", plan, rows, {}).links[0].results[0].methods}
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
    result = summaries.summarise("c", "p", plan, rows, {}).links[0].results[0]
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
    result = summaries.summarise("c", "p", plan, rows, {}).links[0].results[0]
    assert result.noise_floor == pytest.approx(0.02)
    assert result.methods[0].n == 5


def test_missing_names_links_and_methods(summary: summaries.Summary) -> None:
    good, dead = summary.missing
    assert good == "link good, mine, scp -O: 4 runs failed: scp: {{ gone }} | `x`"
    assert dead == ("link dead: none of its 20 runs was measured (unreachable: source c: did not answer: no route)")
    assert (summary.ok, summary.planned) == (16, 40)


def test_missing_sees_runs_that_were_never_made() -> None:
    plan = make_plan()
    rows = [row for row in make_rows(plan) if row["link"]["name"] == "good" and row["block"] != 3]
    found = summaries.summarise("c", "p", plan, rows, {}).missing
    assert "link good, mine, 5 methods: 5 runs not run" in found
    assert "link dead: none of its 20 runs was measured (no run was made)" in found
