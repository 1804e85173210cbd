"""Drawn tables through the three renderers: text, LaTeX and CSV say the same, lose nothing and keep their columns."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.tables.csv import table_csv, table_frame
from reports.tables.latex import FULL, LINES, WIDTH, document, table_latex
from reports.tables.latex_text import escape
from reports.tables.table import Cell, Column, Measured, Row, Table, words
from reports.tables.text import table_text

WORD = st.text("abcdefg", min_size=1, max_size=9)
CELL = st.one_of(
    st.builds(lambda value, bold: Cell("value", value, bold=bold), st.floats(0, 1), st.booleans()),
    st.builds(
        lambda values: Cell(
            "value",
            sum(values) / len(values),
            0.01,
            tuple(Measured(f"r{seed}", seed, one) for seed, one in enumerate(values)),
        ),
        st.lists(st.floats(0, 1), min_size=2, max_size=3),
    ),
    st.sampled_from([Cell("failed"), Cell("missing"), Cell("not applicable"), Cell("value", text="–")]),
)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """A table of a few lines and columns with or without headings over both."""
    heads = draw(st.lists(st.sampled_from(["", "", "Retrieval", "Zero-shot classification"]), min_size=1, max_size=7))
    units = draw(st.lists(st.sampled_from(["percent", "count", "ratio"]), min_size=len(heads), max_size=len(heads)))
    shown = tuple(
        Column(f"c{place}", f"{draw(WORD)}{place}", head, unit, draw(st.sampled_from([True, False, None])))
        for place, (head, unit) in enumerate(zip(heads, units, strict=True))
    )
    lines = tuple(
        Row(f"{draw(WORD)} {place}", tuple(draw(CELL) for _ in shown), draw(st.sampled_from(["", "40 %"])), f"m{place}")
        for place in range(draw(st.integers(1, 6)))
    )
    return Table("drawn", "Title", shown, lines, "What it shows.", ("A note.",), full=3, notes={"†": "over budget"})


def body(text: str) -> list[str]:
    """Lines of the blocks, without title and notes."""
    lines = text.splitlines()
    return lines[lines.index("") + 1 : len(lines) - 1 - lines[::-1].index("")]


@settings(max_examples=60, deadline=None)
@given(tables())
def test_text_shows_every_cell_in_the_line_of_its_row(table: Table) -> None:
    text = table_text(table)
    lines = body(text)
    for row in table.rows:
        (own,) = [line for line in lines if line.startswith(row.label)]
        shown = own.removeprefix(row.label).split()
        expected = [" ".join(words(cell, column, 3)) for cell, column in zip(row.cells, table.columns, strict=True)]
        assert shown == " ".join(expected).split()
    heads = [line for line in lines if any(column.label in line for column in table.columns)]
    assert [column.label for column in table.columns] == [name for line in heads for name in line.split()]


def test_text_says_its_title_description_marks_and_notes_wrapped() -> None:
    table = Table("t", "Title", (Column("a", "A"),), (Row("x", (Cell("value", 0.5),)),), "word " * 30, ("note " * 30,))
    lines = table_text(table, 40).splitlines()
    assert lines[0] == "Title"
    assert max(map(len, lines)) <= 40
    first, *more = [line for line in lines if "note" in line]
    assert first.startswith("- note")
    assert all(line.startswith("  note") for line in more)
    assert sum(line.count("note") for line in lines) == 30


def tabulars(text: str) -> list[list[list[str]]]:
    """Blocks of lines of cells, headings and rules left out."""
    blocks = re.findall(r"\\toprule\n(.*?)\\bottomrule", text, re.S)
    return [
        [line.removesuffix(r" \\").split(" & ") for line in block.splitlines() if " & " in line] for block in blocks
    ]


@settings(max_examples=60, deadline=None)
@given(tables())
def test_latex_has_every_cell_once_under_its_column(table: Table) -> None:
    text = table_latex(table)
    widths = [line.count("r") for line in re.findall(r"\\begin\{tabular\}\{l(r*)\}", text)]
    blocks = tabulars(text)
    assert [len(line) - 1 for block in blocks for line in block if r"\multicolumn" not in line[-1]] == [
        width for width, block in zip(widths, blocks, strict=True) for line in block if r"\multicolumn" not in line[-1]
    ]
    seen: Counter[tuple[str, str]] = Counter()
    for block in blocks:
        head = next(line for line in block if r"\multicolumn" not in line[-1])
        for label, *cells in (line for line in block if line is not head and r"\multicolumn" not in line[-1]):
            for name, cell in zip(head[1:], cells, strict=True):
                seen[label, re.sub(r" \$.*", "", name)] += 1
                (row,) = [row for row in table.rows if row.label == label]
                place = [column.label for column in table.columns].index(re.sub(r" \$.*", "", name))
                number = words(row.cells[place], table.columns[place], 3)[0]
                assert escape(number) in cell
                assert (r"\textbf" in cell) == row.cells[place].bold
                assert (r"\emph" in cell) == (row.cells[place].state != "value")
    assert seen == Counter((row.label, column.label) for row in table.rows for column in table.columns)


@settings(max_examples=60, deadline=None)
@given(tables())
def test_latex_rules_cover_their_headings_and_arrows_say_the_better_way(table: Table) -> None:
    text = table_latex(table)
    for heading, rules in re.findall(r"(&.*\\multicolumn\{\d+\}\{c\}.*)\n(.*)", text):
        start, expected = 2, []
        for count, name in re.findall(r"\\multicolumn\{(\d+)\}\{c\}\{([^}]*)\}", heading):
            expected += [(str(start), str(start + int(count) - 1))] if name else []
            start += int(count)
        assert re.findall(r"\\cmidrule\(lr\)\{(\d+)-(\d+)\}", rules) == expected
    assert text.count(r"$\uparrow$") == sum(column.higher_is_better is True for column in table.columns)
    assert text.count(r"$\downarrow$") == sum(column.higher_is_better is False for column in table.columns)
    assert ("Scores in percent" in text) == any(column.unit == "percent" for column in table.columns)


def long(groups: int, lines: int) -> Table:
    shown = tuple(Column(f"c{place}", f"col{place}") for place in range(3))
    rows = tuple(
        Row(f"row{group}.{line}", tuple(Cell("value", 0.5) for _ in shown), f"group{group}")
        for group in range(groups)
        for line in range(lines)
    )
    return Table("long", "Long", shown, rows, footnotes=("The note.",))


@pytest.mark.parametrize(("groups", "lines"), [(1, 5), (4, 9), (5, 12), (12, 10), (3, 38)])
def test_latex_parts_fit_a_page_and_count_as_one_table(groups: int, lines: int) -> None:
    table = long(groups, lines)
    parts = table_latex(table).split(r"\end{table}")[:-1]
    for part in parts:
        rows, heads = len(re.findall(r"^row", part, re.M)), len(re.findall(r"\\emph\{group", part))
        assert rows + heads + 4 <= LINES
        assert (rows, rows % lines) == (heads * lines, 0)  # no group is torn
    fitting = (LINES - 4) // (lines + 1)
    assert len(parts) == -(-groups // fitting)
    assert [r"\addtocounter{table}{-1}" in part for part in parts] == [False] + [True] * (len(parts) - 1)
    assert [r"\label{tab:long}" in part for part in parts] == [True] + [False] * (len(parts) - 1)
    assert ["The note." in part for part in parts] == [False] * (len(parts) - 1) + [True]


def test_latex_breaks_a_wide_table_into_blocks_that_can_be_read() -> None:
    columns = tuple(Column(f"c{place}", "x" * 12, f"head{place // 2}") for place in range(30))
    table = Table("wide", "Wide", columns, (Row("row", tuple(Cell("value", 0.5) for _ in columns)),))
    blocks = tabulars(table_latex(table))
    assert len(blocks) == -(-30 * 14 // WIDTH)  # headings are narrower than their columns; 14 letters each
    counts = [len(block[-1]) - 1 for block in blocks]
    assert sum(counts) == 30
    assert max(counts) - min(counts) <= 2
    assert all(count % 2 == 0 for count in counts)  # both columns of a heading stay together
    assert FULL < WIDTH


def test_latex_breaks_columns_under_one_heading_where_they_alone_are_too_wide() -> None:
    columns = tuple(Column(f"c{place}", f"m {place}", "all") for place in range(36))
    table = Table("pairs", "Pairs", columns, (Row("row", tuple(Cell("value", 0.5) for _ in columns)),))
    blocks = tabulars(table_latex(table))
    room = WIDTH - len("row")
    assert len(blocks) == -(-36 * len("  50.00") // room)
    assert max(len(block[-1]) for block in blocks) * 7 <= room
    assert [len(block[0]) for block in blocks] == [2] * len(blocks), "the heading stands over each block"


@pytest.mark.parametrize(("options", "pages"), [("", 120), ("[twocolumn]", 60)])
def test_pdflatex_prints_more_tables_than_it_holds_by_itself(
    pdflatex: Callable[[str], str], options: str, pages: int
) -> None:
    text = document([table_latex(long(120, 38))]).replace(r"\documentclass", rf"\documentclass{options}")
    assert f"({pages} pages" in pdflatex(text)


@settings(deadline=None)
@given(st.text(r"\_%&#${}[]~^<>±×→†‡§–abc 1", max_size=30))
def test_escaped_text_has_no_bare_special_character(text: str) -> None:
    bare = re.sub(r"\$[^$]*\$|\\[a-zA-Z]+\{\}|\\[_%&#${}]|\{\[\}", "", escape(text))
    assert not set(bare) & set(r"\_%&#${}[~^<>±×→†‡§–")
    assert escape("".join(sorted(text))) == "".join(escape(one) for one in sorted(text))


def test_a_document_holds_its_bodies_in_order() -> None:
    text = document(["first", "second"])
    assert text.startswith(r"\documentclass")
    assert text.index(r"\begin{document}") < text.index("first") < text.index("second") < text.index(r"\end{document}")
    assert {"booktabs", "graphicx"} <= set(re.findall(r"\w+", text))


@settings(max_examples=40, deadline=None)
@given(tables())
def test_csv_has_a_line_a_row_and_the_numbers_unrounded(table: Table) -> None:
    lines = list(csv.DictReader(io.StringIO(table_csv(table))))
    assert [(line["row"], line["noise"], line["method"]) for line in lines] == [
        (row.label, row.group, row.method) for row in table.rows
    ]
    for line, row in zip(lines, table.rows, strict=True):
        for cell, column in zip(row.cells, table.columns, strict=True):
            name = " ".join(filter(None, (column.group, column.label)))
            if cell.state != "value":
                assert line[name] == cell.state
            elif cell.value is not None:
                assert float(line[name]) == cell.value
            assert line[f"{name} bold"] == ("bold" if cell.bold else "")
            assert line[f"{name} n"] == str(cell.n or "")
        runs = [run for cell in row.cells for run in cell.runs]
        assert sorted(line["runs"].split()) == sorted(set(runs))


def test_a_frame_says_the_budget_and_what_was_not_verified() -> None:
    columns = (Column("a", "A"), Column("b", "B"))
    rows = (
        Row("x", (Cell("value", 0.5, over_budget=True), Cell("value", 0.25)), "n", "m", fidelity="reconstructed"),
        Row("y", (Cell("failed"), Cell("value", 2.0, also={"ties": 3})), "n", "m", fidelity="derived"),
    )
    frame = table_frame(Table("t", "T", columns, rows))
    assert list(frame["over budget"]) == ["yes", ""]
    assert list(frame["fidelity"]) == ["reconstructed (not verified)", "derived"]
    assert list(frame["A"]) == [0.5, "failed"]
    assert frame["B ties"].tolist()[1] == 3


def test_a_papers_table_names_groups_sources_and_differences() -> None:
    columns = (Column("r1 paper", "paper", unit="printed"), Column("r1 ours", "ours", unit="printed"))
    cells = (Cell("value", 71.2, std=0.3, source="ncu, Table 1"), Cell("value", 70.0, difference=-1.2))
    frame = table_frame(Table("t", "T", columns, (Row("CLIP", cells, "40 %"),)))
    line = frame.to_dict("records")[0]
    assert (line["group"], line["r1 paper"], line["r1 paper std"], line["r1 paper source"]) == (
        "40 %", 71.2, 0.3, "ncu, Table 1",
    )  # fmt: skip
    assert (line["r1 ours"], line["r1 ours difference"]) == (70.0, -1.2)
    assert "noise" not in line
    assert "r1 paper difference" not in line
