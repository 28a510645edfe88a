# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The summary of a campaign as a table, a report and a file of comma-separated values. Plain Python: knows nothing of Ansible."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Mapping
from typing import Any

from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.plan import show_bytes
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.statistics import DISQUALIFIED
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.summary import (
    LinkResult,
    MethodResult,
    Result,
    Summary,
    rounded,
)

WIDTH = 100
#: What a flag means, for the reader of a table; a flag that is not here explains itself.
FLAGS: Mapping[str, str] = {
    "setup-dominated": "set-up takes over 20 % of the time: it ranks for this size only",
    "shared-filesystem": "both ends write to one file system",
    "foreign-session": "another login ended on the target meanwhile, so its CPU time is not known",
}


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
                    }
                )
    return buffer.getvalue()
