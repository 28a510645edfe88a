# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From rows to the summary of a campaign. Plain Python: knows nothing of Ansible."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.linkops.bulkcopy.plugins.module_utils._record import (
    ABOVE_CEILING,
    INCOMPRESSIBLE,
    WIRE_TOO_SMALL,
)
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import advice, blocks, keeping, limits, prediction
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.plan import (
    EMPTY,
    FIDELITY,
    FULL,
    SCENARIOS,
    UPDATE,
    Cell,
    InputError,
    Method,
    Plan,
    Size,
)
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.statistics import (
    DELTA,
    DISQUALIFIED,
    Comparison,
    Drift,
    blocks_needed,
    compare,
    drift,
    noise_floor,
    outliers,
)

SCHEMA = 1
#: A ceiling that differs by more than this before and after the runs makes every share of it doubtful.
CEILING_CHANGE = 0.10
CEILING_CHANGED, CEILING_ONCE, DRIFT, OUTLIERS = "ceiling-changed", "ceiling-once", "drift", "outliers"
#: Flags of figures that physics does not allow.
IMPOSSIBLE = (ABOVE_CEILING, WIRE_TOO_SMALL)
#: Trees whose compressibility differs by more than this are not described by one line.
ALIKE = 0.1

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
    sent_bytes: int | None = None  # on the wire, by the source
    not_kept: Mapping[str, int] = dataclasses.field(default_factory=dict)  # names that lost something, by kind


@dataclasses.dataclass(frozen=True)
class Result:
    """All methods on one link, dataset and scenario other than C(fidelity), fastest first, the disqualified last. C(drift): how much slower the
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
    fidelity: keeping.Fidelity | None = None  # what the methods keep; null where that was not asked
    ceiling_end_Bps: float | None = None  # noqa: N815  measured again after the last run
    rtt_end_ms: float | None = None
    flags: tuple[str, ...] = ()
    models: tuple[Model, ...] = ()
    fingerprints: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)  # by end


@dataclasses.dataclass(frozen=True)
class Summary:
    """C(missing): one sentence for each thing that was planned and is not there, empty where all went well. C(software):
    versions of what measured; C(seed) decided the order of the runs."""

    campaign_id: str
    profile: str
    links: tuple[LinkResult, ...]
    missing: tuple[str, ...]
    planned: int
    ok: int
    seed: int | None = None
    software: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The content of C(summary.json)."""
        return {
            "schema": SCHEMA,
            "campaign_id": self.campaign_id,
            "seed": self.seed,
            "software": dict(self.software),
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
    stops: blocks.Stops | None = None,
    predict: Sequence[Size] = (),
    software: Mapping[str, Any] | None = None,
    require: Sequence[str] | None = None,
) -> Summary:
    """C(rows): one a run. C(link_facts): by link name, what was measured of it (C(rtt_ms), C(connect_s), C(ceiling_Bps),
    and after the last run C(rtt_end_ms) and C(ceiling_end_Bps)), as far as it was, the C(flags) that say why not, and the
    C(fingerprints) of its ends. C(stops): where no more blocks were needed. C(predict): the sizes of which to say how
    long they would take. C(require): what methods must keep to be ranked; null is what the plan says. Raises
    L(InputError) where the campaign did not measure what they keep."""
    required = plan.settings.require if require is None else require
    if required and FIDELITY not in plan.settings.scenarios:
        raise InputError(
            [
                f"campaign {campaign_id} did not measure what methods keep, so that nothing can be required: begin a new "
                f"one with bulkcopy_require, or with {FIDELITY} among its scenarios."
            ]
        )
    by_id = {str(row["run_id"]): row for row in rows}
    cells = blocks.needed(plan.cells, stops or {})
    names = [*(dataset.name for dataset in plan.datasets), EMPTY]
    order = [(name, scenario) for name in names for scenario in SCENARIOS]
    links = []
    for link in plan.links:
        facts = link_facts.get(link.name, {})
        groups: dict[blocks.Group, list[Cell]] = {}
        for cell in cells:
            if cell.link == link.name and not cell.warmup:
                groups.setdefault(blocks.group_of(cell), []).append(cell)
        hard = groups.pop(blocks.Group(link.name, FIDELITY, FIDELITY), None)
        kept = None
        if hard is not None:
            runs = {cell.label: by_id[cell.run_id] for cell in hard if cell.run_id in by_id}
            kept = keeping.summarise(plan.methods, runs, required)
        unmet = {each.label: "; ".join(each.unmet) for each in (kept.methods if kept else ()) if each.unmet}
        fixed_s = _fixed_costs(plan, groups, by_id)
        results = tuple(
            _result(
                plan,
                group,
                groups[group],
                by_id,
                {**facts, "fixed_s": fixed_s},
                allow_cleartext,
                (stops or {}).get(group),
                unmet,
                required,
            )
            for group in sorted(groups, key=lambda group: order.index((group.dataset, group.scenario)))
        )
        links.append(
            LinkResult(
                name=link.name,
                source=link.source,
                target=link.target,
                address=link.address,
                ceiling_Bps=facts.get("ceiling_Bps"),
                rtt_ms=facts.get("rtt_ms"),
                connect_s=facts.get("connect_s"),
                results=results,
                fidelity=kept,
                ceiling_end_Bps=facts.get("ceiling_end_Bps"),
                rtt_end_ms=facts.get("rtt_end_ms"),
                flags=_link_flags(
                    facts, [row for cell in cells if cell.link == link.name and (row := by_id.get(cell.run_id))]
                ),
                models=_models(plan, groups, by_id, predict, facts, unmet),
                fingerprints=facts.get("fingerprints") or {},
            )
        )
    return Summary(
        campaign_id=campaign_id,
        profile=profile,
        links=tuple(links),
        missing=tuple(missing(plan, by_id, stops)),
        planned=len(cells),
        ok=sum(by_id.get(cell.run_id, {}).get("status") == "ok" for cell in cells),
        seed=plan.seed,
        software=software or {},
    )


