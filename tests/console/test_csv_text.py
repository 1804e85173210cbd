"""CSV comes back as it was written, and no spreadsheet computes with a text of it."""

from __future__ import annotations

import csv
import io

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.console.text import FORMULA, cell_text, csv_text, storable

TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("=+-@\t\r\n'\",;"), max_size=20)


def plain_text(cell: str) -> str:
    """What README.md says of reading: an apostrophe before what begins like a formula is none of the text."""
    return cell[1:] if cell.startswith("'") and cell.lstrip("'").startswith(FORMULA) else cell


@settings(deadline=None)
@given(st.lists(st.lists(TEXT, min_size=2, max_size=2), min_size=1, max_size=4))
def test_text_comes_back(rows: list[list[str]]) -> None:
    text = csv_text(rows)
    read = list(csv.reader(io.StringIO(text, newline="")))
    assert [[plain_text(cell) for cell in row] for row in read] == [[storable(cell) for cell in row] for row in rows]
    lines = io.StringIO(text, newline="")
    frame = pd.read_csv(lines, header=None, dtype=str, keep_default_na=False, lineterminator="\n")
    assert frame.to_numpy().tolist() == read


@settings(deadline=None)
@given(TEXT)
def test_no_text_begins_like_a_formula_unless_it_is_a_number(text: str) -> None:
    cell = cell_text(text)
    if cell.startswith(FORMULA):
        float(cell)


@pytest.mark.parametrize(
    "text", ["=1+1", "+A1", "-A1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", "-1+cmd", "+-1", "-"]
)
def test_formulas_get_an_apostrophe(text: str) -> None:
    assert next(csv.reader(io.StringIO(csv_text([[text]]), newline=""))) == [f"'{text}"]


def test_numbers_stay_numbers_and_nothing_stays_empty() -> None:
    rows = [(-0.5, "-0.5", "+1.2", "-3e-5", -7, None, "", True, 1e22, "–", "-inf")]
    assert csv_text(rows) == "-0.5,-0.5,+1.2,-3e-5,-7,,,True,1e+22,–,-inf\n"


def test_ends_of_lines_are_quoted_and_controls_written_out() -> None:
    assert csv_text([("a\rb", "c\nd", "e\x1bf\ud800")]) == '"a\rb","c\nd",e\\x1bf\\ud800\n'
