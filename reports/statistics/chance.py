"""Which numbers are above chance: a column without any compares nothing, a row without any has not learned."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from reports.headlines import primary
from reports.measure import Measure, cells_under, record_measure, values_by_seed
from reports.results import Results, once
from reports.statistics.paired import LEVEL, t_limit
from reports.tables.table import Cell, Column

LEARNED = 1.5  #: times chance above which a row's primary metric is, if it has learned anything


def is_chance(cells: Iterable[Cell], column: Column) -> bool:
    """Return whether no cell of a column is significantly above chance, and one has a value.

    A cell is above it if its 95 % interval over seeds lies above, or that over examples of every seed does. With
    one or two seeds and no intervals over examples it counts as above: they say too little.
    """
    measured = [one for one in cells if one.value is not None and one.measured]
    return column.chance is not None and bool(measured) and not any(_is_above(one, column.chance) for one in measured)


def _is_above(one: Cell, chance: float) -> bool:
    assert one.value is not None
    lows = [part.low for part in one.measured]
    over_examples = all(low is not None and low > chance for low in lows)
    if one.std is None or one.n < 3:
        return over_examples or None in lows
    return over_examples or one.value - t_limit(LEVEL, one.n - 1) * one.std / math.sqrt(one.n) > chance


def carries_nothing(results: Results, measure: Measure) -> bool:
    """Return whether no method is significantly above chance on a number, under any noise."""
    cells = (one for noise in results.noises for one in cells_under(results, noise, measure).values())
    return is_chance(cells, measure.column)


def learned_values(
    results: Results, noise: str, measure: Measure, labels: Iterable[str]
) -> dict[str, dict[int, float]]:
    """Return a number by method and seed, negative if lower is better; without methods that have not learned."""
    sign = 1 if measure.column.higher_is_better else -1
    learned = [label for label in labels if label not in unlearned(results)[noise]]
    values = values_by_seed(results, noise, measure, learned)
    return {label: {seed: sign * one for seed, one in own.items()} for label, own in values.items()}


@once
def unlearned(results: Results) -> Mapping[str, frozenset[str]]:
    """Noise -> rows that have not learned under it: their primary metric is not significantly above `LEARNED` chance.

    Such rows take part in no test, ranking or resolution. Where lower is better, or chance is unknown, there are none.
    """
    measure = record_measure(results, *primary(results))
    chance = measure.column.chance if measure.column.higher_is_better else None
    found: dict[str, frozenset[str]] = {}
    for noise in results.noises:
        cells = cells_under(results, noise, measure).items()
        known = {label: one for label, one in cells if chance is not None and one.value is not None}
        found[noise] = frozenset(label for label, one in known.items() if not _is_above(one, LEARNED * (chance or 0)))
    return found
