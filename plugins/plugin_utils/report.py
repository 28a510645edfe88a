# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The summary of a campaign as a table, a report and a file of comma-separated values. Plain Python: knows nothing of Ansible."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import wording
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.plan import EMPTY, FIDELITY, FULL
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.statistics import DISQUALIFIED
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.summary import (
    LinkResult,
    MethodResult,
    Result,
    Summary,
    rounded,
)

WIDTH = 100
LEGEND = "%ceil: share of the ceiling. CPU s/t: at source/target, 100 is one core. enc: encrypted."
_LIMITER_WIDTH = 10
#: The names of what limits a method that are too long for the table.
_SHORT_LIMITERS = {"per-file-latency": "per-file", "compressor-cpu": "compressor", "program-cpu": "program"}
#: How each column of the table is aligned, and the spaces in front of it.
_COLUMNS = (
    ("#", ">", 0),
    ("method", "<", 2),
    ("median s", ">", 1),
    ("MB/s", ">", 1),
    ("%ceil", ">", 1),
    ("ratio to best", "<", 2),
    ("CPU s/t", ">", 1),
    ("enc", "<", 1),
    ("verdict", "<", 1),
    ("limited by", "<", 1),
    ("", "<", 1),
)


def table(summary: Summary, width: int = WIDTH) -> str:
    """The plain table for a terminal, at most C(width) columns wide."""
    lines: list[str] = []
    for link in summary.links:
        lines += ["", f"== {wording.link_line(link)}", *(f"  {wording.flag_line(flag)}" for flag in link.flags)]
        reason = wording.unmeasured(link)
        if reason:
            lines += ["", f"not measured: {reason}"]
            continue
        for result in link.results:
            block = _fixed_costs(result) if result.scenario == EMPTY else _table_lines(result, width)
            lines += ["", wording.result_line(result), *block]
        lines += _kept_lines(link)
        lines += _model_lines(link)
    if any(link.results and not wording.unmeasured(link) for link in summary.links):
        lines += ["", LEGEND]
    return "\n".join(part for line in lines for part in (_fit(wording.plain(line), width) or [""])) + "\n"


def _fit(line: str, width: int) -> list[str]:
    """The line, broken where it is too long."""
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.wrap(line, width, subsequent_indent=indent, drop_whitespace=True, break_on_hyphens=False)


def last_words(summary: Mapping[str, Any]) -> list[str]:
    """What C(summary.json) recommends, one line for each link, dataset and scenario in which there is data to copy; and
    who keeps what is required, or most."""
    lines = []
    for link in summary.get("links", ()):
        for result in link["results"]:
            if result["scenario"] == EMPTY:
                continue
            provisional = any(method["provisional"] for method in result["methods"])
            use = "no recommendation" if result["recommended"] is None else f"use {result['recommended']}"
            what = result["dataset"] + (
                "" if result["scenario"] == FULL else f" ({wording.scenario(result['scenario'])})"
            )
            lines.append(f"{link['name']}, {what}: {use}{' (provisional)' if provisional else ''}")
        if link.get("fidelity"):
            lines.append(f"{link['name']}, {FIDELITY}: {link['fidelity']['reason']}")
    return lines


def _table_lines(result: Result, width: int) -> list[str]:
    if wording.nothing(result):
        return [f"not measured: {wording.nothing(result)}"]
    common, _single = wording.split_flags(result)
    marks = wording.flag_marks(result)
    ranked = wording.ranked(result)
    rows = [
        [
            str(rank),
            wording.plain(method.label),
            wording.seconds(method.median_s),
            wording.rate(method.throughput_Bps),
            wording.percent(method.efficiency),
            wording.ratio(method),
            wording.cpu(method, "/"),
            wording.yes_no(method.encrypted),
            method.verdict,
            _limiter(method),
            "".join(marks[flag] for flag in method.flags if flag in marks),
        ]
        for rank, method in enumerate(ranked, 1)
    ]
    others = [method for method in result.methods if method.verdict == DISQUALIFIED]
    sizes = [max(map(wording.columns, cells)) for cells in zip(*([head for head, *_ in _COLUMNS], *rows), strict=True)]
    room = width - sum(sizes) + sizes[1] - sum(gap for _head, _align, gap in _COLUMNS)
    longest = max([sizes[1], *(wording.columns(wording.plain(method.label)) for method in others)])
    sizes[1] = max(len("method"), min(longest, room))
    lines = [_row([head for head, *_ in _COLUMNS], sizes)]
    lines.append("-" * min(width, sum(sizes) + sum(gap for _head, _align, gap in _COLUMNS)))
    lines += [_row(row, sizes) for row in rows]
    for method in others:
        label = _padded(wording.cut(wording.plain(method.label), sizes[1]), sizes[1], "<")
        lines.append(f"{'-':>{sizes[0]}}  {label} disqualified: {method.reason}")
    # Labels that had to be cut may look the same.
    lines += [f"  {row[0]}: {row[1]}" for row in rows if wording.columns(row[1]) > sizes[1]]
    for flag, mark in [*marks.items(), *((flag, "all:") for flag in common)]:
        lines.append(f"  {mark} {wording.flag_line(flag)}")
    lines += [f"  {wording.flag_line(flag)}" for flag in result.flags]
    lines += [f"  {note}" for note in _notes(result)]
    lines.append(f"=> {wording.advice_line(result)}")
    return lines


