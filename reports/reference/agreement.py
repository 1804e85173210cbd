"""Whether two comparisons, or two noises of one, rank the methods alike.

The rank correlation is Spearman's, with the interval of Bonett and Wright (Psychometrika 2000), which takes the methods
as a sample. How far seeds alone limit it is said by the reliability of the means on either side (Cronbach's alpha): the
expected correlation of these means with those of other seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from scipy.stats import rankdata, spearmanr

from bench.console.markup import markdown, markdown_table
from bench.errors import UserError
from reports.results import Results
from reports.statistics.contrasts import headline_contrasts
from reports.statistics.paired import MINIMUM, Floats, Values, pairwise

FEWEST = 5  #: methods below which nothing is correlated
_NORMAL = 1.959963984540054  #: the 97.5 % quantile of the normal distribution
_HEAD = ("noise", "methods", "seeds", "rank correlation", "reliability", "same", "opposite", "one", "neither")
_NOTES = """\
- rank correlation: Spearman's, of the means over seeds, with a 95 % interval that takes the methods as a sample
- reliability: the expected correlation of the means with those of other seeds (Cronbach's alpha)
- same, opposite: pairs of methods that are significantly different on both sides (paired t, Holm over all pairs); \
one: on one side alone
"""
_PAGE = """\
# Do the comparisons rank the methods alike?

{}

`bench stats agreement SUITE OTHER` compares two suites under each noise that both have, at their longest budgets and
where they share no runs; `bench stats agreement SUITE` compares the noises of a single suite at each budget, and its
budgets under each noise.

"""


@dataclass(frozen=True)
class Ranking:
    """The primary metrics of a suite, by the label of the noise."""

    suite: str
    headline: str
    noises: Mapping[str, tuple[str | None, float]]  #: kind, None of clean pairs, and rate
    values: Mapping[str, Values]  #: higher is better
    budgets: Mapping[str, float] = field(default_factory=dict)
    runs: Mapping[str, frozenset[str]] = field(default_factory=dict)  #: ids of its runs

    def longest(self) -> dict[tuple[str | None, float], str]:
        """Return the label of each kind and rate at its longest budget."""
        return {self.noises[label]: label for label in sorted(self.noises, key=lambda one: self.budgets.get(one, 0.0))}


@dataclass(frozen=True)
class Agreement:
    """How two sides rank the same methods."""

    title: str
    rows: tuple[str, ...]  #: the methods that both have with enough seeds, best first on the first side
    rho: float  #: Spearman's rank correlation of their means
    low: float
    high: float
    seeds: tuple[int, int]
    reliability: tuple[float, float]  #: of the means of either side; at most 1
    one_order: float  #: the rank correlation to expect if both sides had one order: of the reliabilities of the ranks
    same: int  #: pairs of methods that are significantly different on both sides, in the same order
    opposite: int  #: in opposite orders
    one: int  #: pairs that are significantly different on one side alone
    neither: int


def ranking(results: Results) -> Ranking:
    """Return what a suite's headline says; without a number it has no noise."""
    known = headline_contrasts(results)
    entries = {one.noise: results.noises[one.noise] for one in known}
    return Ranking(
        results.suite,
        known[0].measure.column.in_words if known else "",
        {noise: (entry["kind"], entry["rate"]) for noise, entry in entries.items()},
        {one.noise: {label: one.values[label] for label in one.ranked if label in one.values} for one in known},
        {noise: results.budget(noise) for noise in entries},
        {noise: frozenset(run.run for run in results.runs if run.noise == noise) for noise in entries},
    )


def compared(first: Ranking, second: Ranking | None = None) -> list[Agreement]:
    """Compare two suites under every noise that both have, or two noises or two budgets of one, where it is possible.

    Of several budgets two suites are compared at their longest, and never where they share runs.
    """
    if second:
        theirs = second.longest()
        shared = [(label, theirs[place]) for place, label in first.longest().items() if place in theirs]
        shared = [(a, b) for a, b in shared if first.runs.get(a, frozenset()).isdisjoint(second.runs.get(b, ()))]
        sides = [(a if a == b else f"{a}; {b}", first.values[a], second.values[b]) for a, b in shared]
    else:
        alike = [
            (a, b)
            for a, b in combinations(first.values, 2)
            if first.noises[a] == first.noises[b] or first.budgets.get(a) == first.budgets.get(b)
        ]
        sides = [(f"{a}; {b}", first.values[a], first.values[b]) for a, b in alike]
    return [one for side in sides if (one := agreement_of(*side))]


def agreement_of(title: str, first: Values, second: Values) -> Agreement | None:
    """Compare two sides; None where they share fewer than `FEWEST` methods with enough seeds."""
    rows = [label for label in first if min(len(first[label]), len(second.get(label, {}))) >= MINIMUM]
    tables = [_complete(values, rows) for values in (first, second)] if rows else []
    if len(rows) < FEWEST or min(table.shape[1] for table in tables) < MINIMUM:
        return None
    a, b = (table.mean(1) for table in tables)
    # [i, j]: is method i significantly better than method j?
    better, also = (pairwise({label: values[label] for label in rows}).shown for values in (first, second))
    same, opposite = int((better & also).sum()), int((better & also.T).sum())
    different = int((better | better.T | also | also.T).sum()) // 2
    return Agreement(
        title,
        tuple(rows[place] for place in np.argsort(-a, kind="stable")),
        *rank_correlation(a, b),
        (tables[0].shape[1], tables[1].shape[1]),
        (reliability(tables[0]), reliability(tables[1])),
        math.sqrt(math.prod(max(0.0, reliability(rankdata(table, axis=0))) for table in tables)),
        same,
        opposite,
        different - same - opposite,
        len(rows) * (len(rows) - 1) // 2 - different,
    )


def _complete(values: Values, rows: Sequence[str]) -> Floats:
    """Return [rows, seeds], the seeds that all of these rows have."""
    shared = sorted(set.intersection(*(set(values[label]) for label in rows)))
    return np.array([[values[label][seed] for seed in shared] for label in rows], dtype=np.float64)


def rank_correlation(a: Floats, b: Floats) -> tuple[float, float, float]:
    """Spearman's correlation of two arrays [m], m >= 4, and its 95 % interval; 0 where an array has one value alone.

    The interval is tanh(atanh(r) +- 1.96 sqrt((1 + r^2 / 2) / (m - 3))): Bonett and Wright 2000, equation 3.
    """
    r = float(spearmanr(a, b).statistic) if min(np.ptp(a), np.ptp(b)) > 0 else 0.0
    if abs(r) > 1 - 1e-12:
        return round(r), round(r), round(r)
    half = _NORMAL * math.sqrt((1 + r * r / 2) / (len(a) - 3))
    return r, math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)


