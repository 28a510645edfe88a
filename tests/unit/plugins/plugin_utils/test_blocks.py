# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils._record import new_record
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import blocks
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import plan as plans

GROUP = blocks.Group("l", "mine", "full")


def make_plan(**settings: Any) -> plans.Plan:
    return plans.make_plan(
        profile={
            "blocks": 3,
            "max_blocks": 6,
            "precision": 0.05,
            "warmups": 0,
            "replica": False,
            "datasets": [{"name": "mine", "path": "/x"}],
            "methods": [{"label": "fast", "module": "scp"}, {"label": "slow", "module": "scp"}],
            **settings,
        },
        profile_name="t",
        overrides={},
        links=[{"name": "l", "source": "a", "target": "b"}, {"name": "m", "source": "b", "target": "a"}],
        hosts={"a": plans.Host("1"), "b": plans.Host("2")},
        standard_methods=[],
        seed=1,
    )


def rows(plan: plans.Plan, slow_s: list[float], **more: Any) -> list[dict[str, Any]]:
    """Runs of link l: one second each of the fast method, and C(slow_s) of the slow one, block by block."""
    made = []
    for cell in plan.cells:
        if cell.link == "l" and cell.block <= len(slow_s):
            row = new_record()
            row.update(run_id=cell.run_id, status="ok", total_s=1.0 if cell.label == "fast" else slow_s[cell.block - 1])
            row.update(more)
            made.append(row)
    return made


def test_the_sure_blocks_are_run_whatever_was_seen() -> None:
    plan = make_plan()
    for block in (1, 2, 3):
        assert blocks.decide(plan, GROUP, block, rows(plan, [2.0] * (block - 1)), 1e9) is None


def test_stops_when_every_interval_is_narrow() -> None:
    plan = make_plan()
    # two methods, three blocks: t(0.975, 2) = 4.303 standard errors of the difference to either side
    stop = blocks.decide(plan, GROUP, 4, rows(plan, [2.0, 2.001, 1.999]), 0.0)
    assert stop == blocks.Stop(3, "every interval is within 5 % of its estimate")
    assert blocks.decide(plan, GROUP, 4, rows(plan, [2.0, 2.4, 1.7]), 0.0) is None


def test_a_clear_difference_is_no_reason_to_stop() -> None:
    plan = make_plan()
    # ten times as slow, without doubt; but the interval of the ratio is wide
    assert blocks.decide(plan, GROUP, 4, rows(plan, [10.0, 12.0, 9.0]), 0.0) is None


def test_a_block_that_was_begun_is_run() -> None:
    """A campaign was cut in block 5, or a run of block 4 failed: what is recorded of them must not be lost."""
    plan = make_plan(budget_minutes=1)
    narrow = rows(plan, [2.0, 2.001, 1.999, 2.0, 2.0])
    for begun in (narrow, narrow[:-1]):
        for block in (4, 5):
            assert blocks.decide(plan, GROUP, block, begun, 1e9) is None
        assert blocks.decide(plan, GROUP, 6, begun, 1e9) is not None


def test_a_resumed_campaign_keeps_what_was_decided_where_something_was_compared() -> None:
    plan = make_plan()
    stops = {GROUP: blocks.Stop(4, "the budget"), blocks.Group("m", "mine", "full"): blocks.Stop(3, "no block")}
    assert blocks.lasting(plan, stops, rows(plan, [2.0, 2.4, 1.7, 2.2])) == {GROUP: blocks.Stop(4, "the budget")}
    assert blocks.lasting(plan, stops, rows(plan, [0.0] * 4, status="unreachable", total_s=None)) == {}


def test_what_was_measured_before_counts_as_time_used() -> None:
    plan = make_plan()
    # two methods, three blocks of 5 s each
    assert blocks.measured_s(plan, "l", rows(plan, [2.0, 2.4, 1.7], durable_s=5.0)) == 30.0
    assert blocks.measured_s(plan, "m", rows(plan, [2.0, 2.4, 1.7], durable_s=5.0)) == 0.0


def test_the_budget_is_shared_by_the_rounds_and_not_passed() -> None:
    plan = make_plan(budget_minutes=2)
    wide = rows(plan, [2.0, 2.4, 1.7], durable_s=5.0)
    assert len(plan.rounds) == 2  # a minute for each; a block takes ten seconds
    assert blocks.decide(plan, GROUP, 4, wide, 49.0) is None
    stop = blocks.decide(plan, GROUP, 4, wide, 51.0)
    assert stop is not None
    assert stop.reason.startswith("the link's share of the time budget (1 min 0 s) is used")
    assert "not every interval is within 5 %" in stop.reason


def test_a_dead_link_is_not_tried_again_and_again() -> None:
    plan = make_plan()
    dead = rows(plan, [0.0] * 3, status="unreachable", total_s=None)
    stop = blocks.decide(plan, GROUP, 4, dead, 0.0)
    assert stop is not None
    assert "no block is complete" in stop.reason


def test_what_is_not_needed_is_not_missed() -> None:
    plan = make_plan()
    stops = blocks.stops_of({("blocks", GROUP.key): {"last": 4, "reason": "r"}, ("link", "l"): {"status": "ok"}})
    assert stops == {GROUP: blocks.Stop(4, "r")}
    left = blocks.needed(plan.cells, stops)
    assert {(cell.link, cell.block) for cell in plan.cells} - {(cell.link, cell.block) for cell in left} == {
        ("l", 5),
        ("l", 6),
    }


@pytest.mark.parametrize(
    ("settings", "slow_s", "reason"),
    [
        ({"max_blocks": 3}, [2.0, 2.4, 1.7], ""),
        ({"max_blocks": 4}, [2.0, 2.4, 1.7, 2.2], "the cap of 4 blocks is reached, and not every interval is"),
        # a link that died in block 4
        ({"max_blocks": 4}, [2.0, 2.4, 1.7], "the cap of 4 blocks is reached, 3 of them complete, and not every"),
        ({"max_blocks": 4}, [2.0, 2.001, 1.999, 2.0], "every interval is within 5 % of its estimate"),
    ],
)
def test_why_there_are_no_more(settings: dict[str, Any], slow_s: list[float], reason: str) -> None:
    plan = make_plan(**settings)
    own = [cell for cell in plan.cells if blocks.group_of(cell) == GROUP]
    found = {row["run_id"]: row for row in rows(plan, slow_s)}
    compared = blocks.compare(blocks.ranked_times(blocks.rows_of(plan, own, found)))
    said = blocks.why_no_more(plan, compared, None)
    assert said.startswith(reason)
    assert bool(said) == bool(reason)
