# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import math

import pytest
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import statistics as stats


@pytest.mark.parametrize(
    ("a", "b", "x", "expected"),  # scipy.special.betainc, SciPy 1.17.1
    [
        (0.5, 0.5, 0.3, 0.36901011956554536),
        (10, 0.5, 0.9, 0.15164090963470994),
        (2, 3, 0.4, 0.5247999999999999),
        (1, 1, 0.25, 0.25),
        (50, 0.5, 0.99, 0.3173043978741973),
        (3, 4, 0.0, 0.0),
        (3, 4, 1.0, 1.0),
    ],
)
def test_incomplete_beta(a: float, b: float, x: float, expected: float) -> None:
    assert stats.incomplete_beta(a, b, x) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize(
    ("p", "df", "expected"),  # scipy.stats.t.ppf, SciPy 1.17.1
    [
        (0.975, 1, 12.706204736174694),
        (0.975, 2, 4.302652729749462),
        (0.975, 10, 2.228138851986274),
        (0.95, 30, 1.697260886593957),
        (1 - 0.05 / 55 / 2, 20, 3.890323949535985),
        (1 - 0.05 / 55 / 2, 2, 33.14363026851473),
        (0.9999999, 4, 73.98575805751052),
        (0.6, 7.5, 0.26250189880429486),
        (0.025, 10, -2.228138851986274),
        (0.5, 3, 0.0),
    ],
)
def test_t_quantile(p: float, df: float, expected: float) -> None:
    assert stats.t_quantile(p, df) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(("p", "df"), [(0.0, 3), (1.0, 3), (0.9, 0)])
def test_t_quantile_refuses_what_it_does_not_define(p: float, df: float) -> None:
    with pytest.raises(ValueError, match="p must lie"):
        stats.t_quantile(p, df)


def by_block(*seconds: float) -> dict[int, float]:
    return dict(enumerate(seconds, 1))


def test_block_design_agrees_with_least_squares() -> None:
    # Expected: numpy.linalg.lstsq of log time on method and block dummies, 6 degrees of freedom, and
    # scipy.stats.t.ppf(1 - 0.05 / 3 / 2, 6) times the standard error of each coefficient.
    found = stats.compare(
        {
            "c": by_block(15.0, 16.8, 15.5, 18.5),
            "a": by_block(10.0, 11.0, 10.5, 12.0),
            "b": by_block(10.4, 11.3, 11.1, 12.3),
        }
    )
    assert [item.label for item in found] == ["a", "b", "c"]
    best, b, c = found
    assert (best.verdict, best.ratio, best.ratio_ci) == (stats.BEST, 1.0, (1.0, 1.0))
    assert b.ratio == pytest.approx(1.037275596766168)
    assert b.ratio_ci == pytest.approx((0.9976884060593743, 1.0784335641388407))
    assert b.verdict == stats.UNRESOLVED
    assert c.ratio == pytest.approx(1.5110720906286006)
    assert c.ratio_ci == pytest.approx((1.4534026542609455, 1.5710297875008121))
    assert c.verdict == stats.SLOWER
    assert [item.median_s for item in found] == [10.75, 11.2, 16.15]
    assert {item.n for item in found} == {4}
    assert best.ci_s is not None
    assert best.ci_s[0] < 10.85 < best.ci_s[1]


def test_a_wider_delta_makes_equivalents() -> None:
    times = {"a": by_block(10.0, 11.0, 10.5, 12.0), "b": by_block(10.4, 11.3, 11.1, 12.3)}
    assert [item.verdict for item in stats.compare(times, delta=0.2)] == [stats.BEST, stats.EQUIVALENT]


def test_blocks_drop_out_of_the_comparison() -> None:
    """A machine that is slow in one block is slow for all: the ratio does not see it."""
    found = stats.compare({"a": by_block(1.0, 9.0, 2.0), "b": by_block(2.0, 18.0, 4.0)})
    assert found[1].ratio == pytest.approx(2.0)
    assert found[1].ratio_ci == pytest.approx((2.0, 2.0))
    assert found[1].verdict == stats.SLOWER


def test_only_complete_blocks_are_compared() -> None:
    found = stats.compare({"a": by_block(1.0, 1.0, 1.0), "b": {1: 2.0, 3: 2.0}})
    assert [(item.label, item.n, item.blocks) for item in found] == [("a", 3, 2), ("b", 2, 2)]


def test_one_block_tells_nothing() -> None:
    found = stats.compare({"a": {1: 1.0}, "b": {1: 3.0}})
    assert found[1].ratio == pytest.approx(3.0)
    assert (found[1].ratio_ci, found[1].ci_s, found[1].verdict) == (None, None, stats.UNRESOLVED)


