# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The summary of a campaign as a page that needs no network: one file with its style and its charts in it. Plain Python:
knows nothing of Ansible."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import charts, wording
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.charts import escape
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.plan import EMPTY, FIDELITY, FULL
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.statistics import DISQUALIFIED
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.summary import LinkResult, MethodResult, Result, Summary

# The policy keeps the page from loading or running anything, whatever a label or message holds.
_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
"""

_STYLE = """\
:root {
  --back: #fff; --text: #1b1f24; --soft: #5a6370; --rule: #d5d9df; --chosen: #e6f0fb;
  --one: #0f62ac; --two: #b35a00; --warn: #8a4b00; --warn-back: #fff3dc; --good: #17653a; --good-back: #e2f3e8;
  --bad: #9c1c1c; --bad-back: #fbe3e1;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #15181c; --text: #e3e6ea; --soft: #a0a8b4; --rule: #363d47; --chosen: #1c3047;
    --one: #6fb3f5; --two: #efa25a; --warn: #f5c983; --warn-back: #3b2d14; --good: #8fd6a9; --good-back: #17351f;
    --bad: #f2a09a; --bad-back: #451c1a;
  }
}
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; max-width: 1240px; padding: 1.25rem 1.25rem 3rem; background: var(--back); color: var(--text);
  font: 15px/1.45 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; overflow-wrap: anywhere;
}
h1 { font-size: 1.35rem; margin: 0; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .5rem; padding-top: .75rem; border-top: 2px solid var(--text); }
h3 { font-size: 1rem; margin: 2rem 0 .5rem; }
h4 { font-size: .9rem; margin: 1.25rem 0 .35rem; }
p, ul, dl { margin: .4rem 0; max-width: 80ch; }
.facts { max-width: none; }
ul { padding-left: 1.2rem; }
a { color: var(--one); }
code, .label { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
code { font-size: .92em; unicode-bidi: isolate; }
.soft, figcaption span { color: var(--soft); }
.use { border-left: 3px solid var(--one); padding-left: .7rem; }
.notice { border-left: 3px solid var(--two); padding-left: .7rem; }
.tag {
  display: inline-block; padding: 0 .45em; border-radius: 3px; font-size: .85em; font-weight: 600; white-space: nowrap;
  color: var(--good); background: var(--good-back);
}
.tag.provisional { color: var(--warn); background: var(--warn-back); }
.facts { display: flex; flex-wrap: wrap; gap: .2rem 2rem; }
.facts dt { color: var(--soft); font-size: .85em; }
.facts dd { margin: 0; font-variant-numeric: tabular-nums; }
.flags { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; font-size: 13px; }
.flags dd { margin: 0; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .4rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--rule); }
thead th { vertical-align: bottom; border-bottom-color: var(--soft); font-weight: 600; }
tbody th { font-weight: 400; }
.figure { text-align: right; white-space: nowrap; }
.figures td { white-space: nowrap; }
.figures thead th { white-space: normal; overflow-wrap: normal; }
.figures thead th:nth-child(n+7):nth-child(-n+9) { min-width: 3.6rem; }
.figures td.words, .figures tbody th { white-space: normal; }
.figures tbody th { min-width: 8.5rem; }
.figures tbody th.long { min-width: 20rem; }
tr.chosen > * { background: var(--chosen); }
tr.chosen code { font-weight: 700; }
.kept th, .kept td { padding: .25rem .3rem; }
.kept thead th:not(:first-child) { min-width: 0; text-align: left; }
.figures.kept thead th:nth-child(n) { min-width: 0; }
.kept thead th span { writing-mode: vertical-rl; transform: rotate(180deg); font-weight: 400; white-space: nowrap; }
.kept thead th.required span { font-weight: 700; }
.kept .good { color: var(--good); background: var(--good-back); }
.kept .changed { color: var(--warn); background: var(--warn-back); }
.kept .lost { color: var(--bad); background: var(--bad-back); }
.figures.kept tbody th { white-space: nowrap; }
.wide { overflow-x: auto; }
.wide:focus-visible { outline: 2px solid var(--one); }
.answer { width: 100%; font-size: 14px; table-layout: fixed; }
.answer thead th { width: 15%; }
.answer thead th:last-child { width: 40%; }
.answer .best { font-weight: 700; font-size: 1.05em; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 350px), 1fr)); gap: 1rem 1.5rem; }
figure { margin: .5rem 0; display: flex; flex-direction: column; max-width: 480px; }
figcaption { font-size: 13px; margin-bottom: auto; padding-bottom: .3rem; }
figcaption b, figcaption span { display: block; }
svg { display: block; width: 100%; height: auto; font-size: 11px; }
svg text { fill: var(--text); font-variant-numeric: tabular-nums; }
svg .tick, svg .name { fill: var(--soft); font-size: 10px; }
svg .axis { paint-order: stroke; stroke: var(--back); stroke-width: 4px; }
svg .label { unicode-bidi: isolate; }
svg .use { font-weight: 700; }
svg .chosen { fill: var(--chosen); }
svg .grid { stroke: var(--rule); }
svg .reference { stroke: var(--text); stroke-dasharray: 4 3; }
svg .whisker { stroke: var(--text); stroke-width: 1.3; }
svg .whisker.provisional { stroke-dasharray: 2.5 2; }
svg .arrow { fill: var(--text); }
svg .dot { fill: var(--one); stroke: var(--one); stroke-width: 1.5; }
svg .dot.unresolved { fill: var(--back); }
svg .dot.slower { fill: var(--soft); stroke: var(--soft); }
svg .bar { fill: var(--one); stroke: var(--one); }
svg .bar.clear { fill: var(--back); }
svg .bar.target { fill: var(--two); stroke: var(--two); }
.key { display: inline; font-style: normal; font-weight: 700; color: var(--one); }
.key.target { color: var(--two); }
@media (max-width: 640px) {
  body { padding: .9rem .8rem 2rem; }
  .answer thead { display: none; }
  .flags { display: block; }
  .flags dd { margin-bottom: .4rem; }
  .answer, .answer tbody, .answer tr, .answer th, .answer td { display: block; }
  .answer tr { border-bottom: 1px solid var(--rule); padding: .5rem 0; }
  .answer th, .answer td { border: 0; padding: .1rem 0; }
  .figures tbody th, .figures tbody th.long { min-width: 7.5rem; }
}
@media print {
  @page { size: landscape; margin: 10mm; }
  :root {
    --back: #fff; --text: #000; --soft: #444; --rule: #bbb; --chosen: #e8eef5;
    --one: #0f62ac; --two: #b35a00; --warn: #6b3a00; --warn-back: #fff; --good: #0f4a2a; --good-back: #fff;
    --bad: #7a1010; --bad-back: #fff;
  }
  body { max-width: none; padding: 0; font-size: 10pt; }
  table { font-size: 7.5pt; }
  th, td { padding: .15rem .35rem; }
  .answer { font-size: 9pt; }
  .wide { overflow: visible; }
  .charts { grid-template-columns: repeat(3, 1fr); }
  figure, tr, dl { break-inside: avoid; }
  h2, h3, h4 { break-after: avoid; }
  a { color: inherit; text-decoration: none; }
  svg .chosen, svg .bar, svg .dot, tr.chosen > * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""

_FIGURE = ' class="figure"'


def html(summary: Summary) -> str:
    """C(report.html): HTML 5, in which everything that comes from elsewhere is escaped."""
    title = escape(f"Bulk copy campaign {summary.campaign_id}")
    made_with = escape(wording.software_line(summary))
    made_with = f" Made with {made_with}." if made_with else ""
    parts = [
        _HEAD.format(title=title, style=_STYLE),
        f'<header>\n<h1>{title}</h1>\n<p class="soft">Profile {escape(summary.profile)}; {summary.ok} of '
        f"{summary.planned} planned runs (warm-ups included) ended ok.{made_with}</p>\n</header>\n<main>\n",
        *_answers(summary),
    ]
    for place, link in enumerate(summary.links, 1):
        parts += _link(link, f"link-{place}")
    if summary.missing:
        parts += ['<section id="missing">\n<h2>Missing</h2>\n', _list(summary.missing), "</section>\n"]
    parts.append(_how_to_read())
    parts.append("</main>\n</body>\n</html>\n")
    return "".join(parts)


def _answers(summary: Summary) -> list[str]:
    """What to use on each link for each tree: what the reader came for."""
    parts = ['<section id="answer">\n<h2>What to use</h2>\n']
    if summary.missing:
        parts.append(
            '<p class="notice">Not all that was planned was measured: <a href="#missing">what is missing</a>.</p>\n'
        )
    if not summary.links:
        return [*parts, "<p>No link was planned, so nothing was measured.</p>\n</section>\n"]
    parts.append(
        '<table class="answer">\n<thead><tr><th scope="col">link</th><th scope="col">tree</th><th scope="col">use</th>'
        '<th scope="col">how sure</th><th scope="col">why</th></tr></thead>\n<tbody>\n'
    )
    for number, link in enumerate(summary.links, 1):
        name = f'<th scope="row"><a href="#link-{number}">{escape(link.name)}</a></th>'
        reason = wording.unmeasured(link)
        if reason:
            parts.append(f'<tr>{name}<td colspan="4">not measured: {escape(reason)}</td></tr>\n')
            continue
        if not link.fidelity and all(result.scenario == EMPTY for result in link.results):
            parts.append(f'<tr>{name}<td colspan="4">only the fixed cost of each method was measured</td></tr>\n')
        for place, result in enumerate(link.results, 1):
            if result.scenario != EMPTY:
                parts.append(f"<tr>{name}{_answer(result, f'link-{number}-{place}')}</tr>\n")
        if link.fidelity:
            parts.append(
                f'<tr>{name}<td><a href="#link-{number}-{FIDELITY}">what is kept</a></td><td colspan="3">'
                f"{escape(wording.capitalised(link.fidelity.reason))}</td></tr>\n"
            )
    return [*parts, "</tbody>\n</table>\n</section>\n"]


def _answer(result: Result, ident: str) -> str:
    scenario = "" if result.scenario == FULL else f", {wording.scenario(result.scenario)}"
    tree = (
        f'<td><a href="#{ident}">{escape(result.dataset)}</a> '
        f'<span class="soft">{escape(wording.tree_size(result) + scenario)}</span></td>'
    )
    if result.recommended is None:
        return f"{tree}<td>no recommendation</td><td>{_sure(result)}</td><td>{escape(result.reason)}</td>"
    chosen = wording.chosen(result)
    speed = ""
    if chosen and chosen.throughput_Bps is not None:
        speed = f"{wording.rate(chosen.throughput_Bps)} MB/s"
        if chosen.efficiency is not None:
            speed += f", {wording.percent(chosen.efficiency)} % of the ceiling"
    return (
        f'{tree}<td><code class="best">{escape(result.recommended)}</code> <span class="soft">{speed}</span></td>'
        f"<td>{_sure(result)}</td><td>{escape(result.reason)}</td>"
    )


def _sure(result: Result) -> str:
    blocks = wording.count(result.blocks, "block")
    if wording.is_provisional(result):
        more = f", firm from {result.blocks_needed} on" if result.blocks_needed is not None else ""
        text = f'<span class="tag provisional">provisional</span> {blocks}{more}'
    else:
        text = f'<span class="tag">firm</span> {blocks}'
    return text + (f"; flags: {escape(', '.join(result.flags))}" if result.flags else "")


def _link(link: LinkResult, ident: str) -> list[str]:
    facts = [("from", link.source), ("to", f"{link.target} ({link.address})")]
    if link.ceiling_Bps is not None:
        after = (
            "" if link.ceiling_end_Bps is None else f", after the last run {wording.rate(link.ceiling_end_Bps)} MB/s"
        )
        facts.append(("ceiling", f"{wording.rate(link.ceiling_Bps)} MB/s{after}"))
    if link.rtt_ms is not None:
        after = "" if link.rtt_end_ms is None else f", after the last run {link.rtt_end_ms:.2f} ms"
        facts.append(("round trip", f"{link.rtt_ms:.2f} ms{after}"))
    if link.connect_s is not None:
        facts.append(("ssh login", f"{link.connect_s:.2f} s"))
    parts = [f'<section id="{ident}">\n<h2>{escape(link.name)}</h2>\n<dl class="facts">']
    parts += [f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in facts]
    parts.append("</dl>\n")
    parts.append(_flags([(flag, "") for flag in link.flags]))
    reason = wording.unmeasured(link)
    if reason:
        return [*parts, f'<p class="notice">Not measured: {escape(reason)}</p>\n</section>\n']
    for place, result in enumerate(link.results, 1):
        show = _fixed_costs if result.scenario == EMPTY else _result
        parts += [f'<section id="{ident}-{place}">\n', *show(link, result, f"{ident}-{place}"), "</section>\n"]
    return [*parts, *_kept(link, f"{ident}-{FIDELITY}"), *_models(link), *_hosts(link), "</section>\n"]


#: How a cell is coloured that does not say yes, by the worst that it says.
_KEPT_CLASSES = {"L": "lost", "R": "lost", "C": "changed", "F": "changed"}


def _kept(link: LinkResult, ident: str) -> list[str]:
    """What each method keeps: a table of the groups that users ask for, and below it what was not kept, by case."""
    if link.fidelity is None:
        return []
    found = link.fidelity
    title = escape(wording.capitalised(wording.kept_line(found)))
    parts = [
        f'<section id="{ident}">\n<h3>{title}</h3>\n<p class="use">{escape(wording.capitalised(found.reason))}.</p>\n'
    ]
    groups = wording.kept_groups(found)
    heads = "".join(
        f'<th scope="col"{_REQUIRED * (name in found.required)}><span>{escape(name)}</span></th>' for name in groups
    )
    cells = "".join(f"<td>{number}</td>" for number in wording.kept_names(found))
    rows = [f'<tr class="soft"><th scope="row">names in the tree</th>{cells}<td></td></tr>']
    for method in found.methods:
        cells = "".join(map(_kept_cell, wording.kept_cells(found, method)))
        cls = ' class="chosen"' if found.required and not method.unmet else ""
        count = escape(wording.kept_count(method))
        rows.append(f"<tr{cls}>{_name_cell(method.label)}{cells}<td>{count}</td></tr>")
    parts.append(
        '<div class="wide" role="region" tabindex="0" aria-label="What each method keeps">\n<table class="figures kept">\n'
        f'<thead><tr><th scope="col">method</th>{heads}<th scope="col">cases kept</th></tr></thead>\n<tbody>\n'
        + "\n".join(rows)
        + "\n</tbody>\n</table>\n</div>\n"
    )
    required = " Bold: required." if found.required else ""
    parts.append(f'<p class="soft">{escape(wording.SIGNS_LEGEND)}{required}</p>\n')
    parts.append(_list(wording.kept_notes(found)))
    lines = [
        f'<tr><th scope="row"><code>{escape(name)}</code></th>'
        + "".join(f'<td class="words">{escape(text)}</td>' for text in texts)
        + "</tr>"
        for name, *texts in wording.kept_details(found)
    ]
    if lines:
        parts += ["<h4>What was not kept</h4>\n", _wide("Cases", [(name, False) for name in wording.KEPT_HEAD], lines)]
    return [*parts, "</section>\n"]


_REQUIRED = ' class="required"'


def _kept_cell(text: str) -> str:
    word = text.split(" ")[0] if text.startswith("yes") else text.removesuffix(f" {wording.NONE}").split(" ")[-1]
    cls = "good" if word == "yes" else _KEPT_CLASSES.get(word[-1], "soft")
    return f'<td class="{cls}">{escape(text)}</td>'


def _hosts(link: LinkResult) -> list[str]:
    rows = [
        f'<tr><th scope="row">{escape(kind)}</th><td class="words">{escape(here)}</td><td class="words">{escape(there)}</td></tr>'
        for kind, here, there in wording.host_rows(link)
    ]
    if not rows:
        return []
    head = [("", False), (f"source {link.source}", False), (f"target {link.target}", False)]
    return ["<section>\n<h3>The hosts of this link</h3>\n", _wide("Hosts", head, rows), "</section>\n"]


def _result(link: LinkResult, result: Result, ident: str) -> list[str]:
    parts = [
        f"<h3>{escape(result.dataset)}: {escape(wording.tree_size(result))}, {escape(wording.scenario(result.scenario))}</h3>\n"
    ]
    if wording.nothing(result):
        return [*parts, f'<p class="notice">Not measured: {escape(wording.nothing(result))}</p>\n']
    advice = wording.advice_line(result)
    parts.append(f'<p class="use">{_sure(result)}. {escape(wording.capitalised(advice))}.</p>\n')
    chosen = wording.chosen(result)
    if chosen:
        parts.append(f"<p>{_module(chosen)}</p>\n")
    parts += _charts(link, result, ident)
    parts.append(_table(result))
    parts.append(_list(wording.notes(result)))
    parts.append(_limits(result))
    common, single = wording.split_flags(result)
    of = {flag: ", ".join(m.label for m in wording.ranked(result) if flag in m.flags) for flag in single}
    of |= dict.fromkeys(common, "all methods")
    parts.append(
        _flags([*((flag, "") for flag in result.flags), *sorted(of.items())], marks=wording.flag_marks(result))
    )
    return parts


def _module(method: MethodResult) -> str:
    name = method.module if "." in method.module else f"linkops.bulkcopy.{method.module}"
    options = f" with <code>{escape(json.dumps(method.args, ensure_ascii=False))}</code>" if method.args else ""
    return f"It is the module <code>{escape(name)}</code>{options}."


def _charts(link: LinkResult, result: Result, ident: str) -> list[str]:
    dashes = " Dashed: provisional." if wording.is_provisional(result) else ""
    figures = [
        (
            charts.ratios(result, f"{ident}-ratio"),
            "Ratio to the fastest",
            f"Times as long, logarithmic. Hollow: not told apart from it yet.{dashes}",
        ),
        (
            charts.throughputs(result, link.ceiling_Bps, f"{ident}-rate"),
            "Throughput, MB/s",
            "Outlined: clear text." + ("" if link.ceiling_Bps else " The link's ceiling is not known."),
        ),
        (
            charts.cpus(result, f"{ident}-cpu"),
            "CPU, % of one core",
            '<i class="key">Upper bar: source</i>, <i class="key target">lower: target</i>.',
        ),
    ]
    drawn = [_figure(*figure) for figure in figures if figure[0]]
    return ['<div class="charts">\n', *drawn, "</div>\n"] if drawn else []


def _figure(svg: str, title: str, words: str) -> str:
    return f"<figure><figcaption><b>{title}</b><span>{words}</span></figcaption>{svg}</figure>\n"


def _table(result: Result) -> str:
    marks = wording.flag_marks(result)
    head = [
        ("#", True),
        ("method", False),
        ("ratio to best", False),
        ("verdict", False),
        ("limited by", False),
        ("encrypted", False),
        ("median s", True),
        ("interval s", True),
        ("to disk s", True),
        ("MB/s", True),
        ("% of ceiling", True),
        ("sent", True),
        ("CPU % source / target", True),
        ("CPU s/GB source / target", True),
        ("n", True),
        ("flags", False),
    ]
    rows = []
    for rank, method in enumerate(wording.ranked(result), 1):
        cells = [
            f"<td>{wording.ratio(method, wording.EN_DASH)}</td>",
            f"<td>{escape(method.verdict)}</td>",
            f"<td>{escape(method.limiter or wording.NONE)}</td>",
            f"<td>{wording.yes_no(method.encrypted)}</td>",
            _figure_cell(wording.seconds(method.median_s)),
            _figure_cell(_between(method.ci_s)),
            _figure_cell(wording.seconds(method.durable_s)),
            _figure_cell(wording.rate(method.throughput_Bps)),
            _figure_cell(wording.percent(method.efficiency)),
            _figure_cell(wording.size(method.sent_bytes)),
            _figure_cell(wording.cpu(method)),
            _figure_cell(" / ".join(_significant(method.cpu_s_per_GB[end]) for end in ("source", "target"))),
            _figure_cell(str(method.n)),
            f"<td>{' '.join(marks[flag] for flag in method.flags if flag in marks)}</td>",
        ]
        cls = ' class="chosen"' if method.label == result.recommended else ""
        rows.append(f"<tr{cls}>{_figure_cell(str(rank))}{_name_cell(method.label)}{''.join(cells)}</tr>")
    for method in result.methods:
        if method.verdict == DISQUALIFIED:
            flags = f" ({', '.join(method.flags)})" if method.flags else ""
            rows.append(
                f'<tr>{_figure_cell(wording.NONE)}{_name_cell(method.label)}<td class="words" colspan="{len(head) - 2}">'
                f"disqualified: {escape(method.reason + flags)}</td></tr>"
            )
    return _wide(f"All figures: {result.dataset}", head, rows)


def _name_cell(label: str) -> str:
    long = ' class="long"' if wording.columns(label) > 20 else ""
    return f'<th scope="row"{long}><code>{escape(label)}</code></th>'


def _figure_cell(text: str) -> str:
    return f'<td class="figure">{escape(text)}</td>'


def _between(interval_s: tuple[float, float] | None) -> str:
    return wording.UNKNOWN if interval_s is None else wording.EN_DASH.join(map(wording.seconds, interval_s))


def _significant(value: float | None) -> str:
    return wording.UNKNOWN if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _wide(name: str, head: Iterable[tuple[str, bool]], rows: Iterable[str]) -> str:
    """A table that scrolls by itself where it is wider than the page. C(head): titles, and whether figures follow."""
    titles = "".join(f'<th scope="col"{_FIGURE * figure}>{escape(title)}</th>' for title, figure in head)
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{escape(name)}">\n<table class="figures">\n'
        f"<thead><tr>{titles}</tr></thead>\n<tbody>\n" + "\n".join(rows) + "\n</tbody>\n</table>\n</div>\n"
    )


