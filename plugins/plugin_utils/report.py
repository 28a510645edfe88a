# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From rows to the summary, the table and the report. Plain Python: knows nothing of Ansible."""

from __future__ import annotations

import csv
import dataclasses
import io
import statistics
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import advice
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.plan import Cell, Plan, show_bytes
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.statistics import (
    DELTA,
    DISQUALIFIED,
    blocks_needed,
    compare,
    noise_floor,
)

SCHEMA = 1
WIDTH = 100
#: What a flag means, for the reader of a table; a flag that is not here explains itself.
FLAGS: Mapping[str, str] = {
    "setup-dominated": "set-up takes over 20 % of the time: it ranks for this size only",
    "shared-filesystem": "both ends write to one file system",
    "foreign-session": "another login ended on the target meanwhile, so its CPU time is not known",
}

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


@dataclasses.dataclass(frozen=True)
class Result:
    """All methods on one link, dataset and scenario, fastest first, the disqualified last."""

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
    return {
        "name": link.name,
        "ceiling_Bps": link.ceiling_Bps,
        "rtt_ms": link.rtt_ms,
        "connect_s": link.connect_s,
        "results": [
            {
                "dataset": result.dataset,
                "scenario": result.scenario,
                "methods": [_method_as_dict(method) for method in result.methods],
                "recommended": result.recommended,
                "reason": result.reason,
            }
            for result in link.results
        ],
    }


def _method_as_dict(method: MethodResult) -> dict[str, Any]:
    data = {
        field.name: getattr(method, field.name) for field in dataclasses.fields(method) if field.name != "encrypted"
    }
    for key in ("ci_s", "ratio_ci"):
        data[key] = None if data[key] is None else [_rounded(value) for value in data[key]]
    for key in ("median_s", "ratio_to_best", "throughput_Bps", "efficiency"):
        data[key] = _rounded(data[key])
    for key in ("cpu_s_per_GB", "cpu_percent"):
        data[key] = {end: _rounded(value) for end, value in data[key].items()}
    data["args"] = dict(method.args)
    data["flags"] = list(method.flags)
    return data


def _rounded(value: float | None) -> float | None:
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


def table(summary: Summary, width: int = WIDTH) -> str:
    """The plain table for a terminal, at most C(width) columns wide."""
    lines: list[str] = []
    for link in summary.links:
        lines += ["", f"== {_link_line(link)}"]
        reasons = {_nothing(result) for result in link.results}
        if len(reasons) == 1 and "" not in reasons:
            lines += ["", f"not measured: {reasons.pop()}"]
            continue
        for result in link.results:
            lines += ["", f"{_result_line(result)}", *_table_lines(result, width)]
    return "\n".join(part for line in lines for part in (_fit(line, width) or [""])) + "\n"


def _nothing(result: Result) -> str:
    """The one reason for which no method at all was measured, else the empty string."""
    reasons = {method.reason for method in result.methods}
    if len(reasons) == 1 and all(method.verdict == DISQUALIFIED and method.n == 0 for method in result.methods):
        return reasons.pop()
    return ""


def _fit(line: str, width: int) -> list[str]:
    """The line, broken where it is too long."""
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.wrap(line, width, subsequent_indent=indent, drop_whitespace=True, break_on_hyphens=False)


def last_words(summary: Mapping[str, Any]) -> list[str]:
    """What C(summary.json) recommends, one line for each link, dataset and scenario."""
    lines = []
    for link in summary.get("links", ()):
        for result in link["results"]:
            provisional = any(method["provisional"] for method in result["methods"])
            use = "no recommendation" if result["recommended"] is None else f"use {result['recommended']}"
            lines.append(f"{link['name']}, {result['dataset']}: {use}{' (provisional)' if provisional else ''}")
    return lines