def test_no_complete_block_ranks_by_median_only() -> None:
    found = stats.compare({"a": {1: 3.0}, "b": {2: 1.0}})
    assert [(item.label, item.ratio, item.verdict) for item in found] == [
        ("b", None, stats.UNRESOLVED),
        ("a", None, stats.UNRESOLVED),
    ]
    assert stats.compare({}) == []


def test_one_method_is_the_best_of_one() -> None:
    (only,) = stats.compare({"a": by_block(1.0, 2.0, 3.0)})
    assert (only.verdict, only.ratio, only.ratio_ci) == (stats.BEST, 1.0, (1.0, 1.0))
    # exp of scipy.stats.t.interval(0.95, 2, mean(y), sem(y)), y = log([1, 2, 3]), SciPy 1.17.1
    assert only.ci_s == pytest.approx((0.45712176, 7.22329923))
    assert not only.exact


def test_one_method_is_not_provisional_for_ever() -> None:
    # six values: 2/2^6 = 3.1 % is the only signed-rank outcome below 5 %, so the interval is the least and the greatest
    (only,) = stats.compare({"a": by_block(1.0, 2.0, 3.0, 4.0, 5.0, 6.0)})
    assert stats.blocks_needed(1) == 6
    assert (only.verdict, only.exact, only.ci_s) == (stats.BEST, True, pytest.approx((1.0, 6.0)))


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((1.06, 1.2), stats.SLOWER),
        ((1.05, 1.2), stats.UNRESOLVED),
        ((0.99, 1.049), stats.EQUIVALENT),
        ((1.01, 1.05), stats.UNRESOLVED),
        ((0.9, 1.3), stats.UNRESOLVED),
        (None, stats.UNRESOLVED),
    ],
)
def test_verdict(interval: tuple[float, float] | None, verdict: str) -> None:
    assert stats.verdict(interval, 0.05) == verdict


@pytest.mark.parametrize(
    ("n", "alpha", "cutoff"),  # the last w with WilcoxonDistribution(n).cdf(w) <= alpha / 2, SciPy 1.17.1
    [
        (12, 0.05 / 55, 0),
        (6, 0.05, 0),
        (20, 0.05 / 55, 21),
        (20, 0.05, 52),
        (14, 0.01, 12),
        (5, 0.05, None),
    ],
)
def test_signed_rank_cutoff(n: int, alpha: float, cutoff: int | None) -> None:
    assert stats.signed_rank_cutoff(n, alpha) == cutoff


def test_hodges_lehmann_by_hand() -> None:
    # Walsh averages of 1, 2, 4: 1, 1.5, 2, 2.5, 3, 4
    assert stats.hodges_lehmann([4.0, 1.0, 2.0], 0.3) == (2.25, (1.0, 4.0))
    assert stats.hodges_lehmann([4.0, 1.0, 2.0], 0.05) == (2.25, None)


def test_the_interval_is_what_the_signed_rank_test_does_not_reject() -> None:
    """Maize heights of Darwin, crossed less self-fertilised, eighths of an inch (Fisher, The Design of Experiments,
    1935, section 17). Expected: the ends between which scipy.stats.wilcoxon(d - x, method="exact").pvalue > 0.05,
    found by bisection with SciPy 1.17.1."""
    darwin = [49.0, -67.0, 8.0, 16.0, 6.0, 23.0, 28.0, 41.0, 14.0, 29.0, 56.0, 24.0, 75.0, 60.0, -48.0]
    centre, interval = stats.hodges_lehmann(darwin, 0.05)
    assert interval == pytest.approx((4.0, 41.5))
    assert centre == 25.0


def twelve(factor: float, noise: float = 0.0) -> dict[int, float]:
    """Twelve blocks of a machine that drifts, the same for all methods; noise goes up and down in turn."""
    return {block: factor * (1 + block / 100) * (1 + noise * (-1) ** block) for block in range(1, 13)}


def test_with_blocks_enough_the_interval_is_exact() -> None:
    found = stats.compare({"slow": twelve(1.3, 0.01), "fast": twelve(1.0), "same": twelve(1.01, 0.001)})
    assert [item.label for item in found] == ["fast", "same", "slow"]
    assert {item.exact for item in found} == {True}
    assert [item.verdict for item in found] == [stats.BEST, stats.EQUIVALENT, stats.SLOWER]
    # 12 differences of log(1.3) + log(1 -+ 0.01), six of each sign: the Walsh averages are symmetric round the mean of
    # the two values, and at alpha 0.05 / 3 none of the extreme ones is cut off that differs from its neighbours.
    assert found[2].ratio == pytest.approx(1.3 * math.sqrt(0.99 * 1.01))
    assert found[2].ratio_ci == pytest.approx((1.3 * 0.99, 1.3 * 1.01))


def test_one_block_too_few_is_provisional() -> None:
    eleven = {
        label: {block: t for block, t in twelve(1 + i / 50).items() if block < 12}
        for i, label in enumerate("abcdefghijk")
    }
    assert {item.exact for item in stats.compare(eleven)} == {False}


