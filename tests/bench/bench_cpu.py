# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The CPU time of both ends of a copy against other means of measuring it, on the embedded lab: medians within 10 % or
30 ms.

Usage (as root): python tests/bench/bench_cpu.py [--inventory DIR] [--rounds N]

All figures are of the same copies, since the work of a copy varies by more than the limit from one to the next. Source:
each stage runs below /usr/bin/time -v. Target: control groups hold the target's sshd, and with it every session but the
agent's, and what the agent starts to receive. Prints every figure and the medians; exits 1 when a difference is over
both limits.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import lab

#: Link: scale of the tree, 2 GB at 1.
SCALES = {"lan-1g": 0.08, "lan-100m": 0.02}
LABELS = ("tar|ssh", "scp", "rsync -a", "tar|nc", "tar|gzip|ssh")
SHARE = 0.1
SECONDS = 0.03


def compare(end: str, other: str, ours: list[float], theirs: list[float]) -> bool:
    """Print one end's figures; whether they agree."""
    mine, right = statistics.median(ours), statistics.median(theirs)
    good = abs(mine - right) <= max(SHARE * right, SECONDS)
    for name, values in (("record", ours), (other, theirs)):
        told = " ".join(f"{value:.3f}" for value in values)
        print(f"  {end} {name:13} {told}  median {statistics.median(values):.3f} s")
    print(
        f"  {end} difference    {mine - right:+.3f} s, {mine / right - 1:+.1%}{'' if good else '  TOO MUCH'}",
        flush=True,
    )
    return good


def measure(made: lab.Lab, groups: lab.TargetCgroups, link: str, label: str, rounds: int, programs: Path) -> bool:
    src = made.tree(link, "large", SCALES[link])
    ours: dict[str, list[float]] = {"source": [], "target": []}
    theirs: dict[str, list[float]] = {"source": [], "target": []}
    for _round in range(rounds):
        with groups.counting():
            record = made.copy(link, label, src, programs)
        theirs["source"].append(lab.timed_s(record))
        theirs["target"].append(groups.cpu_s())
        for end, values in ours.items():
            values.append(lab.cpu_s(record, end))
    print(f"{label} on {link}, {record['dataset']['bytes'] / 1e6:g} MB")
    good = compare("source", "time -v", ours["source"], theirs["source"])
    return compare("target", "control group", ours["target"], theirs["target"]) and good


def main() -> int:
    given = lab.options("CPU time of both ends against time -v and control groups.", ["/usr/bin/time"], rounds=5)
    bad = 0
    with lab.lab(given.inventory) as made, lab.workplace() as work:
        programs = lab.timing_programs(work / "programs")
        for link in SCALES:
            groups = lab.TargetCgroups(made, link)
            try:
                bad += sum(not measure(made, groups, link, label, given.rounds, programs) for label in LABELS)
            finally:
                groups.close()
    print(f"limit: {SHARE:.0%} or {SECONDS * 1000:g} ms, whichever is more")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
