# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What each method keeps of a tree of hard cases, and which methods keep what is required. Plain Python: knows nothing of
Ansible."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.linkops.bulkcopy.plugins.module_utils import _fidelity
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import blocks
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.plan import Method

Row = Mapping[str, Any]
#: As a copy module has it in its record: C(id), C(what), C(names), C(kept), C(outcome), C(detail).
Case = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Group:
    """What became of the C(names) of several cases: the worst C(outcome) among those that could be made, and all that
    were not kept, C(outcomes), the worst last. C(not_made) are the ids of those that could not."""

    names: int
    kept: int
    outcome: str
    outcomes: tuple[str, ...] = ()
    not_made: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Keeping:
    """What one method kept. C(reason): why nothing is known of it, empty where its copy was judged. C(unmet): one sentence
    for each requirement that it does not meet."""

    label: str
    module: str
    args: Mapping[str, Any]
    reason: str
    cases: tuple[Case, ...]
    groups: Mapping[str, Group]
    unmet: tuple[str, ...]


def tally(cases: Sequence[Case]) -> tuple[int, int]:
    """How many cases were kept, and how many there were to keep."""
    outcomes = [case["outcome"] for case in cases]
    return outcomes.count(_fidelity.KEPT), len(outcomes) - outcomes.count(_fidelity.NOT_MADE)


@dataclasses.dataclass(frozen=True)
class Fidelity:
    """What the methods keep on one link, those that keep most first. C(cases) of C(names) names were made, and those of
    C(not_made) could not be, by id with the reason. C(reason) says in a sentence who keeps what is required, or most."""

    cases: int
    names: int
    not_made: Mapping[str, str]
    required: tuple[str, ...]
    methods: tuple[Keeping, ...]
    reason: str


def summarise(methods: Sequence[Method], rows: Mapping[str, Row], required: Sequence[str]) -> Fidelity:
    """C(rows): by label, one run each."""
    found = [_keeping(method, rows.get(method.label), required) for method in methods]
    found.sort(key=lambda keeping: (bool(keeping.reason), -tally(keeping.cases)[0]))
    by_id = {case["id"]: case for keeping in found for case in keeping.cases}
    made = [case for case in by_id.values() if case["outcome"] != _fidelity.NOT_MADE]
    return Fidelity(
        cases=len(made),
        names=sum(case["names"] for case in made),
        not_made={name: case["detail"] for name, case in by_id.items() if case["outcome"] == _fidelity.NOT_MADE},
        required=tuple(required),
        methods=tuple(found),
        reason=_who(found, required),
    )


def groups(cases: Iterable[Case]) -> dict[str, Group]:
    """By the id before its dot, in the order of the cases."""
    by_name: dict[str, list[Case]] = {}
    for case in cases:
        by_name.setdefault(case["id"].split(".")[0], []).append(case)
    return {name: _group(own) for name, own in by_name.items()}


def _group(cases: Sequence[Case]) -> Group:
    made = [case for case in cases if case["outcome"] != _fidelity.NOT_MADE]
    seen = {case["outcome"] for case in made}
    return Group(
        names=sum(case["names"] for case in made),
        kept=sum(case["kept"] for case in made),
        outcome=max(seen, key=_fidelity.OUTCOMES.index, default=_fidelity.NOT_MADE),
        outcomes=tuple(outcome for outcome in _fidelity.OUTCOMES if outcome in seen and outcome != _fidelity.KEPT),
        not_made=tuple(case["id"] for case in cases if case["outcome"] == _fidelity.NOT_MADE),
    )


def _keeping(method: Method, row: Row | None, required: Sequence[str]) -> Keeping:
    reason, cases = "", ()
    if row is None:
        reason = "its run was not made"
    elif row["status"] != "ok":
        reason = f"{row['status']}: {blocks.first_line(row.get('message'))}"
    elif not row.get("fidelity"):
        reason = f"{method.module} does not say what it kept"
    else:
        cases = tuple(row["fidelity"]["cases"])
    unmet = [_unmet(name, cases, reason) for name in required]
    return Keeping(
        label=method.label,
        module=method.module,
        args=method.args,
        reason=reason,
        cases=cases,
        groups=groups(cases),
        unmet=tuple(sentence for sentence in unmet if sentence),
    )


def _unmet(name: str, cases: Sequence[Case], reason: str) -> str:
    """Why a requirement, a case or a group of cases, is not met; empty where it is. What could not be seen is not met."""
    own = [case for case in cases if name in (case["id"], case["id"].split(".")[0])]
    if reason or not own:
        return f"{name} could not be measured: {reason or 'there is no such case in its record'}"
    group = _group(own)
    if group.outcome not in (_fidelity.KEPT, _fidelity.NOT_MADE):
        return f"does not keep {name}: {group.kept} of {group.names} names kept, {group.outcome}"
    for case in own:
        if case["outcome"] == _fidelity.NOT_MADE:
            which = "" if case["id"] == name else f"{case['id']}, "
            return f"{name} could not be measured: {which}{case['detail'] or 'it could not be made'}"
    return ""


def _who(found: Sequence[Keeping], required: Sequence[str]) -> str:
    judged = [keeping for keeping in found if not keeping.reason]
    if not judged:
        return "of no method it could be seen what it keeps"
    if required:
        good = [keeping.label for keeping in judged if not keeping.unmet]
        what = f"what is required ({', '.join(required)})"
        return f"{what} is kept by {', '.join(good)}" if good else f"no method keeps {what}"
    kept, made = tally(judged[0].cases)
    labels = ", ".join(keeping.label for keeping in judged if tally(keeping.cases)[0] == kept)
    return (
        f"all {made} cases are kept by {labels}"
        if kept == made
        else f"most is kept by {labels} ({kept} of {made} cases)"
    )
