"""How numbers, cells, groups and headings are shown, against arithmetic of their own."""

from __future__ import annotations

import math
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.tables.table import (
    OVER_BUDGET,
    TOLD,
    UNVERIFIED,
    Cell,
    Column,
    Measured,
    Row,
    Table,
    marks,
    scale,
    show,
    signed,
    unverified,
    words,
)


def test_a_number_that_rounds_to_zero_has_no_sign_and_others_a_minus() -> None:
    assert [show(value, "percent") for value in (-0.0004, -0.05, 0.05)] == ["0.0", "−5.0", "5.0"]
    assert [show(value, "ratio") for value in (-0.004, -0.5)] == ["0.00", "−0.50"]
    assert [signed(value) for value in (-0.0004, 0.0004, -0.0312)] == ["+0.0", "+0.0", "−3.1"]


PREFIXES = {
    "count": {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9},
    "flops": {"": 1.0, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "Z": 1e21},
    "bytes": {"": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
    "seconds": {"s": 1.0, "min": 60.0, "h": 3600.0},
}
UNITS = st.sampled_from(sorted(PREFIXES))


@settings(deadline=None)
@given(st.floats(1.0, 1e24), UNITS)
def test_a_printed_cost_reads_back_within_its_digits(value: float, unit: str) -> None:
    number, _, name = show(value, unit).partition(" ")
    size = PREFIXES[unit][name]
    assert float(number) * size == pytest.approx(value, rel=0.006 if size > 1 else 0.51 / max(value, 1.0))


@settings(deadline=None)
@given(st.floats(1.0, 1e24), UNITS)
def test_the_prefix_is_the_largest_that_fits(value: float, unit: str) -> None:
    size, name = scale(value, unit)
    assert size == max(one for one in PREFIXES[unit].values() if one <= value)
    assert PREFIXES[unit].get(name or "s", 1.0) == size


@pytest.mark.parametrize("unit", sorted(PREFIXES))
def test_a_prefix_begins_at_its_own_size(unit: str) -> None:
    for name, size in PREFIXES[unit].items():
        if size > 1:
            assert scale(size, unit) == (size, name)
            assert scale(-size, unit) == (size, name)
            assert scale(math.nextafter(size, 0), unit)[0] < size


@settings(deadline=None)
@given(st.floats(1.0, 1e15))
def test_a_prefixed_number_has_three_digits(value: float) -> None:
    number, _, name = show(value, "flops").partition(" ")
    if name:
        digits = number.replace(".", "")
        assert len(digits) == 3 or (len(digits) == 4 and "." not in number)  # 1000 just below the next prefix


@settings(deadline=None)
@given(st.floats(-10, 10), st.integers(0, 4))
def test_a_percentage_is_a_hundred_times_its_share(value: float, digits: int) -> None:
    shown = [float(show(value, unit, digits).replace("−", "-")) for unit in ("percent", "printed")]
    assert abs(shown[0] - 100 * value) <= 0.5 * 10**-digits + 1e-9
    assert abs(shown[1] - value) <= 0.5 * 10**-digits + 1e-9


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(0.126, "ratio", "0.13"), (59.96, "seconds", "60.0 s"), (999, "count", "999"), (9994, "flops", "9994")],
)
def test_what_has_no_prefix_is_printed_whole(value: float, unit: str, text: str) -> None:
    assert show(value, unit) == text


def test_a_number_never_shows_a_digit_more_after_rounding() -> None:
    assert show(9.994e6, "flops") == "9.99 M"
    assert show(9.996e6, "flops") == "10.0 M"
    assert show(99.94e6, "flops") == "99.9 M"
    assert show(99.96e6, "flops") == "100 M"


def measured(count: int) -> tuple[Measured, ...]:
    return tuple(Measured(f"run{seed}", seed, 0.5) for seed in range(count))


PERCENT = Column("a", "A")


def test_words_say_the_spread_the_difference_the_seeds_and_more_in_this_order() -> None:
    cell = Cell("value", 0.5, 0.0123, measured(2), small="of 9", difference=-1.26)
    assert words(cell, PERCENT, full=3) == ("50.0", "± 1.2, −1.3, n=2, of 9")
    assert words(cell, PERCENT, full=2) == ("50.0", "± 1.2, −1.3, of 9")


def test_a_difference_has_its_sign_and_its_cells_digits() -> None:
    column = Column("a", "A", unit="printed")
    assert words(Cell("value", 71.25, difference=0.5, digits=2), column) == ("71.25", "+0.50")
    assert words(Cell("value", 71.25, std=0.125, digits=3), column) == ("71.250", "± 0.125")


@pytest.mark.parametrize("unit", ["count", "flops", "seconds", "bytes", "ratio"])
def test_costs_have_no_spread(unit: str) -> None:
    number, behind = words(Cell("value", 2.0, 1.0), Column("a", "A", unit=unit))
    assert (number, behind) == (show(2.0, unit), "")


def test_a_number_that_was_counted_does_not_say_how_many_seeds_it_has() -> None:
    assert words(Cell("value", 0.5, sources=("run0",)), PERCENT, full=3) == ("50.0", "")


@pytest.mark.parametrize("state", ["missing", "running", "interrupted", "failed", "not applicable"])
def test_a_state_stands_alone(state: str) -> None:
    cell = Cell(state, 0.5, 0.1, measured(1), small="of 9")
    assert words(cell, PERCENT, full=3) == ("n/a" if state == "not applicable" else state, "")


def test_text_stands_in_place_of_a_number_and_not_beside_one() -> None:
    assert words(Cell("value", text="chance"), PERCENT) == ("chance", "")
    assert words(Cell("value", 0.25, text="chance"), PERCENT) == ("25.0", "")


def test_a_cells_runs_are_all_that_belong_to_it() -> None:
    cell = Cell("value", 0.5, measured=measured(2), lacking=(("lost", "failed"),), sources=("counted",))
    assert cell.n == 2
    assert cell.runs == ("run0", "run1", "lost", "counted")


def test_marks_tell_budget_fidelity_and_help_apart() -> None:
    assert len({OVER_BUDGET, UNVERIFIED, TOLD}) == 3
    assert marks(Cell("value", 1.0, over_budget=True)) == OVER_BUDGET
    assert marks(Cell("value", 1.0)) == ""
    checked = ("official-checked", "formula-checked", "derived", "")
    assert [unverified(word) for word in checked] == [""] * 4
    assert unverified("reconstructed") == unverified("unchecked") == UNVERIFIED
    assert Row("a", (), fidelity="reconstructed", uses="clean rows").mark == UNVERIFIED + TOLD
    assert Row("a", (), uses="clean rows").mark == TOLD
    assert Row("a", (), fidelity="derived").mark == ""


@settings(deadline=None)
@given(st.lists(st.sampled_from(["", "x", "y"]), max_size=12))
def test_neighbours_share_a_heading_and_nobody_else_does(names: list[str]) -> None:
    columns = tuple(Column(str(place), "", name) for place, name in enumerate(names))
    rows = tuple(Row(str(place), (), name) for place, name in enumerate(names))
    table = Table("t", "T", columns, rows)
    expected = [(name, len(list(members))) for name, members in groupby(names)]
    assert table.heads() == expected
    assert [(name, len(members)) for name, members in table.groups()] == expected
    assert [row.label for _, members in table.groups() for row in members] == [row.label for row in rows]
