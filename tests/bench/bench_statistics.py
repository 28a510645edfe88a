# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Error rates of verdicts, outliers and drift, by simulated campaigns: how often is something said that is not so, and
how often is what is so found? Exits with 1 when a rate is not what it must be."""

from __future__ import annotations

import math
import multiprocessing
import multiprocessing.pool
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / ".cache" / "collections"))

from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.statistics import (
    DELTA,
    SLOWER,
    compare,
    drift,
    narrow,
    outliers,
)

CAMPAIGNS = 10_000
#: Where a campaign takes several comparisons, or the rate that is looked for is far from its bound.
FEWER = 4000
LABELS = [f"method {number:02d}" for number in range(11)]
#: Half-width of the ratios' intervals at which the adaptive rule stops.
PRECISION = 0.03

Times = dict[str, dict[int, float]]
T = TypeVar("T")


class World(NamedTuple):
    """What a campaign is drawn from: eleven methods that run in random order in each block, log-normal noise, a machine
    that gets slower by C(drift) over the campaign, all methods but the first slower by C(slower), and a share
    C(tail) of the runs that take 1.5 times as long."""

    sigma: float
    drift: float = 0.0
    slower: float = 0.0
    tail: float = 0.0


def campaign(chance: random.Random, blocks: int, world: World) -> Times:
    times: Times = {label: {} for label in LABELS}
    for block in range(blocks):
        order = list(range(len(LABELS)))
        chance.shuffle(order)
        for label, position in zip(LABELS, order, strict=True):
            times[label][block] = math.exp(
                chance.gauss(0, world.sigma)
                + math.log1p(world.drift) * (block + position / len(LABELS)) / blocks
                + math.log1p(world.slower * (label != LABELS[0]))
                + (math.log(1.5) if chance.random() < world.tail else 0.0)
            )
    return times


def called_slower(times: Times) -> int:
    """How many methods are called slower at delta 0."""
    return sum(item.verdict == SLOWER for item in compare(times, delta=0.0))


def stopped(times: Times, first: int) -> tuple[int, int]:
    """The adaptive rule: from C(first) blocks on one more at a time, until the intervals are narrow or all blocks are
    used. How many methods are called slower then, and the number of blocks."""
    last = max(len(runs) for runs in times.values())
    for blocks in range(first, last + 1):
        compared = compare({label: {b: runs[b] for b in range(blocks)} for label, runs in times.items()}, delta=0.0)
        if narrow(compared, PRECISION):
            break
    return sum(item.verdict == SLOWER for item in compared), blocks


def flags_drift(times: Times) -> tuple[bool, bool]:
    """Whether the interval excludes 0, and whether the drift is also large enough to matter."""
    found = drift(times)
    excludes = found is not None and not found.ci[0] <= 0 <= found.ci[1]
    return excludes, excludes and found is not None and abs(found.ratio) > DELTA


class Outliers(NamedTuple):
    """C(planted) runs that took 1.5 times as long, those C(found) among them, and the C(other) runs with those that were
    taken for outliers all the same."""

    planted: int
    found: int
    other: int
    mistaken: int


def flags_outliers(times: Times, planted: set[tuple[str, int]]) -> Outliers:
    flagged = {(label, block) for label, blocks in outliers(times).items() for block in blocks}
    runs = sum(len(blocks) for blocks in times.values())
    return Outliers(len(planted), len(planted & flagged), runs - len(planted), len(flagged - planted))


# One campaign each; a process of the pool runs many with one generator.


def fixed(chance: random.Random, blocks: int, world: World) -> int:
    return called_slower(campaign(chance, blocks, world))


def adaptive(chance: random.Random, first: int, cap: int, world: World) -> tuple[int, int]:
    return stopped(campaign(chance, cap, world), first)


def drifting(chance: random.Random, blocks: int, world: World) -> tuple[bool, bool]:
    return flags_drift(campaign(chance, blocks, world))


def planting(chance: random.Random, blocks: int, world: World, share: float) -> Outliers:
    """Outliers planted in C(share) of the runs, of methods of equal speed."""
    times = campaign(chance, blocks, world)
    planted = {(label, block) for label in times for block in times[label] if chance.random() < share}
    for label, block in planted:
        times[label][block] *= 1.5
    return flags_outliers(times, planted)


def batch(one: Callable[..., T], seed: str, count: int, arguments: tuple[object, ...]) -> list[T]:
    chance = random.Random(seed)
    return [one(chance, *arguments) for _ in range(count)]


class Table:
    """The lines as they come, and whether a bound was broken."""

    def __init__(self, pool: multiprocessing.pool.Pool) -> None:
        self.pool = pool
        self.broken = False
        self.start = time.monotonic()
        print(f"{'case':82} {'rate':>7} {'bound':>8} {'s':>5}")

    def simulate(self, one: Callable[..., T], *arguments: object, campaigns: int = CAMPAIGNS) -> list[T]:
        """C(one) for each of so many campaigns, the same ones every time and on every machine."""
        self.start = time.monotonic()
        tasks = [(one, f"{arguments} {part}", campaigns // 20, arguments) for part in range(20)]
        return [result for part in self.pool.starmap(batch, tasks) for result in part]

    def line(self, what: str, rate: float, at_most: float | None = None, at_least: float | None = None) -> None:
        bound = f"<= {at_most:g}" if at_most is not None else f">= {at_least:g}" if at_least is not None else ""
        bad = (at_most is not None and rate > at_most) or (at_least is not None and rate < at_least)
        self.broken |= bad
        seconds = time.monotonic() - self.start
        print(f"{what:82} {rate:7.4f} {bound:>8} {seconds:5.1f}{'  BROKEN' if bad else ''}", flush=True)


def share(values: list[bool]) -> float:
    return sum(values) / len(values)


def main() -> int:
    with multiprocessing.Pool() as pool:
        table = Table(pool)
        for tail, noise in ((0.0, "normal noise"), (1 / 20, "1 run in 20 x1.5")):
            equal = World(0.03, drift=0.05, tail=tail)
            for blocks in (3, 6, 12, 20):
                found = table.simulate(fixed, blocks, equal)
                what = f"11 equal methods, {noise}, {blocks} blocks: any called slower"
                table.line(what, share([count > 0 for count in found]), at_most=0.05)
            # The rule stops between the first block and the last one where the noise is about 1.5 %.
            for first, cap in ((12, 20), (3, 8)):
                for sigma in (0.03, 0.015):
                    campaigns = FEWER if first == 12 else CAMPAIGNS
                    ends = table.simulate(adaptive, first, cap, equal._replace(sigma=sigma), campaigns=campaigns)
                    mean = sum(blocks for _count, blocks in ends) / len(ends)
                    what = f"the same, {first} blocks until +-3 % or {cap} (mean {mean:.1f}), sigma {sigma:.1%}"
                    table.line(what, share([count > 0 for count, _blocks in ends]), at_most=0.05)
        for tail, noise in ((0.0, "normal noise"), (1 / 20, "1 run in 20 x1.5")):
            found = table.simulate(fixed, 20, World(0.05, 0.05, 0.2, tail), campaigns=FEWER)
            what = f"10 methods slower by 20 %, sigma 5 %, {noise}, 20 blocks"
            # Heavy tails widen the intervals, by right: how much is shown, and not held against a bound.
            table.line(f"{what}: all found", share([n == 10 for n in found]), at_least=None if tail else 0.95)
            table.line(f"{what}: of them found", sum(found) / 10 / len(found))
        for blocks in (5, 12, 20):
            flags = table.simulate(drifting, blocks, World(0.03))
            # The level is exact; 10 000 campaigns scatter by 0.2 % round it.
            table.line(
                f"no drift, {blocks} blocks: the interval excludes 0", share([f[0] for f in flags]), at_most=0.055
            )
            table.line(f"no drift, {blocks} blocks: flagged", share([f[1] for f in flags]), at_most=0.05)
        flags = table.simulate(drifting, 12, World(0.2))
        table.line("no drift, sigma 20 %, 12 blocks: flagged", share([f[1] for f in flags]), at_most=0.05)
        for blocks, at_least in ((5, None), (12, 0.95), (20, 0.95)):
            # With five blocks the interval excludes 0 only where every block is slower than the one before.
            flags = table.simulate(drifting, blocks, World(0.03, drift=0.15), campaigns=FEWER)
            table.line(f"drift of 15 %, {blocks} blocks: flagged", share([f[1] for f in flags]), at_least=at_least)
        # The MAD of five runs says little: of so few, more are flagged.
        for blocks, at_most in ((5, 0.1), (12, 0.05), (20, 0.05)):
            runs = table.simulate(planting, blocks, World(0.03, drift=0.05), 0.0, campaigns=FEWER)
            rate = sum(r.mistaken for r in runs) / sum(r.other for r in runs)
            table.line(f"normal noise, {blocks} blocks: runs taken for outliers", rate, at_most=at_most)
        for blocks, at_most in ((5, 0.1), (12, 0.05), (20, 0.05)):
            runs = table.simulate(planting, blocks, World(0.03, drift=0.05), 1 / 20, campaigns=FEWER)
            rate = sum(r.found for r in runs) / sum(r.planted for r in runs)
            table.line(f"1 run in 20 x1.5, {blocks} blocks: those found", rate, at_least=0.9)
            rate = sum(r.mistaken for r in runs) / sum(r.other for r in runs)
            table.line(f"the same, {blocks} blocks: other runs taken for outliers", rate, at_most=at_most)
    return 1 if table.broken else 0


if __name__ == "__main__":
    sys.exit(main())
