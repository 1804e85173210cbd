"""Which numbers are told from chance at all: a column that is not tells nothing apart."""

from __future__ import annotations

import math
from collections.abc import Iterable

from reports.measure import Measure, cell
from reports.results import Results
from reports.statistics.paired import LEVEL, t_limit
from reports.tables.table import Cell, Column


def is_chance(cells: Iterable[Cell], column: Column) -> bool:
    """Return whether no cell of a column is told from chance, and one has a value.

    A cell is told from it if its 95 % interval over seeds lies above, or that over examples of every seed does. With
    one or two seeds and no intervals over examples it counts as told: they say too little.
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
    """Return whether no method is told from chance on a number, under any noise."""
    if measure.column.chance is None:
        return False
    cells = (
        cell(results.of(label, noise), measure, entry["score"])
        for label, entry in results.methods.items()
        for noise in results.noises
    )
    return is_chance(cells, measure.column)
