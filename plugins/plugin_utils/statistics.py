# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How sure is it that one method is faster than another? Plain Python: knows nothing of Ansible.

Methods are compared within blocks, on log time, against the best of the sample. From L(blocks_needed) blocks on the
interval of a ratio is the exact one of the Wilcoxon signed-rank test, which assumes nothing of the noise but that it is
as likely one way as the other; with fewer it comes from the residual of the block design and is provisional.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections.abc import Mapping, Sequence

#: Error level of all comparisons of one table together.
FAMILY_ALPHA = 0.05
#: A difference below this is no difference in practice.
DELTA = 0.05
#: Blocks below which noise floor, outliers and drift are not computed: five are the least with which Kendall's tau can
#: be told from 0 at 95 % (2/5! <= 0.05).
MIN_BLOCKS = 5
#: Modified z-score from which a run is an outlier.
OUTLIER_SCORE = 3.5
#: Log times closer than this are equal: it is the rounding of the arithmetic, not of the clock.
ROUNDING = 1e-9

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
    complete blocks and are null where these are none (intervals also where there is one). C(exact): there are blocks
    enough for the signed-rank interval, and nothing is provisional."""

    label: str
    n: int
    median_s: float
    ci_s: tuple[float, float] | None
    ratio: float | None
    ratio_ci: tuple[float, float] | None
    verdict: str
    blocks: int
    exact: bool = False


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


@functools.cache
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


@functools.cache
def signed_rank_cutoff(n: int, alpha: float) -> int | None:
    """The largest c with P(W <= c) <= alpha / 2, where W is the signed-rank sum of n differences that are as likely
    positive as negative; null where even W = 0 is likelier. By counting the subsets of 1..n with each sum (Hollander,
    Wolfe and Chicken, Nonparametric Statistical Methods, section 3.1)."""
    ways = [1] + [0] * (n * (n + 1) // 2)
    for rank in range(1, n + 1):
        for total in range(len(ways) - 1, rank - 1, -1):
            ways[total] += ways[total - rank]
    return _cutoff(ways, alpha)


@functools.cache
def kendall_cutoff(n: int, alpha: float) -> int | None:
    """The largest c with P(D <= c) <= alpha / 2, where D counts the discordant pairs of n values in random order; null
    where even D = 0 is likelier. By counting the permutations with each number of inversions (Hollander, Wolfe and
    Chicken, Nonparametric Statistical Methods, section 8.1)."""
    ways = [1]
    for size in range(2, n + 1):
        # The value put in last stands before 0 to size - 1 of the others.
        longer = [0] * (len(ways) + size - 1)
        for inversions, count in enumerate(ways):
            for more in range(size):
                longer[inversions + more] += count
        ways = longer
    return _cutoff(ways, alpha)


def _cutoff(ways: Sequence[int], alpha: float) -> int | None:
    """The largest c for which the outcomes 0 to c together are at most alpha / 2 of all C(ways)."""
    allowed = alpha / 2 * sum(ways)
    cumulated, cutoff = 0, None
    for outcome, count in enumerate(ways):
        cumulated += count
        if cumulated > allowed:
            break
        cutoff = outcome
    return cutoff


def hodges_lehmann(values: Sequence[float], alpha: float) -> tuple[float, tuple[float, float] | None]:
    """The centre of values that scatter symmetrically, and its interval at 1 - alpha: the median of their Walsh averages
    (the means of all pairs, each value with itself included), and the averages that the signed-rank test at alpha does
    not reject (same source, sections 3.2 and 3.3). The interval is null where there are too few values for alpha."""
    ordered = sorted(values)  # a sort of what comes in rising runs is a merge
    averages = sorted([(a + b) / 2 for i, a in enumerate(ordered) for b in ordered[i:]])
    cutoff = signed_rank_cutoff(len(values), alpha)
    interval = None if cutoff is None else (averages[cutoff], averages[-1 - cutoff])
    return statistics.median(averages), interval


def noise_floor(pairs: Sequence[tuple[float, float]]) -> float | None:
    """How far two runs of one method in one block lie apart: the median of |log ratio|, as a ratio less 1 (0.03 is
    3 %). C(pairs): (first, A/A copy) in seconds, one a block. Null under L(MIN_BLOCKS) blocks."""
    if len(pairs) < MIN_BLOCKS:
        return None
    return math.expm1(statistics.median(abs(math.log(a / b)) for a, b in pairs))


def complete_blocks(times: Times) -> list[int]:
    """The blocks in which every method has a time."""
    if not times:
        return []
    return sorted(set.intersection(*(set(blocks) for blocks in times.values())))


def _own_medians_off(times: Times, blocks: Mapping[str, Sequence[int]]) -> dict[str, dict[int, float]]:
    """The log times in the C(blocks) of each method, less the method's median over them."""
    off: dict[str, dict[int, float]] = {}
    for label, chosen in blocks.items():
        logs = {block: math.log(times[label][block]) for block in chosen}
        centre = statistics.median(logs.values()) if logs else 0.0
        off[label] = {block: value - centre for block, value in logs.items()}
    return off


