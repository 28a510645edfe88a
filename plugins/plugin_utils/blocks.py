# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The runs that are compared together, block by block, and when there are blocks enough. Plain Python: knows nothing of
Ansible.

Blocks are added to a link and tree until every interval is narrow enough, or the cap or the time budget is reached. Only
the width of the intervals counts, never a verdict: who stops as soon as a difference is significant finds one too often.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.plan import Cell, Plan, show_duration
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.statistics import Comparison, compare, narrow

#: Step of a campaign's journal under which the end of a group's blocks is written down.
STEP = "blocks"


class Group(NamedTuple):
    """What is compared together."""

    link: str
    dataset: str
    scenario: str

    @property
    def key(self) -> str:
        return "\n".join(self)


class Stop(NamedTuple):
    """No block after C(last) is run, and why."""

    last: int
    reason: str


Stops = Mapping[Group, Stop]
Row = Mapping[str, Any]
#: The recorded runs of each method, with the cells that they fill.
Rows = Mapping[str, Sequence[tuple[Cell, Row]]]


def group_of(cell: Cell) -> Group:
    return Group(cell.link, cell.dataset, cell.scenario)


def stops_of(journal: Mapping[tuple[str, str], Row]) -> dict[Group, Stop]:
    """What was written down of it in a campaign's journal."""
    return {
        Group(*key.split("\n")): Stop(int(entry["last"]), str(entry["reason"]))
        for (step, key), entry in journal.items()
        if step == STEP
    }


def lasting(plan: Plan, stops: Stops, rows: Iterable[Row]) -> dict[Group, Stop]:
    """Those of an earlier execution that a resumed one keeps. Where nothing could be compared, a dead link for example,
    it is decided anew."""
    by_id = {str(row["run_id"]): row for row in rows}
    return {
        group: stop
        for group, stop in stops.items()
        if _complete(_compared(plan, [cell for cell in needed(plan.cells, stops) if _is_measured(cell, group)], by_id))
    }


def needed(cells: Iterable[Cell], stops: Stops) -> list[Cell]:
    """The cells without those of blocks that were found not to be needed."""
    return [
        cell for cell in cells if cell.warmup or group_of(cell) not in stops or cell.block <= stops[group_of(cell)].last
    ]


def rows_of(plan: Plan, cells: Iterable[Cell], by_id: Mapping[str, Row]) -> dict[str, list[tuple[Cell, Row]]]:
    """The rows of C(cells) by label, for every method of the plan."""
    rows: dict[str, list[tuple[Cell, Row]]] = {method.label: [] for method in plan.methods}
    for cell in cells:
        if cell.run_id in by_id:
            rows[cell.label].append((cell, by_id[cell.run_id]))
    return rows


def first_line(message: Any) -> str:
    """The first line of a run's message, or words that there is none."""
    lines = str(message or "").strip().splitlines()
    return lines[0] if lines else "no reason was given"


def fault(rows: Sequence[tuple[Cell, Row]]) -> str:
    """Why a method cannot be ranked; empty where it can. A host that was not reached is not the method's fault."""
    for status in ("corrupt", "failed", "timeout", "unsupported"):
        bad = [row for _cell, row in rows if row["status"] == status]
        if bad:
            return f"{len(bad)} of {len(rows)} runs {status}: {first_line(bad[0].get('message'))}"
    return ""


def times(rows: Sequence[tuple[Cell, Row]]) -> dict[int, float]:
    """A method's C(total_s) by block, of the runs that ended ok; the A/A copy is not among them."""
    return {
        cell.block: float(row["total_s"])
        for cell, row in rows
        if cell.replica == 0 and row["status"] == "ok" and row.get("total_s")
    }


def ranked_times(rows: Rows) -> dict[str, dict[int, float]]:
    """The times of the methods that can be ranked."""
    measured = {label: times(own) for label, own in rows.items() if not fault(own)}
    return {label: blocks for label, blocks in measured.items() if blocks}


def _is_measured(cell: Cell, group: Group) -> bool:
    return not cell.warmup and group_of(cell) == group


def _compared(plan: Plan, cells: Iterable[Cell], by_id: Mapping[str, Row]) -> list[Comparison]:
    return compare(ranked_times(rows_of(plan, cells, by_id)))


def _complete(compared: Sequence[Comparison]) -> bool:
    """Whether there is a block in which every method has a time."""
    return bool(compared) and compared[0].blocks > 0


def _spent_s(rows: Iterable[Row]) -> float:
    """How long runs took, in seconds, as far as their rows tell it: what passes between two copies is not in them."""
    return sum(float(row.get("durable_s") or row.get("total_s") or 0.0) for row in rows)


def measured_s(plan: Plan, link: str, rows: Iterable[Row]) -> float:
    """How long a link was measured in earlier executions of a campaign, in seconds, as far as its rows tell it."""
    own = {cell.run_id for cell in plan.cells if cell.link == link}
    return _spent_s(row for row in rows if row["run_id"] in own)


def block_s(plan: Plan, group: Group, rows: Iterable[Row]) -> float:
    """How long a block of this group took, in seconds: the longest seen."""
    known = {cell.run_id: cell.block for cell in plan.cells if _is_measured(cell, group)}
    by_block: dict[int, list[Row]] = {}
    for row in rows:
        block = known.get(str(row["run_id"]))
        if block is not None:
            by_block.setdefault(block, []).append(row)
    return max(map(_spent_s, by_block.values()), default=0.0)


def decide(plan: Plan, group: Group, block: int, rows: Iterable[Row], measuring_s: float) -> Stop | None:
    """Whether C(block), one more than must be, is run: null, or why not. C(rows): of the whole campaign so far;
    C(measuring_s): how long this link has been measured. A block that was begun, before a campaign was cut, is run."""
    settings = plan.settings
    if block <= settings.blocks:
        return None
    rows = list(rows)
    by_id = {str(row["run_id"]): row for row in rows}
    own = [cell for cell in plan.cells if _is_measured(cell, group)]
    if any(cell.block >= block and cell.run_id in by_id for cell in own):
        return None
    compared = _compared(plan, [cell for cell in own if cell.block < block], by_id)
    if not _complete(compared):
        return Stop(block - 1, "no block is complete, and more would not help")
    if narrow(compared, settings.precision):
        return Stop(block - 1, _within(settings.precision))
    if settings.budget_minutes is not None:
        # Rounds follow one another, and the links of a round are measured at once.
        share_s = settings.budget_minutes * 60 / len(plan.rounds)
        if measuring_s + block_s(plan, group, rows) > share_s:
            return Stop(
                block - 1,
                f"the link's share of the time budget ({show_duration(share_s)}) is used, and "
                + _not_within(settings.precision),
            )
    return None


def why_no_more(plan: Plan, compared: Sequence[Comparison], stop: Stop | None) -> str:
    """Why no block was added to those that were run; empty where their number was fixed."""
    if stop is not None:
        return stop.reason
    settings = plan.settings
    if settings.max_blocks == settings.blocks:
        return ""
    if narrow(compared, settings.precision):
        return _within(settings.precision)
    complete = compared[0].blocks if compared else 0
    cut = f", {complete} of them complete" if complete < settings.max_blocks else ""
    return f"the cap of {settings.max_blocks} blocks is reached{cut}, and {_not_within(settings.precision)}"


def _within(precision: float) -> str:
    return f"every interval is within {precision * 100:.3g} % of its estimate"


def _not_within(precision: float) -> str:
    return f"not {_within(precision)}"
