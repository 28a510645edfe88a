# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.prediction import Fit, Point, fit, predict

#: Files and bytes of trees as a campaign has them, from one file to many small ones.
SHAPES = (
    (1, 20_000_000),
    (1, 200_000_000),
    (100, 50_000_000),
    (1000, 4_000_000),
    (2000, 100_000_000),
    (10_000, 40_000_000),
)


def exact(a: float, b: float, c: float) -> list[Point]:
    return [Point(files, size, a + b * files + c * size) for files, size in SHAPES]


def fitted(points: list[Point]) -> Fit:
    found, reason = fit(points)
    assert reason == ""
    assert found is not None
    return found


def test_times_that_follow_the_formula_give_its_coefficients() -> None:
    found = fitted(exact(0.25, 0.0004, 1 / 11.8e6))
    assert (found.a_s, found.b_s_per_file, found.c_s_per_byte) == pytest.approx((0.25, 0.0004, 1 / 11.8e6), rel=1e-9)
    assert found.residual == pytest.approx(0, abs=1e-9)
    assert (found.shapes, found.largest_files, found.largest_bytes) == (6, 10_000, 200_000_000)


def test_prediction_by_hand() -> None:
    # Only the byte's cost is uncertain: its variance is 0.1^2 * 4e-18 = (2e-10)^2.
    spread = ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0), (0.0, 0.0, 4e-18))
    known = Fit(0.5, 0.001, 1e-8, residual=0.1, shapes=8, largest_bytes=10**9, largest_files=1000, spread=spread)
    # 0.5 + 0.001 * 500 + 1e-8 * 3e8 = 4 s; t(0.975, 5) = 2.5706 times 3e8 * 2e-10 = 0.06 s
    found = predict(known, 500, 300_000_000)
    assert (found.seconds, found.low_s, found.high_s) == pytest.approx((4.0, 4 - 0.15423, 4 + 0.15423), rel=1e-4)
    assert found.extrapolation == 0.5
    # 10 times the files, 4 times the bytes
    assert predict(known, 10_000, 4 * 10**9).extrapolation == 10
    # a link that carries 77 MB/s takes 3.9 s for it
    slow = dataclasses.replace(known, floor_s_per_byte=1.3e-8)
    assert predict(slow, 500, 300_000_000).low_s == pytest.approx(3.9)


def test_intervals_agree_with_the_textbook() -> None:
    chance = np.random.default_rng(5)
    points = [Point(p.files, p.bytes, p.seconds * math.exp(chance.normal(0, 0.05))) for p in exact(0.3, 0.0005, 1e-8)]
    found = fitted(points)
    system = np.array([[1 / p.seconds, p.files / p.seconds, p.bytes / p.seconds] for p in points])
    solution, left, *_rest = np.linalg.lstsq(system / np.linalg.norm(system, axis=0), np.ones(len(points)), rcond=None)
    assert (solution > 0).all()
    covariance = left[0] / (len(points) - 3) * np.linalg.inv(system.T @ system)
    tree = np.array([1, 500, 60_000_000])
    margin = scipy.stats.t.ppf(0.975, len(points) - 3) * math.sqrt(tree @ covariance @ tree)
    made = predict(found, 500, 60_000_000)
    assert made.high_s - made.seconds == pytest.approx(margin, rel=1e-6)
    assert made.seconds - made.low_s == pytest.approx(margin, rel=1e-6)


def test_no_byte_takes_less_than_the_link_allows() -> None:
    """100 MB/s as measured, of a link that carries 90: the rest is said to be what a file and a copy cost."""
    points = exact(0.3, 0.0005, 1e-8)
    found, _reason = fit(points, floor_s_per_byte=1 / 90e6)
    assert found is not None
    assert found.c_s_per_byte == pytest.approx(1 / 90e6)
    system = np.array([[1 / p.seconds, p.files / p.seconds, p.bytes / p.seconds] for p in points])
    scale = np.linalg.norm(system, axis=0)
    bounds = ([0, 0, scale[2] / 90e6], [np.inf, np.inf, np.inf])
    expected = scipy.optimize.lsq_linear(system / scale, np.ones(len(points)), bounds, tol=1e-14).x / scale
    assert (found.a_s, found.b_s_per_file) == pytest.approx((expected[0], expected[1]), rel=1e-4)
    # a faster link bounds nothing
    assert fit(points, floor_s_per_byte=1 / 200e6)[0] == dataclasses.replace(fitted(points), floor_s_per_byte=1 / 200e6)


