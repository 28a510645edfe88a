# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From rows to the summary of a campaign. Plain Python: knows nothing of Ansible."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import advice
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.plan import Cell, Plan
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.statistics import (
    DELTA,
    DISQUALIFIED,
    blocks_needed,
    compare,
    noise_floor,
)

SCHEMA = 1

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class MethodResult:
    """One line of a table. Times are total_s in seconds, medians over the runs that were measured and ok."""

    label: str
    module: str
    args: Mapping[str, Any]
    n: int
    median_s: float | None
    ci_s: tuple[float, float] | None
    ratio_to_best: float | None
    ratio_ci: tuple[float, float] | None
    throughput_Bps: float | None  # noqa: N815
    efficiency: float | None
    cpu_s_per_GB: Mapping[str, float | None]  # noqa: N815
    cpu_percent: Mapping[str, float | None]
    verdict: str
    provisional: bool
    reason: str
    flags: tuple[str, ...]
    encrypted: bool | None
    durable_s: float | None = None
    limiter: str | None = None  # what keeps it from being faster; null where nothing stands out
    limiter_reason: str = ""
    outliers: tuple[int, ...] = ()  # blocks


@dataclasses.dataclass(frozen=True)
class Result:
    """All methods on one link, dataset and scenario, fastest first, the disqualified last. C(drift): how much slower the
    last block was than the first, as a ratio less 1, with its interval; null where there are too few blocks."""

    dataset: str
    scenario: str
    files: int | None
    bytes: int | None
    blocks: int
    noise_floor: float | None
    blocks_needed: int | None  # for a verdict that is not provisional; null where there are so many
    methods: tuple[MethodResult, ...]
    recommended: str | None
    reason: str
    drift: float | None = None
    drift_ci: tuple[float, float] | None = None
    flags: tuple[str, ...] = ()
    stopped: str = ""  # why no more blocks were added; empty where their number was fixed


@dataclasses.dataclass(frozen=True)
class Forecast:
    """What a copy of C(bytes) in C(files) would take in seconds, each with its interval: C(total_s) while both page
    caches take what comes, C(durable_s) until the target's disk has it. C(extrapolation): how many times more than was
    measured, in bytes or files, whichever is more."""

    files: int
    bytes: int
    total_s: float
    total_ci_s: tuple[float, float]
    durable_s: float | None
    durable_ci_s: tuple[float, float] | None
    extrapolation: float


@dataclasses.dataclass(frozen=True)
class Model:
    """total_s = C(a_s) + C(b_s_per_file) x files + C(c_s_per_byte) x bytes of one method on one link, over C(shapes) trees;
    C(residual) is the typical relative error. Where there is none C(reason) says why, and the figures are null."""

    label: str
    shapes: int
    a_s: float | None
    b_s_per_file: float | None
    c_s_per_byte: float | None
    residual: float | None
    reason: str
    forecasts: tuple[Forecast, ...]


@dataclasses.dataclass(frozen=True)
class LinkResult:
    name: str
    source: str
    target: str
    address: str
    ceiling_Bps: float | None  # noqa: N815
    rtt_ms: float | None
    connect_s: float | None
    results: tuple[Result, ...]
    ceiling_end_Bps: float | None = None  # noqa: N815  measured again after the last run
    rtt_end_ms: float | None = None
    flags: tuple[str, ...] = ()
    models: tuple[Model, ...] = ()


@dataclasses.dataclass(frozen=True)
class Summary:
    """C(missing): one sentence for each thing that was planned and is not there, empty where all went well."""

    campaign_id: str
    profile: str
    links: tuple[LinkResult, ...]
    missing: tuple[str, ...]
    planned: int
    ok: int

    def as_dict(self) -> dict[str, Any]:
        """The content of C(summary.json)."""
        return {
            "schema": SCHEMA,
            "campaign_id": self.campaign_id,
            "links": [link_as_dict(link) for link in self.links],
        }


def link_as_dict(link: LinkResult) -> dict[str, Any]:
    """A link as C(summary.json) holds it."""
    data: dict[str, Any] = _as_json(link)
    return data


def _as_json(value: Any) -> Any:
    """Dataclasses as mappings, tuples as lists, figures with six significant digits."""
    if dataclasses.is_dataclass(value):
        return {field.name: _as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(item) for item in value]
    return rounded(value) if isinstance(value, float) else value


def rounded(value: float | None) -> float | None:
    """Six significant digits, as files hold a figure."""
    return None if value is None else float(f"{value:.6g}")


