"""Filter or loss: what a choice of pairs gains, what a method gains, both together, and whether they add up."""

from __future__ import annotations

from collections.abc import Iterator

from reports.plan_fields import recipe
from reports.results import Results
from reports.statistics.contrasts import Contrast, headline_contrasts
from reports.statistics.paired import Difference, difference, holm
from reports.tables.footnotes import noted
from reports.tables.table import Cell, Column, Row, Table
from reports.tables.vs_baseline import with_test

#: name, head and description of a column; a description of the effect of each is in the order of `_effects`
_COLUMNS = (
    ("filter", "filter alone", "the baseline on the chosen pairs, minus the baseline"),
    ("loss", "loss alone", "the method, minus the baseline"),
    ("both", "both", "the method on the chosen pairs, minus the baseline"),
    ("interaction", "interaction", "both, minus the sum of the two alone; below 0 their effects overlap"),
)


def filter_tables(results: Results) -> list[Table]:
    """One row per noise, choice of pairs and method, where the method and the baseline have both entries; [] without.

    Effects are on the primary metric, paired by seed.
    """
    found = [(one, *cell) for one in headline_contrasts(results) for cell in _squares(results)]
    lines = [(one, row, _effects(one, results.baseline, *labels)) for one, row, labels in found]
    lines = [line for line in lines if len(line[2]) == len(_COLUMNS)]
    if not lines:
        return []
    # One filter beside several losses is one test, and so is one loss beside several filters.
    tests = holm({(one.noise, *used): effect for one, _, effects in lines for used, effect in effects.items()})
    rows = [
        Row(label, tuple(with_test(Cell("value"), tests[one.noise, *used], ()) for used in effects), one.noise, label)
        for one, label, effects in lines
    ]
    number = lines[0][0].measure.column.label
    columns = tuple(Column(name, head, number, "percent", None, about) for name, head, about in _COLUMNS)
    text = f"Gains of a choice of pairs and of a loss over {results.named(results.baseline)}, in points of {number}."
    notes = (
        "p: paired t-test over seeds, adjusted by Holm over all different tests of this table, as are the intervals.",
        *(f"{head}: {about}." for _, head, about in _COLUMNS),
    )
    return [noted(results, "filter_or_loss", "Filter or loss", columns, rows, text, *notes)]


def _squares(results: Results) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """Yield the row of each method on chosen pairs, with the baseline's row on them, the method's own, and itself."""
    keeps = {label: (entry["keep"] or {}).get("label", "") for label, entry in results.ranked.items()}
    rows = {(recipe(entry), keeps[label]): label for label, entry in reversed(results.ranked.items())}
    base = recipe(results.methods[results.baseline])
    for label, entry in results.ranked.items():
        filtered, plain = rows.get((base, keeps[label])), rows.get((recipe(entry), ""))
        if keeps[label] and recipe(entry) != base and filtered and plain:
            yield label, (filtered, plain, label)


def _effects(one: Contrast, base: str, filtered: str, plain: str, both: str) -> dict[tuple[str, ...], Difference]:
    """Return the effects in the order of the columns, without those that have too few seeds.

    Each is keyed by its column and the rows, besides the baseline, that it is computed from.
    """
    none, first, second, joint = (one.values.get(label, {}) for label in (base, filtered, plain, both))
    sums = {seed: first[seed] + second[seed] - none[seed] for seed in none.keys() & first.keys() & second.keys()}
    sides = (first, none), (second, none), (joint, none), (joint, sums)
    rows = (filtered,), (plain,), (both,), (filtered, plain, both)
    columns = zip(_COLUMNS, rows, sides, strict=True)
    tests = {(name, *used): difference(*pair) for (name, *_), used, pair in columns}
    return {place: test for place, test in tests.items() if test}