def _link_flags(facts: Mapping[str, Any], rows: Iterable[Row]) -> tuple[str, ...]:
    """C(rows): those of the link. Where the campaign was resumed, some were measured below an earlier ceiling."""
    before, after = facts.get("ceiling_Bps"), facts.get("ceiling_end_Bps")
    known = [value for value in (before, after, *(row["link"].get("ceiling_Bps") for row in rows)) if value]
    changed = bool(known) and max(known) > (1 + CEILING_CHANGE) * min(known)
    once = before is not None and after is None
    return (*(facts.get("flags") or ()), *[CEILING_CHANGED] * changed, *[CEILING_ONCE] * once)


def _result(
    plan: Plan,
    group: blocks.Group,
    cells: Sequence[Cell],
    by_id: Mapping[str, Row],
    facts: Mapping[str, Any],
    allow_cleartext: bool,
    stop: blocks.Stop | None,
    unmet: Mapping[str, str],
    required: Sequence[str],
) -> Result:
    """C(unmet): by label, why a method does not keep what is C(required)."""
    rows = blocks.rows_of(plan, cells, by_id)
    planned = Counter(cell.label for cell in cells)
    ranked = {label: times for label, times in blocks.ranked_times(rows).items() if label not in unmet}
    noise = _noise(rows.get(plan.replica or "", ()))
    delta = max(DELTA, noise or 0.0)
    compared = compare(ranked, delta)
    exact = any(item.exact for item in compared)
    needed = blocks_needed(len(ranked))
    methods = {method.label: method for method in plan.methods}
    far_off = outliers(ranked)
    results = [
        _ranked(
            methods[item.label],
            item,
            [row for _cell, row in rows[item.label] if row["status"] == "ok"],
            group.scenario,
            facts,
            _why(item.blocks, item.n, exact, needed),
            exact,
            tuple(far_off.get(item.label, ())),
        )
        for item in compared
    ]
    # A fast clear-text method must not hide how the encrypted ones compare with each other.
    private = {method.label: ranked[method.label] for method in results if method.encrypted}
    among_encrypted = {item.label: item.verdict for item in compare(private, delta)} if private else {}
    results += [
        _disqualified(methods[label], own, planned[label], exact, unmet.get(label, ""))
        for label, own in rows.items()
        if label not in ranked
    ]
    if group.scenario == EMPTY:
        given = advice.Advice(None, "an empty tree shows what each method costs before the first byte")
    elif unmet and not ranked and blocks.ranked_times(rows):
        given = advice.Advice(None, _none_left(results, required))
    else:
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
                    impossible=tuple(flag for flag in method.flags if flag in IMPOSSIBLE),
                )
                for method in results
            ],
            allow_cleartext=allow_cleartext,
            provisional=not exact,
            condition=_condition(plan, unmet, required),
        )
    tree: Mapping[str, Any] = next(
        (row["dataset"] for own in rows.values() for _cell, row in own if row["dataset"].get("bytes")), {}
    )
    drifted = drift(ranked)
    return Result(
        dataset=group.dataset,
        scenario=group.scenario,
        files=tree.get("files"),
        bytes=tree.get("bytes"),
        blocks=compared[0].blocks if compared else 0,
        noise_floor=noise,
        blocks_needed=None if exact else needed,
        methods=tuple(results),
        recommended=given.recommended,
        reason=given.reason,
        drift=drifted.ratio if drifted else None,
        drift_ci=drifted.ci if drifted else None,
        flags=(DRIFT,) if drifted and _matters(drifted, delta) else (),
        stopped=blocks.why_no_more(plan, compared, stop),
    )