def test_a_method_without_cost_for_files_gets_none_and_no_negative_one() -> None:
    # The more files, the faster by a hair: unbounded least squares has b < 0.
    points = [
        Point(files, size, (0.2 + size / 1e7) * (1 - 0.01 * math.log10(files + 1)))
        for files, size in ((1, 10**7), (10, 10**8), (100, 2 * 10**7), (1000, 5 * 10**7), (10_000, 4 * 10**7))
    ]
    found = fitted(points)
    assert found.b_s_per_file == 0.0
    assert found.a_s > 0
    assert found.c_s_per_byte > 0


def test_fits_agree_with_scipys_nnls() -> None:
    chance = np.random.default_rng(1)
    zeros = 0
    for _ in range(300):
        n = int(chance.integers(5, 25))
        files = np.unique(np.round(10 ** chance.uniform(0, 5, n)).astype(int))
        sizes = np.round(10 ** chance.uniform(6, 10, len(files))).astype(int)
        truth = np.array([0.2, 10 ** chance.uniform(-5, -2), 10 ** chance.uniform(-9, -7)])
        truth *= chance.random(3) > 0.3
        seconds = (truth[0] + truth[1] * files + truth[2] * sizes + 0.05) * np.exp(chance.normal(0, 0.2, len(files)))
        points = [Point(int(f), int(s), float(t)) for f, s, t in zip(files, sizes, seconds, strict=True)]
        found, reason = fit(points)
        if len(files) < 5:
            assert found is None
            continue
        system = np.column_stack([np.ones(len(files)), files, sizes]) / seconds[:, None]
        scale = np.linalg.norm(system, axis=0)
        if found is None:
            assert "cannot be told" in reason
            assert np.linalg.svd(system / scale, compute_uv=False)[-1] < 0.01
            continue
        expected, norm = scipy.optimize.nnls(system / scale, np.ones(len(files)))
        got = np.array([found.a_s, found.b_s_per_file, found.c_s_per_byte])
        assert got == pytest.approx(expected / scale, rel=1e-6, abs=1e-9 / scale.max())
        assert found.residual == pytest.approx(norm / math.sqrt(len(files) - 3), rel=1e-6)
        zeros += int((got == 0).any())
    assert zeros > 50  # the bound is at work in many of them


def test_intervals_hold_what_a_new_tree_takes_on_average() -> None:
    """1000 campaigns with 4 % of noise and three runs of each shape: 95 % hold the true time of a tree in their midst,
    and of one a thousand times larger (four standard deviations of 0.7 % less)."""
    chance = np.random.default_rng(3)
    for files, size in ((500, 60_000_000), (500_000, 60_000_000_000)):
        held = 0
        for _ in range(1000):
            points = [
                Point(p.files, p.bytes, p.seconds * math.exp(chance.normal(0, 0.04)))
                for p in exact(0.3, 0.0005, 1e-8)
                for _ in range(3)
            ]
            found = predict(fitted(points), files, size)
            held += found.low_s <= 0.3 + 0.0005 * files + 1e-8 * size <= found.high_s
        assert held >= 922


def test_what_the_formula_misses_of_a_tree_makes_the_interval_wide_however_often_it_is_run() -> None:
    odd = [Point(p.files, p.bytes, p.seconds * (1.3 if p.files == 2000 else 1.0)) for p in exact(0.3, 0.0005, 1e-8)]
    once, often = predict(fitted(odd), 500, 60_000_000), predict(fitted(odd * 20), 500, 60_000_000)
    assert once.high_s > 1.1 * once.seconds
    assert often == once


@pytest.mark.parametrize(
    ("shapes", "reason"),
    [
        ([], "0 trees of different shape were measured, a prediction takes 5"),
        (
            [(1, 10), (2, 40), (3, 20), (4, 10), (4, 10)],
            "4 trees of different shape were measured, a prediction takes 5",
        ),
        ([(7, 10**k) for k in range(5, 10)], "all 5 trees have the same number of files (7): what a file costs"),
        ([(10**k, 500) for k in range(5)], "all 5 trees have the same size (500 bytes): what a byte costs"),
        ([(k, 4096 * k) for k in (1, 10, 50, 200, 999)], "files and bytes in the same proportion"),
        ([(k, 10**6 + 4096 * k) for k in (1, 10, 50, 200, 999)], "cannot be told from what a byte costs"),
    ],
)
def test_what_cannot_be_fitted_says_why(shapes: list[tuple[int, int]], reason: str) -> None:
    found, why = fit([Point(files, size, 1 + files / 100 + size / 1e7) for files, size in shapes])
    assert found is None
    assert reason in why


def test_a_time_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        fit([Point(1, 1, 0.0)])