def outliers(times: Times) -> dict[str, list[int]]:
    """By label, the blocks whose run is an outlier; every label is there, and nothing is to be dropped for it.

    The modified z-score of Iglewicz and Hoaglin (How to Detect and Handle Outliers, 1993, section 3.3), above
    L(OUTLIER_SCORE) over the runs of one method: 0.6745 |x - median| / MAD, or, where the MAD is 0,
    |x - median| / (1.253314 times the mean absolute deviation). x is the log time less that of its block, the median
    over the methods of their log times less their own medians: a slow minute is the block's, not the method's. With
    fewer than three methods x is the log time, since the median of two would blame both. Nothing under L(MIN_BLOCKS)
    runs of a method. C(times): seconds above 0."""
    residuals = _own_medians_off(times, {label: sorted(runs) for label, runs in times.items()})
    if len(times) >= 3:
        by_block: dict[int, list[float]] = {}
        for runs in residuals.values():
            for block, value in runs.items():
                by_block.setdefault(block, []).append(value)
        effects = {block: statistics.median(values) for block, values in by_block.items()}
        residuals = {
            label: {block: value - effects[block] for block, value in runs.items()} for label, runs in residuals.items()
        }
    return {label: _outlying(runs) for label, runs in residuals.items()}


def _outlying(values: Mapping[int, float]) -> list[int]:
    """The keys of the values whose modified z-score is above L(OUTLIER_SCORE)."""
    if len(values) < MIN_BLOCKS:
        return []
    centre = statistics.median(values.values())
    distances = {key: abs(value - centre) for key, value in values.items()}
    scale = statistics.median(distances.values()) / 0.6745
    if scale <= ROUNDING:
        scale = 1.253314 * statistics.fmean(distances.values())
    return [key for key, distance in distances.items() if distance > max(OUTLIER_SCORE * scale, ROUNDING)]


@dataclasses.dataclass(frozen=True)
class Drift:
    """How much slower the last block is than the first, as a ratio less 1 (0.05 is 5 %), with its interval at 95 %. It
    is worth a flag where the interval excludes 0 and the ratio matters."""

    ratio: float
    ci: tuple[float, float]


def drift(times: Times) -> Drift | None:
    """The Theil-Sen slope of log time over block numbers, taken from the first complete block to the last; null under
    L(MIN_BLOCKS) of them.

    A block's value is the median over the methods of their log times less their own medians. The interval is the one of
    Kendall's tau, exact (Sen, Journal of the American Statistical Association 63, 1968, 1379-1389). C(times): seconds
    above 0."""
    blocks = complete_blocks(times)
    if len(blocks) < MIN_BLOCKS:
        return None
    residuals = _own_medians_off(times, dict.fromkeys(times, blocks))
    effects = [statistics.median(runs[block] for runs in residuals.values()) for block in blocks]
    slopes = sorted(
        (effects[j] - effects[i]) / (blocks[j] - blocks[i])
        for i in range(len(blocks))
        for j in range(i + 1, len(blocks))
    )
    cutoff = kendall_cutoff(len(blocks), FAMILY_ALPHA)
    assert cutoff is not None  # from MIN_BLOCKS on there is one
    low, middle, high = (
        math.expm1(slope * (blocks[-1] - blocks[0]))
        for slope in (slopes[cutoff], statistics.median(slopes), slopes[-1 - cutoff])
    )
    return Drift(middle, (low, high))


