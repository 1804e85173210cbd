"""Means over seeds, and which differences are significant.

All methods of a column were run with the same seeds, which decide initial weights, order and corrupted pairs, so every
test is of differences paired by seed: Student's t with n - 1 degrees of freedom for these two methods alone, and Holm's
correction over all tests of a column. No variance is pooled over methods: with the spreads of results/reference and
five seeds, a pooled one found somebody worse than the best in 45 to 50 % of simulated tables of equal methods.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

LEVEL = 0.05  #: of Holm's procedure over the comparisons of one column
MINIMUM = 3  #: fewest seeds of a comparison

SAME = 1e-9  #: a spread of at most this share of what it is compared with is rounding

Floats = NDArray[np.float64]
Values = Mapping[str, Mapping[int, float]]  #: method -> seed -> value
Key = TypeVar("Key")


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean of at least one value."""
    return math.fsum(values) / len(values)


def std(values: Sequence[float]) -> float | None:
    """Sample standard deviation (n - 1), None for fewer than two values."""
    if len(values) < 2:
        return None
    centre = mean(values)
    apart = [value - centre for value in values]
    return math.sqrt(math.fsum(one * one for one in apart) / (len(values) - 1))


@dataclass(frozen=True)
class Difference:
    """Mean of one method minus mean of another over the seeds that both have, with its t-interval."""

    value: float
    low: float  #: of the interval: 95 %, or in a family of tests the level of its step of Holm's procedure
    high: float
    p: float  #: two-sided, of this test alone
    n: int  #: seeds
    std: float  #: of the differences over seeds
    adjusted: float  #: p in its family of tests, `p` where it is tested alone

    @property
    def is_significant(self) -> bool:
        """Whether it is significant at `LEVEL` in its family of tests. Its interval excludes 0 then, and only then."""
        return self.adjusted <= LEVEL

    def at(self, level: float) -> Difference:
        """The same difference with the interval of a test at this level.

        Without a spread the sign test decides: it rejects all other differences or none.
        """
        half = t_limit(level, self.n - 1) * self.std / math.sqrt(self.n)
        if self.std <= SAME * abs(self.value):
            half = math.inf if self.value and self.p > level else 0.0
        return replace(self, low=self.value - half, high=self.value + half)

    def within(self, most: float) -> Difference:
        """The same difference of numbers that differ by `most` at most, which is where its interval ends."""
        return replace(self, low=max(self.low, -most), high=min(self.high, most))


def difference(a: Mapping[int, float], b: Mapping[int, float]) -> Difference | None:
    """The paired t-test of two methods, seed -> value; None if they share fewer than `MINIMUM` seeds."""
    shared = sorted(a.keys() & b.keys())
    return t_test([a[seed] - b[seed] for seed in shared]) if len(shared) >= MINIMUM else None


def t_test(values: Sequence[float]) -> Difference:
    """Test whether the mean of at least two values is zero.

    Identical values, as shares of few examples may be, have no spread to estimate chance from. Their p is that of the
    exact sign test, 2^(1 - n); it is 1 if they are zero.
    """
    n, value, spread = len(values), mean(values), std(values)
    assert spread is not None
    p = float(_two_sided(value, spread, n))
    return Difference(value, value, value, p, n, spread, p).at(LEVEL)


def holm(tests: Mapping[Key, Difference]) -> dict[Key, Difference]:
    """A family of tests: p adjusted by Holm, and the interval of each at the level at which its step tests it.

    The i-th smallest of m p-values is tested at `LEVEL` / (m - i + 1), until one is not rejected: the level of
    that step is used for all that are left. So an interval excludes 0 exactly where the difference is significant.
    """
    steps = adjusted([test.p for test in tests.values()])
    rejected = int((steps <= LEVEL).sum())
    ranks = np.argsort(np.argsort([test.p for test in tests.values()], kind="stable"), kind="stable")
    return {
        key: replace(test.at(LEVEL / (len(tests) - min(rank, rejected))), adjusted=p)
        for (key, test), rank, p in zip(tests.items(), ranks.tolist(), steps.tolist(), strict=True)
    }


