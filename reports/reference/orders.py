"""Whether two suites rank methods alike: rank correlation over the rows that both have, and pairs told apart in both.

The correlation is Spearman's, with the interval of Bonett and Wright (Psychometrika 2000), which takes the methods as a
sample. How far seeds alone limit it is said by the reliability of each suite's means (Cronbach's alpha): the expected
correlation of these means with those of other seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.console.text import columns, joined
from bench.errors import UserError
from reports.results import Results
from reports.statistics.contrasts import headline_contrasts
from reports.statistics.paired import MINIMUM, Floats, pairwise

Noise = tuple[str | None, float]  #: kind, None of clean pairs, and rate
FEWEST = 5  #: rows below which nothing is correlated
HEAD = ("noise", "methods", "seeds", "rank correlation", "reliability", "same", "opposite", "one", "neither")
_NORMAL = 1.959963984540054  #: the 97.5 % quantile of the normal distribution


@dataclass(frozen=True)
class Ranking:
    """The headline numbers of a suite."""

    suite: str
    headline: str
    labels: Mapping[Noise, str]
    values: Mapping[Noise, Mapping[str, Mapping[int, float]]]  #: method -> seed -> value, higher is better


@dataclass(frozen=True)
class Agreement:
    """How two suites rank the same methods under one noise."""

    noise: str
    rows: tuple[str, ...]  #: the methods that both have with enough seeds, best first in the first suite
    rho: float  #: Spearman's rank correlation of their means
    low: float
    high: float
    seeds: tuple[int, int]
    reliability: tuple[float, float]  #: of the means of either suite; at most 1
    same: int  #: pairs of methods that both tell apart, in the same order
    opposite: int  #: in opposite orders
    one: int  #: pairs that only one of the suites tells apart
    neither: int


def ranking(results: Results) -> Ranking:
    """Return what a suite's headline says. Raises UserError where it measured nothing."""
    known = headline_contrasts(results)
    if not known:
        raise UserError(f"suite {results.suite}: has no headline number yet; `bench run {results.suite}` measures it")
    entries = {one.noise: results.noises[one.noise] for one in known}
    at = {label: (entry.get("kind"), float(entry.get("rate") or 0.0)) for label, entry in entries.items()}
    values = {at[one.noise]: {label: one.values[label] for label in one.ranked if label in one.values} for one in known}
    column = known[0].measure.column
    return Ranking(results.suite, column.label, {key: label for label, key in at.items()}, values)


def agreements(first: Ranking, second: Ranking) -> list[Agreement]:
    """Compare two suites under every noise that both have, where they share at least `FEWEST` rows."""
    both = [noise for noise in first.values if noise in second.values]
    compared = (agreement_of(first.labels[one], first.values[one], second.values[one]) for one in both)
    return [one for one in compared if one]


def agreement_of(
    noise: str, first: Mapping[str, Mapping[int, float]], second: Mapping[str, Mapping[int, float]]
) -> Agreement | None:
    """Compare two sets of values, method -> seed -> value; None where they share fewer than `FEWEST` rows.

    `noise` is what the line is called.
    """
    rows = [label for label in first if min(len(first[label]), len(second.get(label, {}))) >= MINIMUM]
    tables = [_complete(values, rows) for values in (first, second)] if rows else []
    if len(rows) < FEWEST or min(table.shape[1] for table in tables) < MINIMUM:
        return None
    a, b = (table.mean(1) for table in tables)
    rho, low, high = rank_correlation(a, b)
    # [i, j]: is method i shown to be better than method j?
    better, also = (pairwise({label: values[label] for label in rows}).shown for values in (first, second))
    same, opposite = int((better & also).sum()), int((better & also.T).sum())
    apart = int((better | better.T | also | also.T).sum()) // 2
    return Agreement(
        noise,
        tuple(rows[place] for place in np.argsort(-a, kind="stable")),
        rho,
        low,
        high,
        (tables[0].shape[1], tables[1].shape[1]),
        (reliability(tables[0]), reliability(tables[1])),
        same,
        opposite,
        apart - same - opposite,
        len(rows) * (len(rows) - 1) // 2 - apart,
    )


def _complete(values: Mapping[str, Mapping[int, float]], rows: Sequence[str]) -> Floats:
    """Return [rows, seeds], the seeds that all of these rows have."""
    shared = sorted(set.intersection(*(set(values[label]) for label in rows)))
    return np.array([[values[label][seed] for seed in shared] for label in rows], dtype=np.float64)


def rank_correlation(a: Floats, b: Floats) -> tuple[float, float, float]:
    """Spearman's correlation of two arrays [m], m >= 4, and its 95 % interval; 0 where an array has one value alone.

    The interval is tanh(atanh(r) +- 1.96 sqrt((1 + r^2 / 2) / (m - 3))): Bonett and Wright 2000, equation 3.
    """
    r = correlation(_ranks(a), _ranks(b))
    if abs(r) == 1:
        return r, r, r
    half = _NORMAL * math.sqrt((1 + r * r / 2) / (len(a) - 3))
    return r, math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)


def correlation(a: Floats, b: Floats) -> float:
    """Pearson's correlation of two arrays [m]; 0 where an array has one value alone."""
    x, y = a - a.mean(), b - b.mean()
    scale = math.sqrt(float(x @ x) * float(y @ y))
    return max(-1.0, min(1.0, float(x @ y) / scale)) if scale else 0.0


def _ranks(values: Floats) -> Floats:
    """Ranks from 1; equal values share the mean of theirs."""
    apart = values[:, None] - values[None]
    return np.asarray(0.5 + (apart > 0).sum(1) + 0.5 * (apart == 0).sum(1))


def reliability(table: Floats) -> float:
    """Cronbach's alpha of the means of [rows, seeds]: 1 - (mean square of what seeds leave) / (mean square of rows).

    It is negative where rows differ less than their seeds let expect, and 0 where they are equal.
    """
    rows, seeds = table.shape
    means = table.mean(1)
    left = table - means[:, None] - table.mean(0)[None] + table.mean()
    between = seeds * float(((means - means.mean()) ** 2).sum()) / (rows - 1)
    within = float((left**2).sum()) / ((rows - 1) * (seeds - 1))
    return 1 - within / between if between else 0.0


def agreement_text(first: Ranking, second: Ranking) -> str:
    """Plain text: a line for each noise. Raises UserError if the suites cannot be compared."""
    compared = agreements(first, second)
    if not compared:
        raise UserError(
            f"suites {first.suite} and {second.suite}: have no noise in common under which {FEWEST} methods have "
            f"{MINIMUM} seeds in both"
        )
    lines = columns([HEAD, *map(agreement_cells, compared)])
    return joined([f"{first.suite} ({first.headline}) and {second.suite} ({second.headline})", "", *lines, "", *NOTES])


def agreement_cells(one: Agreement) -> tuple[str, ...]:
    """The cells of a line, as text."""
    return (
        one.noise,
        str(len(one.rows)),
        " and ".join(map(str, one.seeds)),
        f"{one.rho:.2f} ({one.low:.2f} to {one.high:.2f})",
        " and ".join(f"{value:.2f}" for value in one.reliability),
        *(str(count) for count in (one.same, one.opposite, one.one, one.neither)),
    )


NOTES = (
    "rank correlation: Spearman's, of the means over seeds, with a 95 % interval that takes the methods as a sample",
    "reliability: the expected correlation of the means with those of other seeds (Cronbach's alpha)",
    "same, opposite: pairs of methods that both tell apart (paired t, Holm over all pairs); one: only one does",
)