def _row(cells: Sequence[str], sizes: Sequence[int]) -> str:
    shown = list(cells)
    shown[1] = wording.cut(shown[1], sizes[1])
    columns = zip(shown, sizes, _COLUMNS, strict=True)
    return "".join(" " * gap + _padded(cell, size, align) for cell, size, (_head, align, gap) in columns).rstrip()


def _padded(text: str, size: int, align: str) -> str:
    """As the format of a string does it, for text with characters that are two columns wide."""
    blank = " " * (size - wording.columns(text))
    return blank + text if align == ">" else text + blank


def _notes(result: Result) -> list[str]:
    notes = wording.notes(result)
    chosen = wording.chosen(result)
    if chosen and chosen.limiter and chosen.limiter_reason:
        notes.append(wording.limit_line(chosen))
    ranked = wording.ranked(result)
    runs = {method.n for method in ranked}
    if len(runs) > 1:
        fewer = [method for method in ranked if method.n < max(runs)]
        notes.append(f"{max(runs)} runs each, fewer of " + ", ".join(f"{m.label} ({m.n})" for m in fewer))
    return notes


def _fixed_costs(result: Result) -> list[str]:
    if wording.nothing(result):
        return [f"not measured: {wording.nothing(result)}"]
    methods = wording.by_time(result)
    longest = max(wording.columns(method.label) for method in methods)
    lines = []
    for method in methods:
        label = _padded(method.label, longest, "<")
        if method.verdict == DISQUALIFIED:
            lines.append(f"  {label}  disqualified: {method.reason}")
        else:
            lines.append(f"  {label}  {wording.seconds(method.median_s):>8} s")
    return lines + [f"  {note}" for note in wording.notes(result)]


def _kept_lines(link: LinkResult) -> list[str]:
    """What each method keeps, methods that keep the same in one line; the tables are in the reports."""
    if link.fidelity is None:
        return []
    lines = ["", wording.kept_line(link.fidelity)]
    alike: dict[str, list[str]] = {}
    for method in link.fidelity.methods:
        if not method.reason:
            cells = zip(wording.kept_groups(link.fidelity), wording.kept_cells(link.fidelity, method), strict=True)
            bad = ", ".join(f"{name} {cell}" for name, cell in cells if not cell.startswith(("yes", wording.NONE)))
            alike.setdefault(f"{wording.kept_count(method)}{f'; not {bad}' if bad else ''}", []).append(method.label)
    lines += [f"  {', '.join(labels)}: {what}" for what, labels in alike.items()]
    lines += [f"  {note}" for note in wording.kept_notes(link.fidelity)]
    return [*lines, f"  {wording.SIGNS_LEGEND}", f"=> {link.fidelity.reason}"]


def _model_lines(link: LinkResult) -> list[str]:
    if not link.models:
        return []
    lines = ["", "what a copy takes: fixed s + ms per file + bytes at MB/s, fitted over the trees above"]
    fitted, without = wording.model_rows(link.models)
    if fitted:
        lines += _plain_table(wording.MODEL_HEAD, fitted, "<>>>>>")
    lines += [f"  {sentence}" for sentence in without]
    for title, forecasts in wording.forecasts(link.models):
        lines += ["", title, *_plain_table(wording.FORECAST_HEAD, forecasts, "<<<")]
    return lines


def _plain_table(head: Sequence[str], rows: Sequence[Sequence[str]], aligns: str) -> list[str]:
    sizes = [max(map(wording.columns, cells)) for cells in zip(head, *rows, strict=True)]
    sizes[0] = min(sizes[0], 20)
    lines = []
    for row in [head, *rows]:
        cells = [wording.cut(row[0], sizes[0]), *row[1:]]
        padded = (_padded(*column) for column in zip(cells, sizes, aligns, strict=True))
        lines.append("  " + "  ".join(padded).rstrip())
    return lines


def _limiter(method: MethodResult) -> str:
    if method.limiter is None:
        return wording.NONE
    return wording.cut(_SHORT_LIMITERS.get(method.limiter, method.limiter), _LIMITER_WIDTH)


