# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long will a method take for a tree that was not measured? Plain Python: knows nothing of Ansible.

For one method on one link, time_s = a + b * files + c * bytes: what every copy costs, what a file costs, what a byte
costs. The three come from the times of trees of different shapes.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

#: Shapes of trees that a fit takes: with five, what three coefficients leave over can be seen.
MIN_SHAPES = 5
#: A column of the weighted system of which less than this is left when the others are taken off, as a share of its
#: length, says nothing of its own: 1 % of noise in the times would move its coefficient as far as it can go.
INDEPENDENT = 0.01


class Point(NamedTuple):
    """One run: regular files, their bytes, and C(total_s)."""

    files: int
    bytes: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Fit:
    """C(a_s), C(b_s_per_file) and C(c_s_per_byte) are 0 or more. C(residual) is the root mean square of the relative
    errors, with as many degrees of freedom as there are points less 3. C(loo) is the worst error of a shape that was
    left out and predicted from the others, as a ratio less 1 (0.1: 1.1 times too long or too short); null where the
    others do not determine all three coefficients. C(shapes) counts the different trees."""

    a_s: float
    b_s_per_file: float
    c_s_per_byte: float
    residual: float
    shapes: int
    largest_bytes: int
    largest_files: int
    loo: float | None

    def seconds(self, files: float, size: float) -> float:
        return self.a_s + self.b_s_per_file * files + self.c_s_per_byte * size


@dataclasses.dataclass(frozen=True)
class Prediction:
    """C(low_s) and C(high_s) are null where the fit cannot say how far it is off. C(extrapolation): how many times larger
    than all that was measured the tree is, in bytes or in files, whichever is more; 1 or less is within."""

    seconds: float
    low_s: float | None
    high_s: float | None
    extrapolation: float


def fit(points: Iterable[Point]) -> tuple[Fit | None, str]:
    """The coefficients for one method on one link, or null and one sentence that says why there are none. Raises
    ValueError for a time that is not above 0.

    Least squares of the relative errors (weights 1 / seconds^2), coefficients not negative. A shape may have several
    points, of which each counts."""
    points = list(points)
    if not all(0 < point.seconds < math.inf for point in points):
        raise ValueError("a point's seconds must lie above 0")
    shapes = sorted({(point.files, point.bytes) for point in points})
    if len(shapes) < MIN_SHAPES:
        return None, f"{len(shapes)} trees of different shape were measured, a prediction takes {MIN_SHAPES}"
    found = _coefficients(points)
    if found is None:
        return None, _why_not(shapes)
    errors = [_predicted(found, point.files, point.bytes) / point.seconds - 1 for point in points]
    return (
        Fit(
            *found,
            residual=math.sqrt(sum(error * error for error in errors) / (len(points) - 3)),
            shapes=len(shapes),
            largest_bytes=max(size for _files, size in shapes),
            largest_files=max(files for files, _size in shapes),
            loo=_leave_one_out(points, shapes),
        ),
        "",
    )


def predict(fitted: Fit, files: int, size: int) -> Prediction:
    """The time of a copy of C(files) files with C(size) bytes in all.

    C(low_s) and C(high_s) are the time divided by and times 1 + m, where m is the larger of twice the residual (the noise
    of a run, and what the formula misses of the trees that it was fitted to) and C(loo) (what it missed of a tree that it
    had not seen). This is experience with the measured trees and no interval of stated confidence: it says nothing of
    trees much larger, for which C(extrapolation) is the warning."""
    seconds = fitted.seconds(files, size)
    margin = None if fitted.loo is None else 1 + max(2 * fitted.residual, fitted.loo)
    return Prediction(
        seconds=seconds,
        low_s=None if margin is None else seconds / margin,
        high_s=None if margin is None else seconds * margin,
        extrapolation=max(size / fitted.largest_bytes, files / fitted.largest_files),
    )


Coefficients = tuple[float, float, float]


def _predicted(coefficients: Coefficients, files: int, size: int) -> float:
    a, b, c = coefficients
    return a + b * files + c * size