def test_noise_floor_is_the_median_distance_of_the_pairs() -> None:
    pairs = [(1.0, 1.01), (2.0, 2.0), (1.04, 1.0), (1.0, 1.02), (3.0, 3.09)]
    # |log ratios| in order: 0, log 1.01, log 1.02, log 1.03, log 1.04
    assert stats.noise_floor(pairs) == pytest.approx(0.02)
    assert stats.noise_floor(pairs[:4]) is None


def test_blocks_needed() -> None:
    # DESIGN: 12 blocks for 11 methods; two methods: 2 / 2^n <= 0.05 from n = 6 on
    assert [stats.blocks_needed(k) for k in (11, 2)] == [12, 6]
    for k in range(2, 40):
        alpha = 0.05 / math.comb(k, 2)
        n = stats.blocks_needed(k)
        assert 2 / 2**n <= alpha < 2 / 2 ** (n - 1)


def test_an_outlier_is_one_methods_run_and_a_slow_block_is_none() -> None:
    """Four methods far apart, nearly without noise; block 4 is slow for all, and one run of b takes half as long again."""
    times = {
        label: {
            block: factor * (1.5 if block == 4 else 1) * (1 + 0.001 * ((block * 7 + number * 3) % 5))
            for block in range(1, 9)
        }
        for number, (label, factor) in enumerate({"a": 1.0, "b": 2.0, "c": 4.0, "d": 8.0}.items())
    }
    assert stats.outliers(times) == {"a": [], "b": [], "c": [], "d": []}
    times["b"][6] *= 1.5
    assert stats.outliers(times) == {"a": [], "b": [6], "c": [], "d": []}


def test_outliers_where_half_of_the_runs_are_equal() -> None:
    # MAD 0; |log 1.1| / (1.253314 * |log 1.1| / 6) = 4.79, and with 1.1 in two of six 2.39.
    assert stats.outliers({"a": by_block(1.0, 1.0, 1.0, 1.1, 1.0, 1.0)}) == {"a": [4]}
    assert stats.outliers({"a": by_block(1.0, 1.1, 1.0, 1.1, 1.0, 1.0)}) == {"a": []}
    assert stats.outliers({"a": by_block(1.0, 1.0, 1.0, 1.0, 1.0)}) == {"a": []}


def test_few_runs_have_no_outliers() -> None:
    assert stats.outliers({"a": by_block(1.0, 1.0, 1.0, 9.0), "b": {}}) == {"a": [], "b": []}
    assert stats.outliers({}) == {}


def test_drift_by_hand() -> None:
    # Growth by the same factor from block to block, whatever the methods' own speed: 1.01 ** 8 over blocks 2 to 10.
    times = {
        label: {block: factor * 1.01**block for block in (2, 3, 5, 7, 10)} for label, factor in (("a", 1), ("b", 3))
    }
    found = stats.drift(times)
    assert found is not None
    assert (found.ratio, *found.ci) == pytest.approx([1.01**8 - 1] * 3)
    assert stats.drift({label: dict(list(runs.items())[:4]) for label, runs in times.items()}) is None
    assert stats.drift({}) is None


def test_drift_of_one_slow_block_is_none() -> None:
    found = stats.drift({"a": by_block(1.0, 1.01, 1.0, 1.01, 3.0, 1.0, 1.01)})
    assert found is not None
    assert abs(found.ratio) < 0.02
    assert found.ci[0] < 0 < found.ci[1]


def compared(*intervals: tuple[float, float] | None, verdict: str = stats.UNRESOLVED) -> list[stats.Comparison]:
    return [
        stats.Comparison(f"m{i}", 12, 1.0, (0.5, 2.0), 1.0, interval, verdict, 12)
        for i, interval in enumerate(((1.0, 1.0), *intervals))
    ]


def test_narrow() -> None:
    # sqrt(1.1 / 1.0) = 1.0488, sqrt(2.1 / 2.0) = 1.0247
    assert not stats.narrow(compared((1.0, 1.1)), 0.03)
    assert stats.narrow(compared((1.0, 1.1)), 0.05)
    assert stats.narrow(compared((2.0, 2.1)), 0.03)
    assert not stats.narrow(compared((2.0, 2.1), (1.0, 1.1)), 0.03)
    assert not stats.narrow(compared((2.0, 2.1), None), 0.03)
    assert not stats.narrow([], 0.03)
    # one method: sqrt(2.0 / 0.5) = 2
    assert stats.narrow(compared(), 1.0)
    assert not stats.narrow(compared(), 0.99)


@pytest.mark.parametrize("verdict", stats.VERDICTS)
def test_narrow_does_not_look_at_verdicts(verdict: str) -> None:
    assert stats.narrow(compared((1.2, 1.23), verdict=verdict), 0.03)
    assert not stats.narrow(compared((1.2, 1.4), verdict=verdict), 0.03)
