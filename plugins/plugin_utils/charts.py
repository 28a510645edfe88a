# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Charts of one result as SVG for the page, one row a method. Plain Python: knows nothing of Ansible.

All charts have the same rows at the same heights, so that they can stand side by side. Colours and fonts come from the
style sheet of the page. Lengths are in the units of the view box, which are pixels at full size.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence

from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import wording
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.statistics import DISQUALIFIED, SLOWER, UNRESOLVED
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.summary import MethodResult, Result

WIDTH = 380
_LABEL_END = 132  # where the labels end and the plot begins
_LABEL_COLUMNS = 15
_TOP = 36
_ROW = 22
#: Ticks of a logarithmic axis, the ones to keep first.
_LOG_TICKS = (1, 10, 100, 1000, 2, 5, 20, 50, 200, 500, 1.5, 3, 1.2, 1.1, 1.3, 1.05, 7, 30, 1.4, 1.02)
_TICK_GAP = 30


def escape(text: str) -> str:
    """Text as HTML and SVG show it, in elements and attributes."""
    return html.escape(wording.plain(text).replace("\n", " "))


def ratios(result: Result, ident: str) -> str:
    """Dots at the ratio to the best with whiskers for the interval, on a logarithmic axis from 1, and a dashed line at
    the ratio up to which a method counts as fast as the best. Empty where fewer than two methods were compared."""
    methods = wording.ranked(result)
    known = [method.ratio_to_best for method in methods if method.ratio_to_best is not None]
    if len(known) < 2:
        return ""
    limit = wording.practical(result)
    intervals = [interval for method in methods if (interval := wording.ratio_interval(method))]
    # A very wide interval is cut: it must not push all the dots together.
    high = max([1.2, limit**1.5, *known, *(min(upper, max(known) ** 1.3) for _lower, upper in intervals)]) ** 1.05
    low = max(high**-0.25, min([high**-0.04, *(lower / 1.01 for lower, _upper in intervals)]))
    start, end = _LABEL_END + 4, WIDTH - 44

    def at(value: float) -> float:
        return start + (end - start) * math.log(value / low) / math.log(high / low)

    ticks = [tick for tick in _log_ticks(high, at) if tick == 1 or abs(at(tick) - at(limit)) > 14]
    parts = _grid(ticks, at, len(methods))
    parts.append(_reference(at(limit), f"{limit:.2f}: slower beyond", len(methods), "start"))
    for row, method in enumerate(methods):
        if method.ratio_to_best is None:
            parts.append(_value(row, wording.UNKNOWN))
            continue
        y = _middle(row)
        interval = wording.ratio_interval(method)
        words = [f"{method.label}: {wording.ratio(method, wording.EN_DASH)}, {method.verdict}"]
        marks = []
        if interval is not None:
            left, right = (min(max(value, low), high) for value in interval)
            cls = "whisker provisional" if method.provisional else "whisker"
            marks.append(_line(at(left), y, at(right), y, cls))
            for value, shown, pointing in ((interval[0], left, -1), (interval[1], right, 1)):
                x = at(shown)
                if value != shown:
                    marks.append(f'<path class="arrow" d="M{x:.1f} {y:.1f}l{-5 * pointing} -3.5v7z"/>')
                else:
                    marks.append(_line(x, y - 3.5, x, y + 3.5, "whisker"))
        cls = {SLOWER: "dot slower", UNRESOLVED: "dot unresolved"}.get(method.verdict, "dot")
        marks.append(f'<circle class="{cls}" cx="{at(method.ratio_to_best):.1f}" cy="{y:.1f}" r="4"/>')
        parts.append(_group(words, marks))
        parts.append(_value(row, wording.times(method.ratio_to_best)))
    return _svg(result, ident, "Ratio to the fastest method, with interval", methods, [*parts, *_axis(ticks, at)])