def _limits(result: Result) -> str:
    limited = [method for method in wording.ranked(result) if method.limiter]
    if not limited:
        return ""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for method in limited:
        by_reason.setdefault((method.limiter or "", method.limiter_reason), []).append(method.label)
    rows = [
        f'<tr><th scope="row">{escape(limiter)}</th><td>{", ".join(f"<code>{escape(x)}</code>" for x in labels)}</td>'
        f"<td>{escape(reason)}</td></tr>"
        for (limiter, reason), labels in by_reason.items()
    ]
    return (
        '<h4>What keeps them from being faster</h4>\n<table>\n<thead><tr><th scope="col">limit</th>'
        '<th scope="col">methods</th><th scope="col">seen in</th></tr></thead>\n<tbody>\n'
        + "\n".join(rows)
        + "\n</tbody>\n</table>\n"
    )


def _flags(flags: Sequence[tuple[str, str]], marks: Mapping[str, str] | None = None) -> str:
    """Flags with their meaning, the letter that stands for them in the table above, and, where it is not the whole that
    has them, with whose they are."""
    if not flags:
        return ""
    entries = []
    for flag, whose in flags:
        meaning = escape(wording.FLAGS.get(flag, "no meaning is known here"))
        of = f' <span class="soft">({escape(whose)})</span>' if whose else ""
        mark = f"{marks[flag]} " if marks and flag in marks else ""
        entries.append(f"<dt>{mark}<code>{escape(flag)}</code></dt><dd>{meaning}{of}</dd>")
    return f'<dl class="flags">{"".join(entries)}</dl>\n'


