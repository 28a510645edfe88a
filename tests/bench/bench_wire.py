# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bytes on the wire against ip -s and tc -s, and the ceiling of a link against its rate, on the embedded lab.

Usage (as root): python tests/bench/bench_wire.py [--inventory DIR] [--rounds N] [--limit SHARE]

The device's counters are read by ip -s before and after a whole run; what the run sends beside the copy is measured
by the same run in check mode, and taken off. Limit: 2 %, by medians, in both directions. (A virtual device counts the
headers of a segment that it is to cut (GSO) once, where tc -s counts them for each packet: that is where most of the
difference to tc comes from, and it could be up to 66 of 1514 bytes.) The ceiling of the link of 100 Mbit/s lies between 90 and
97 Mbit/s. Prints every figure; exits 1 when one is out of its bounds.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

import lab

SCALES = {"lan-1g": 0.04, "lan-100m": 0.02}
LABELS = ("tar|ssh", "scp", "rsync -a", "tar|nc", "tar|gzip|nc")
CEILING_LINK = "lan-100m"
CEILING_MBIT = (90.0, 97.0)


def median_share(ours: list[int], theirs: list[int]) -> float:
    return statistics.median(mine / right - 1 for mine, right in zip(ours, theirs, strict=True))


def measure(made: lab.Lab, link: str, label: str, rounds: int, limit: float) -> bool:
    src = made.tree(link, "large", SCALES[link])

    def run(**more: Any) -> tuple[lab.Counted, dict[str, Any]]:
        before = made.counted(link)
        record = made.copy(link, label, src, **more)
        return made.counted(link).since(before), record

    beside, _planned = run(_ansible_check_mode=True)
    ours: list[dict[str, int]] = []
    theirs: list[lab.Counted] = []
    for _round in range(rounds):
        counted, record = run()
        assert record["status"] == "ok", record["message"]
        ours.append(record["wire"])
        theirs.append(counted.since(beside))
    print(f"{label} on {link}, {record['dataset']['bytes']} bytes")
    for mine, right in zip(ours, theirs, strict=True):
        print(
            f"  tx record {mine['tx_bytes']} ip -s {right.tx_bytes} tc -s {right.shaped_bytes}"
            f"  rx record {mine['rx_bytes']} ip -s {right.rx_bytes}"
        )
    tx = median_share([mine["tx_bytes"] for mine in ours], [right.tx_bytes for right in theirs])
    rx = median_share([mine["rx_bytes"] for mine in ours], [right.rx_bytes for right in theirs])
    shaped = median_share([mine["tx_bytes"] for mine in ours], [right.shaped_bytes for right in theirs])
    good = all(abs(share) <= limit for share in (tx, rx, shaped))
    print(
        f"  against ip -s tx {tx:+.2%} rx {rx:+.2%}, against tc -s tx {shaped:+.2%} (limit {limit:.0%})"
        f"{'' if good else '  TOO MUCH'}",
        flush=True,
    )
    return good


def ceiling(made: lab.Lab, rounds: int) -> bool:
    found = [made.ceiling_mbit(CEILING_LINK, 2) for _round in range(rounds)]
    low, high = CEILING_MBIT
    told = " ".join(f"{rate:.2f}" for rate in found)
    print(f"ceiling of {CEILING_LINK}: {told} Mbit/s (limit {low:g} to {high:g})")
    return all(low <= rate <= high for rate in found)


def main() -> int:
    given = lab.options("Wire bytes against ip -s and tc -s.", [], rounds=3, limit=0.02)
    bad = 0
    with lab.lab(given.inventory) as made:
        for link in SCALES:
            bad += sum(not measure(made, link, label, given.rounds, given.limit) for label in LABELS)
        bad += not ceiling(made, given.rounds)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