def _condition(plan: Plan, unmet: Mapping[str, str], required: Sequence[str]) -> str:
    """As in C(2 of 4 methods keep hardlinks); empty where nothing is required."""
    if not required:
        return ""
    good = len(plan.methods) - len(unmet)
    return f"{good} of {len(plan.methods)} methods keep{'s' * (good == 1)} {', '.join(required)}"


def _none_left(results: Iterable[MethodResult], required: Sequence[str]) -> str:
    """Why no method can be ranked, by reason."""
    by_reason: dict[str, list[str]] = {}
    for method in results:
        by_reason.setdefault(method.reason, []).append(method.label)
    each = "; ".join(f"{', '.join(labels)}: {reason}" for reason, labels in by_reason.items())
    return f"no method is left that keeps what is required ({', '.join(required)}): {each}"


def _matters(found: Drift, delta: float) -> bool:
    """A drift that is larger than what counts as no difference, and that is none of chance."""
    sure = found.ci[0] > 0 or found.ci[1] < 0
    return sure and abs(math.log1p(found.ratio)) > math.log1p(delta)


def _ranked(
    method: Method,
    item: Comparison,
    ok: Sequence[Row],
    scenario: str,
    facts: Mapping[str, Any],
    reason: str,
    exact: bool,
    far_off: tuple[int, ...],
) -> MethodResult:
    sizes = [row["dataset"]["bytes"] for row in ok if row["dataset"].get("bytes")]
    # Of a tree that is brought up to date only a part is sent, and that is no rate of the link.
    throughput_Bps = sizes[0] / item.median_s if sizes and scenario != UPDATE else None  # noqa: N806
    ceiling_Bps = facts.get("ceiling_Bps")  # noqa: N806
    durable = [float(row["durable_s"]) for row in ok if row.get("durable_s") is not None]
    limiter, why = None, ""
    if scenario != UPDATE:
        limiter, why = limits.limiter(limits.evidence(ok, _best_login(facts, method.label)))
    sent = [row["wire"]["tx_bytes"] for row in ok if row["wire"].get("tx_bytes") is not None]
    return MethodResult(
        label=method.label,
        module=method.module,
        args=method.args,
        n=item.n,
        median_s=item.median_s,
        ci_s=item.ci_s,
        ratio_to_best=item.ratio,
        ratio_ci=item.ratio_ci,
        throughput_Bps=throughput_Bps,
        efficiency=throughput_Bps / ceiling_Bps if throughput_Bps and ceiling_Bps else None,
        cpu_s_per_GB=_ends(ok, _cpu_s_per_gb),
        cpu_percent=_ends(ok, lambda row, end: (row["cpu"][end] or {}).get("percent")),
        verdict=item.verdict,
        provisional=not exact,
        reason=reason,
        flags=_flags(ok, *[OUTLIERS] * bool(far_off)),
        encrypted=_encrypted(ok),
        durable_s=statistics.median(durable) if durable else None,
        limiter=limiter,
        limiter_reason=why,
        outliers=far_off,
        sent_bytes=round(statistics.median(sent)) if sent else None,
        not_kept=_not_kept(ok),
    )


def _flags(rows: Iterable[Row], *more: str) -> tuple[str, ...]:
    """The flags of all rows, and others that hold of them together."""
    return tuple(sorted({*more, *(flag for row in rows for flag in row.get("flags") or ())}))