def _list(sentences: Sequence[str]) -> str:
    if not sentences:
        return ""
    return f"<ul>{''.join(f'<li>{escape(sentence)}</li>' for sentence in sentences)}</ul>\n"


def _fixed_costs(_link: LinkResult, result: Result, ident: str) -> list[str]:
    parts = ["<h3>Fixed cost of each method (an empty tree)</h3>\n"]
    if wording.nothing(result):
        return [*parts, f'<p class="notice">Not measured: {escape(wording.nothing(result))}</p>\n']
    rows = []
    for method in wording.by_time(result):
        name = _name_cell(method.label) + _figure_cell(str(method.n))
        if method.verdict == DISQUALIFIED:
            rows.append(f'<tr>{name}<td class="words" colspan="2">disqualified: {escape(method.reason)}</td></tr>')
        else:
            figures = _figure_cell(wording.seconds(method.median_s)) + _figure_cell(_between(method.ci_s))
            rows.append(f"<tr>{name}{figures}</tr>")
    svg = charts.seconds(result, f"{ident}-seconds")
    parts.append('<div class="charts">\n')
    if svg:
        parts.append(_figure(svg, "Seconds to copy nothing", "Outlined: clear text."))
    head = [("method", False), ("n", True), ("median s", True), ("interval s", True)]
    return [*parts, _wide("Fixed costs", head, rows), "</div>\n", _list(wording.notes(result))]


