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

from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.statistics import t_quantile

#: Level of the interval of a prediction.
CONFIDENCE = 0.95

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


Matrix = tuple[tuple[float, ...], ...]


@dataclasses.dataclass(frozen=True)
class Fit:
    """C(a_s) and C(b_s_per_file) are 0 or more, C(c_s_per_byte) the least that the link allows or more. C(residual) is
    the root mean square of the relative errors, with as many degrees of freedom as there are shapes less 3. C(spread) is
    the inverse of the weighted normal matrix, of which the residual squared times makes the covariance of the three.
    C(shapes) counts the different trees."""

    a_s: float
    b_s_per_file: float
    c_s_per_byte: float
    residual: float
    shapes: int
    largest_bytes: int
    largest_files: int
    spread: Matrix
    floor_s_per_byte: float = 0.0

    def seconds(self, files: float, size: float) -> float:
        return self.a_s + self.b_s_per_file * files + self.c_s_per_byte * size


@dataclasses.dataclass(frozen=True)
class Prediction:
    """C(extrapolation): how many times larger than all that was measured the tree is, in bytes or in files, whichever is
    more; 1 or less is within."""

    seconds: float
    low_s: float
    high_s: float
    extrapolation: float


def fit(points: Iterable[Point], floor_s_per_byte: float = 0.0) -> tuple[Fit | None, str]:
    """The coefficients for one method on one link, or null and one sentence that says why there are none. Raises
    ValueError for a time that is not above 0.

    Least squares of the relative errors (weights 1 / seconds^2) of the trees, each with the median of its points: what
    the formula misses of a tree is the same in each of its runs. Coefficients are not negative; C(floor_s_per_byte): what
    a byte takes at least (the link's ceiling, for data that does not compress)."""
    points = list(points)
    if not all(0 < point.seconds < math.inf for point in points):
        raise ValueError("a point's seconds must lie above 0")
    shapes = sorted({(point.files, point.bytes) for point in points})
    if len(shapes) < MIN_SHAPES:
        return None, f"{len(shapes)} trees of different shape were measured, a prediction takes {MIN_SHAPES}"
    trees = [
        Point(*shape, statistics.median(p.seconds for p in points if (p.files, p.bytes) == shape)) for shape in shapes
    ]
    found = _coefficients(trees, floor_s_per_byte)
    if found is None:
        return None, _why_not(shapes)
    errors = [_predicted(found, tree.files, tree.bytes) / tree.seconds - 1 for tree in trees]
    return (
        Fit(
            *found,
            residual=math.sqrt(sum(error * error for error in errors) / (len(trees) - 3)),
            shapes=len(shapes),
            largest_bytes=max(size for _files, size in shapes),
            largest_files=max(files for files, _size in shapes),
            spread=_inverse_normal(_columns(trees)),
            floor_s_per_byte=floor_s_per_byte,
        ),
        "",
    )


def predict(fitted: Fit, files: int, size: int) -> Prediction:
    """The time of a copy of C(files) files with C(size) bytes in all, and its interval at L(CONFIDENCE) for the mean of
    such copies: Student's t, with the covariance of the coefficients (Draper and Smith, Applied Regression Analysis,
    section 5.1), and no less than what the link allows.

    It says how well the measured trees determine the formula, and how well they follow it. Whether trees that are many
    times larger follow it too it cannot say: C(extrapolation) is the warning."""
    seconds = fitted.seconds(files, size)
    tree = (1.0, float(files), float(size))
    variance = fitted.residual**2 * sum(
        left * entry * right
        for left, row in zip(tree, fitted.spread, strict=True)
        for entry, right in zip(row, tree, strict=True)
    )
    margin = t_quantile((1 + CONFIDENCE) / 2, fitted.shapes - 3) * math.sqrt(max(0.0, variance))
    return Prediction(
        seconds=seconds,
        low_s=max(fitted.floor_s_per_byte * size, seconds - margin, 0.0),
        high_s=seconds + margin,
        extrapolation=max(size / fitted.largest_bytes, files / fitted.largest_files),
    )


Coefficients = tuple[float, float, float]


def _predicted(coefficients: Coefficients, files: int, size: int) -> float:
    a, b, c = coefficients
    return a + b * files + c * size


def _columns(trees: Sequence[Point]) -> list[list[float]]:
    """The weighted system: what each coefficient adds to the predicted share of each tree's time."""
    return [
        [1 / tree.seconds for tree in trees],
        [tree.files / tree.seconds for tree in trees],
        [tree.bytes / tree.seconds for tree in trees],
    ]


def _coefficients(trees: Sequence[Point], floor_s_per_byte: float) -> Coefficients | None:
    """The a, b and c that are not below their bounds and leave the least sum of squared relative errors; null where the
    trees do not tell the three apart.

    Exact: the optimum of a convex problem with bounds is the unbounded least squares of some subset of the columns, the
    other coefficients being at their bounds (Lawson and Hanson, Solving Least Squares Problems, chapter 23), and there
    are but eight subsets."""
    columns = _columns(trees)
    if _least_squares(columns, [1.0] * len(trees)) is None:
        return None
    goal = [1 - floor_s_per_byte * tree.bytes / tree.seconds for tree in trees]
    best: tuple[float, Coefficients] | None = None
    for size in (0, 1, 2, 3):
        for chosen in itertools.combinations(range(3), size):
            solved = _least_squares([columns[index] for index in chosen], goal)
            if solved is None or min(solved, default=0.0) < 0:
                continue
            full = [0.0, 0.0, floor_s_per_byte]
            for index, value in zip(chosen, solved, strict=True):
                full[index] += value
            a, b, c = full
            left = sum((_predicted((a, b, c), p.files, p.bytes) / p.seconds - 1) ** 2 for p in trees)
            if best is None or left < best[0]:
                best = left, (a, b, c)
    return None if best is None else best[1]


def _inverse_normal(columns: Sequence[Sequence[float]]) -> Matrix:
    """(X'X)^-1 for three columns that stand out from one another, by cofactors, of columns of length 1."""
    lengths = [math.hypot(*column) for column in columns]
    unit = [[value / length for value in column] for column, length in zip(columns, lengths, strict=True)]
    g = [[_dot(left, right) for right in unit] for left in unit]

    def cofactor(i: int, j: int) -> float:
        (r, s), (u, v) = [k for k in range(3) if k != i], [k for k in range(3) if k != j]
        sign = 1.0 if (i + j) % 2 == 0 else -1.0
        return sign * (g[r][u] * g[s][v] - g[r][v] * g[s][u])

    determinant = sum(g[0][j] * cofactor(0, j) for j in range(3))
    return tuple(tuple(cofactor(j, i) / determinant / (lengths[i] * lengths[j]) for j in range(3)) for i in range(3))


def _least_squares(columns: Sequence[Sequence[float]], goal: Sequence[float]) -> list[float] | None:
    """The x that brings sum(x_j * column_j) nearest to C(goal); null where a column does not stand out from those before
    it by L(INDEPENDENT). By modified Gram-Schmidt (Golub and Van Loan, Matrix Computations, 5.2.8), of columns of
    length 1, the goal treated as the last column."""
    lengths = [math.hypot(*column) for column in columns]
    if min(lengths, default=1.0) == 0:
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
    rest_of_goal = list(goal)
    projected = []
    for q in basis:
        along = _dot(q, rest_of_goal)
        projected.append(along)
        rest_of_goal = [value - along * unit for value, unit in zip(rest_of_goal, q, strict=True)]
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
