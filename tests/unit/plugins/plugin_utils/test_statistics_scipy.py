# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""statistics against SciPy, on random data of many sizes with fixed seeds."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import scipy.special
import scipy.stats
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import statistics as stats

#: Levels that campaigns use: 0.05, and 0.05 over the pairs of 3, 5 and 11 methods.
ALPHAS = (0.05, 0.05 / 3, 0.05 / 10, 0.05 / 55)


def test_incomplete_beta() -> None:
    chance = random.Random(1)
    for _ in range(300):
        a, b, x = chance.uniform(0.5, 60), chance.uniform(0.5, 60), chance.random()
        assert stats.incomplete_beta(a, b, x) == pytest.approx(scipy.special.betainc(a, b, x), rel=1e-10)


def test_t_quantiles() -> None:
    chance = random.Random(2)
    for _ in range(200):
        df, tail = chance.choice((chance.randint(1, 200), chance.uniform(0.7, 30))), 10 ** chance.uniform(-6, -0.31)
        assert stats.t_quantile(1 - tail, df) == pytest.approx(scipy.stats.t.isf(1 - (1 - tail), df), rel=1e-8)
        assert stats.t_quantile(tail, df) == pytest.approx(scipy.stats.t.ppf(tail, df), rel=1e-8)


def wilcoxon_p(n: int, rank_sum: int) -> float:
    """The exact two-sided p-value of n differences whose negative ones have C(rank_sum) as the sum of their ranks."""
    differences = np.arange(1.0, n + 1)
    for rank in range(n, 0, -1):
        if rank <= rank_sum:
            differences[rank - 1] *= -1
            rank_sum -= rank
    return float(scipy.stats.wilcoxon(differences, method="exact").pvalue)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_signed_rank_cutoffs_part_what_wilcoxon_rejects_from_what_it_does_not(alpha: float) -> None:
    for n in range(3, 31):
        cutoff = stats.signed_rank_cutoff(n, alpha)
        if cutoff is not None:
            assert wilcoxon_p(n, cutoff) <= alpha
        assert wilcoxon_p(n, 0 if cutoff is None else cutoff + 1) > alpha


@pytest.mark.parametrize("alpha", ALPHAS)
def test_hodges_lehmann_interval_inverts_wilcoxon(alpha: float) -> None:
    chance = np.random.default_rng(3)
    for n in (6, 9, 12, 15, 20, 30):
        values = chance.normal(0.1, 0.05, n)
        centre, interval = stats.hodges_lehmann(list(values), alpha)
        averages = [(values[i] + values[j]) / 2 for i in range(n) for j in range(i, n)]
        assert centre == pytest.approx(np.median(averages))
        if interval is None:
            assert scipy.stats.wilcoxon(values - values.min() + 1, method="exact").pvalue > alpha
            continue
        for end, outwards in zip(interval, (-1e-9, 1e-9), strict=True):
            assert scipy.stats.wilcoxon(values - (end + outwards), method="exact").pvalue <= alpha
            assert scipy.stats.wilcoxon(values - (end - outwards), method="exact").pvalue > alpha


def kendall_p(n: int, discordant: int) -> float:
    """The exact two-sided p-value of a permutation of n values with so many inversions."""
    left, order = list(range(n)), []
    while left:
        step = min(discordant, len(left) - 1)
        discordant -= step
        order.append(left.pop(step))
    return float(scipy.stats.kendalltau(range(n), order, method="exact").pvalue)


def test_kendall_cutoffs_part_what_kendalls_tau_rejects_from_what_it_does_not() -> None:
    assert stats.kendall_cutoff(stats.MIN_BLOCKS - 1, 0.05) is None
    for n in range(stats.MIN_BLOCKS, 31):
        cutoff = stats.kendall_cutoff(n, 0.05)
        assert cutoff is not None
        assert kendall_p(n, cutoff) <= 0.05 < kendall_p(n, cutoff + 1)


def random_times(chance: np.random.Generator, methods: int, blocks: int) -> dict[str, dict[int, float]]:
    """Methods of different speed, a machine that drifts, noise, and now and then a run that takes half as long again."""
    return {
        f"m{method}": {
            block: math.exp(0.2 * method + 0.01 * block + chance.normal(0, 0.02) + 0.4 * (chance.random() < 0.05))
            for block in range(1, blocks + 1)
        }
        for method in range(methods)
    }


def block_effects(times: dict[str, dict[int, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Log times less each method's median, methods by blocks, and the median of each block."""
    logs = np.log([list(runs.values()) for runs in times.values()])
    centred = logs - np.median(logs, axis=1, keepdims=True)
    return centred, np.median(centred, axis=0)


@pytest.mark.parametrize("blocks", [5, 6, 12, 20])
@pytest.mark.parametrize("methods", [1, 2, 3, 11])
def test_outliers_have_the_scores_of_scipys_median_abs_deviation(methods: int, blocks: int) -> None:
    chance = np.random.default_rng(100 * methods + blocks)
    for _ in range(10):
        times = random_times(chance, methods, blocks)
        centred, effects = block_effects(times)
        x = centred - effects if methods > 2 else centred
        mad = scipy.stats.median_abs_deviation(x, axis=1)[:, None]
        deviation = np.abs(x - np.median(x, axis=1, keepdims=True))
        mean = 1.253314 * np.mean(deviation, axis=1)[:, None]
        score = np.where(mad > 1e-12, 0.6745 * deviation / np.maximum(mad, 1e-12), deviation / mean)
        assert stats.outliers(times) == {
            label: [block for block, value in enumerate(row, 1) if value > 3.5]
            for label, row in zip(times, score, strict=True)
        }


@pytest.mark.parametrize("methods", [1, 2, 11])
def test_drift_is_the_theil_sen_slope_and_inverts_kendalls_tau(methods: int) -> None:
    chance = np.random.default_rng(methods)
    for blocks in (5, 8, 12, 20):
        times = random_times(chance, methods, blocks)
        numbers = np.arange(1, blocks + 1)
        _centred, effects = block_effects(times)
        found = stats.drift(times)
        assert found is not None
        slope = scipy.stats.theilslopes(effects, numbers).slope
        assert found.ratio == pytest.approx(math.expm1(slope * (blocks - 1)), abs=1e-12)
        for end, outwards in zip(found.ci, (-1e-6, 1e-6), strict=True):
            bound = math.log1p(end) / (blocks - 1)
            for step, rejected in ((outwards, True), (-outwards, False)):
                p = scipy.stats.kendalltau(numbers, effects - (bound + step) * numbers, method="exact").pvalue
                assert (p <= 0.05) == rejected
