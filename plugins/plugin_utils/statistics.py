# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How sure is it that one method is faster than another? Plain Python: knows nothing of Ansible.

The provisional part: intervals from the residual of the randomised block design. The exact Wilcoxon intervals, which
need n_min blocks, belong here too.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

#: Error level of all comparisons of one table together.
FAMILY_ALPHA = 0.05
#: A difference below this is no difference in practice.
DELTA = 0.05
#: Blocks below which the noise floor is not computed.
NOISE_MIN_BLOCKS = 5

BEST, EQUIVALENT, SLOWER, UNRESOLVED, DISQUALIFIED = VERDICTS = (
    "best",
    "equivalent",
    "slower",
    "unresolved",
    "disqualified",
)

#: Seconds by label and block.
Times = Mapping[str, Mapping[int, float]]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A method against the sample best. C(n) counts its runs; C(ratio), C(ratio_ci) and C(ci_s) come from the C(blocks)
    complete blocks and are null where these are none (intervals also where there is one, or one method)."""

    label: str
    n: int
    median_s: float
    ci_s: tuple[float, float] | None
    ratio: float | None
    ratio_ci: tuple[float, float] | None
    verdict: str
    blocks: int


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function I_x(a, b), 0 <= x <= 1, by the continued fraction DLMF 8.17.22, evaluated
    with Lentz's algorithm. Relative error about 1e-14."""
    if not 0.0 <= x <= 1.0:
        raise ValueError("x must lie in [0, 1]")
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side: I_x(a, b) = 1 - I_{1-x}(b, a)
        return 1.0 - incomplete_beta(b, a, 1.0 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    tiny = 1e-300
    c, d = 1.0, 1.0 / ((1.0 - (a + b) * x / (a + 1)) or tiny)
    fraction = d
    for m in range(1, 10_000):
        step = 1.0
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / ((1.0 + term * d) or tiny)
            c = (1.0 + term / c) or tiny
            step = c * d
            fraction *= step
        if abs(step - 1.0) < 1e-15:
            break
    return front * fraction / a


def t_upper_tail(t: float, df: float) -> float:
    """P(T > t), t >= 0, for Student's t with C(df) degrees of freedom: half of I_{df/(df+t^2)}(df/2, 1/2)."""
    return 0.5 * incomplete_beta(df / 2, 0.5, df / (df + t * t))


def t_quantile(p: float, df: float) -> float:
    """The p-quantile of Student's t, 0 < p < 1, df > 0, by bisection on the tail, so that small tails stay exact."""
    if not 0.0 < p < 1.0 or not df > 0:
        raise ValueError("p must lie in (0, 1) and df above 0")
    if p == 0.5:
        return 0.0
    if p < 0.5:
        return -t_quantile(1.0 - p, df)
    tail = 1.0 - p
    low, high = 0.0, 1.0
    while t_upper_tail(high, df) > tail:
        low, high = high, high * 2
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if t_upper_tail(middle, df) > tail:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def noise_floor(pairs: Sequence[tuple[float, float]]) -> float | None:
    """How far two runs of one method in one block lie apart: the median of |log ratio|, as a ratio less 1 (0.03 is
    3 %). C(pairs): (first, A/A copy) in seconds, one a block. Null under L(NOISE_MIN_BLOCKS) blocks."""
    if len(pairs) < NOISE_MIN_BLOCKS:
        return None
    return math.expm1(statistics.median(abs(math.log(a / b)) for a, b in pairs))


def complete_blocks(times: Times) -> list[int]:
    """The blocks in which every method has a time."""
    if not times:
        return []
    return sorted(set.intersection(*(set(blocks) for blocks in times.values())))


def compare(times: Times, delta: float = DELTA) -> list[Comparison]:
    """Every method against the sample best, fastest first.

    C(times) holds the measured seconds of each method that may be ranked, above 0, by block. The model is additive on
    log time, method plus block, from the complete blocks: with k methods and b blocks the residual has (k-1)(b-1)
    degrees of freedom, and the difference of two methods the standard error s*sqrt(2/b) (Montgomery, Design and
    Analysis of Experiments, section 4.1). The interval of a ratio holds for all k(k-1)/2 pairs at once (Bonferroni),
    since the best is chosen from the same sample. C(ci_s) is the method's own 95 % interval round its geometric mean.
    C(delta) is the largest difference that counts as none.
    """
    labels = list(times)
    blocks = complete_blocks(times)
    k, b = len(labels), len(blocks)
    medians = {label: statistics.median(times[label].values()) for label in labels if times[label]}
    if b == 0:
        ranked = sorted(medians, key=lambda label: medians[label])
        return [
            Comparison(label, len(times[label]), medians[label], None, None, None, UNRESOLVED, 0) for label in ranked
        ]
    logs = {label: [math.log(times[label][block]) for block in blocks] for label in labels}
    means = {label: statistics.fmean(values) for label, values in logs.items()}
    best = min(labels, key=lambda label: (means[label], medians[label], label))
    df = (k - 1) * (b - 1)
    margin = own_margin = None
    if df > 0:
        block_means = [statistics.fmean(logs[label][j] for label in labels) for j in range(b)]
        grand = statistics.fmean(block_means)
        residual = sum(
            (logs[label][j] - means[label] - block_means[j] + grand) ** 2 for label in labels for j in range(b)
        )
        s = math.sqrt(residual / df)
        alpha = FAMILY_ALPHA / (k * (k - 1) / 2)
        margin = t_quantile(1 - alpha / 2, df) * s * math.sqrt(2 / b)
        own_margin = t_quantile(1 - FAMILY_ALPHA / 2, df) * s / math.sqrt(b)
    compared = []
    for label in sorted(labels, key=lambda label: (label != best, means[label], medians[label], label)):
        distance = means[label] - means[best]
        interval = own = None
        if label == best:
            interval = (1.0, 1.0)
        elif margin is not None:
            interval = (math.exp(distance - margin), math.exp(distance + margin))
        if own_margin is not None:
            own = (math.exp(means[label] - own_margin), math.exp(means[label] + own_margin))
        compared.append(
            Comparison(
                label=label,
                n=len(times[label]),
                median_s=medians[label],
                ci_s=own,
                ratio=math.exp(distance),
                ratio_ci=interval,
                verdict=BEST if label == best else verdict(interval, delta),
                blocks=b,
            )
        )
    return compared


def blocks_needed(k: int) -> int:
    """The least n with 2/2^n <= alpha, the level of one of the k(k-1)/2 comparisons of k methods: from so many blocks
    on the exact signed-rank test can tell two methods apart (12 for 11 methods)."""
    pairs = max(1, k * (k - 1) // 2)
    return math.ceil(math.log2(2 * pairs / FAMILY_ALPHA))


def verdict(ratio_ci: tuple[float, float] | None, delta: float) -> str:
    """What an interval of the ratio to the best says, where C(delta) counts as no difference."""
    if ratio_ci is None:
        return UNRESOLVED
    if ratio_ci[0] > 1 + delta:
        return SLOWER
    return EQUIVALENT if ratio_ci[1] < 1 + delta else UNRESOLVED