def _not_kept(rows: Iterable[Row]) -> dict[str, int]:
    """By kind, the most names of a run that lost something."""
    most: dict[str, int] = {}
    for row in rows:
        for kind, number in ((row.get("verified") or {}).get("not_kept") or {}).items():
            most[kind] = max(number, most.get(kind, 0))
    return most


def _encrypted(rows: Iterable[Row]) -> bool | None:
    """Whether the method's payload crosses encrypted, as its runs that ended ok say; null where none did."""
    return next((row["method"]["encrypted"] for row in rows if row["status"] == "ok"), None)


def _best_login(facts: Mapping[str, Any], label: str) -> dict[str, Any]:
    """The link with the least that a login of this method can have taken: of those before and after the runs, and of its
    copies of nothing. What kept the others back is not known."""
    known = [facts.get("connect_s"), facts.get("connect_end_s"), facts["fixed_s"].get(label)]
    return {**facts, "connect_s": min((seconds for seconds in known if seconds is not None), default=None)}


def _fixed_costs(
    plan: Plan, groups: Mapping[blocks.Group, Sequence[Cell]], by_id: Mapping[str, Row]
) -> dict[str, float]:
    """By label: what a copy of nothing took, the median in seconds, where it was measured."""
    cells = next((cells for group, cells in groups.items() if group.scenario == EMPTY), ())
    ranked = blocks.ranked_times(blocks.rows_of(plan, cells, by_id))
    return {label: statistics.median(times.values()) for label, times in ranked.items()}


def _disqualified(
    method: Method, rows: Sequence[tuple[Cell, Row]], planned: int, exact: bool, unmet: str
) -> MethodResult:
    """C(unmet): why it does not keep what is required; empty where it does, or nothing is."""
    measured = blocks.times(rows)
    group = [row for _cell, row in rows]
    reasons = [blocks.fault(rows) or ("" if measured else _absent(group, planned)), unmet if measured else ""]
    return MethodResult(
        label=method.label,
        module=method.module,
        args=method.args,
        n=len(measured),
        median_s=statistics.median(measured.values()) if measured else None,
        ci_s=None,
        ratio_to_best=None,
        ratio_ci=None,
        throughput_Bps=None,
        efficiency=None,
        cpu_s_per_GB={"source": None, "target": None},
        cpu_percent={"source": None, "target": None},
        verdict=DISQUALIFIED,
        provisional=not exact,
        reason="; ".join(filter(None, reasons)),
        flags=_flags(group),
        encrypted=_encrypted(group),
    )


def _models(
    plan: Plan,
    groups: Mapping[blocks.Group, Sequence[Cell]],
    by_id: Mapping[str, Row],
    predict: Sequence[Size],
    facts: Mapping[str, Any],
    unmet: Mapping[str, str],
) -> tuple[Model, ...]:
    """What each method takes for a tree of any size on one link; empty where too few trees were measured to tell."""
    full = [blocks.rows_of(plan, cells, by_id) for group, cells in groups.items() if group.scenario == FULL]
    if len(full) < prediction.MIN_SHAPES:
        return ()
    ceiling_Bps = max((facts.get(key) or 0 for key in ("ceiling_Bps", "ceiling_end_Bps")), default=0)  # noqa: N806
    models = []
    for method in plan.methods:
        own = [rows[method.label] for rows in full]
        faults = [reason for reason in (*map(blocks.fault, own), unmet.get(method.label)) if reason]
        ok = [row for rows in own for cell, row in rows if row["status"] == "ok" and cell.replica == 0]
        models.append(_model(method.label, ok, faults[0] if faults else "", predict, ceiling_Bps))
    return tuple(models)