def summarise(
    campaign_id: str,
    profile: str,
    plan: Plan,
    rows: Iterable[Row],
    link_facts: Mapping[str, Mapping[str, Any]],
    allow_cleartext: bool = False,
) -> Summary:
    """C(rows): one a run. C(link_facts): by link name, what was measured of it (C(rtt_ms), C(connect_s),
    C(ceiling_Bps)), as far as it was."""
    by_id = {str(row["run_id"]): row for row in rows}
    links = []
    for link in plan.links:
        facts = link_facts.get(link.name, {})
        groups: dict[tuple[str, str], list[Cell]] = {}
        for cell in plan.cells:
            if cell.link == link.name and not cell.warmup:
                groups.setdefault((cell.dataset, cell.scenario), []).append(cell)
        order = {dataset.name: number for number, dataset in enumerate(plan.datasets)}
        links.append(
            LinkResult(
                name=link.name,
                source=link.source,
                target=link.target,
                address=link.address,
                ceiling_Bps=facts.get("ceiling_Bps"),
                rtt_ms=facts.get("rtt_ms"),
                connect_s=facts.get("connect_s"),
                results=tuple(
                    _result(plan, dataset, scenario, cells, by_id, facts.get("ceiling_Bps"), allow_cleartext)
                    for (dataset, scenario), cells in sorted(groups.items(), key=lambda item: order[item[0][0]])
                ),
            )
        )
    return Summary(
        campaign_id=campaign_id,
        profile=profile,
        links=tuple(links),
        missing=tuple(missing(plan, by_id)),
        planned=len(plan.cells),
        ok=sum(by_id.get(cell.run_id, {}).get("status") == "ok" for cell in plan.cells),
    )


def _result(
    plan: Plan,
    dataset: str,
    scenario: str,
    cells: Sequence[Cell],
    by_id: Mapping[str, Row],
    ceiling_Bps: float | None,  # noqa: N803
    allow_cleartext: bool,
) -> Result:
    rows: dict[str, list[tuple[Cell, Row]]] = {method.label: [] for method in plan.methods}
    planned: dict[str, int] = dict.fromkeys(rows, 0)
    for cell in cells:
        planned[cell.label] += 1
        if cell.run_id in by_id:
            rows[cell.label].append((cell, by_id[cell.run_id]))
    faults = {label: _fault([row for _cell, row in rows[label]]) for label in rows}
    times = {
        label: {
            cell.block: float(row["total_s"])
            for cell, row in rows[label]
            if cell.replica == 0 and row["status"] == "ok" and row.get("total_s")
        }
        for label in rows
    }
    ranked = {label: blocks for label, blocks in times.items() if blocks and not faults[label]}
    noise = _noise(rows.get(plan.replica or "", ()))
    delta = max(DELTA, noise or 0.0)
    compared = compare(ranked, delta)
    exact = any(item.exact for item in compared)
    needed = blocks_needed(len(ranked))
    methods = {method.label: method for method in plan.methods}
    results: list[MethodResult] = []
    sizes = [row["dataset"] for group in rows.values() for _cell, row in group if row["dataset"].get("bytes")]
    size = sizes[0]["bytes"] if sizes else None
    for item in compared:
        ok = [row for _cell, row in rows[item.label] if row["status"] == "ok"]
        throughput = size / item.median_s if size else None
        results.append(
            MethodResult(
                label=item.label,
                module=methods[item.label].module,
                args=methods[item.label].args,
                n=item.n,
                median_s=item.median_s,
                ci_s=item.ci_s,
                ratio_to_best=item.ratio,
                ratio_ci=item.ratio_ci,
                throughput_Bps=throughput,
                efficiency=throughput / ceiling_Bps if throughput and ceiling_Bps else None,
                cpu_s_per_GB=_ends(ok, _cpu_s_per_gb),
                cpu_percent=_ends(ok, lambda row, end: (row["cpu"][end] or {}).get("percent")),
                verdict=item.verdict,
                provisional=not exact,
                reason=_why(item.blocks, item.n, exact, needed),
                flags=tuple(sorted({flag for row in ok for flag in row.get("flags") or ()})),
                encrypted=next((row["method"]["encrypted"] for row in ok), None),
            )
        )
    # A fast clear-text method must not hide how the encrypted ones compare with each other.
    private = {method.label: ranked[method.label] for method in results if method.encrypted}
    among_encrypted = {item.label: item.verdict for item in compare(private, delta)} if private else {}
    nothing = {"source": None, "target": None}
    for label in rows:
        if label in ranked:
            continue
        group = [row for _cell, row in rows[label]]
        ok = [row for row in group if row["status"] == "ok"]
        results.append(
            MethodResult(
                label=label,
                module=methods[label].module,
                args=methods[label].args,
                n=len(times[label]),
                median_s=statistics.median(times[label].values()) if times[label] else None,
                ci_s=None,
                ratio_to_best=None,
                ratio_ci=None,
                throughput_Bps=None,
                efficiency=None,
                cpu_s_per_GB=dict(nothing),
                cpu_percent=dict(nothing),
                verdict=DISQUALIFIED,
                provisional=not exact,
                reason=faults[label] or _absent(group, planned[label]),
                flags=tuple(sorted({flag for row in group for flag in row.get("flags") or ()})),
                encrypted=next((row["method"]["encrypted"] for row in ok), None),
            )
        )
    given = advice.recommend(
        [
            advice.Candidate(
                label=method.label,
                verdict=method.verdict,
                ratio=method.ratio_to_best,
                ratio_ci=method.ratio_ci,
                encrypted=method.encrypted,
                cpu_s_per_GB=_sum(method.cpu_s_per_GB.values()),
                among_encrypted=among_encrypted.get(method.label),
            )
            for method in results
        ],
        allow_cleartext=allow_cleartext,
        provisional=not exact,
    )
    return Result(
        dataset=dataset,
        scenario=scenario,
        files=sizes[0].get("files") if sizes else None,
        bytes=size,
        blocks=compared[0].blocks if compared else 0,
        noise_floor=noise,
        blocks_needed=None if exact else needed,
        methods=tuple(results),
        recommended=given.recommended,
        reason=given.reason,
    )


