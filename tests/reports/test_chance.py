"""Columns in which nothing differs significantly from chance are set apart: in tables, on the page, in the radar."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from scipy import stats

from bench.store import Store
from reports.figures.radar import _axes, radar
from reports.measure import mean, std
from reports.pages.html import page
from reports.results import Results, load
from reports.statistics.chance import is_chance
from reports.tables.suite_tables import tables
from reports.tables.table import Cell, Column, Measured

SUITE = "emoji_noisy"
HEADLINE = "zero_shot/concept/top1"
COLUMN = Column("top1", "top-1", chance=0.1)


def cell(values: Sequence[float], low: float | None = None) -> Cell:
    parts = tuple(Measured(f"run{seed}", seed, value, 100, low, 1.0) for seed, value in enumerate(values))
    return Cell("value", mean(values), std(values), parts)


@pytest.mark.parametrize(
    ("values", "low", "told"),
    [
        ([0.30, 0.31, 0.29], None, True),
        ([0.11, 0.09, 0.13], None, False),
        ([0.11, 0.09, 0.13], 0.05, False),
        ([0.30, 0.12, 0.45], 0.11, True),  # seeds differ, but each is above by its own examples
        ([0.12], 0.05, False),
        ([0.12], 0.11, True),
        ([0.11, 0.13], None, True),  # two seeds alone say too little
        ([0.11, 0.13], 0.05, False),
    ],
)
def test_told_from_chance(values: Sequence[float], low: float | None, told: bool) -> None:
    assert is_chance([cell(values, low)], COLUMN) == (not told)
    if len(values) > 2 and low is None:
        ends = stats.t.interval(0.95, len(values) - 1, mean(values), stats.sem(values))
        assert (ends[0] > 0.1) == told


def test_one_row_that_is_told_is_enough_and_no_value_is_none() -> None:
    near, far = cell([0.11, 0.09, 0.13]), cell([0.30, 0.31, 0.29])
    assert is_chance([near, near], COLUMN)
    assert not is_chance([near, far], COLUMN)
    assert not is_chance([Cell("missing")], COLUMN)
    assert not is_chance([near], Column("cost", "cost"))


def raised(results: Results, dataset: str, chance: float) -> Results:
    """The same results where a random guess scores this on every number of a data set but the headline."""
    entry = results.plan["datasets"][dataset]
    entry = {**entry, "chance": {**dict.fromkeys(entry["chance"], chance), HEADLINE: entry["chance"].get(HEADLINE)}}
    return Results({**results.plan, "datasets": {**results.plan["datasets"], dataset: entry}}, results.runs)


def test_a_report_sets_them_apart(three: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reports.measure.TIED", 1)  # then seven rows of three seeds have some in bold
    plain = load(SUITE, three)
    results = raised(plain, "emoji/iid", 0.999)
    for table, before in zip(tables(results), tables(plain), strict=True):
        at = [column.at_chance for column in table.columns]
        wanted = [column.chance == 0.999 for column in table.columns]
        if table.name in ("zero_shot", "retrieval", "linear_probe"):
            assert at == wanted
            assert any(at)
            assert not any(row.cells[i].bold for row in table.rows for i in range(len(at)) if at[i])
            assert any(row.cells[i].bold for row in before.rows for i in range(len(at)) if at[i])
            (note,) = [note for note in table.footnotes if note.startswith("No row is significantly above chance on ")]
            assert "emoji/iid" in note
        assert not any(column.at_chance for column in before.columns)
    text = page(results, tables(results))
    assert 'class="at-chance"' in text
    assert 'class="at-chance"' not in page(plain, tables(plain))
    drawn, whole = radar(results), radar(plain)
    gone = [name.replace("\n", " ") for name, measure in _axes(results) if measure.column.chance == 0.999]
    assert gone
    assert f"no method is significantly above chance there: {'; '.join(gone)}." in drawn.caption
    assert "above chance" not in whole.caption