def _model(
    label: str,
    rows: Sequence[Row],
    fault: str,
    predict: Sequence[Size],
    ceiling_Bps: float,  # noqa: N803
) -> Model:
    squeezed = [row["dataset"]["compressibility"] for row in rows if row["dataset"].get("compressibility") is not None]
    whole = _sends_whole(rows)
    # What crosses as it is takes the link's time.
    floor_s_per_byte = (
        1 / ceiling_Bps if ceiling_Bps and (whole or (squeezed and min(squeezed) >= INCOMPRESSIBLE)) else 0.0
    )
    total, reason = (None, fault) if fault else prediction.fit(_points(rows, "total_s"), floor_s_per_byte)
    if total is not None and not whole and squeezed and max(squeezed) - min(squeezed) > ALIKE:
        total, reason = None, "the trees do not compress alike, so that bytes of one are not bytes of the other"
    if total is None:
        shapes = {(row["dataset"].get("files"), row["dataset"].get("bytes")) for row in rows}
        return Model(label, len(shapes), None, None, None, None, reason, ())
    durable, _reason = prediction.fit(_points(rows, "durable_s"), floor_s_per_byte)
    forecasts = []
    for size in predict:
        soon = prediction.predict(total, size.files, size.bytes)
        late = prediction.predict(durable, size.files, size.bytes) if durable is not None else None
        forecasts.append(
            Forecast(
                files=size.files,
                bytes=size.bytes,
                total_s=soon.seconds,
                total_ci_s=(soon.low_s, soon.high_s),
                durable_s=late.seconds if late is not None else None,
                durable_ci_s=(late.low_s, late.high_s) if late is not None else None,
                extrapolation=soon.extrapolation,
            )
        )
    return Model(
        label=label,
        shapes=total.shapes,
        a_s=total.a_s,
        b_s_per_file=total.b_s_per_file,
        c_s_per_byte=total.c_s_per_byte,
        residual=total.residual,
        reason="",
        forecasts=tuple(forecasts),
    )


def _sends_whole(rows: Iterable[Row]) -> bool:
    """Whether no run sent fewer bytes than the files have, as far as that was counted: it does not compress."""
    counted = [
        (row["wire"]["tx_bytes"], row["dataset"]["bytes"] - (row["dataset"].get("linked_bytes") or 0))
        for row in rows
        if row["wire"].get("tx_bytes") is not None and row["dataset"].get("bytes") is not None
    ]
    return bool(counted) and all(sent >= size for sent, size in counted)


def _points(rows: Iterable[Row], key: str) -> list[prediction.Point]:
    return [
        prediction.Point(row["dataset"]["files"], row["dataset"]["bytes"], float(row[key]))
        for row in rows
        if row.get(key) and row["dataset"].get("files") is not None and row["dataset"].get("bytes") is not None
    ]


def _why(complete: int, n: int, exact: bool, needed: int) -> str:
    if complete == 0:
        return "no block is complete: nothing can be compared"
    seen = f"{complete} complete block{'s' * (complete != 1)}"
    if n > complete:
        seen += f" of {n}"
    if exact:
        return f"{seen}; Hodges-Lehmann estimate with the exact signed-rank interval"
    return f"{seen}; intervals from the residual of the block design; a firm verdict takes {needed}"


def _absent(rows: Sequence[Row], planned: int) -> str:
    if not rows:
        return f"none of {planned} runs was made"
    return f"{len(rows)} of {planned} runs {rows[0]['status']}: {blocks.first_line(rows[0].get('message'))}"


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


def missing(plan: Plan, by_id: Mapping[str, Row], stops: blocks.Stops | None = None) -> list[str]:
    """What was planned and did not end C(ok): a link as a whole where none of its runs did, else by method. A block that
    was found not to be needed (C(stops)) is not missing."""
    wanted = blocks.needed(plan.cells, stops or {})
    sentences = []
    for link in plan.links:
        cells = [cell for cell in wanted if cell.link == link.name]
        bad = [(cell, by_id.get(cell.run_id)) for cell in cells]
        bad = [(cell, row) for cell, row in bad if row is None or row["status"] != "ok"]
        if len(bad) == len(cells):
            first = bad[0][1]
            reason = (
                "no run was made" if first is None else f"{first['status']}: {blocks.first_line(first.get('message'))}"
            )
            sentences.append(f"link {link.name}: none of its {len(cells)} runs was measured ({reason})")
            continue
        groups: dict[tuple[str, str], list[str]] = {}
        for cell, row in bad:
            reason = "not run" if row is None else f"{row['status']}: {blocks.first_line(row.get('message'))}"
            groups.setdefault((cell.dataset, reason), []).append(cell.label)
        for (dataset, reason), labels in groups.items():
            names = sorted(set(labels), key=[method.label for method in plan.methods].index)
            who = ", ".join(names) if len(names) <= 3 else f"{len(names)} methods"
            count = f"{len(labels)} run{'s' * (len(labels) != 1)}"
            sentences.append(f"link {link.name}, {dataset}, {who}: {count} {reason}")
    return sentences
