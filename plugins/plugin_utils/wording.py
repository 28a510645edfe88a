# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a summary is put into words and figures, the same in the table, the report and the page. Plain Python: knows
nothing of Ansible."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.linkops.bulkcopy.plugins.module_utils import _fidelity
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.keeping import Fidelity, Group, Keeping, tally
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.plan import EMPTY, UPDATE, show_bytes, show_duration
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.statistics import DELTA, DISQUALIFIED
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.summary import (
    Forecast,
    LinkResult,
    MethodResult,
    Model,
    Result,
    Summary,
)

UNKNOWN = "?"
NONE = "-"
EN_DASH = "\N{EN DASH}"

#: What every flag means, for the reader of a table.
FLAGS: Mapping[str, str] = {
    "setup-dominated": "connecting takes over 20 % of the time: the order holds for this size only",
    "shared-filesystem": "both ends write to one file system",
    "foreign-session": "another login ended on the target meanwhile, so its CPU time is not known",
    "sessions-unknown": "nobody can say how many logins on the target are the method's own, so its CPU time is not known",
    "own-ssh": "the method has an ssh client of its own, of which nobody knows what cipher it agreed on",
    "foreign-traffic": "other traffic crossed the link during the copy",
    "no-sshd-listener": "the target's CPU time is not known: a socket unit started sshd, or it is another server",
    "above-ceiling": "faster than the link can be, with data that does not compress: the time or the ceiling is wrong",
    "wire-too-small": "fewer bytes were sent than there are, with data that does not compress",
    "ceiling-changed": "the link's ceiling, before the first run and after the last, differs by more than 10 %",
    "ceiling-once": "the link's ceiling could not be measured again after the last run",
    "no-iperf3": "what the link carries at most is not known: iperf3 is missing at one end or at both",
    "ceiling-not-measured": "what the link carries at most is not known: iperf3 could not measure it",
    "streams-not-measured": "the link's ceiling is that of one stream or of four only: iperf3 could not measure the other",
    "drift": "the blocks became slower or faster as the campaign went on",
    "outliers": "some runs took far longer or shorter than the method's others; they count all the same",
    "source-changed": "the source was written to during the copy",
    "lost-symlinks": "symbolic links were not kept as links, which this method usually does",
    "lost-special_files": "special files were not kept, which this method usually does",
    "lost-hardlinks": "hard links became files of their own, which this method usually keeps",
    "lost-mode": "modes were not kept, which this method usually does",
    "lost-owner": "owners were not kept, which this method usually does",
    "lost-mtime": "modification times were not kept, which this method usually does",
    "shell-not-clean": "the login shell on the target prints something by itself",
    "no-space": "the target had too little room",
    "no-inodes": "the target had too few inodes",
    "session-lost": "the target could not be asked for its figures",
    "session-not-ended": "the target still had the session when its CPU time was due",
    "not-flushed": "when the target's disk had everything is not known: it could not be asked to write out",
    "login-dropped": "sshd closed a connection of one of several streams before its login",
    "cache-unknown": "what the page cache held before the copy is not known",
    "cache-not-warm": "the page cache could not be warmed as asked for",
    "cache-not-cold": "the page cache could not be emptied as asked for",
    "one-end-counted": "the bytes on the wire were counted at the source only, so other traffic may be among them",
    "no-device-counters": "the bytes on the wire are not known: the device's counters could not be read",
    "truncated": "not all of the stream arrived, though every program ended with 0",
    "stream-not-counted": "the bytes that arrived could not be compared with those sent",
    "not-verified": "the copies were not compared with the source, as asked for",
}


def flag_line(flag: str) -> str:
    """The flag and what it means."""
    return f"{flag}: {FLAGS[flag]}" if flag in FLAGS else flag


def ranked(result: Result) -> list[MethodResult]:
    """The methods that were compared, in their order."""
    return [method for method in result.methods if method.verdict != DISQUALIFIED]


def chosen(result: Result) -> MethodResult | None:
    """The recommended method; null where there is none."""
    return next((method for method in result.methods if method.label == result.recommended), None)


