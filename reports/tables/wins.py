"""The methods of a suite against each other: which is better, and on how many data sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from reports.measure import lead, worst
from reports.results import Results, RunResult
from reports.statistics.paired import MINIMUM
from reports.tables.footnotes import context, notes_for, planned_seeds
from reports.tables.over_sets import Scored, main_scores
from reports.tables.table import Cell, Column, Row, Table, unverified

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

    better: Counter[Pair]
    shown: Counter[Pair]  #: of them, by more than chance
    ties: Counter[Pair]
    compared: Counter[Pair]  #: where both have a value for the same seed
    tested: bool  #: whether any of them could be tested

    @cached_property
    def full(self) -> int:
        """Data sets on which the most complete pair is compared."""
        return max(self.compared.values(), default=0)


def count_wins(results: Results, noise: str, scores: Sequence[Scored] | None = None) -> Wins:
    """Compare every method with every other under one noise, each under its main score."""
    places = {label: place for place, label in enumerate(results.ranked)}
    better, shown, ties, compared = np.zeros((4, len(places), len(places)), np.int64)
    tested = False
    for one in main_scores(results, noise) if scores is None else scores:
        tests = one.tests
        own = [places[label] for label in tests.labels]
        pairs = np.ix_(own, own)
        better[pairs] += tests.gap > 0
        shown[pairs] += tests.shown
        ties[pairs] += tests.gap == 0
        compared[pairs] += np.isfinite(tests.gap)
        tested |= tests.tested
    counted = [_counter(list(places), counts) for counts in (better, shown, ties, compared)]
    return Wins(counted[0], counted[1], counted[2], counted[3], tested)


def _counter(labels: Sequence[str], counts: NDArray[np.int64]) -> Counter[Pair]:
    """The counts of all pairs of two different methods that have any."""
    rows = zip(labels, counts.tolist(), strict=True)
    return Counter({(a, b): n for a, row in rows for b, n in zip(labels, row, strict=True) if n and a != b})


def wins_table(results: Results, scores: Mapping[str, Sequence[Scored]] | None = None) -> Table:
    """One line a method and noise, one column a method, after one for all methods together."""
    wins = {noise: count_wins(results, noise, scores[noise] if scores else None) for noise in results.noises}
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
    first = lead(own, text="")
    yield _cell(first, wins, [(label, other) for other in others], own)
    for other in results.ranked:
        if other == label:
            yield replace(first, text="–", also=_counts(wins, []))
        else:
            yield _cell(first, wins, [(label, other)], [*own, *results.of(other, noise)])


def _counts(wins: Wins, pairs: list[Pair]) -> dict[str, int]:
    parts = {"ties": wins.ties, "of": wins.compared, **({"by more than chance": wins.shown} if wins.tested else {})}
    return {name: sum(counts[pair] for pair in pairs) for name, counts in parts.items()}


def _cell(first: Cell, wins: Wins, pairs: list[Pair], runs: list[RunResult]) -> Cell:
    also = _counts(wins, pairs)
    if not also["of"]:
        return replace(first, state=worst([run.lacking for run in runs]), also=also)
    shown = [f"({also['by more than chance']})"] if wins.tested else []
    fewer = [f"of {also['of']}"] if also["of"] < wins.full * len(pairs) else []
    better = sum(wins.better[pair] for pair in pairs)
    return replace(first, value=better, small=" ".join([*shown, *fewer]), also=also)