def _two_sided(gap: Any, spread: Any, n: int) -> Floats:
    """The p of mean differences, numbers or arrays, whose standard deviation over n seeds is `spread`."""
    with np.errstate(invalid="ignore", divide="ignore"):
        t = np.where(gap == 0, 0, gap / (np.asarray(spread) / math.sqrt(n)))
    same = (spread <= SAME * np.abs(gap)) & (gap != 0)
    return np.where(same, 2.0 ** (1 - n), t_tails(t, n - 1))


@dataclass(frozen=True)
class Pairwise:
    """Every two methods of a column against each other: arrays [m, m], the method of the row minus that of the column.

    Two methods are compared over the seeds that both have; one with few seeds does not shrink the tests of the others.
    """

    labels: tuple[str, ...]
    gap: Floats  #: difference of the means, NaN if they share no seed
    p: Floats  #: of the paired t-test, two-sided; NaN below `MINIMUM` shared seeds and for a method with itself
    shown: NDArray[np.bool_]  #: the row's method is significantly higher: Holm over all pairs of the column


def pairwise(values: Values) -> Pairwise:
    """Test all pairs of the methods of a column, each as `t_test` does."""
    labels = tuple(values)
    seeds = sorted({seed for own in values.values() for seed in own})
    table = np.array([[values[label].get(seed, math.nan) for seed in seeds] for label in labels])
    apart = table.reshape(len(labels), 1, len(seeds)) - table.reshape(1, len(labels), len(seeds))
    known = np.isfinite(apart)
    n = known.sum(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        gap = np.where(known, apart, 0).sum(-1) / n
        squares = (np.where(known, apart - gap[..., None], 0) ** 2).sum(-1)
        spread = np.sqrt(squares / (n - 1))
    p = np.full(gap.shape, math.nan)
    for count in np.unique(n[n >= MINIMUM]):
        p[n == count] = _two_sided(gap[n == count], spread[n == count], int(count))
    np.fill_diagonal(p, math.nan)
    shown = np.zeros(gap.shape, bool)
    above = np.triu(np.isfinite(p))
    shown[above] = adjusted(p[above]) <= LEVEL
    return Pairwise(labels, gap, p, (shown | shown.T) & (gap > 0))


def unbeaten(values: Values, higher_is_better: bool, baseline: str = "") -> set[str]:
    """Methods than which none of the column is significantly better; empty if nothing can be compared.

    By Holm over all pairs, and against the baseline also over the methods alone, as in the verdict.
    """
    tests = pairwise(values)
    known, shown = np.isfinite(tests.p), tests.shown.copy()
    if baseline in values:
        base = tests.labels.index(baseline)
        others = np.flatnonzero(known[base])
        others = others[adjusted(tests.p[base, others]) <= LEVEL]
        shown[base, others] = tests.gap[base, others] > 0
        shown[others, base] = tests.gap[others, base] > 0
    beaten = np.any(shown if higher_is_better else shown.T, axis=0)
    return {label for place, label in enumerate(tests.labels) if known[place].any() and not beaten[place]}


def t_tails(t: Any, freedom: int) -> Floats:
    """P(|T| > |t|) of a number or an array, for Student's t; small tails keep their digits."""
    return np.asarray(2 * stdtr(freedom, -np.abs(t)))


def t_limit(level: float, freedom: int) -> float:
    """The t that |T| exceeds with probability `level`."""
    return -float(stdtrit(freedom, level / 2))


def adjusted(p_values: Sequence[float] | Floats) -> Floats:
    """P-values adjusted by Holm's step-down procedure (Holm 1979): those at most `LEVEL` are rejected."""
    given = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(given, kind="stable")
    steps = np.maximum.accumulate(given[order] * np.arange(len(given), 0, -1))
    made = np.empty_like(given)
    made[order] = np.minimum(steps, 1)
    return made