def capitalised(text: str) -> str:
    """The text with its first letter large; the others stay as they are."""
    return text[:1].upper() + text[1:]


def split_flags(result: Result) -> tuple[list[str], list[str]]:
    """The flags that all ranked methods have, where there are two or more, and those that only some have."""
    each = [set(method.flags) for method in ranked(result)]
    common = set.intersection(*each) if len(each) > 1 else set()
    return sorted(common), sorted(set().union(*each) - common)


def flag_marks(result: Result) -> dict[str, str]:
    """A letter for each flag that only some methods have, to stand in a table's line."""
    return {flag: chr(ord("a") + number) for number, flag in enumerate(split_flags(result)[1])}


def plain(text: str) -> str:
    """Text without characters that steer a terminal or that a file in UTF-8 cannot hold: those are shown as escapes."""
    return "".join(
        character if character.isprintable() or character == "\n" else character.encode("unicode_escape").decode()
        for character in text
    )


def columns(text: str) -> int:
    """How many columns of a terminal or of a fixed-width font the text takes."""
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


def cut(text: str, width: int, mark: str = "~") -> str:
    """The text in at most C(width) columns, with C(mark) at its end where something is left out."""
    if columns(text) <= width:
        return text
    kept = ""
    for character in text:
        if columns(kept + character) >= width:
            break
        kept += character
    return kept + mark


def seconds(value: float | None) -> str:
    """Milliseconds are shown up to 1000 s."""
    return UNKNOWN if value is None else f"{value:.3f}" if value < 1000 else f"{value:.1f}"


def rate(value_Bps: float | None) -> str:  # noqa: N803
    """MB/s without the unit."""
    if value_Bps is None:
        return UNKNOWN
    value = value_Bps / 1e6
    return f"{value:.2g}" if value < 1 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def percent(share: float | None) -> str:
    """A share of 1 as whole per cent without the sign."""
    return UNKNOWN if share is None else f"{100 * share:.0f}"


def size(value_bytes: float | None) -> str:
    return UNKNOWN if value_bytes is None else show_bytes(value_bytes)


def whole(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}"