def _models(link: LinkResult) -> list[str]:
    if not link.models:
        return []
    parts = [
        "<section>\n<h3>What a copy takes, and what more would take</h3>\n<p>Fitted over the trees above: fixed seconds, "
        "milliseconds per file, and bytes at a rate in MB/s. The typical error is that of the fit.</p>\n"
    ]
    fitted, without = wording.model_rows(link.models)
    if fitted:
        rows = [f"<tr>{_name_cell(label)}{''.join(map(_figure_cell, figures))}</tr>" for label, *figures in fitted]
        head = [(title, place > 0) for place, title in enumerate(wording.MODEL_HEAD)]
        parts.append(_wide("Models", head, rows))
    parts.append(_list(without))
    for title, forecasts in wording.forecasts(link.models, f" {wording.EN_DASH} "):
        parts.append(f"<h4>{escape(wording.capitalised(title))}</h4>\n")
        lines = [
            f"<tr>{_name_cell(label)}{''.join(f'<td>{escape(x)}</td>' for x in cells)}</tr>"
            for label, *cells in forecasts
        ]
        parts.append(_wide(title, [(name, False) for name in wording.FORECAST_HEAD], lines))
    return [*parts, "</section>\n"]


def _how_to_read() -> str:
    return (
        '<section id="reading">\n<h2>How to read it</h2>\n<ul>'
        "<li>Times are total_s, setting up and copying, as medians over the blocks; <b>to disk</b> also waits until the "
        "target's disk has everything. <b>?</b> is what could not be measured.</li>"
        "<li>Ratios compare within the same block. Their intervals hold for all pairs of methods at once.</li>"
        "<li>Slower: the whole interval lies beyond the dashed line, 5 % or the noise floor. Equivalent: all of it lies "
        "before. Unresolved: too few blocks to say. Disqualified: a copy was corrupt, failed or could not be "
        "tried, or it does not keep what is required.</li>"
        "<li>Provisional: fewer blocks than the exact test needs; the intervals take the noise for log-normal.</li>"
        "<li>CPU: 100 % is one core. The target's figure includes what sshd itself spends.</li>"
        "</ul>\n</section>\n"
    )