def _why(blocks: int, n: int, exact: bool, needed: int) -> str:
    if blocks == 0:
        return "no block is complete: nothing can be compared"
    seen = f"{blocks} complete block{'s' * (blocks != 1)}"
    if n > blocks:
        seen += f" of {n}"
    if exact:
        return f"{seen}; Hodges-Lehmann estimate with the exact signed-rank interval"
    return f"{seen}; intervals from the residual of the block design; a firm verdict takes {needed}"


def _fault(rows: Sequence[Row]) -> str:
    """Why a method cannot be ranked; empty where it can. A host that was not reached is not the method's fault."""
    for status in ("corrupt", "failed", "timeout", "unsupported"):
        bad = [row for row in rows if row["status"] == status]
        if bad:
            return f"{len(bad)} of {len(rows)} runs {status}: {_first_line(bad[0].get('message'))}"
    return ""


def _absent(rows: Sequence[Row], planned: int) -> str:
    if not rows:
        return f"none of {planned} runs was made"
    return f"{len(rows)} of {planned} runs {rows[0]['status']}: {_first_line(rows[0].get('message'))}"


def _first_line(message: Any) -> str:
    lines = str(message or "").strip().splitlines()
    return lines[0] if lines else "no reason was given"


def _noise(rows: Sequence[tuple[Cell, Row]]) -> float | None:
    by_block: dict[int, dict[int, float]] = {}
    for cell, row in rows:
        if row["status"] == "ok" and row.get("total_s"):
            by_block.setdefault(cell.block, {})[cell.replica] = float(row["total_s"])
    return noise_floor([(pair[0], pair[1]) for pair in by_block.values() if len(pair) == 2])


def _cpu_s_per_gb(row: Row, end: str) -> float | None:
    cpu, size = row["cpu"][end], row["dataset"].get("bytes")
    if not cpu or not size or cpu.get("user_s") is None or cpu.get("system_s") is None:
        return None
    return (float(cpu["user_s"]) + float(cpu["system_s"])) / (float(size) / 1e9)


def _ends(rows: Sequence[Row], value: Callable[[Row, str], Any]) -> dict[str, float | None]:
    """The median over the rows, for source and target; null where no row has the figure."""
    medians: dict[str, float | None] = {}
    for end in ("source", "target"):
        known = [number for number in (value(row, end) for row in rows) if number is not None]
        medians[end] = statistics.median(known) if known else None
    return medians


def _sum(values: Iterable[float | None]) -> float | None:
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def missing(plan: Plan, by_id: Mapping[str, Row]) -> list[str]:
    """What was planned and did not end C(ok): a link as a whole where none of its runs did, else by method."""
    sentences = []
    for link in plan.links:
        cells = [cell for cell in plan.cells if cell.link == link.name]
        bad = [(cell, by_id.get(cell.run_id)) for cell in cells]
        bad = [(cell, row) for cell, row in bad if row is None or row["status"] != "ok"]
        if len(bad) == len(cells):
            first = bad[0][1]
            reason = "no run was made" if first is None else f"{first['status']}: {_first_line(first.get('message'))}"
            sentences.append(f"link {link.name}: none of its {len(cells)} runs was measured ({reason})")
            continue
        groups: dict[tuple[str, str], list[str]] = {}
        for cell, row in bad:
            reason = "not run" if row is None else f"{row['status']}: {_first_line(row.get('message'))}"
            groups.setdefault((cell.dataset, reason), []).append(cell.label)
        for (dataset, reason), labels in groups.items():
            names = sorted(set(labels), key=[method.label for method in plan.methods].index)
            who = ", ".join(names) if len(names) <= 3 else f"{len(names)} methods"
            count = f"{len(labels)} run{'s' * (len(labels) != 1)}"
            sentences.append(f"link {link.name}, {dataset}, {who}: {count} {reason}")
    return sentences
