# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils._record import new_record
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import blocks
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
    assert set(data) >= {"schema", "campaign_id", "links"}
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


def campaign(seconds: Callable[[str, int], float], **profile: Any) -> tuple[plans.Plan, list[dict[str, Any]]]:
    """A link on which each of three methods takes C(seconds(label, block))."""
    plan = plans.make_plan(
        profile={
            "blocks": 12,
            "warmups": 0,
            "replica": False,
            "datasets": [{"name": "mine", "path": "/x"}],
            "methods": [{"label": label, "module": "scp"} for label in ("one", "two", "three")],
            **profile,
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
        row.update(run_id=cell.run_id, status="ok", total_s=seconds(cell.label, cell.block), scenario=cell.scenario)
        row["dataset"].update(files=10, bytes=1000, compressibility=1.0)
        row["method"]["encrypted"] = True
        rows.append(row)
    return plan, rows


#: A percent up and down, so that nothing is constant.
WAVE = (1.0, 1.01, 0.99)


def test_an_outlier_is_flagged_and_kept() -> None:
    chance = random.Random(4)
    plan, rows = campaign(
        lambda label, block: math.exp(chance.gauss(0, 0.01)) * (1.5 if (label, block) == ("two", 7) else 1.0)
    )
    methods = {m.label: m for m in summaries.summarise("c", "p", plan, rows, {}).links[0].results[0].methods}
    # 41 times the noise; the test itself takes a run in thirty of normal noise for one, at so few blocks
    assert 7 in methods["two"].outliers
    assert 7 not in methods["one"].outliers + methods["three"].outliers
    assert "outliers" in methods["two"].flags
    assert methods["two"].n == 12


def test_drift_is_flagged_where_it_is_more_than_what_counts_as_none() -> None:
    for step, flags in ((0.02, ("drift",)), (0.001, ())):
        plan, rows = campaign(lambda label, block, step=step: (1 + step) ** block * (1 + len(label) / 10))
        result = summaries.summarise("c", "p", plan, rows, {}).links[0].results[0]
        assert result.drift == pytest.approx((1 + step) ** 11 - 1)
        assert result.flags == flags


@pytest.mark.parametrize(
    ("after", "flags"), [(10.9e6, ()), (11.1e6, ("ceiling-changed",)), (9.0e6, ("ceiling-changed",))]
)
def test_a_ceiling_that_has_changed_is_flagged(after: float, flags: tuple[str, ...]) -> None:
    plan, rows = campaign(lambda label, block: 1.0)
    facts = {"l": {"ceiling_Bps": 10.0e6, "ceiling_end_Bps": after, "rtt_ms": 1.0, "rtt_end_ms": 1.5}}
    link = summaries.summarise("c", "p", plan, rows, facts).links[0]
    assert link.flags == flags
    assert (link.ceiling_end_Bps, link.rtt_end_ms) == (after, 1.5)


def test_a_ceiling_that_was_not_measured_again_says_so() -> None:
    plan, rows = campaign(lambda label, block: 1.0)
    facts = {"l": {"ceiling_Bps": 10.0e6, "ceiling_end_Bps": None}}
    assert summaries.summarise("c", "p", plan, rows, facts).links[0].flags == ("ceiling-once",)
    facts = {"l": {"ceiling_Bps": None, "ceiling_end_Bps": None}}  # none was asked for
    assert summaries.summarise("c", "p", plan, rows, facts).links[0].flags == ()


def test_why_there_is_no_ceiling_is_said() -> None:
    plan, rows = campaign(lambda label, block: 1.0)
    facts = {"l": {"ceiling_Bps": None, "ceiling_end_Bps": None, "flags": ["no-iperf3"]}}
    assert summaries.summarise("c", "p", plan, rows, facts).links[0].flags == ("no-iperf3",)


def test_a_resumed_campaign_has_the_ceilings_of_all_its_parts() -> None:
    plan, rows = campaign(lambda label, block: 1.0)
    rows[0]["link"]["ceiling_Bps"] = 5.0e6
    facts = {"l": {"ceiling_Bps": 10.0e6, "ceiling_end_Bps": 10.0e6}}
    assert summaries.summarise("c", "p", plan, rows, facts).links[0].flags == ("ceiling-changed",)


def test_an_empty_tree_recommends_nothing() -> None:
    plan, rows = campaign(lambda label, block: len(label) / 10, scenarios=["full", "empty"])
    for row in rows:
        if row["scenario"] == "empty":
            row["dataset"].update(files=0, bytes=0)
    full, empty = summaries.summarise("c", "p", plan, rows, {}).links[0].results
    assert (full.scenario, empty.scenario) == ("full", "empty")
    assert full.recommended is not None
    assert empty.recommended is None
    assert [method.median_s for method in empty.methods] == [0.3, 0.3, 0.5]
    assert {method.throughput_Bps for method in empty.methods} == {None}


def test_a_copy_of_nothing_tells_what_a_login_takes() -> None:
    """10 MB in 1.2 s on a link of 10 MB/s: with a login of 0.1 s it is not the link that limits, with one of 0.4 s it is."""
    plan, rows = campaign(lambda label, block: 1.2, scenarios=["full", "empty"])
    for fixed_s, limiter in ((0.05, None), (0.4, "link")):
        for row in rows:
            size = 0 if row["scenario"] == "empty" else 10_000_000
            row["dataset"].update(files=1, bytes=size)
            row["method"]["streams"] = 1
            row["stages"] = [{"end": "source", "argv": ["/usr/bin/ssh", "h"], "user_s": 0.1, "system_s": 0.0}]
            row["total_s"] = 1.2 if size else fixed_s
        facts = {"l": {"ceiling_Bps": 10e6, "connect_s": 0.4}}
        full = summaries.summarise("c", "p", plan, rows, facts).links[0].results[0]
        assert {method.limiter for method in full.methods} == {limiter}


def test_blocks_that_were_not_needed_are_not_missing() -> None:
    plan, rows = campaign(lambda label, block: WAVE[block % 3], blocks=3, max_blocks=5)
    made = {cell.run_id for cell in plan.cells if cell.block <= 4}
    rows = [row for row in rows if row["run_id"] in made]
    group = blocks.Group("l", "mine", "full")
    stops = {group: blocks.Stop(4, "every interval is within 5 % of its estimate")}
    summary = summaries.summarise("c", "p", plan, rows, {}, stops=stops)
    assert (summary.ok, summary.planned, summary.missing) == (12, 12, ())
    assert summary.links[0].results[0].stopped == "every interval is within 5 % of its estimate"
    assert summaries.summarise("c", "p", plan, rows, {}).missing == ("link l, mine, one, two, three: 3 runs not run",)


SHAPES = {"a": (1, 10**6), "b": (1000, 10**6), "c": (100, 10**7), "d": (2, 5 * 10**7), "e": (5000, 2 * 10**7)}


def shaped() -> tuple[plans.Plan, list[dict[str, Any]]]:
    """Five trees, for which every method takes 0.5 s, 2 ms a file and 80 ns a byte."""
    plan, rows = campaign(lambda label, block: 1.0, blocks=2, datasets=[{"name": n, "path": f"/{n}"} for n in SHAPES])
    for cell, row in zip(plan.cells, rows, strict=True):
        files, size = SHAPES[cell.dataset]
        row["dataset"].update(files=files, bytes=size)
        row["total_s"] = 0.5 + 0.002 * files + 8e-8 * size
        row["durable_s"] = row["total_s"] + 2e-8 * size
    return plan, rows


def test_a_model_from_five_shapes() -> None:
    plan, rows = shaped()
    sizes = [plans.Size(5_000_000, 5 * 10**12)]
    models = summaries.summarise("c", "p", plan, rows, {}, predict=sizes).links[0].models
    assert [model.label for model in models] == ["one", "two", "three"]
    model = models[0]
    assert (model.shapes, model.reason) == (5, "")
    assert (model.a_s, model.b_s_per_file, model.c_s_per_byte) == pytest.approx((0.5, 0.002, 8e-8))
    assert model.residual == pytest.approx(0, abs=1e-9)
    forecast = model.forecasts[0]
    assert forecast.total_s == pytest.approx(0.5 + 0.002 * 5e6 + 8e-8 * 5e12)
    assert forecast.durable_s == pytest.approx(0.5 + 0.002 * 5e6 + 1e-7 * 5e12)
    assert forecast.extrapolation == pytest.approx(5e12 / 5e7)


def test_no_model_is_faster_than_the_link_with_data_that_does_not_compress() -> None:
    plan, rows = shaped()  # 80 ns a byte are 12.5 MB/s
    for compressibility, rate in ((1.0, 10e6), (0.5, 12.5e6)):
        for row in rows:
            row["dataset"]["compressibility"] = compressibility
        facts = {"l": {"ceiling_Bps": 9e6, "ceiling_end_Bps": 10e6}}
        model = summaries.summarise("c", "p", plan, rows, facts).links[0].models[0]
        assert model.c_s_per_byte == pytest.approx(1 / rate)


def test_what_trees_compress_to_is_nothing_to_a_method_that_sends_them_whole() -> None:
    plan, rows = shaped()
    for cell, row in zip(plan.cells, rows, strict=True):
        row["dataset"]["compressibility"] = 0.3 if cell.dataset == "c" else 1.0
        row["wire"]["tx_bytes"] = row["dataset"]["bytes"] * (0.5 if cell.label == "two" else 1.05)
    one, two, _three = summaries.summarise("c", "p", plan, rows, {"l": {"ceiling_Bps": 10e6}}).links[0].models
    assert (one.reason, one.c_s_per_byte) == ("", pytest.approx(1 / 10e6))
    assert two.reason.startswith("the trees do not compress alike")


def test_no_model_from_trees_that_do_not_compress_alike() -> None:
    plan, rows = shaped()
    for cell, row in zip(plan.cells, rows, strict=True):
        row["dataset"]["compressibility"] = 0.3 if cell.dataset == "c" else 1.0
    models = summaries.summarise("c", "p", plan, rows, {}, predict=plans.DEFAULT_SIZES).links[0].models
    assert {(model.a_s, model.reason.split(",")[0]) for model in models} == {(None, "the trees do not compress alike")}


def test_no_model_from_four_shapes_and_none_of_a_method_that_failed() -> None:
    plan, rows = shaped()
    bad = next(cell for cell in plan.cells if cell.label == "two")
    next(row for row in rows if row["run_id"] == bad.run_id).update(status="corrupt", message="1 file differs")
    by_label = {m.label: m for m in summaries.summarise("c", "p", plan, rows, {}).links[0].models}
    assert (by_label["two"].a_s, by_label["two"].reason) == (None, "1 of 2 runs corrupt: 1 file differs")
    assert by_label["one"].a_s == pytest.approx(0.5)
    plan, rows = campaign(lambda label, block: 1.0, datasets=[{"name": n, "path": f"/{n}"} for n in "abcd"])
    assert summaries.summarise("c", "p", plan, rows, {}).links[0].models == ()


def test_the_summary_is_json(summary: summaries.Summary) -> None:
    plan, rows = shaped()
    for made in (summary, summaries.summarise("c", "p", plan, rows, {}, predict=plans.DEFAULT_SIZES)):
        json.loads(json.dumps(made.as_dict(), allow_nan=False))