def _link_line(link: LinkResult) -> str:
    parts = [f"{link.name}: {link.source} -> {link.target} ({link.address})"]
    if link.ceiling_Bps is not None:
        parts.append(f"ceiling {link.ceiling_Bps / 1e6:.1f} MB/s")
    if link.rtt_ms is not None:
        parts.append(f"rtt {link.rtt_ms:.2f} ms")
    if link.connect_s is not None:
        parts.append(f"ssh login {link.connect_s:.2f} s")
    return ", ".join(parts)


def _result_line(result: Result) -> str:
    tree = []
    if result.files is not None:
        tree.append(f"{result.files} files")
    if result.bytes is not None:
        tree.append(show_bytes(result.bytes))
    what = f"{result.dataset} ({', '.join(tree) or 'size unknown'}), {result.scenario} copy"
    if result.blocks == 0:
        return f"{what}: no complete block"
    blocks = f"{result.blocks} block{'s' * (result.blocks != 1)}"
    if result.blocks_needed is None:
        return f"{what}, {blocks}"
    return f"{what}, {blocks}: PROVISIONAL, a firm verdict takes {result.blocks_needed}"


def _table_lines(result: Result, width: int) -> list[str]:
    longest = min(20, max([6, *(len(method.label) for method in result.methods)]))
    head = (
        f"{'#':>2}  {'method':<{longest}} {'n':>3} {'median s':>9} {'MB/s':>7}  {'ratio to best':<20} "
        f"{'CPU % src/tgt':>13}  {'enc':<3} verdict"
    )
    lines = [head, "-" * min(width, len(head) + 9)]
    ranked = [method for method in result.methods if method.verdict != DISQUALIFIED]
    common = set.intersection(*(set(method.flags) for method in ranked)) if len(ranked) > 1 else set()
    single = sorted({flag for method in ranked for flag in method.flags} - common)
    marks = {flag: chr(ord("a") + i) for i, flag in enumerate(single)}
    if _nothing(result):
        return [f"not measured: {_nothing(result)}"]
    rank = 0
    for method in result.methods:
        label = _cut(method.label, longest)
        if method.verdict == DISQUALIFIED:
            lines.append(f"{'-':>2}  {label:<{longest}} {method.n:>3} disqualified: {method.reason}")
            continue
        rank += 1
        flags = ",".join(marks[flag] for flag in method.flags if flag in marks)
        lines.append(
            f"{rank:>2}  {label:<{longest}} {method.n:>3} {_number(method.median_s, 3):>9} "
            f"{_number(method.throughput_Bps, 1, 1e6):>7}  {_ratio(method):<20} {_cpu(method):>13}  "
            f"{_yes_no(method.encrypted):<3} {method.verdict} {flags}".rstrip()
        )
    for flag, mark in [*marks.items(), *((flag, "all:") for flag in sorted(common))]:
        lines.append(f"  {mark} {flag}" + (f": {FLAGS[flag]}" if flag in FLAGS else ""))
    lines.append(f"=> {_advice_line(result)}")
    return lines


def _advice_line(result: Result) -> str:
    if result.recommended is None:
        return f"no recommendation: {result.reason}"
    return f"use {result.recommended}: {result.reason}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "~"


def _number(value: float | None, digits: int, unit: float = 1.0) -> str:
    return "?" if value is None else f"{value / unit:.{digits}f}"


def _ratio(method: MethodResult) -> str:
    if method.ratio_to_best is None:
        return "?"
    text = f"{method.ratio_to_best:.2f}"
    if method.ratio_ci is None or method.ratio_ci == (1.0, 1.0):
        return text
    return f"{text} ({method.ratio_ci[0]:.2f}-{method.ratio_ci[1]:.2f})"


def _cpu(method: MethodResult) -> str:
    return " /".join(f"{_number(method.cpu_percent[end], 0):>4}" for end in ("source", "target"))


def _yes_no(value: bool | None) -> str:
    return "?" if value is None else ("yes" if value else "no")


