"""BUDGETS.md: the gain of every method over the baseline at every budget and noise rate, and what it memorised."""

from __future__ import annotations

from collections.abc import Sequence

from bench.console.markup import markdown, markdown_table
from reports.headlines import memorised
from reports.measure import Measure, cells_under, record_measure
from reports.results import Results
from reports.statistics.contrasts import Contrast
from reports.statistics.paired import mean
from reports.statistics.regimes import Regimes, regimes
from reports.tables.table import Cell, signed

_NOTHING = "–"
_READING = (
    "For each comparison with several budgets: the difference from the baseline on the primary metric in points, "
    "with p adjusted by Holm over the methods at that budget. Bold: significant at 5 %. *: significant as well if the "
    "tests of all budgets of the noise are corrected together. A dash: not trained, too few seeds, or at chance. The "
    "first row is the baseline's own score, the oracle's p is unadjusted. Behind the gains, under *memorised*, is the "
    "share of wrong captions that are ranked before all distractors at the end of training (docs/validity.md)."
)


def budgets_part(results: Results) -> list[str]:
    """Return a table for each noise of a comparison, as lines of Markdown; [] if it has one budget."""
    named = memorised(results)
    measure = record_measure(results, *named) if named else None
    found = [line for one in regimes(results) for line in ("", *_table(results, one, measure))]
    return ["", f"## {markdown(results.suite)}", *found] if found else []


def budgets_page(parts: Sequence[Sequence[str]]) -> str:
    """Return the page of all comparisons; "" if none has several budgets."""
    lines = [line for part in parts for line in part]
    return "\n".join(["# Every method at every budget", "", _READING, *lines]) + "\n" if lines else ""


def _table(results: Results, one: Regimes, measure: Measure | None) -> list[str]:
    last = one.contrasts[-1]
    others = sorted(last.ranked, key=lambda label: -last.gains[label].value if label in last.gains else 1.0)
    labels = [last.baseline, *(label for label in others if label != last.baseline), *filter(None, [last.oracle])]
    shares = [cells_under(results, each.noise, measure, labels) if measure else {} for each in one.contrasts]
    learned = {label: [_share(of.get(label)) for of in shares] for label in labels}
    measured = any(text != _NOTHING for texts in learned.values() for text in texts)
    rows = []
    for label in labels:
        gains = [_gain(one, budget, each, label) for budget, each in zip(one.budgets, one.contrasts, strict=True)]
        rows.append([markdown(results.named(label)), *gains, *(learned[label] if measured else ())])
    heads = [markdown(results.told(budget)) for budget in one.budgets]
    head = ["", *heads, *(f"memorised, {text}" for text in heads if measured)]
    return [f"### {markdown(one.noise)}", "", *markdown_table(head, rows)]


def _share(cell: Cell | None) -> str:
    return f"{100 * mean([*cell.by_seed.values()]):.1f} %" if cell and cell.measured else _NOTHING


def _gain(one: Regimes, budget: float, contrast: Contrast, label: str) -> str:
    """Return the cell of a method at a budget."""
    if label == contrast.baseline:
        own = contrast.values.get(label)
        return f"{100 * abs(mean([*own.values()])):.1f} %" if own else _NOTHING
    test = contrast.gap if label == contrast.oracle else contrast.gains.get(label)
    if test is None:
        return _NOTHING
    p = test.p if label == contrast.oracle else test.adjusted
    text = f"{signed(contrast.as_difference(test).value)} ({'<0.001' if p < 0.001 else f'{p:.3f}'})"
    star = "\\*" if (label, budget) in one.significant else ""
    return f"**{text}**{star}" if label in contrast.gains and test.is_significant else text + star
