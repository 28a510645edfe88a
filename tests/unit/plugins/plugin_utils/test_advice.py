# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.advice import Candidate, recommend


def candidate(label: str, verdict: str, ratio: float | None, encrypted: bool | None = True, **more: Any) -> Candidate:
    given: dict[str, Any] = {"ratio_ci": None, "cpu_s_per_GB": 1.0, **more}
    return Candidate(label=label, verdict=verdict, ratio=ratio, encrypted=encrypted, **given)


NC = candidate("tar|nc", "best", 1.0, encrypted=False, cpu_s_per_GB=0.5)
SSH = candidate("tar|ssh", "equivalent", 1.01, cpu_s_per_GB=3.0)
RSYNC = candidate("rsync -a", "equivalent", 1.02, cpu_s_per_GB=2.0)
SCP = candidate("scp", "slower", 1.5, cpu_s_per_GB=0.1, ratio_ci=(1.4, 1.62))


def test_the_encrypted_leader_with_the_least_cpu() -> None:
    found = recommend([NC, SSH, RSYNC, SCP], allow_cleartext=False, provisional=False)
    assert found.recommended == "rsync -a"
    assert found.reason == "as fast as the best and encrypted, with the least CPU (2 s/GB) among it and tar|ssh"


def test_clear_text_wins_only_where_it_is_allowed() -> None:
    assert recommend([NC, SSH], allow_cleartext=True, provisional=False).recommended == "tar|nc"
    assert recommend([NC, SSH], allow_cleartext=False, provisional=False).recommended == "tar|ssh"


def test_the_fastest_encrypted_one_where_none_is_equivalent() -> None:
    found = recommend([NC, SCP], allow_cleartext=False, provisional=True)
    assert found.recommended == "scp"
    assert found.reason == (
        "the fastest encrypted one; 1.50 times as long as tar|nc (clear text), between 1.40 and 1.62; provisional"
    )


def test_the_encrypted_ones_are_compared_with_each_other_too() -> None:
    """All are slower than clear text; which of them to use, and how sure that is, is another question."""
    first = candidate("scp", "slower", 2.64, among_encrypted="best", cpu_s_per_GB=9.0)
    same = candidate("tar|ssh", "slower", 2.65, among_encrypted="equivalent", cpu_s_per_GB=8.0, ratio_ci=(2.2, 3.2))
    open_ = candidate("rsync -a", "slower", 2.73, among_encrypted="unresolved", cpu_s_per_GB=1.0)
    slow = candidate("scp -C", "slower", 4.38, among_encrypted="slower", cpu_s_per_GB=1.0)
    found = recommend([NC, same, open_, first, slow], allow_cleartext=False, provisional=False)
    assert found.recommended == "tar|ssh"
    assert found.reason == (
        "as fast as the fastest encrypted one, with the least CPU (8 s/GB) among it and scp; "
        "2.65 times as long as tar|nc (clear text), between 2.20 and 3.20; not told apart yet: rsync -a"
    )


def test_a_single_leader() -> None:
    best = candidate("tar|ssh", "best", 1.0)
    assert recommend([best, SCP], False, False).reason == "fastest and encrypted"
    assert recommend([NC, SSH], False, False).reason == "as fast as the best and encrypted"


def test_names_the_rivals_that_are_not_told_apart() -> None:
    rivals = [candidate(f"m{i}", "unresolved", 1.1 + i / 10) for i in range(4)]
    found = recommend([candidate("tar|ssh", "best", 1.0), *rivals], False, False)
    assert found.reason.endswith("; not told apart yet: m0, m1, m2 and 1 more")


def test_unknown_cpu_does_not_win() -> None:
    unknown = candidate("x", "best", 1.0, cpu_s_per_GB=None)
    assert recommend([unknown, SSH], False, False).recommended == "tar|ssh"
    alone = recommend([unknown, candidate("y", "equivalent", 1.01, cpu_s_per_GB=None)], False, False)
    assert (alone.recommended, alone.reason) == ("x", "as fast as the best and encrypted; CPU time is not known")


def test_nothing_to_recommend() -> None:
    nothing = recommend([candidate("scp", "disqualified", None)], False, True)
    assert (nothing.recommended, nothing.reason) == (None, "no method was measured")
    apart = recommend([candidate("scp", "unresolved", None), candidate("x", "unresolved", None)], False, True)
    assert (apart.recommended, apart.reason) == (None, "no block has every method")
    clear = recommend([NC], False, False)
    assert clear.recommended is None
    assert "bulkcopy_allow_cleartext" in clear.reason
    unknown = recommend([candidate("x", "best", 1.0, encrypted=None)], False, False)
    assert unknown.recommended is None


def test_figures_that_cannot_be_right_are_no_quiet_recommendation() -> None:
    odd = candidate("tar|ssh", "best", 1.0, impossible=("above-ceiling",))
    found = recommend([odd, SCP], allow_cleartext=False, provisional=False)
    assert found.recommended == "tar|ssh"
    assert found.reason.endswith("; its figures cannot be right (above-ceiling): find out why first")