def throughputs(result: Result, ceiling_Bps: float | None, ident: str) -> str:  # noqa: N803
    """Bars of throughput in MB/s, outlined for clear text, and a dashed line at the link's ceiling. Empty where no
    throughput is known."""
    methods = wording.ranked(result)
    known = [method.throughput_Bps / 1e6 for method in methods if method.throughput_Bps is not None]
    if not known:
        return ""
    ceiling = None if ceiling_Bps is None else ceiling_Bps / 1e6
    most = max([1e-6, *known, ceiling or 0.0])
    at = _linear(most, WIDTH - 88)
    ticks = linear_ticks(most)
    parts = _grid(ticks, at, len(methods))
    for row, method in enumerate(methods):
        if method.throughput_Bps is None:
            parts.append(_value(row, wording.UNKNOWN))
            continue
        share = "" if method.efficiency is None else f"{wording.percent(method.efficiency)} %"
        words = [f"{method.label}: {wording.rate(method.throughput_Bps)} MB/s"]
        if share:
            words.append(f"{share} of the ceiling")
        cls = "bar clear" if method.encrypted is False else "bar"
        parts.append(_group(words, [_bar(at(0), at(method.throughput_Bps / 1e6), _middle(row) - 6, 12, cls)]))
        parts.append(_value(row, wording.rate(method.throughput_Bps), WIDTH - 42 if share else WIDTH))
        parts.append(_value(row, share))
    if ceiling is not None:
        anchor = "end" if at(ceiling) > (_LABEL_END + WIDTH) / 2 else "start"
        parts.append(_reference(at(ceiling), f"ceiling {wording.rate(ceiling_Bps)} MB/s", len(methods), anchor))
    return _svg(result, ident, "Throughput in MB/s", methods, [*parts, *_axis(ticks, at)])


def cpus(result: Result, ident: str) -> str:
    """Two bars a method: CPU time at the source and below it at the target, in per cent of one core. Empty where
    neither is known."""
    methods = wording.ranked(result)
    known = [value for method in methods for value in method.cpu_percent.values() if value is not None]
    if not known:
        return ""
    at = _linear(max([1.0, *known]), WIDTH - 70)
    ticks = linear_ticks(max([1.0, *known]))
    parts = _grid(ticks, at, len(methods))
    for row, method in enumerate(methods):
        marks, words = [], []
        for end, top in (("source", -6.5), ("target", 0.5)):
            value = method.cpu_percent[end]
            words.append(f"{end} {wording.whole(value)} %" if value is not None else f"{end} not known")
            if value is not None:
                marks.append(_bar(at(0), at(value), _middle(row) + top, 6, f"bar {end}"))
        parts.append(_group([f"{method.label}: {words[0]}", words[1]], marks))
        parts.append(_value(row, wording.cpu(method)))
    if max(known) > 100:
        parts.append(_reference(at(100), "one core", len(methods), "start"))
    return _svg(
        result, ident, "CPU time at source and target, in per cent of one core", methods, [*parts, *_axis(ticks, at)]
    )


def seconds(result: Result, ident: str) -> str:
    """Bars of the median total_s, the shortest first. Empty where nothing was measured."""
    methods = [method for method in wording.by_time(result) if method.verdict != DISQUALIFIED]
    known = [method.median_s for method in methods if method.median_s is not None]
    if not known:
        return ""
    at = _linear(max([1e-3, *known]), WIDTH - 60)
    ticks = linear_ticks(max([1e-3, *known]))
    parts = _grid(ticks, at, len(methods))
    for row, method in enumerate(methods):
        shown = wording.seconds(method.median_s)
        if method.median_s is not None:
            cls = "bar clear" if method.encrypted is False else "bar"
            bar = _bar(at(0), at(method.median_s), _middle(row) - 6, 12, cls)
            parts.append(_group([f"{method.label}: {shown} s"], [bar]))
        parts.append(_value(row, shown))
    return _svg(result, ident, "Seconds to copy an empty tree", methods, [*parts, *_axis(ticks, at)])


