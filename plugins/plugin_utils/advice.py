# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which method to use, and why. Plain Python: knows nothing of Ansible."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.statistics import BEST, EQUIVALENT, UNRESOLVED


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A method that was compared. C(encrypted) is null where it is not known, and then counts as clear text;
    C(cpu_s_per_GB) is the CPU time of both ends together, null where it could not be measured; C(among_encrypted) the
    verdict of a comparison of the encrypted methods alone; C(impossible) the flags of its figures that physics does not
    allow."""

    label: str
    verdict: str
    ratio: float | None
    ratio_ci: tuple[float, float] | None
    encrypted: bool | None
    cpu_s_per_GB: float | None  # noqa: N815  GB is the unit
    among_encrypted: str | None = None
    impossible: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Advice:
    """C(recommended) is null where nothing can be recommended; C(reason) says why in either case."""

    recommended: str | None
    reason: str


def recommend(candidates: Sequence[Candidate], allow_cleartext: bool, provisional: bool, condition: str = "") -> Advice:
    """The method to use for one link, dataset and scenario.

    From I(best) and I(equivalent) the encrypted one with the least CPU per GB. Where none of them is encrypted, the same
    choice among the encrypted ones alone, with what it costs against the best and which others may be as fast. Clear
    text can win only where it is allowed. C(condition) says what decided which methods were candidates at all; it becomes
    a part of the reason.
    """
    ranked = sorted((c for c in candidates if c.ratio is not None), key=lambda c: c.ratio or 0.0)
    if not ranked:
        measured = any(c.verdict == UNRESOLVED for c in candidates)
        return Advice(None, "no block has every method" if measured else "no method was measured")
    given = f"; {condition}" if condition else ""
    allowed = [c for c in ranked if allow_cleartext or c.encrypted]
    if not allowed:
        return Advice(
            None,
            f"only clear text {'is left' if condition else 'was measured'}, {ranked[0].label} fastest: set "
            f"bulkcopy_allow_cleartext: true to accept it{given}",
        )
    end = given + ("; provisional" if provisional else "")
    leaders = [c for c in allowed if c.verdict in (BEST, EQUIVALENT)]
    if leaders:
        chosen = _least_cpu(leaders)
        what = "of all" if allow_cleartext else "and encrypted"
        if len(leaders) == 1 and chosen.verdict == BEST:
            reason = f"fastest {what}"
        else:
            reason = f"as fast as the best {what}" + _by_cpu(chosen, leaders)
        rivals = [c for c in allowed if c is not chosen and c.verdict == UNRESOLVED]
        return Advice(chosen.label, reason + _not_told_apart(rivals) + _doubt(chosen) + end)
    leaders = [c for c in allowed if c.among_encrypted in (BEST, EQUIVALENT)] or allowed[:1]
    chosen = _least_cpu(leaders)
    if len(leaders) == 1:
        reason = "the fastest encrypted one"
    else:
        reason = "as fast as the fastest encrypted one" + _by_cpu(chosen, leaders)
    reason += f"; {chosen.ratio:.2f} times as long as {ranked[0].label} (clear text)"
    if chosen.ratio_ci is not None:
        reason += f", between {chosen.ratio_ci[0]:.2f} and {chosen.ratio_ci[1]:.2f}"
    rivals = [c for c in allowed if c is not chosen and c.among_encrypted == UNRESOLVED]
    return Advice(chosen.label, reason + _not_told_apart(rivals) + _doubt(chosen) + end)


def _least_cpu(leaders: Sequence[Candidate]) -> Candidate:
    """Unknown CPU time does not win; the ratio breaks a tie."""
    return min(leaders, key=lambda c: (c.cpu_s_per_GB is None, c.cpu_s_per_GB or 0.0, c.ratio or 0.0))


def _by_cpu(chosen: Candidate, leaders: Sequence[Candidate]) -> str:
    """Why this one of several that are equally fast."""
    if len(leaders) == 1:
        return ""
    if chosen.cpu_s_per_GB is None:
        return "; CPU time is not known"
    return f", with the least CPU ({chosen.cpu_s_per_GB:.2g} s/GB) among it and " + _labels(
        [c for c in leaders if c is not chosen]
    )


def _doubt(chosen: Candidate) -> str:
    """That the figures of the chosen one cannot be right."""
    return (
        f"; its figures cannot be right ({', '.join(chosen.impossible)}): find out why first"
        if chosen.impossible
        else ""
    )


def _not_told_apart(rivals: Sequence[Candidate]) -> str:
    """The methods that more blocks could still show to be as fast as the chosen one."""
    return f"; not told apart yet: {_labels(rivals)}" if rivals else ""


def _labels(methods: Sequence[Candidate]) -> str:
    return ", ".join(c.label for c in methods[:3]) + (f" and {len(methods) - 3} more" if len(methods) > 3 else "")