def markdown(summary: Summary) -> str:
    """C(report.md)."""
    lines = [
        f"# Bulk copy campaign {_md(summary.campaign_id)}",
        "",
        f"Profile {_md(summary.profile)}; {summary.ok} of {summary.planned} planned runs (warm-ups included) ended ok.",
        "Times are total_s (set-up and copy), medians over the blocks; durable s waits for the target's disk too. Ratios "
        "come from comparisons within blocks, with intervals that hold for all pairs at once. CPU: 100 % is one core.",
    ]
    if summary.missing:
        lines += ["", "Missing:", "", *(f"- {_md(sentence)}" for sentence in summary.missing)]
    for link in summary.links:
        lines += ["", f"## {_md(wording.link_line(link))}"]
        if link.flags:
            lines += ["", *(f"- {_md(wording.flag_line(flag))}" for flag in link.flags)]
        if not link.results and not link.fidelity:
            lines += ["", f"Not measured: {wording.unmeasured(link)}."]
        for result in link.results:
            lines += ["", f"### {_md(wording.result_line(result))}", "", *_md_result(result)]
        lines += _md_kept(link)
        lines += _md_models(link)
        hosts = wording.host_rows(link)
        if hosts:
            head = ("", f"source {link.source}", f"target {link.target}")
            lines += ["", "### The hosts of this link", "", *_md_table(head, "---", hosts)]
    made_with = wording.software_line(summary)
    lines += ["", f"Made with {_md(made_with)}."] if made_with else []
    return "\n".join(lines) + "\n"


def _md_result(result: Result) -> list[str]:
    if result.scenario == EMPTY:
        costs = [(m.label, str(m.n), _time_or_fault(m)) for m in wording.by_time(result)]
        lines = _md_table(("method", "n", "median s"), "-::", costs)
        return lines + _md_list(wording.notes(result))
    rows = []
    for rank, method in enumerate(result.methods, 1):
        fit = method.verdict != DISQUALIFIED
        figures = (
            wording.seconds(method.median_s),
            wording.seconds(method.durable_s),
            wording.rate(method.throughput_Bps),
            wording.percent(method.efficiency),
            wording.size(method.sent_bytes),
            wording.ratio(method),
            wording.cpu(method),
            wording.yes_no(method.encrypted),
        )
        rows.append(
            (
                str(rank) if fit else "",
                method.label,
                str(method.n),
                *(figures if fit else [""] * len(figures)),
                method.verdict if fit else f"disqualified: {method.reason}",
                (method.limiter or wording.NONE) if fit else "",
                ", ".join(method.flags),
            )
        )
    head = (
        "#",
        "method",
        "n",
        "median s",
        "durable s",
        "MB/s",
        "% of ceiling",
        "sent",
        "ratio to best",
        "CPU % src / tgt",
        "encrypted",
        "verdict",
        "limited by",
        "flags",
    )
    lines = _md_table(head, ":-::::::-:----", rows)
    limits = [wording.limit_line(method) for method in result.methods if method.limiter_reason]
    common, single = wording.split_flags(result)
    flags = [wording.flag_line(flag) for flag in [*common, *single, *result.flags]]
    lines += _md_list([*wording.notes(result), *limits, *flags])
    return [*lines, "", f"**{_md(wording.capitalised(wording.advice_line(result)))}**"]


def _md_kept(link: LinkResult) -> list[str]:
    """What each method keeps: a table of the groups that users ask for, and below it what was not kept, by case."""
    if link.fidelity is None:
        return []
    found = link.fidelity
    groups = wording.kept_groups(found)
    lines = ["", f"### {_md(wording.capitalised(wording.kept_line(found)))}", ""]
    head = ["method", *(f"{name} (required)" if name in found.required else name for name in groups), "cases kept"]
    rows = [["(names in the tree)", *map(str, wording.kept_names(found)), ""]] if groups else []
    for method in found.methods:
        cells = wording.kept_cells(found, method)
        rows.append([method.label, *cells, wording.kept_count(method)])
    lines += _md_table(head, "-" * len(head), rows)
    lines += ["", _md(wording.SIGNS_LEGEND), *_md_list(wording.kept_notes(found))]
    lines += ["", f"**{_md(wording.capitalised(found.reason))}.**"]
    details = wording.kept_details(found)
    if details:
        lines += ["", "#### What was not kept", "", *_md_table(wording.KEPT_HEAD, "-----", details)]
    return lines


def _time_or_fault(method: MethodResult) -> str:
    if method.verdict == DISQUALIFIED:
        return f"disqualified: {method.reason}"
    return wording.seconds(method.median_s)


def _md_models(link: LinkResult) -> list[str]:
    if not link.models:
        return []
    lines = ["", "### What a copy takes: fixed s + ms per file + bytes at MB/s, fitted over the trees above"]
    fitted, without = wording.model_rows(link.models)
    if fitted:
        lines += ["", *_md_table(wording.MODEL_HEAD, "-:::::", fitted)]
    lines += _md_list(without)
    for title, forecasts in wording.forecasts(link.models):
        lines += ["", f"### {_md(wording.capitalised(title))}", "", *_md_table(wording.FORECAST_HEAD, "---", forecasts)]
    return lines


