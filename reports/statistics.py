"""Means over seeds, and which differences are more than chance.

All methods of a column were run with the same seeds, so a column is a randomised block design: seeds are blocks,
methods are treatments. The residual variance is pooled over all methods, which gives (m - 1)(n - 1) degrees of freedom
where a paired test of two methods alone has n - 1; with three seeds that is the difference between seeing and not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

LEVEL = 0.05  #: of Holm's procedure over the comparisons of one column
MINIMUM = 3  #: seeds below which nothing is compared

Values = Mapping[str, Mapping[int, float]]  #: method -> seed -> value


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean of at least one value."""
    return math.fsum(values) / len(values)


def std(values: Sequence[float]) -> float | None:
    """Sample standard deviation (n - 1), None for fewer than two values."""
    if len(values) < 2:
        return None
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


@dataclass(frozen=True)
class Blocks:
    """A column's complete part: the methods with enough seeds, and the seeds all of them have."""

    means: Mapping[str, float]  #: over the common seeds
    seeds: tuple[int, ...]
    residual: float  #: pooled residual standard deviation
    freedom: int  #: its degrees of freedom


@dataclass(frozen=True)
class Difference:
    """Mean of `a` minus mean of `b` over the same seeds, with its t-interval."""

    value: float
    low: float
    high: float
    p: float  #: two-sided
    n: int


def blocks(values: Values) -> Blocks | None:
    """The comparable part of a column, None if fewer than two methods share `MINIMUM` seeds.

    A method with fewer seeds of its own is left out rather than allowed to shrink the comparison of the others.
    """
    enough = {method: seeds for method, seeds in values.items() if len(seeds) >= MINIMUM}
    if len(enough) < 2:
        return None
    common = tuple(sorted(set.intersection(*(set(seeds) for seeds in enough.values()))))
    if len(common) < MINIMUM:
        return None
    rows = {method: [seeds[seed] for seed in common] for method, seeds in enough.items()}
    means = {method: mean(row) for method, row in rows.items()}
    seed_means = [mean(column) for column in zip(*rows.values(), strict=True)]
    grand = mean(list(means.values()))
    squares = math.fsum(
        (value - means[method] - seed_mean + grand) ** 2
        for method, row in rows.items()
        for value, seed_mean in zip(row, seed_means, strict=True)
    )
    freedom = (len(rows) - 1) * (len(common) - 1)
    return Blocks(means, common, math.sqrt(squares / freedom), freedom)


def difference(design: Blocks, a: str, b: str) -> Difference:
    """How much higher `a` is than `b`, with a 95 % interval from the pooled residual variance."""
    n = len(design.seeds)
    value = design.means[a] - design.means[b]
    error = design.residual * math.sqrt(2 / n)
    if error == 0:
        return Difference(value, value, value, 1.0 if value == 0 else 0.0, n)
    half = t_limit(LEVEL, design.freedom) * error
    return Difference(value, value - half, value + half, t_tails(value / error, design.freedom), n)


def t_tails(t: float, freedom: int) -> float:
    """P(|T| > |t|) for Student's t with a whole number of degrees of freedom (Abramowitz and Stegun 26.7.3, 26.7.4).

    Its absolute error is that of a float, so tails far below 1e-12 come out as 0. Importing scipy for this one function
    would take longer than a whole report.
    """
    angle = math.atan2(abs(t), math.sqrt(freedom))
    cosine = math.cos(angle)
    odd = freedom % 2
    term, series = (cosine, cosine) if odd else (1.0, 1.0)
    for k in range(2 + odd, freedom, 2):
        term *= cosine**2 * (k - 1) / k
        series += term
    if freedom == 1:
        series = 0.0
    inside = math.sin(angle) * series
    return max(0.0, 1 - (2 / math.pi * (angle + inside) if odd else inside))


@lru_cache(maxsize=256)
def t_limit(level: float, freedom: int) -> float:
    """The t that |T| exceeds with probability `level`, by bisection to the last digit."""
    low, high = 0.0, 1.0
    while t_tails(high, freedom) > level:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if t_tails(middle, freedom) > level else (low, middle)
    return high


def holm(p_values: Mapping[str, float], level: float = LEVEL) -> set[str]:
    """Names whose hypothesis is rejected by Holm's step-down procedure (Holm 1979)."""
    rejected: set[str] = set()
    ordered = sorted(p_values, key=lambda name: p_values[name])
    for place, name in enumerate(ordered):
        if p_values[name] > level / (len(ordered) - place):
            break
        rejected.add(name)
    return rejected


def not_worse_than_best(values: Values, higher_is_better: bool) -> set[str]:
    """Methods to set in bold: those a column's best is not shown to beat. Empty if nothing can be compared."""
    design = blocks(values)
    if design is None:
        return set()
    choose = max if higher_is_better else min
    best = choose(design.means, key=lambda method: design.means[method])
    others = [method for method in design.means if method != best]
    worse = holm({method: difference(design, best, method).p for method in others})
    return set(design.means) - worse


def apart(design: Blocks) -> set[tuple[str, str]]:
    """(higher, lower) for every pair of methods that differ by more than chance: Holm over all pairs of the column.

    All differences of a design have the same standard error, so the widest gap has the smallest p, and the search ends
    at the first that is not rejected. What passes Bonferroni's limit passes Holm's, without a look at its p.
    """
    ordered = sorted(design.means, key=lambda method: design.means[method], reverse=True)
    pairs = list(combinations(ordered, 2))
    pairs.sort(key=lambda pair: design.means[pair[1]] - design.means[pair[0]])
    wide = t_limit(LEVEL / len(pairs), design.freedom) * design.residual * math.sqrt(2 / len(design.seeds))
    differing: set[tuple[str, str]] = set()
    for place, (high, low) in enumerate(pairs):
        gap = design.means[high] - design.means[low]
        if gap <= wide and difference(design, high, low).p > LEVEL / (len(pairs) - place):
            break
        differing.add((high, low))
    return differing