def linear_ticks(most: float) -> list[float]:
    """0 and at most four multiples of 1, 2 or 5 times a power of ten up to C(most), which is above 0."""
    step = 10.0 ** math.floor(math.log10(most))
    for factor in (0.1, 0.2, 0.5, 1, 2, 5):
        if most / (step * factor) < 5:
            step *= factor
            break
    return [float(f"{step * i:.6g}") for i in range(int(most / step) + 1)]


def _log_ticks(most: float, at: Callable[[float], float]) -> list[float]:
    ticks: list[float] = []
    for tick in _LOG_TICKS:
        if tick <= most and all(abs(at(tick) - at(other)) >= _TICK_GAP for other in ticks):
            ticks.append(tick)
    return sorted(ticks)


def _linear(most: float, end: float) -> Callable[[float], float]:
    def at(value: float) -> float:
        return _LABEL_END + 4 + (end - _LABEL_END - 4) * value / most

    return at


def _middle(row: int) -> float:
    return _TOP + _ROW * (row + 0.5)


def _bottom(rows: int) -> float:
    return _TOP + _ROW * rows


def _line(x1: float, y1: float, x2: float, y2: float, cls: str) -> str:
    return f'<line class="{cls}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _bar(x1: float, x2: float, y: float, height: float, cls: str) -> str:
    """At least half a pixel wide, so that a small value is seen."""
    return f'<rect class="{cls}" x="{x1:.1f}" y="{y:.1f}" width="{max(0.5, x2 - x1):.1f}" height="{height}"/>'


def _text(x: float, y: float, text: str, cls: str, anchor: str = "start") -> str:
    return f'<text class="{cls}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _grid(ticks: Sequence[float], at: Callable[[float], float], rows: int) -> list[str]:
    return [_line(at(tick), _TOP, at(tick), _bottom(rows), "grid") for tick in ticks]


def _axis(ticks: Sequence[float], at: Callable[[float], float]) -> list[str]:
    """The numbers, which are drawn over all lines."""
    return [_text(at(tick), _TOP - 6, f"{tick:g}", "tick axis", "middle") for tick in ticks]


def _reference(x: float, text: str, rows: int, anchor: str) -> str:
    """A dashed line over all rows, named above the ticks."""
    shift = 0 if anchor == "start" else 1
    return _line(x, 14, x, _bottom(rows), "reference") + _text(x + 3 - 6 * shift, 11, text, "name", anchor)


def _value(row: int, text: str, x: float = WIDTH) -> str:
    return _text(x - 2, _middle(row) + 4, text, "value", "end")


def _group(words: Sequence[str], marks: Sequence[str]) -> str:
    """Marks with the words that a pointer over them brings up."""
    return f"<g><title>{escape(', '.join(words))}</title>{''.join(marks)}</g>"


def _svg(result: Result, ident: str, title: str, methods: Sequence[MethodResult], parts: Sequence[str]) -> str:
    """The frame with the labels of the rows. The table of the page says in text what the chart shows."""
    height = _bottom(len(methods)) + 4
    rows = []
    for row, method in enumerate(methods):
        chosen = method.label == result.recommended
        if chosen:
            rows.append(f'<rect class="chosen" x="0" y="{_TOP + _ROW * row}" width="{WIDTH}" height="{_ROW}"/>')
        label = wording.cut(wording.plain(method.label), _LABEL_COLUMNS, "…")
        y = _middle(row) + 4
        rows.append(_text(17, y, str(row + 1), "tick", "end"))
        rows.append(
            f'<text class="label{" use" if chosen else ""}" x="23" y="{y:.1f}">'
            f"<title>{escape(method.label)}</title>{escape(label)}</text>"
        )
    about = f"{result.dataset}, {wording.scenario(result.scenario)}, {len(methods)} methods; the table beside has the same figures"
    return (
        f'<svg role="img" viewBox="0 0 {WIDTH} {height}" aria-labelledby="{ident}-title {ident}-about">'
        f'<title id="{ident}-title">{escape(title)}</title><desc id="{ident}-about">{escape(about)}</desc>'
        f"{''.join(rows)}{''.join(parts)}</svg>"
    )