def markdown(summary: Summary) -> str:
    """C(report.md)."""
    lines = [
        f"# Bulk copy campaign {summary.campaign_id}",
        "",
        f"Profile {_md(summary.profile)}; {summary.ok} of {summary.planned} planned runs (warm-ups included) ended ok.",
        "Times are total_s (set-up and copy), medians over the blocks; ratios come from comparisons within blocks, "
        "with intervals that hold for all pairs at once. CPU: 100 % is one core.",
    ]
    if summary.missing:
        lines += ["", "Missing:", "", *(f"- {_md(sentence)}" for sentence in summary.missing)]
    for link in summary.links:
        lines += ["", f"## {_md(_link_line(link))}"]
        for result in link.results:
            lines += [
                "",
                f"### {_md(_result_line(result))}",
                "",
                "| # | method | n | median s | MB/s | ratio to best | CPU % src / tgt | encrypted | verdict | flags |",
                "|--:|---|--:|--:|--:|---|--:|---|---|---|",
            ]
            for rank, method in enumerate(result.methods, 1):
                if method.verdict == DISQUALIFIED:
                    lines.append(
                        f"| | {_md(method.label)} | {method.n} | | | | | | disqualified: {_md(method.reason)} "
                        f"| {', '.join(method.flags)} |"
                    )
                    continue
                lines.append(
                    f"| {rank} | {_md(method.label)} | {method.n} | {_number(method.median_s, 3)} "
                    f"| {_number(method.throughput_Bps, 1, 1e6)} | {_ratio(method)} | {_cpu(method).strip()} "
                    f"| {_yes_no(method.encrypted)} | {method.verdict} | {', '.join(method.flags)} |"
                )
            lines += ["", f"**{_md(_advice_line(result)[:1].upper() + _advice_line(result)[1:])}**"]
    return "\n".join(lines) + "\n"


def _md(text: str) -> str:
    """Text that a Markdown table shows as it is."""
    for character in "\\`*_{}[]<>|":
        text = text.replace(character, "\\" + character)
    return text


CSV_COLUMNS = (
    "link",
    "dataset",
    "scenario",
    "label",
    "module",
    "n",
    "median_s",
    "ci_low_s",
    "ci_high_s",
    "ratio_to_best",
    "ratio_low",
    "ratio_high",
    "throughput_Bps",
    "efficiency",
    "cpu_s_per_GB_source",
    "cpu_s_per_GB_target",
    "cpu_percent_source",
    "cpu_percent_target",
    "encrypted",
    "verdict",
    "provisional",
    "recommended",
    "flags",
    "reason",
)


def as_csv(summary: Summary) -> str:
    """C(summary.csv): one line a link, dataset, scenario and method; what is not known is empty."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for link in summary.links:
        for result in link.results:
            for method in result.methods:
                low, high = method.ci_s or (None, None)
                ratio_low, ratio_high = method.ratio_ci or (None, None)
                writer.writerow(
                    {
                        "link": link.name,
                        "dataset": result.dataset,
                        "scenario": result.scenario,
                        "label": method.label,
                        "module": method.module,
                        "n": method.n,
                        "median_s": _rounded(method.median_s),
                        "ci_low_s": _rounded(low),
                        "ci_high_s": _rounded(high),
                        "ratio_to_best": _rounded(method.ratio_to_best),
                        "ratio_low": _rounded(ratio_low),
                        "ratio_high": _rounded(ratio_high),
                        "throughput_Bps": _rounded(method.throughput_Bps),
                        "efficiency": _rounded(method.efficiency),
                        "cpu_s_per_GB_source": _rounded(method.cpu_s_per_GB["source"]),
                        "cpu_s_per_GB_target": _rounded(method.cpu_s_per_GB["target"]),
                        "cpu_percent_source": _rounded(method.cpu_percent["source"]),
                        "cpu_percent_target": _rounded(method.cpu_percent["target"]),
                        "encrypted": method.encrypted,
                        "verdict": method.verdict,
                        "provisional": method.provisional,
                        "recommended": method.label == result.recommended,
                        "flags": " ".join(method.flags),
                        "reason": method.reason,
                    }
                )
    return buffer.getvalue()
