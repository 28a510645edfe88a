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
    verdict of a comparison of the encrypted methods alone."""

    label: str
    verdict: str
    ratio: float | None
    ratio_ci: tuple[float, float] | None
    encrypted: bool | None
    cpu_s_per_GB: float | None  # noqa: N815  GB is the unit
    among_encrypted: str | None = None


@dataclasses.dataclass(frozen=True)
class Advice:
    """C(recommended) is null where nothing can be recommended; C(reason) says why in either case."""

    recommended: str | None
    reason: str


def recommend(candidates: Sequence[Candidate], allow_cleartext: bool, provisional: bool) -> Advice:
    """The method to use for one link, dataset and scenario.

    From I(best) and I(equivalent) the encrypted one with the least CPU per GB; where none of them is encrypted, the
    fastest encrypted one, with how sure that is. Clear text can win only where it is allowed.
    """
    ranked = sorted((c for c in candidates if c.ratio is not None), key=lambda c: c.ratio or 0.0)
    if not ranked:
        return Advice(None, "no method was measured")
    allowed = [c for c in ranked if allow_cleartext or c.encrypted]
    if not allowed:
        return Advice(
            None,
            f"only clear text was measured, {ranked[0].label} fastest: set bulkcopy_allow_cleartext: true to accept it",
        )
    leaders = [c for c in allowed if c.verdict in (BEST, EQUIVALENT)]
    end = "; provisional" if provisional else ""
    if leaders:
        chosen = min(leaders, key=lambda c: (c.cpu_s_per_GB is None, c.cpu_s_per_GB or 0.0, c.ratio or 0.0))
        what = "of all" if allow_cleartext else "and encrypted"
        if len(leaders) == 1:
            reason = f"fastest {what}" if chosen.verdict == BEST else f"as fast as the best {what}"
        elif chosen.cpu_s_per_GB is None:
            reason = f"as fast as the best {what}; CPU time is not known"
        else:
            others = ", ".join(c.label for c in leaders if c is not chosen)
            reason = (
                f"as fast as the best {what}, with the least CPU ({chosen.cpu_s_per_GB:.2g} s/GB) among it and {others}"
            )
        return Advice(chosen.label, reason + _unresolved(chosen, ranked, allow_cleartext) + end)
    chosen = next((c for c in allowed if c.among_encrypted == BEST), allowed[0])
    best = ranked[0]
    reason = f"the fastest encrypted one: {chosen.ratio:.2f} times as long as {best.label} (clear text)"
    if chosen.ratio_ci is not None:
        reason += f", between {chosen.ratio_ci[0]:.2f} and {chosen.ratio_ci[1]:.2f}"
    others = [c for c in allowed if c is not chosen]
    reason += _names("as fast", [c for c in others if c.among_encrypted == EQUIVALENT])
    reason += _names("not told apart yet", [c for c in others if c.among_encrypted == UNRESOLVED])
    return Advice(chosen.label, reason + end)


def _unresolved(chosen: Candidate, ranked: Sequence[Candidate], allow_cleartext: bool) -> str:
    """The methods that more blocks could still show to be as fast as the chosen one."""
    rivals = [c for c in ranked if c is not chosen and c.verdict == UNRESOLVED and (allow_cleartext or c.encrypted)]
    return _names("not told apart yet", rivals)


def _names(what: str, methods: Sequence[Candidate]) -> str:
    if not methods:
        return ""
    names = ", ".join(c.label for c in methods[:3]) + (f" and {len(methods) - 3} more" if len(methods) > 3 else "")
    return f"; {what}: {names}"