def _md_table(head: Sequence[str], aligns: str, rows: Iterable[Sequence[str]]) -> list[str]:
    """C(aligns): a colon for each column of figures, else a hyphen."""
    return [
        f"| {' | '.join(map(_md, head))} |",
        f"|{'|'.join('--:' if align == ':' else '---' for align in aligns)}|",
        *(f"| {' | '.join(map(_md, row))} |" for row in rows),
    ]


def _md_list(sentences: Sequence[str]) -> list[str]:
    return ["", *(f"- {_md(sentence)}" for sentence in sentences)] if sentences else []


def _md(text: str) -> str:
    """Text that a Markdown table shows as it is."""
    for character in "\\`*_{}[]<>|":
        text = text.replace(character, "\\" + character)
    return wording.plain(text).replace("\n", " ")


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
    "durable_s",
    "sent_bytes",
    "not_kept",
    "limiter",
    "limiter_reason",
    "outlier_blocks",
    "blocks",
    "noise_floor",
    "drift",
    "drift_low",
    "drift_high",
    "result_flags",
    "stopped",
    "ceiling_Bps",
    "ceiling_end_Bps",
    "rtt_ms",
    "rtt_end_ms",
    "link_flags",
    "fidelity",
)


def as_csv(summary: Summary) -> str:
    """C(summary.csv): one line a link, dataset, scenario and method; what is not known is empty. Those of the scenario
    C(fidelity) have C(id:outcome:kept/names) of each case."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for link in summary.links:
        for result in link.results:
            for method in result.methods:
                low, high = method.ci_s or (None, None)
                ratio_low, ratio_high = method.ratio_ci or (None, None)
                drift_low, drift_high = result.drift_ci or (None, None)
                writer.writerow(
                    {
                        "link": link.name,
                        "dataset": result.dataset,
                        "scenario": result.scenario,
                        "label": method.label,
                        "module": method.module,
                        "n": method.n,
                        "median_s": rounded(method.median_s),
                        "ci_low_s": rounded(low),
                        "ci_high_s": rounded(high),
                        "ratio_to_best": rounded(method.ratio_to_best),
                        "ratio_low": rounded(ratio_low),
                        "ratio_high": rounded(ratio_high),
                        "throughput_Bps": rounded(method.throughput_Bps),
                        "efficiency": rounded(method.efficiency),
                        "cpu_s_per_GB_source": rounded(method.cpu_s_per_GB["source"]),
                        "cpu_s_per_GB_target": rounded(method.cpu_s_per_GB["target"]),
                        "cpu_percent_source": rounded(method.cpu_percent["source"]),
                        "cpu_percent_target": rounded(method.cpu_percent["target"]),
                        "encrypted": method.encrypted,
                        "verdict": method.verdict,
                        "provisional": method.provisional,
                        "recommended": method.label == result.recommended,
                        "flags": " ".join(method.flags),
                        "reason": method.reason,
                        "durable_s": rounded(method.durable_s),
                        "sent_bytes": method.sent_bytes,
                        "not_kept": " ".join(f"{kind}:{number}" for kind, number in sorted(method.not_kept.items())),
                        "limiter": method.limiter,
                        "limiter_reason": method.limiter_reason,
                        "outlier_blocks": " ".join(map(str, method.outliers)),
                        "blocks": result.blocks,
                        "noise_floor": rounded(result.noise_floor),
                        "drift": rounded(result.drift),
                        "drift_low": rounded(drift_low),
                        "drift_high": rounded(drift_high),
                        "result_flags": " ".join(result.flags),
                        "stopped": result.stopped,
                        "ceiling_Bps": rounded(link.ceiling_Bps),
                        "ceiling_end_Bps": rounded(link.ceiling_end_Bps),
                        "rtt_ms": rounded(link.rtt_ms),
                        "rtt_end_ms": rounded(link.rtt_end_ms),
                        "link_flags": " ".join(link.flags),
                    }
                )
        for keeping in link.fidelity.methods if link.fidelity else ():
            writer.writerow(
                {
                    "link": link.name,
                    "dataset": FIDELITY,
                    "scenario": FIDELITY,
                    "label": keeping.label,
                    "module": keeping.module,
                    "n": 0 if keeping.reason else 1,
                    "verdict": DISQUALIFIED if keeping.unmet else "",
                    "reason": keeping.reason or "; ".join(keeping.unmet),
                    "fidelity": " ".join(
                        f"{case['id']}:{case['outcome']}:{case['kept']}/{case['names']}" for case in keeping.cases
                    ),
                }
            )
    return buffer.getvalue()