def reliability(table: Floats) -> float:
    """Cronbach's alpha of the means of [rows, seeds]: 1 - (mean square of what seeds leave) / (mean square of rows).

    It is negative where rows differ less than their spread over seeds suggests, and 0 where they are equal.
    """
    rows, seeds = table.shape
    means = table.mean(1)
    left = table - means[:, None] - table.mean(0)[None] + table.mean()
    between_rows = seeds * float(((means - means.mean()) ** 2).sum()) / (rows - 1)
    within_rows = float((left**2).sum()) / ((rows - 1) * (seeds - 1))
    return 1 - within_rows / between_rows if between_rows else 0.0


def agreement_text(first: Ranking, second: Ranking | None = None) -> str:
    """Return two suites, or the noises of one, as Markdown. Raises UserError if they cannot be compared."""
    if not (section := _section(first, second)):
        lacking = f"suite {first.suite}: has no two noises"
        if second:
            lacking = f"suites {first.suite} and {second.suite}: have no noise in common, with runs of their own,"
        raise UserError(f"{lacking} under which the same {FEWEST} methods have {MINIMUM} seeds")
    return f"{section}\n{_NOTES}"


def agreement_page(main: Ranking, others: Sequence[Ranking]) -> str:
    """Return AGREEMENT.md: each comparison with the main one, then the noises of each."""
    found = [one for other in others for one in compared(main, other)]
    sections = [_section(main, other) for other in others] + [_section(one) for one in (main, *others)]
    return _PAGE.format(_outcome(main, found)) + "\n".join([_NOTES, *filter(None, sections)])


def _outcome(main: Ranking, found: Sequence[Agreement]) -> str:
    """The page in a sentence: of the comparisons with the main one."""
    if not found:
        return f"No comparison shares {FEWEST} methods and a noise with {markdown(main.suite)}."
    ends = [f"{end(one.rho for one in found):.2f}" for end in (min, max)]
    same, opposite = sum(one.same for one in found), sum(one.opposite for one in found)
    return (
        f"With {markdown(main.suite)}, rank correlations are {ends[0]} to {ends[1]}; of the pairs of methods that "
        f"are significantly different on both sides, {same} are in the same order and {opposite} in the opposite one."
    )


def _section(first: Ranking, second: Ranking | None = None) -> str:
    if not (agreements := compared(first, second)):
        return ""
    title = f"{first.suite} and {second.suite}" if second else f"{first.suite}: its noises"
    about = f"{first.headline} and {second.headline}." if second else f"{first.headline}."
    cells = (
        (
            markdown(one.title),
            str(len(one.rows)),
            " and ".join(map(str, one.seeds)),
            f"{one.rho:.2f} ({one.low:.2f} to {one.high:.2f})",
            " and ".join(f"{value:.2f}" for value in one.reliability),
            *map(str, (one.same, one.opposite, one.one, one.neither)),
        )
        for one in agreements
    )
    return "\n".join([f"## {markdown(title)}", "", markdown(about), "", *markdown_table(_HEAD, cells), ""])
