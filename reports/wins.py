"""The methods of a suite against each other: which is better, and on how many data sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from reports.footnotes import context, notes_for, planned_seeds
from reports.measure import Measure, record_measure, values_by_seed, worst
from reports.results import Results, RunResult
from reports.statistics import MINIMUM, pairwise
from reports.table import Cell, Column, Row, Table, unverified
from reports.vocabulary import main_metric

Pair = tuple[str, str]  #: (this method, the one it is compared with)
_TEXT = (
    "On how many data sets the method of the line is better than that of the column, counting the main metric of every "
    "task and data set once, and in brackets on how many by more than chance."
)
_PLAIN = (
    "On how many data sets the method of the line is better than that of the column, counting the main metric of every "
    f"task and data set once. By more than chance: not known, it takes {MINIMUM} seeds that both have."
)
_CHANCE = (
    "By more than chance: paired t-test over the seeds that both have, Holm at 5 % over all pairs of methods on a data "
    "set."
)


@dataclass
class Wins:
    """Comparisons of all ordered pairs of methods under one noise, in numbers of data sets."""

    better: Counter[Pair] = field(default_factory=Counter)
    shown: Counter[Pair] = field(default_factory=Counter)  #: of them, by more than chance
    ties: Counter[Pair] = field(default_factory=Counter)
    compared: Counter[Pair] = field(default_factory=Counter)  #: where both have a value for the same seed
    tested: bool = False  #: whether any of them could be tested

    @cached_property
    def full(self) -> int:
        """Data sets on which the most complete pair is compared."""
        return max(self.compared.values(), default=0)


def main_measures(results: Results) -> list[Measure]:
    """The main metric of every known task on every data set that all runs were measured on alike."""
    measures = [record_measure(results, *named) for named in results.measures if named[2] == main_metric(named[1])]
    return [measure for measure in measures if measure.comparable]


def count_wins(results: Results, noise: str) -> Wins:
    """Compare every method with every other under one noise, each under its main score."""
    wins = Wins()
    for measure in main_measures(results):
        tests = pairwise(values_by_seed(results, noise, measure, results.ranked))
        wins.tested |= tests.tested
        up = bool(measure.column.higher_is_better)
        better, shown = (tests.gap > 0, tests.shown) if up else (tests.gap < 0, tests.shown.T)
        for a, b in zip(*np.nonzero(np.isfinite(tests.gap)), strict=True):
            pair = tests.labels[a], tests.labels[b]
            if a != b:
                wins.compared[pair] += 1
                wins.ties[pair] += int(tests.gap[a, b] == 0)
                wins.better[pair] += int(better[a, b])
                wins.shown[pair] += int(shown[a, b])
    return wins


def wins_table(results: Results) -> Table:
    """One line a method and noise, one column a method, after one for all methods together."""
    wins = {noise: count_wins(results, noise) for noise in results.noises}
    rows = [
        Row(label, tuple(_line(results, wins[noise], label, noise)), noise, label, fidelity=entry["fidelity"])
        for noise in results.noises
        for label, entry in results.ranked.items()
        if results.of(label, noise)
    ]
    columns = [
        Column("all", "all others", unit="count", description="summed over all other methods"),
        *(
            Column(label, label + unverified(entry["fidelity"]), unit="count", description=f"against {label}")
            for label, entry in results.ranked.items()
        ),
    ]
    tested = any(one.tested for one in wins.values())
    counts = "; ".join(f"{noise}: {one.full} data sets and tasks" for noise, one in wins.items())
    notes = [
        f"{counts}. A pair compared on fewer says so: 3 of 9.",
        f"Better: the mean over {planned_seeds(results)} is better. Equal means are a tie, which is no win for either.",
        *([_CHANCE] if tested else ()),
        *context(results),
    ]
    text = _TEXT if tested else _PLAIN
    return Table("wins", "Wins", tuple(columns), tuple(rows), text, tuple(notes), notes=notes_for(rows), turned=True)


def _line(results: Results, wins: Wins, label: str, noise: str) -> Iterator[Cell]:
    """Every cell leads to the runs of its line; those of its column have a line of their own."""
    own = results.of(label, noise)
    others = [other for other in results.ranked if other != label]
    lead = Cell("value", sources=tuple(run.run for run in own), over_budget=any(run.over_budget for run in own))
    yield _cell(lead, wins, [(label, other) for other in others], own)
    for other in results.ranked:
        if other == label:
            yield replace(lead, text="–", also=_counts(wins, []))
        else:
            yield _cell(lead, wins, [(label, other)], [*own, *results.of(other, noise)])


def _counts(wins: Wins, pairs: list[Pair]) -> dict[str, int]:
    parts = {"ties": wins.ties, "of": wins.compared, **({"by more than chance": wins.shown} if wins.tested else {})}
    return {name: sum(counts[pair] for pair in pairs) for name, counts in parts.items()}


def _cell(lead: Cell, wins: Wins, pairs: list[Pair], runs: list[RunResult]) -> Cell:
    also = _counts(wins, pairs)
    if not also["of"]:
        return replace(lead, state=worst([run.lacking for run in runs]), also=also)
    shown = [f"({also['by more than chance']})"] if wins.tested else []
    fewer = [f"of {also['of']}"] if also["of"] < wins.full * len(pairs) else []
    better = sum(wins.better[pair] for pair in pairs)
    return replace(lead, value=better, small=" ".join([*shown, *fewer]), also=also)