def compare(times: Times, delta: float = DELTA) -> list[Comparison]:
    """Every method against the sample best, fastest first.

    C(times) holds the measured seconds of each method that may be ranked, above 0, by block; only complete blocks are
    compared. The interval of a ratio holds for all k(k-1)/2 pairs of the k methods at once (Bonferroni), since the best
    is chosen from the same sample. C(delta) is the largest difference that counts as none.
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
    exact = b >= blocks_needed(k)
    best, found = (_by_signed_ranks if exact else _by_residual)(logs)
    compared = []
    for label, (distance, interval, own) in found.items():
        ratio_ci = (1.0, 1.0) if label == best else _exp(interval)
        compared.append(
            Comparison(
                label=label,
                n=len(times[label]),
                median_s=medians[label],
                ci_s=_exp(own),
                ratio=math.exp(distance),
                ratio_ci=ratio_ci,
                verdict=BEST if label == best else verdict(ratio_ci, delta),
                blocks=b,
                exact=exact,
            )
        )
    return sorted(compared, key=lambda item: (item.label != best, item.ratio or 0.0, item.median_s, item.label))


def narrow(compared: Sequence[Comparison], precision: float) -> bool:
    """Whether nothing is gained by more blocks: the half-width of every ratio's interval is at most C(precision) on the
    ratio scale, sqrt(high / low) <= 1 + precision; that of the method's own time where there is only one. False where an
    interval is not known.

    Looks at widths only. To stop on what the verdicts say would find differences where there are none."""
    intervals = [item.ratio_ci if len(compared) > 1 else item.ci_s for item in compared]
    return bool(intervals) and all(
        interval is not None and math.sqrt(interval[1] / interval[0]) <= 1 + precision for interval in intervals
    )


Interval = tuple[float, float] | None
#: By label: log of the ratio to the best, its interval, and the interval of the method's own log time.
Found = dict[str, tuple[float, Interval, Interval]]


def _exp(interval: Interval) -> Interval:
    return None if interval is None else (math.exp(interval[0]), math.exp(interval[1]))


def _by_signed_ranks(logs: Mapping[str, Sequence[float]]) -> tuple[str, Found]:
    """The best, by the median of its log times less those of their blocks, and every method against it: the
    Hodges-Lehmann estimate of the difference within blocks with the exact signed-rank interval."""
    k = len(logs)
    block_means = [statistics.fmean(column) for column in zip(*logs.values(), strict=True)]
    centred = {
        label: statistics.median(value - mean for value, mean in zip(values, block_means, strict=True))
        for label, values in logs.items()
    }
    best = min(logs, key=lambda label: (centred[label], label))
    alpha = FAMILY_ALPHA / _comparisons(k)
    found: Found = {}
    for label, values in logs.items():
        own = hodges_lehmann(values, FAMILY_ALPHA)[1]
        if label == best:
            found[label] = (0.0, None, own)
            continue
        differences = [value - other for value, other in zip(values, logs[best], strict=True)]
        found[label] = (*hodges_lehmann(differences, alpha), own)
    return best, found


def _by_residual(logs: Mapping[str, Sequence[float]]) -> tuple[str, Found]:
    """The best, by its mean log time, and every method against it, for too few blocks to rank: the model is additive,
    method plus block. With k methods and b blocks the residual has (k-1)(b-1) degrees of freedom, and the difference of
    two methods the standard error s*sqrt(2/b) (Montgomery, Design and Analysis of Experiments, section 4.1). A single
    method has the interval of its own mean, with b-1 degrees of freedom."""
    k, b = len(logs), len(next(iter(logs.values())))
    means = {label: statistics.fmean(values) for label, values in logs.items()}
    best = min(logs, key=lambda label: (means[label], label))
    df = (k - 1) * (b - 1)
    margin = own_margin = None
    if k == 1 and b > 1:
        own_margin = t_quantile(1 - FAMILY_ALPHA / 2, b - 1) * statistics.stdev(logs[best]) / math.sqrt(b)
    elif df > 0:
        block_means = [statistics.fmean(column) for column in zip(*logs.values(), strict=True)]
        grand = statistics.fmean(block_means)
        residual = sum(
            (value - means[label] - block_means[j] + grand) ** 2
            for label, values in logs.items()
            for j, value in enumerate(values)
        )
        s = math.sqrt(residual / df)
        alpha = FAMILY_ALPHA / _comparisons(k)
        margin = t_quantile(1 - alpha / 2, df) * s * math.sqrt(2 / b)
        own_margin = t_quantile(1 - FAMILY_ALPHA / 2, df) * s / math.sqrt(b)

    def around(centre: float, half: float | None) -> Interval:
        return None if half is None else (centre - half, centre + half)

    return best, {
        label: (mean - means[best], around(mean - means[best], margin), around(mean, own_margin))
        for label, mean in means.items()
    }


def _comparisons(k: int) -> int:
    """How many intervals of k methods must hold at once; a single method has that of its own time."""
    return max(1, k * (k - 1) // 2)


def blocks_needed(k: int) -> int:
    """The least n with 2/2^n <= alpha, the level of one of the k(k-1)/2 comparisons of k methods: from so many blocks
    on the exact signed-rank test can tell two methods apart (12 for 11 methods)."""
    return math.ceil(math.log2(2 * _comparisons(k) / FAMILY_ALPHA))


def verdict(ratio_ci: tuple[float, float] | None, delta: float) -> str:
    """What an interval of the ratio to the best says, where C(delta) counts as no difference."""
    if ratio_ci is None:
        return UNRESOLVED
    if ratio_ci[0] > 1 + delta:
        return SLOWER
    return EQUIVALENT if ratio_ci[1] < 1 + delta else UNRESOLVED