def _coefficients(points: Sequence[Point]) -> Coefficients | None:
    """The a, b and c that are not negative and leave the least sum of squared relative errors; null where the points do
    not tell the three apart.

    Exact: the optimum of a convex problem with bounds is the unbounded least squares of some subset of the columns, the
    other coefficients being 0 (Lawson and Hanson, Solving Least Squares Problems, chapter 23), and there are but seven
    subsets that are not empty."""
    columns = [
        [1 / point.seconds for point in points],
        [point.files / point.seconds for point in points],
        [point.bytes / point.seconds for point in points],
    ]
    if _least_squares(columns) is None:
        return None
    best: tuple[float, Coefficients] | None = None
    for size in (1, 2, 3):
        for chosen in itertools.combinations(range(3), size):
            solved = _least_squares([columns[index] for index in chosen])
            if solved is None or min(solved) < 0:
                continue
            full = [0.0, 0.0, 0.0]
            for index, value in zip(chosen, solved, strict=True):
                full[index] = value
            a, b, c = full
            left = sum((_predicted((a, b, c), p.files, p.bytes) / p.seconds - 1) ** 2 for p in points)
            if best is None or left < best[0]:
                best = left, (a, b, c)
    return None if best is None else best[1]


def _least_squares(columns: Sequence[Sequence[float]]) -> list[float] | None:
    """The x that brings sum(x_j * column_j) nearest to a vector of ones; null where a column does not stand out from
    those before it by L(INDEPENDENT). By modified Gram-Schmidt (Golub and Van Loan, Matrix Computations, 5.2.8), of
    columns of length 1, the vector of ones treated as the last column."""
    lengths = [math.hypot(*column) for column in columns]
    if min(lengths) == 0:
        return None
    basis: list[list[float]] = []
    upper: list[list[float]] = []  # by column: the triangle's entries down to the diagonal
    for column, length in zip(columns, lengths, strict=True):
        rest = [value / length for value in column]
        above = []
        for q in basis:
            along = _dot(q, rest)
            above.append(along)
            rest = [value - along * unit for value, unit in zip(rest, q, strict=True)]
        left = math.hypot(*rest)
        if left < INDEPENDENT:
            return None
        basis.append([value / left for value in rest])
        upper.append([*above, left])
    ones = [1.0] * len(columns[0])
    projected = []
    for q in basis:
        along = _dot(q, ones)
        projected.append(along)
        ones = [value - along * unit for value, unit in zip(ones, q, strict=True)]
    solution = [0.0] * len(columns)
    for j in reversed(range(len(columns))):
        known = sum(upper[k][j] * solution[k] for k in range(j + 1, len(columns)))
        solution[j] = (projected[j] - known) / upper[j][j]
    return [value / length for value, length in zip(solution, lengths, strict=True)]


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(left, right, strict=True))


def _why_not(shapes: Sequence[tuple[int, int]]) -> str:
    """Why trees of different shape do not tell what a file costs from what a byte costs."""
    files, sizes = {files for files, _size in shapes}, {size for _files, size in shapes}
    if len(files) == 1:
        return (
            f"all {len(shapes)} trees have the same number of files ({files.pop()}): what a file costs cannot be seen"
        )
    if len(sizes) == 1:
        return f"all {len(shapes)} trees have the same size ({sizes.pop()} bytes): what a byte costs cannot be seen"
    return (
        f"the {len(shapes)} trees are too much alike, or have files and bytes in the same proportion: what a file costs "
        "cannot be told from what a byte costs"
    )


def _leave_one_out(points: Sequence[Point], shapes: Sequence[tuple[int, int]]) -> float | None:
    """The worst ratio of predicted to measured time, or the other way round, less 1, when each shape is predicted from
    the others; a shape's measured time is the median of its points. Null where that cannot be done for every shape."""
    worst = 0.0
    for shape in shapes:
        found = _coefficients([point for point in points if (point.files, point.bytes) != shape])
        if found is None:
            return None
        predicted = _predicted(found, *shape)
        if predicted <= 0:
            return None
        measured = statistics.median(point.seconds for point in points if (point.files, point.bytes) == shape)
        worst = max(worst, predicted / measured - 1, measured / predicted - 1)
    return worst