def times(value: float) -> str:
    """A ratio; two decimals below 10."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def ratio(method: MethodResult, dash: str = "-") -> str:
    """The ratio to the best with its interval, as in C(1.12 (1.10-1.14))."""
    if method.ratio_to_best is None:
        return UNKNOWN
    interval = ratio_interval(method)
    text = times(method.ratio_to_best)
    return text if interval is None else f"{text} ({times(interval[0])}{dash}{times(interval[1])})"


def ratio_interval(method: MethodResult) -> tuple[float, float] | None:
    """Null also for the best itself, whose ratio is 1 by definition."""
    return None if method.ratio_ci == (1.0, 1.0) else method.ratio_ci


def cpu(method: MethodResult, separator: str = " / ") -> str:
    """CPU time at source and target, in per cent of one core."""
    return separator.join(whole(method.cpu_percent[end]) for end in ("source", "target"))


def yes_no(value: bool | None) -> str:
    return UNKNOWN if value is None else ("yes" if value else "no")


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def duration(value_s: float) -> str:
    """As C(show_duration), with two digits below 10 s."""
    return f"{value_s:.2g} s" if 0 < value_s < 9.5 else show_duration(max(value_s, 0.0))


def duration_with_interval(value_s: float | None, interval_s: tuple[float, float] | None, dash: str = " - ") -> str:
    """As in C(2 h 5 min (2 h 0 min - 2 h 11 min))."""
    if value_s is None:
        return UNKNOWN
    if interval_s is None:
        return duration(value_s)
    return f"{duration(value_s)} ({duration(interval_s[0])}{dash}{duration(interval_s[1])})"


def unmeasured(link: LinkResult) -> str:
    """The one reason for which nothing at all was measured on the link, else the empty string."""
    if link.fidelity and not nothing_kept(link.fidelity):
        return ""
    if not link.results:
        return nothing_kept(link.fidelity) if link.fidelity else "no run was planned"
    reasons = {nothing(result) for result in link.results}
    return reasons.pop() if len(reasons) == 1 else ""


def nothing(result: Result) -> str:
    """The one reason for which no method at all was measured, else the empty string."""
    reasons = {method.reason for method in result.methods}
    if len(reasons) == 1 and all(method.verdict == DISQUALIFIED and method.n == 0 for method in result.methods):
        return reasons.pop()
    return "" if result.methods else "no run was planned"


def nothing_kept(fidelity: Fidelity) -> str:
    """The one reason for which it is known of no method what it keeps, else the empty string."""
    reasons = {method.reason for method in fidelity.methods}
    return reasons.pop() if len(reasons) == 1 else ""


def ends(link: LinkResult) -> str:
    return f"{link.source} -> {link.target} ({link.address})"


def link_facts(link: LinkResult) -> list[str]:
    """What was measured of the link itself, before the first run and after the last."""
    facts = []
    if link.ceiling_Bps is not None:
        after = "" if link.ceiling_end_Bps is None else f" ({rate(link.ceiling_end_Bps)} after)"
        facts.append(f"ceiling {rate(link.ceiling_Bps)} MB/s{after}")
    if link.rtt_ms is not None:
        after = "" if link.rtt_end_ms is None else f" ({link.rtt_end_ms:.2f} after)"
        facts.append(f"rtt {link.rtt_ms:.2f} ms{after}")
    if link.connect_s is not None:
        facts.append(f"ssh login {link.connect_s:.2f} s")
    return facts


def link_line(link: LinkResult) -> str:
    return ", ".join([f"{link.name}: {ends(link)}", *link_facts(link)])


def limit_line(method: MethodResult) -> str:
    """What keeps the method from being faster, and what shows it."""
    if method.limiter is None:
        return f"{method.label}: {method.limiter_reason}"
    return f"{method.label} is limited by {method.limiter}: {method.limiter_reason}"


def host_facts(fingerprint: Mapping[str, Any]) -> dict[str, str]:
    """What a host is, by kind, as far as it is known; a kind of which nothing is known is not there."""

    def told(*parts: tuple[str, Any]) -> str:
        return ", ".join(form.format(value) for form, value in parts if value not in (None, "", []))

    cpu, disk = fingerprint.get("cpu") or {}, fingerprint.get("filesystem") or {}
    nic, tcp = fingerprint.get("nic") or {}, fingerprint.get("tcp") or {}
    memory, free = fingerprint.get("memory_bytes"), (fingerprint.get("room") or {}).get("bytes")
    most = {key: tcp[key][2] for key in ("rmem", "wmem") if isinstance(tcp.get(key), list) and len(tcp[key]) > 2}
    facts = {
        "system": told(
            ("{}", fingerprint.get("os")),
            ("Linux {}", fingerprint.get("kernel")),
            ("{}", fingerprint.get("architecture")),
            ("Python {}", fingerprint.get("python")),
        ),
        "machine": told(
            ("{}", cpu.get("model")),
            ("cores {}", cpu.get("cores")),
            ("limited to {} of them", (fingerprint.get("cpu_limit") or {}).get("cores")),
            ("governor {}", cpu.get("governor")),
            ("{}", " ".join(cpu.get("flags") or ())),
            ("memory {}", None if memory is None else show_bytes(memory)),
            ("virtualisation {}", fingerprint.get("virtualisation")),
        ),
        "disk": told(
            ("{}", disk.get("type")),
            ("{}", (disk.get("device") or {}).get("kind")),
            ("{} free", None if free is None else show_bytes(free)),
            ("mounted {}", ",".join(disk.get("options") or ())),
        ),
        "network": told(
            ("{}", nic.get("device")),
            ("driver {}", nic.get("driver")),
            ("{} Mbit/s", nic.get("speed_mbit")),
            ("MTU {}", nic.get("mtu")),
            ("qdisc {}", nic.get("qdisc")),
        ),
        "TCP": told(
            ("{}", tcp.get("congestion_control")),
            ("receive buffer up to {}", show_bytes(most["rmem"]) if "rmem" in most else None),
            ("send buffer up to {}", show_bytes(most["wmem"]) if "wmem" in most else None),
        ),
        "programs": "; ".join(
            f"{name}: {found.get('version') or found.get('path')}"
            for name, found in sorted((fingerprint.get("programs") or {}).items())
        ),
    }
    return {kind: text for kind, text in facts.items() if text}


def host_rows(link: LinkResult) -> list[tuple[str, str, str]]:
    """Kind, source, target; empty where nothing is known of either."""
    here, there = (host_facts(link.fingerprints.get(end) or {}) for end in ("source", "target"))
    return [(kind, here.get(kind, UNKNOWN), there.get(kind, UNKNOWN)) for kind in {**here, **there}]


def software_line(summary: Summary) -> str:
    """What measured, and the seed of the order; empty where neither is known."""
    parts = [f"{name} {version}" for name, version in summary.software.items() if version]
    if summary.seed is not None:
        parts.append(f"seed {summary.seed}")
    return ", ".join(parts)


def tree_size(result: Result) -> str:
    """As in C(2 files, 20 MB)."""
    parts = []
    if result.files is not None:
        parts.append(count(result.files, "file"))
    if result.bytes is not None:
        parts.append(show_bytes(result.bytes))
    return ", ".join(parts) or "size unknown"


def is_provisional(result: Result) -> bool:
    return any(method.provisional for method in result.methods)


def how_sure(result: Result) -> str:
    """The number of blocks, and how many a firm verdict takes."""
    if result.blocks == 0:
        # Where copies were made and none is ranked, it is not for want of blocks.
        left_out = not ranked(result) and any(method.n for method in result.methods)
        return "no method to rank" if left_out else "no complete block"
    if result.blocks_needed is None:
        return count(result.blocks, "block")
    return f"{count(result.blocks, 'block')}: PROVISIONAL, a firm verdict takes {result.blocks_needed}"


def result_line(result: Result) -> str:
    if result.scenario == EMPTY:
        return f"fixed cost of each method (an empty tree), {count(result.blocks, 'block')}"
    separator = ": " if result.blocks == 0 else ", "
    return f"{result.dataset} ({tree_size(result)}), {scenario(result.scenario)}{separator}{how_sure(result)}"


def scenario(name: str) -> str:
    """As in C(full copy)."""
    return name if name == UPDATE else f"{name} copy"


def advice_line(result: Result) -> str:
    if result.recommended is None:
        return f"no recommendation: {result.reason}"
    return f"use {result.recommended}: {result.reason}"


def by_time(result: Result) -> list[MethodResult]:
    """Fastest first by median total_s, the disqualified last."""
    return sorted(
        result.methods, key=lambda m: (m.verdict == DISQUALIFIED, m.median_s is None, m.median_s or 0.0, m.label)
    )


def practical(result: Result) -> float:
    """Ratio up to which a method counts as fast as the best: 1 + delta, delta being 5 % or the noise floor."""
    return 1.0 + max(DELTA, result.noise_floor or 0.0)


def notes(result: Result) -> list[str]:
    """What the reader must know of the measurement itself, one sentence a line."""
    lines = []
    if result.noise_floor is not None:
        lines.append(f"noise floor {_change(result.noise_floor, '')}: by that two runs of one method in a block differ")
    if result.drift is not None:
        interval = (
            "" if result.drift_ci is None else f" ({_change(result.drift_ci[0])} to {_change(result.drift_ci[1])})"
        )
        lines.append(f"drift of the times from the first block to the last {_change(result.drift)}{interval}")
    for method in result.methods:
        if method.outliers:
            numbers = ", ".join(map(str, method.outliers))
            many = len(method.outliers) != 1
            lines.append(
                f"{method.label}: {count(len(method.outliers), 'run')} far off the others: block{'s' * many} {numbers}"
            )
    if result.scenario == UPDATE:
        lines += _sent(result)
    if result.stopped:
        lines.append(f"no more blocks: {result.stopped}")
    return lines


def _sent(result: Result) -> list[str]:
    """What each method sent to bring the target up to date, the least first, and what it left there."""
    known = sorted((method.sent_bytes, method.label) for method in ranked(result) if method.sent_bytes is not None)
    lines = []
    if known:
        each = (
            f"{label} {show_bytes(sent)}" + (f" ({percent(sent / result.bytes)} % of the tree)" if result.bytes else "")
            for sent, label in known
        )
        lines.append(f"sent: {', '.join(each)}")
    left = [(method.label, method.not_kept["deletions"]) for method in ranked(result) if "deletions" in method.not_kept]
    if left:
        each = (f"{label} ({number})" for label, number in left)
        lines.append(f"names that had vanished from the source are still on the target with {', '.join(each)}")
    return lines


def _change(share: float, sign: str = "+") -> str:
    """A share of 1 in per cent with its sign."""
    digits = 0 if abs(share) >= 0.0995 else 1
    return f"{100 * share:{sign}.{digits}f} %"


#: How a table says what became of a group of cases.
SIGNS: Mapping[str, str] = {
    _fidelity.KEPT: "yes",
    _fidelity.CHANGED: "C",
    _fidelity.FOLLOWED: "F",
    _fidelity.LOST: "L",
    _fidelity.REFUSED: "R",
    _fidelity.NOT_MADE: NONE,
}
SIGNS_LEGEND = (
    "yes: kept. C: changed. F: followed, what a link leads to is in its place. L: lost. R: refused, the tool said so. "
    f"3/4 L: three names of four kept, the other lost. F+R: some the one, some the other. {NONE}: this source cannot "
    f"have it, all of it or a part. {UNKNOWN}: not known."
)


def kept_line(fidelity: Fidelity) -> str:
    """What the table that follows is about."""
    missing = len(fidelity.not_made)
    return (
        f"what each method keeps: {count(fidelity.cases, 'hard case')}, {count(fidelity.names, 'name')}, one copy each"
        + (f"; {count(missing, 'case')} could not be made" if missing else "")
    )


def kept_groups(fidelity: Fidelity) -> list[str]:
    """The columns of the table."""
    return list(dict.fromkeys(name for method in fidelity.methods for name in method.groups))


def kept_names(fidelity: Fidelity) -> list[int]:
    """How many names each column stands for."""
    first = next((method for method in fidelity.methods if not method.reason), None)
    return [first.groups[name].names if first and name in first.groups else 0 for name in kept_groups(fidelity)]


def kept_cell(group: Group | None) -> str:
    """As in C(yes), C(L), C(F+R), C(3/4 L), C(-), and C(yes -) where a part could not be made."""
    if group is None:
        return UNKNOWN
    sign = "+".join(SIGNS[outcome] for outcome in group.outcomes) or SIGNS[group.outcome]
    if 0 < group.kept < group.names:
        sign = f"{group.kept}/{group.names} {sign}"
    return f"{sign} {NONE}" if group.not_made and group.names else sign


def kept_cells(fidelity: Fidelity, method: Keeping) -> list[str]:
    return [kept_cell(method.groups.get(name)) for name in kept_groups(fidelity)]


def kept_count(method: Keeping) -> str:
    return UNKNOWN if method.reason else "{} of {}".format(*tally(method.cases))


def kept_notes(fidelity: Fidelity) -> list[str]:
    """What the table does not show, one sentence a line."""
    lines = [f"{method.label}: not measured: {method.reason}" for method in fidelity.methods if method.reason]
    lines += [f"{name} could not be made: {reason}" for name, reason in fidelity.not_made.items()]
    by_reason: dict[tuple[str, ...], list[str]] = {}
    for method in fidelity.methods:
        if method.unmet and not method.reason:
            by_reason.setdefault(method.unmet, []).append(method.label)
    return lines + [f"{', '.join(labels)}: {'; '.join(reasons)}" for reasons, labels in by_reason.items()]


KEPT_HEAD = ("case", "what it is", "outcome", "methods", "the worst of its names")


def kept_details(fidelity: Fidelity) -> list[tuple[str, ...]]:
    """The lines below L(KEPT_HEAD): what was not kept, by case; methods that did the same to it share a line."""
    lines: dict[tuple[str, str, str], tuple[list[str], str]] = {}
    for method in fidelity.methods:
        for case in method.cases:
            if case["outcome"] in (_fidelity.KEPT, _fidelity.NOT_MADE):
                continue
            part = f", {case['kept']} of {case['names']} names kept" if case["kept"] else ""
            key = (case["id"], case["what"], case["outcome"] + part)
            lines.setdefault(key, ([], case["detail"]))[0].append(method.label)
    order = list(dict.fromkeys(case["id"] for method in fidelity.methods for case in method.cases))
    known = [method.label for method in fidelity.methods if not method.reason]
    found = [(*key, _all_but(labels, known), detail) for key, (labels, detail) in lines.items()]
    return sorted(found, key=lambda line: order.index(line[0]))


def _all_but(labels: Sequence[str], known: Sequence[str]) -> str:
    """The labels, or the others of C(known) where these are fewer."""
    others = [label for label in known if label not in labels]
    if len(labels) < 3 or len(others) >= len(labels):
        return ", ".join(labels)
    return f"all but {', '.join(others)}" if others else "all"


MODEL_HEAD = ("method", "fixed s", "ms per file", "MB/s", "typical error", "trees")
FORECAST_HEAD = ("method", "copied", "on the target's disk")


def model_cells(model: Model) -> tuple[str, ...] | None:
    """One line below L(MODEL_HEAD); null where the model has no figures. The rate is 1 / c, and none where no byte
    was seen to cost anything."""
    if model.a_s is None or model.b_s_per_file is None or model.c_s_per_byte is None:
        return None
    return (
        model.label,
        f"{model.a_s:.3f}",
        f"{1e3 * model.b_s_per_file:.3g}",
        rate(1.0 / model.c_s_per_byte) if model.c_s_per_byte > 0 else NONE,
        UNKNOWN if model.residual is None else f"{100 * model.residual:.1f} %",
        str(model.shapes),
    )


def model_rows(models: Sequence[Model]) -> tuple[list[tuple[str, ...]], list[str]]:
    """The lines below L(MODEL_HEAD), and a sentence for each model that has no figures."""
    cells = [(model, model_cells(model)) for model in models]
    without = [f"{model.label}: no model: {model.reason}" for model, found in cells if found is None]
    return [found for _model, found in cells if found is not None], without


def forecasts(models: Sequence[Model], dash: str = " - ") -> list[tuple[str, list[tuple[str, ...]]]]:
    """For each size that was asked for: a title and the lines below L(FORECAST_HEAD), the shortest time first."""
    by_size: dict[tuple[int, int], list[tuple[str, Forecast]]] = {}
    for model in models:
        for forecast in model.forecasts:
            by_size.setdefault((forecast.bytes, forecast.files), []).append((model.label, forecast))
    tables: list[tuple[str, list[tuple[str, ...]]]] = []
    for (size, files), group in sorted(by_size.items()):
        group.sort(key=lambda item: item[1].total_s)
        title = f"what {show_bytes(size)} in {count(files, 'file')} would take"
        title += _extrapolated([forecast.extrapolation for _label, forecast in group])
        lines: list[tuple[str, ...]] = [
            (
                label,
                duration_with_interval(forecast.total_s, forecast.total_ci_s, dash),
                duration_with_interval(forecast.durable_s, forecast.durable_ci_s, dash),
            )
            for label, forecast in group
        ]
        tables.append((title, lines))
    return tables


def _extrapolated(factors: Sequence[float]) -> str:
    """As in C( (extrapolated 5000 times)); nothing within what was measured."""
    least, most = (f"{factor:.2g}" if factor < 9.5 else f"{factor:.0f}" for factor in (min(factors), max(factors)))
    if max(factors) <= 1:
        return ""
    return f" (extrapolated {most if least == most else f'{least} to {most}'} times)"
