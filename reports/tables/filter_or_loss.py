"""Filter or loss: what a choice of pairs gains, what a method gains, both together, and whether they add up."""

from __future__ import annotations

from collections.abc import Iterator

from reports.results import Results, recipe
from reports.statistics.contrasts import Contrast, headline_contrasts
from reports.statistics.paired import Difference, adjusted, difference
from reports.tables.footnotes import context, notes_for
from reports.tables.table import Cell, Column, Row, Table
from reports.tables.vs_baseline import interval, p_text, signed

#: name, head and description of a column; a description of the effect of each is in the order of `_effects`
_COLUMNS = (
    ("filter", "filter alone", "the baseline on the chosen pairs, minus the baseline"),
    ("loss", "loss alone", "the method, minus the baseline"),
    ("both", "both", "the method on the chosen pairs, minus the baseline"),
    ("interaction", "interaction", "both, minus the sum of the two alone: below 0, they do the same work"),
)


def filter_tables(results: Results) -> list[Table]:
    """One line a noise, choice of pairs and method that has both rows, of which the baseline has both too; [] without.

    Effects are on the headline number, paired by seed.
    """
    found = [(one, *cell) for one in headline_contrasts(results) for cell in _squares(results)]
    lines = [(one, row, _effects(one, results.baseline, *labels)) for one, row, labels in found]
    lines = [line for line in lines if all(line[2])]
    if not lines:
        return []
    p_values = iter(adjusted([effect.p for *_, effects in lines for effect in effects if effect]).tolist())
    rows = [
        Row(label, tuple(_cell(effect, next(p_values)) for effect in effects if effect), one.noise, label)
        for one, label, effects in lines
    ]
    number = lines[0][0].measure.column.label
    columns = tuple(Column(name, head, number, "percent", None, about) for name, head, about in _COLUMNS)
    text = f"What a choice of pairs and a loss gain over {results.baseline}, in points of {number}."
    notes = (
        "p: paired t-test over seeds, adjusted by Holm over all tests of this table. Interval: 95 %, not adjusted.",
        *(f"{head}: {about}." for _, head, about in _COLUMNS),
        *context(results),
    )
    return [Table("filter_or_loss", "Filter or loss", columns, tuple(rows), text, notes, notes=notes_for(rows))]


def _squares(results: Results) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """Yield the row of each method on chosen pairs, with the baseline's row on them, the method's own, and itself."""
    keeps = {label: (entry.get("keep") or {}).get("label", "") for label, entry in results.ranked.items()}
    rows = {(recipe(entry), keeps[label]): label for label, entry in reversed(results.ranked.items())}
    base = recipe(results.methods[results.baseline])
    for label, entry in results.ranked.items():
        filtered, plain = rows.get((base, keeps[label])), rows.get((recipe(entry), ""))
        if keeps[label] and recipe(entry) != base and filtered and plain:
            yield label, (filtered, plain, label)


def _effects(one: Contrast, base: str, filtered: str, plain: str, both: str) -> list[Difference | None]:
    """Return the effects of the columns; None for those with too few seeds."""
    none, first, second, joint = (one.values.get(label, {}) for label in (base, filtered, plain, both))
    sums = {seed: first[seed] + second[seed] - none[seed] for seed in none.keys() & first.keys() & second.keys()}
    return [difference(first, none), difference(second, none), difference(joint, none), difference(joint, sums)]


def _cell(effect: Difference, p: float) -> Cell:
    also = {"low": effect.low, "high": effect.high, "p adjusted": p, "p": effect.p, "n": effect.n}
    small = f"{interval(effect)}, {p_text(p)}"
    return Cell("value", value=effect.value, text=signed(effect.value), small=small, also=also)
