# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Error rates of the verdicts, by simulated campaigns: how often is a method called slower that is not, and how often is
one found that is? Exits with 1 when a rate is not what it must be."""

from __future__ import annotations

import math
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / ".cache" / "collections"))

from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.statistics import SLOWER, compare

CAMPAIGNS = 10_000
LABELS = [f"method {number:02d}" for number in range(11)]


def campaign(
    chance: random.Random, blocks: int, sigma: float, drift: float, slower: float
) -> dict[str, dict[int, float]]:
    """Times of eleven methods, all but the first slower by C(slower); log-normal noise, and a drift over the campaign."""
    return {
        label: {
            block: math.exp(
                chance.gauss(0, sigma)
                + math.log1p(drift) * (block + number / 11) / blocks
                + math.log1p(slower * (number > 0))
            )
            for block in range(blocks)
        }
        for number, label in enumerate(LABELS)
    }


def called_slower(blocks: int, sigma: float, drift: float, slower: float, campaigns: int, seed: int) -> list[int]:
    """For each simulated campaign, how many of its methods are called slower at delta 0."""
    chance = random.Random(seed)
    return [
        sum(item.verdict == SLOWER for item in compare(campaign(chance, blocks, sigma, drift, slower), delta=0.0))
        for _ in range(campaigns)
    ]


def main() -> int:
    bad = 0
    print(f"{'case':62} {'rate':>8} {'bound':>8} {'s':>6}")
    for blocks in (3, 6, 12, 20):
        start = time.monotonic()
        found = called_slower(blocks, 0.03, 0.05, 0.0, CAMPAIGNS, seed=blocks)
        rate = sum(count > 0 for count in found) / len(found)
        bad += rate > 0.05
        what = f"{blocks} blocks, 11 equal methods: campaigns with one called slower"
        print(f"{what:62} {rate:8.4f} {'<= 0.05':>8} {time.monotonic() - start:6.1f}")
    start = time.monotonic()
    found = called_slower(20, 0.05, 0.05, 0.2, 1000, seed=1)
    rate = sum(count == 10 for count in found) / len(found)
    bad += rate < 0.95
    what = "20 blocks, 10 methods slower by 20 %: campaigns with all found"
    print(f"{what:62} {rate:8.4f} {'>= 0.95':>8} {time.monotonic() - start:6.1f}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
