"""CSV, LaTeX, page and figures from the same tables."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.text import Text
from typer.testing import CliRunner

from bench.cli import app
from bench.errors import UserError
from bench.store import Record, Store
from reports.build import all_tables, build, table_files
from reports.figures.chosen import BEST, OTHER, chosen_of
from reports.figures.figure_registry import FIGURES, draw_all
from reports.figures.figure_style import PAPER, look, room_for_names, spread
from reports.figures.pictures import COLOURS, LINES, Picture, style_of
from reports.figures.radar import radar
from reports.figures.training_curves import course
from reports.headlines import primary
from reports.pages.html import page
from reports.pages.sections import paper_link, provenance, run_numbers
from reports.results import Key, Results, load
from reports.tables.csv import RECORD_COLUMNS, records_csv, table_csv
from reports.tables.footnotes import context
from reports.tables.latex import cite_key, document, for_a_paper, table_latex
from reports.tables.latex_text import escape
from reports.tables.suite_tables import tables
from reports.tables.table import Cell, Column, Row, Table, Unit, in_one_scale, unverified, words

from . import stores

SUITE = "emoji_noisy"


def pictures(results: Results, widths: Sequence[str] = ()) -> list[Picture]:
    """The figures of scores that there are numbers for."""
    drawn = draw_all(results, {}, FIGURES, widths)
    return [picture for picture in drawn.values() if picture]


def test_records_are_tidy_and_whole(three: Store) -> None:
    results = load(SUITE, three)
    lines = list(csv.DictReader(io.StringIO(records_csv(results))))
    assert tuple(lines[0]) == RECORD_COLUMNS
    assert len(lines) == sum(len(run.records) for run in results.runs)
    records = {
        (r.run, r.at, r.dataset, r.task, r.metric, r.score): r for run in results.runs for r in run.records.values()
    }
    for line in lines[::97]:
        record = records[line["run"], float(line["at"]), line["dataset"], line["task"], line["metric"], line["score"]]
        assert float(line["value"]) == record.value
        assert int(line["n"]) == record.n
        assert line["checkpoint"] == record.checkpoint
    assert {line["noise_rate"] for line in lines} == {"0.0", "0.4"}


def test_a_tables_csv_has_values_words_and_run_ids(troubled: Store) -> None:
    results = load(SUITE, troubled)
    (table,) = [table for table in tables(results) if table.name == "zero_shot"]
    lines = list(csv.DictReader(io.StringIO(table_csv(table))))
    assert len(lines) == len(table.rows)
    assert len(set(lines[0])) == len(lines[0])
    line = next(line for line in lines if line["row"] == "clip" and line["noise"].startswith("40"))
    assert float(line["emoji/iid concept top-1"]) == pytest.approx(table.rows[lines.index(line)].cells[0].value)
    assert line["runs"].split() == [run.run for run in results.of("clip", "40 % shuffled captions")]
    failed = next(line for line in lines if line["row"] == "ncu" and line["noise"].startswith("40"))
    assert failed["emoji/iid concept top-1"] == "failed"
    assert failed["emoji/iid concept top-1 n"] == ""


def test_latex_escapes_and_keeps_zeros() -> None:
    assert escape("a_b & 5 % #1 {x} $") == r"a\_b \& 5 \% \#1 \{x\} \$"
    assert escape("I→T ± † –") == r"I$\rightarrow$T $\pm$ $^\dagger$ --"
    assert escape("back\\slash~^") == r"back\textbackslash{}slash\textasciitilde{}\textasciicircum{}"


@pytest.fixture(scope="module")
def latex(troubled: Store) -> list[str]:
    return [table_latex(table) for table in tables(load(SUITE, troubled))]


def test_latex_rows_have_as_many_cells_as_columns(latex: list[str]) -> None:
    for text in latex:
        width = len(re.search(r"\\begin\{tabular\}\{(l?r+)\}", text)[1])
        body = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
        for line in body.splitlines():
            if line.endswith(r"\\"):
                spans = sum(int(count) - 1 for count in re.findall(r"\\multicolumn\{(\d+)\}", line))
                assert len(re.findall(r"(?<!\\)&", line)) + 1 + spans == width
        assert not re.search(r"(?<!\\)[%#]", text.replace("{!}{%", ""))
        assert text.count(r"\begin") == text.count(r"\end{")


def test_latex_says_states_bold_and_zeros(latex: list[str]) -> None:
    zero_shot, probe = latex[4], latex[6]
    assert r"\emph{failed}" in zero_shot
    assert r"\textbf{" in zero_shot
    assert r"permutation\_0.1" in zero_shot
    assert r"\emph{40 \% shuffled captions}" in zero_shot
    assert re.search(r"& 10\.0 ", probe)  # a trailing zero stays


@pytest.mark.parametrize("options", ["", "[twocolumn]"])
def test_latex_compiles(pdflatex: Callable[[str], str], tmp_path: Path, latex: list[str], options: str) -> None:
    text = document(latex).replace(r"\documentclass{", rf"\documentclass{options}{{")
    assert f"{options}{{article}}" in text
    assert "Overfull" not in pdflatex(text)
    assert (tmp_path / "all.pdf").stat().st_size > 10_000


class Outline(HTMLParser):
    """Checks that tags close in order; collects ids, links and cells."""

    VOID = frozenset({"meta", "link", "img", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []
        self.cells: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        assert tag != "th" or "scope" in found
        if tag not in self.VOID:
            self.open.append(tag)
        if found.get("id"):
            self.ids.append(str(found["id"]))
        if tag == "a":
            self.links.append(str(found["href"]))
        if found.get("src"):
            self.sources.append(str(found["src"]))
        if tag == "td" and "data-m" in found:
            self.cells.append(found)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def text(troubled: Store) -> str:
    results = load(SUITE, troubled)
    return page(results, tables(results), draw_all(results, {}, FIGURES))


@pytest.fixture(scope="module")
def outline(text: str) -> Outline:
    found = Outline()
    found.feed(text)
    found.close()
    return found


def test_the_page_is_well_formed_and_its_links_lead_somewhere(outline: Outline) -> None:
    assert outline.open == []
    assert max(Counter(outline.ids).values()) == 1
    assert {link[1:] for link in outline.links if not link.startswith("https://")} <= set(outline.ids)


def test_the_page_needs_no_network(text: str, outline: Outline) -> None:
    assert all(source.startswith("data:") for source in outline.sources)
    assert len(outline.sources) == 6
    loaded = re.sub(r'<a href="https://(arxiv.org/abs|scholar.google.com)/[^"]*">', "", text)  # a click leaves the page
    assert not re.search(r"https?://|@import|url\(", loaded)
    assert 'name="viewport"' in text


def test_every_number_leads_to_its_runs(outline: Outline, troubled: Store) -> None:
    results = load(SUITE, troubled)
    cells = [cell for table in tables(results) for row in table.rows if row.method for cell in row.cells]
    ids = {number: run for run, number in run_numbers(results).items()}
    assert len(outline.cells) == len(cells)
    for shown, cell in zip(outline.cells, cells, strict=True):
        number, examples, behind = -1, 0, []
        for entry in str(shown["data-m"]).split(";"):
            own, *rest = entry.split("|")
            number = int(own) if own else number + 1
            examples = int(rest[3]) if rest[3:] else examples
            behind.append((ids[number], rest[0] if rest else "", len(rest) > 1 and rest[1] != "", examples))
        assert Counter(run for run, *_ in behind) == Counter(cell.runs)
        states = dict(cell.lacking)
        assert {run: value for run, value, *_ in behind if run in states} == states
        measured = {run: (intervals, n) for run, _, intervals, n in behind if run not in (*states, *cell.sources)}
        assert measured == {part.run: (part.low is not None, part.n) for part in cell.measured}


_CLICK = """
const said = {};
const links = [...document.querySelectorAll("#overview td[data-m] a")];
said.reached = links.every(link => link.tabIndex === 0);  // by the keyboard, whose Enter is a click
links[0].click();
said.open = document.querySelector("dialog").open;
said.title = document.querySelector("dialog h3").textContent;
said.lines = [...document.querySelectorAll("dialog tr")].map(row => [...row.cells].map(cell => cell.textContent));
const named = link => document.querySelector(link.hash).cells[0].textContent;
said.rows = [...document.querySelectorAll("dialog a")].map(named);
said.requests = performance.getEntriesByType("resource").map(one => one.name);
return said;
"""


def test_a_click_on_a_number_shows_its_runs(text: str, troubled: Store, tab: Any) -> None:
    tab.open(text)
    said = tab.run(_CLICK)
    results = load(SUITE, troubled)
    table = tables(results)[0]
    row, column = table.rows[0], table.columns[0]
    cell = row.cells[0]
    assert said["reached"]
    assert said["open"]
    assert said["title"] == f"{results.titled(row)} · {row.group} · {column.group} · {column.label}"
    heads, *lines = said["lines"]
    assert heads == ["seed", "value", "run", "95 % over examples", "examples"]
    assert len(lines) == len(cell.measured) > 1
    for line, part in zip(lines, cell.measured, strict=True):
        assert line[:3] == [str(part.seed), f"{100 * part.value:.1f}", part.run[:16]]
        assert line[3:] == ["" if part.low is None else f"{100 * part.low:.1f} to {100 * part.high:.1f}", str(part.n)]
    assert said["rows"] == [results.titled(row)] * len(lines)
    assert said["requests"] == []


def test_the_page_escapes_what_others_wrote(text: str) -> None:
    assert "&amp; pushes others &lt;away&gt;" in text
    assert "<away>" not in text


def test_the_page_explains_itself(text: str) -> None:
    for part in ("n = 3", "uniformly random guess", "NotFinite at step 312 (forget)", "derived"):
        assert part in text
    assert text.index("3 failed") < text.index('id="answer"')


def test_the_head_says_when_by_what_and_where_and_methods_lead_to_their_papers(text: str, troubled: Store) -> None:
    results = load(SUITE, troubled)
    last = max(run.status["updated"] for run in results.runs if run.environment)
    assert provenance(results) == f"last run {datetime.fromtimestamp(last, UTC):%Y-%m-%d} · a CPU, 2 cores"
    assert provenance(results) in text[: text.index("<nav>")]
    packages = {"packages": {"robust-cl-bench": "0.2.0"}, "hardware": {"device": "another"}}
    first, *others = results.runs
    mixed = Results(results.plan, (replace(first, environment=packages), *others))
    assert provenance(mixed).endswith(" · bench 0.2.0 · a CPU, 2 cores and others")
    assert provenance(Results(results.plan, ())) == ""
    entry = "@article{x,\n  title = {Two {Words}\n    more},\n  author = {A}\n}"
    assert paper_link(entry) == "https://scholar.google.com/scholar?q=Two%20Words%20more"
    assert paper_link(entry.replace("author = {A}", "eprint = {2410.01944}")) == "https://arxiv.org/abs/2410.01944"
    assert paper_link(entry.replace("{A}", "{Anonymous}")) == paper_link("") == ""


def test_with_one_seed_the_page_says_what_that_means(one: Store) -> None:
    results = load(SUITE, one)
    assert "small gaps between methods are not evidence" in page(results, tables(results))


def test_figures_are_files_of_their_kind_and_the_same_each_time(three: Store) -> None:
    results = load(SUITE, three)
    first, again = pictures(results, ["page"]), pictures(results, ["page"])
    assert [picture.name for picture in first] == ["answer", "differences", "kept", "radar", "noise", "cost"]
    for one, two in zip(first, again, strict=True):
        assert one.png.startswith(b"\x89PNG")
        assert one.pdf["page"].startswith(b"%PDF")
        assert one.png == two.png
        assert one.pdf == two.pdf


def test_figures_without_their_numbers_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    methods = stores.METHODS[:2]
    store = stores.write_store(tmp_path, methods=methods, rates=(0.4,), seeds=(0,), curve=())
    assert [picture.name for picture in pictures(load(SUITE, store))] == ["radar"], "all spent the same"
    unequal = {"methods": methods, "rates": (0.4,), "seeds": (0,), "curve": (), "over_budget": (methods[1][0],)}
    monkeypatch.setattr("reports.figures.scores.SAME", 1.0)
    dear = stores.write_store(tmp_path / "d", **unequal)
    assert [picture.name for picture in pictures(load(SUITE, dear))] == ["radar", "cost"]
    states = {(label, 0.4, 0): "missing" for label, *_ in methods}
    empty = stores.write_store(tmp_path / "e", methods=methods, rates=(0.4,), seeds=(0,), states=states)
    assert pictures(load(SUITE, empty)) == []


def test_methods_look_different_in_figures(three: Store) -> None:
    results = load(SUITE, three)
    styles = [style_of(results, method) for method in results.methods]
    assert len({(style["color"], style["dashes"]) for style in styles}) == len(styles)
    assert len(set(COLOURS)) * len(LINES) >= 30


def test_costs_of_a_column_have_one_scale() -> None:
    def table(unit: Unit, *values: float | None) -> Table:
        rows = tuple(Row(f"{value}", (Cell("value", value),)) for value in values)
        return in_one_scale(Table("t", "T", (Column("c", "c", unit=unit),), rows))

    def printed(table: Table) -> list[str]:
        return [words(row.cells[0], table.columns[0])[0] for row in table.rows]

    assert printed(table("seconds", 58.1, 61.8, None)) == ["58.1 s", "61.8 s", ""]
    assert printed(table("flops", 998e9, 1.0004e12, 0.0)) == ["998 G", "1000 G", "0.00 G"]
    assert printed(table("seconds", 600.0, 7200.0)) == ["10.0 min", "120 min"]
    assert printed(table("percent", 0.5)) == ["50.0"]


def test_every_colour_is_seen_on_white() -> None:
    """Contrast of graphics by WCAG 2.1, 1.4.11: at least 3 : 1."""
    for colour in COLOURS:
        shares = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
        linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
        assert 1.05 / (linear @ (0.2126, 0.7152, 0.0722) + 0.05) >= 3, colour


def test_figures_embed_fonts_that_print_shops_take(three: Store) -> None:
    for picture in pictures(load(SUITE, three), list(PAPER)):
        for pdf in picture.pdf.values():
            assert b"/Type3" not in pdf
            assert b"/TrueType" in pdf or b"/CIDFontType2" in pdf


def figures_of(results: Results) -> dict[str, Figure]:
    return {picture.name: picture.figure for picture in pictures(results) if picture.figure is not None}


def test_no_word_of_a_figure_is_cut_off(three: Store) -> None:
    sheets = figures_of(load(SUITE, three))
    assert set(sheets) == {"answer", "differences", "kept", "radar", "noise", "cost"}
    for figure in sheets.values():
        canvas = FigureCanvasAgg(figure)
        canvas.draw()  # for the last time it was drawn with other pixels an inch
        beside = {tick for axes in figure.axes for tick in (*axes.get_xticklabels(), *axes.get_yticklabels())}
        for text in set(figure.findobj(Text)) - beside:  # the last tick may lie beyond the axis, where it is not drawn
            if text.get_text().strip():
                box = text.get_window_extent(canvas.get_renderer())
                assert 0 <= box.x0 < box.x1 <= figure.bbox.x1, text
                assert 0 <= box.y0 < box.y1 <= figure.bbox.y1, text
    assert any("subgroup linear probe" in text.get_text() for text in sheets["radar"].findobj(Text))


def test_both_line_figures_show_means_and_look_alike(three: Store) -> None:
    before = dict(matplotlib.rcParams)
    sheets = figures_of(load(SUITE, three))
    assert dict(matplotlib.rcParams) == before
    results = load(SUITE, three)
    (table,) = [table for table in tables(results) if table.name == "zero_shot"]
    for place, noise in enumerate(results.noises):
        for method in results.methods:
            (row, *_) = [row for row in table.rows if row.method == method and row.group == noise]
            style = style_of(results, method)
            for name, panel, point in (("noise", 0, place), ("cost", place, -1)):
                axes = sheets[name].axes[panel]
                lines = [line for line in axes.lines if line.get_marker() == style["marker"]]
                (line,) = [line for line in lines if line.get_color() == style["color"]]
                assert line.get_ydata()[point] == pytest.approx(100 * row.cells[0].value)
    bars = [bar for bar in sheets["noise"].axes[0].collections if isinstance(bar, LineCollection)]
    (row, *_) = [row for row in table.rows if row.method == "clip"]
    low, high = bars[0].get_segments()[0][:, 1]
    assert (high - low) / 2 == pytest.approx(100 * row.cells[0].std)


def test_the_figure_of_costs_is_of_the_primary_metric(three: Store) -> None:
    """Also where it was measured at the end of the runs alone, as retrieval is here."""
    results = load(SUITE, three)
    number = {"dataset": "emoji/iid", "task": "retrieval", "metric": "mean_recall"}
    other = Results({**results.plan, "primary": number}, results.runs)
    for shown, label, points in ((results, "emoji/iid concept top-1, %", 4), (other, "emoji/iid mean recall, %", 1)):
        sheets = figures_of(shown)
        for name in ("noise", "cost"):
            assert sheets[name].axes[0].get_ylabel() == label
        assert {len(line.get_ydata()) for line in sheets["cost"].axes[0].lines} == {points}
        (caption,) = [picture.caption for picture in pictures(shown) if picture.name == "cost"]
        assert caption.startswith(f"{label} of the weights along")


def _forgotten(records: Mapping[Key, Record], named: tuple[str, str, str]) -> dict[Key, Record]:
    """The records with 0 in place of this number."""
    return {key: replace(one, value=0.0) if key[1:4] == named else one for key, one in records.items()}


def test_curves_along_the_runs_are_means_over_seeds_against_epochs(three: Store) -> None:
    """Memorisation beside a score on clean test pairs; a row that chooses among the weights of a run adds nothing."""
    plain = load(SUITE, three)
    learned = ("emoji/train", "memorisation", "memorised")
    runs = []
    for run in plain.runs:
        about = dict(zip(("dataset", "task", "metric"), learned, strict=True))
        scores = {at: one for (at, *named, _), one in run.records.items() if tuple(named) == primary(plain)}
        more = {(at, *learned, ""): replace(one, **about, score="", value=one.value / 2) for at, one in scores.items()}
        runs.append(replace(run, records={**run.records, **more}, measured={**run.measured, **more}))
    chosen = [
        replace(
            run, select="noisy_validation", measured={key: replace(one, value=1.0) for key, one in run.measured.items()}
        )
        for run in runs
        if run.method == "siglip"
    ]
    evaluate = {**plain.plan["settings"]["evaluate"], "along": ["zero_shot", "memorisation"]}
    plan = {**plain.plan, "settings": {**plain.plan["settings"], "evaluate": evaluate}}
    results = Results(plan, (*runs, *chosen))
    flat = Results(plan, tuple(replace(run, measured=_forgotten(run.measured, learned)) for run in results.runs))
    with look():
        picture, without = course(results), course(flat)
    assert len(without.figure.axes) == len(picture.figure.axes) - len(results.noises), "a line at 0 is a sentence"
    noises = sorted(f"memorised ({noise})" for noise in results.noises)
    assert without.caption.endswith(f" 0 for every method at every point, so not drawn: {', '.join(noises)}.")
    for title, (dataset, task, metric) in (("emoji/iid concept top-1, %", primary(plain)), ("memorised, %", learned)):
        panels = [panel for panel in picture.figure.axes if panel.get_ylabel().replace("\n", " ").endswith(title)]
        assert [panel.get_title() for panel in panels] == list(results.noises)
        for panel, noise in zip(panels, results.noises, strict=True):
            assert panel.get_xlabel() == "epochs"
            assert len(panel.lines) == len(results.methods)
            for label, line in zip(results.methods, panel.lines, strict=True):
                score = results.methods[label]["score"] if task != "memorisation" else ""
                own = [run.measured for run in runs if (run.method, run.noise) == (label, noise)]
                values = [[one[at, dataset, task, metric, score].value for one in own] for at in (0.25, 0.5, 0.75, 1.0)]
                assert line.get_xdata() == pytest.approx([5, 10, 15, 20])
                assert line.get_ydata() == pytest.approx(100 * np.mean(values, axis=1))
    in_flops = Results({**plan, "budget": {**plan["budget"], "kind": "flops"}}, results.runs)
    unknown = [cell for cell in plan["cells"] if cell["method"] != "clip"]
    for shown, end, unit in (
        (in_flops, 600 / 35, "budget, epochs of CLIP"),  # steps of the baseline, and of a pass over 4,500 rows
        (Results({**in_flops.plan, "cells": unknown}, runs), 100, "% of the budget"),
    ):
        with look():
            panel = course(shown).figure.axes[0]
        assert panel.get_xlabel() == unit
        assert [line.get_xdata()[-1] for line in panel.lines] == pytest.approx([end] * len(panel.lines))


def of_23_methods(table: Table) -> Table:
    """The same table with its lines repeated under other names, 23 under each noise."""
    groups = [[row for row in rows if row.method] for name, rows in table.groups() if name]
    rows = [
        replace(own[place % len(own)], label=f"{own[place % len(own)].method} {place}")
        for own in groups
        for place in range(23)
    ]
    return replace(table, rows=tuple(rows))


def test_an_overview_of_23_methods_under_two_noises_takes_a_page_of_two_columns(
    three: Store, pdflatex: Callable[[str], str]
) -> None:
    results = load(SUITE, three)
    (table,) = [of_23_methods(table) for table in tables(results) if table.name == "overview"]
    text = for_a_paper(results, table)
    assert text.count(r" \\") == 2 * 23 + 4
    start = r"\documentclass[twocolumn]{article}\usepackage{booktabs,graphicx}\begin{document}"
    said = pdflatex(f"{start}\n{text}\\end{{document}}\n")
    assert "Output written on all.pdf (1 page" in said
    assert "Float too large" not in said


def test_the_latex_of_a_report_is_that_of_a_paper_and_its_document_has_the_references(tmp_path: Path) -> None:
    one = stores.write_store(tmp_path, methods=stores.METHODS[:3], seeds=(0,), curve=(), diagnostics=False)
    folder = build(SUITE, one).paths[0].parent / "tables"
    results = load(SUITE, one)
    for table in all_tables(results):
        text = (folder / f"{table.name}.tex").read_text()
        assert text == for_a_paper(results, table)
        assert not any(escape(note) in text for note in context(results))
    whole = (folder / "preview.tex").read_text()
    inputs = re.findall(r"\\input\{\w+\}(.*)", whole)
    assert set(inputs) == {r"\clearpage"}, "tables that wait for their page fill the memory of TeX"
    cited = {key for path in folder.glob("*.tex") for key in re.findall(r"\\cite\{([^}]*)\}", path.read_text())}
    assert cited == set(re.findall(r"\\bibitem\{([^}]*)\}", whole))
    assert r"\bibitem{clip} CLIP: " in whole


@pytest.mark.parametrize(
    ("bibtex", "key"),
    [
        ("@article{a_1:b, title={x}}", "a_1:b"),
        ("@article{}", ""),
        ("@article{a}b, x", ""),
        ("@misc{ü, x}", ""),
        (None, ""),
    ],
)
def test_a_key_that_latex_cannot_read_is_not_cited(bibtex: str | None, key: str) -> None:
    assert cite_key({"bibtex": bibtex}) == key


def test_a_wide_latex_table_is_broken_between_headings(three: Store) -> None:
    (table,) = [table for table in tables(load(SUITE, three)) if table.name == "retrieval"]
    text = table_latex(table)
    assert text.count(r"\begin{tabular}{lrrrrrrrrr}") == 2
    assert text.count(r"\begin{table*}") == text.count(r"\caption") == 1
    assert text.count("sogclr & ") == 2 * 2


def test_the_table_of_a_paper_is_narrow_and_has_the_best_or_the_rows_that_are_asked_for(three: Store) -> None:
    results = load(SUITE, three)
    (whole,) = [table for table in tables(results) if table.name == "overview"]
    bold = {(row.method, row.group): row.cells[0].bold for row in whole.rows}
    for asked in (1, ["siglip", "clip"]):
        text = table_files(results, [whole], asked)["tables/paper.tex"].decode()
        labels = chosen_of(results, 1) if asked == 1 else asked
        assert len(labels) == 2
        lines = [line for line in text.splitlines() if r"\cite" in line]
        assert [re.search(r"\\cite\{(.*?)\}", line)[1] for line in lines] == labels
        for label, line in zip(labels, lines, strict=True):
            shown = [r"\textbf" in part for part in line.split("&")[1:]]
            assert shown == [bold[label, noise] for noise in results.noises]
        assert r"\begin{table}[htbp]" in text, "one column of two is wide enough"
        assert text.startswith("% Needs")
        assert r"\maxdeadcycles=1000" in text.splitlines()[0]
    near = "; did you mean 'sogclr'"
    for asked, unknown, hint in (
        ("clip,sogclt", "sogclt", near),
        ('clip,"sogclr, a"', "sogclr, a", near),
        ("", "", ""),
    ):
        wrong = CliRunner().invoke(app, ["report", SUITE, "--results", str(three.root), "--methods", asked])
        assert f"'{unknown}' is not a row of the table overview{hint}" in str(wrong.exception)


def test_a_table_for_a_paper_has_titles_citations_and_slim_notes(three: Store, pdflatex: Callable[[str], str]) -> None:
    results = load(SUITE, three)
    (table,) = [table for table in tables(results) if table.name == "overview"]
    whole, few = for_a_paper(results, table), for_a_paper(results, table, ["clip", "prolip"])
    for label, entry in results.methods.items():
        titled = entry["title"] if label == entry["method"] else label
        assert rf"{escape(titled)}" in whole
        assert rf"~\cite{{{label}}}" in whole
        assert (rf"~\cite{{{label}}}" in few) == (label in ("clip", "prolip"))
    assert not any(escape(note) in text for note in table.footnotes for text in (whole, few))
    assert "Bold is among all 7 entries of the suite." in few
    assert "Bold is among" not in whole
    assert "chance & " in few
    for entry in results.plan["methods"]:
        assert entry["fidelity"] != "reconstructed" or r"$^\ddagger$ not verified" in whole
    with pytest.raises(UserError, match="'clib' is not a row of the table overview; did you mean 'clip'"):
        for_a_paper(results, table, ["clib"])
    pdflatex(document([few, whole]))


@pytest.mark.parametrize(("wanted", "gap", "found"), [
    ([0.1, 0.5, 0.9], 0.1, [0.1, 0.5, 0.9]),
    ([0.5, 0.5, 0.5], 0.1, [0.4, 0.5, 0.6]),
    ([0.0, 0.0, 1.0], 0.2, [0.0, 0.2, 1.0]),
    ([1.0, 1.0, 1.0], 0.25, [0.5, 0.75, 1.0]),
    ([], 0.1, []),
])  # fmt: skip
def test_names_are_spread_as_little_as_needed(wanted: list[float], gap: float, found: list[float]) -> None:
    assert spread(wanted, gap) == pytest.approx(found)


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Twenty methods under three noises."""
    kinds = stores.METHODS
    methods = [
        (f"{label}_{i}", title, quality + i / 50, score) for i in range(3) for label, title, quality, score in kinds
    ]
    store = stores.write_store(
        tmp_path_factory.mktemp("crowded"), methods=methods[:20], rates=(0.0, 0.2, 0.4), curve=(0.5,)
    )
    return load(SUITE, store)


def test_twenty_names_beside_lines_do_not_touch(crowded: Results) -> None:
    sheets = figures_of(crowded)
    for name in ("noise", "cost"):
        canvas = FigureCanvasAgg(sheets[name])
        for panel in sheets[name].axes:
            boxes = sorted((text.get_window_extent(canvas.get_renderer()).y0, text.get_text()) for text in panel.texts)
            assert {text for _, text in boxes} == set(map(crowded.named, crowded.methods))
            tops = [box.y1 for box in (text.get_window_extent(canvas.get_renderer()) for text in panel.texts)]
            gaps = [after - before for (before, _), (after, _) in pairwise(boxes)]
            assert min(gaps) >= 6.5 / 72 * sheets[name].dpi  # the size of the letters
            assert max(tops) <= sheets[name].bbox.y1
    assert room_for_names(["a" * 20]) > room_for_names(["a"])


def test_a_long_page_is_folded_and_a_link_opens_what_it_leads_to(crowded: Results, tab: Any) -> None:
    text = page(crowded, tables(crowded))
    tab.open(text)
    seen = "const seen = one => document.querySelector(one).checkVisibility();"
    assert tab.run(
        f"{seen} return ['overview', 'differences', 'shift', 'runs'].map(id => seen(`#${{id}} table`));"
    ) == [True, False, False, False]
    for place, shown in (("shift", "#shift table"), ("r50", "#r50")):
        opened = f"addEventListener('hashchange', () => done(seen('{shown}')), {{ once: true }});"
        assert tab.run(f"{seen} return new Promise(done => {{ {opened} location.hash = '{place}'; }});")
    tab.resize(390)
    tall = "return Math.max(...[...document.querySelectorAll('.scroll')].map(one => one.clientHeight));"
    assert tab.run(tall) <= 0.8 * 844, "heads of tables stay in sight on a phone as well"


def test_on_paper_wide_tables_are_smaller_and_not_cut(crowded: Results, tab: Any) -> None:
    tab.open(page(crowded, tables(crowded)))
    tab.resize(1047)
    widest = """
    for (const one of document.querySelectorAll("details")) one.open = true;
    const wide = one => one.getBoundingClientRect().width - one.parentElement.clientWidth;
    const cut = () => Math.max(...[...document.querySelectorAll(".scroll > table")].map(wide));
    const before = cut();
    dispatchEvent(new Event("beforeprint"));
    const on_paper = cut();
    dispatchEvent(new Event("afterprint"));
    return [before, on_paper, cut()];
    """
    before, on_paper, after = tab.run(widest)
    assert before == after > 100
    assert on_paper <= 1


def test_a_radar_draws_a_few_methods_and_any_that_are_asked_for(crowded: Results) -> None:
    """By default the baseline and the best; marks of tables stand in the legend."""
    chosen = chosen_of(crowded)
    (table,) = [table for table in tables(crowded) if table.name == "overview"]
    means = {
        label: sum(row.cells[0].value or 0 for row in table.rows if row.method == label) for label in crowded.methods
    }
    best = sorted((label for label in means if label != crowded.baseline), key=means.__getitem__, reverse=True)[:BEST]
    assert set(chosen) == {crowded.baseline, *best}
    for asked, drawn in (((), chosen), (("bayes_1", "sogclr_0"), ["bayes_1", "sogclr_0"])):
        picture = radar(crowded, asked)
        (legend,) = picture.figure.legends
        marks = {label: unverified(crowded.methods[label]["fidelity"]) for label in drawn}
        assert [text.get_text() for text in legend.get_texts()] == [label + marks[label] for label in drawn]
        colours = {line.get_color() for line in picture.figure.axes[0].lines}
        assert colours == {style_of(crowded, label)["color"] for label in drawn}
        assert ("methods=[...]) draws any" in picture.caption) == (not asked)
    with pytest.raises(UserError, match="'sogclr_9' is not a row of this report; did you mean 'sogclr_"):
        radar(crowded, ["sogclr_9"])


def test_tables_of_twenty_methods_fill_pages_and_lose_nothing(crowded: Results, pdflatex: Callable[[str], str]) -> None:
    texts = {table.name: table_latex(table) for table in tables(crowded)}
    overview = texts["overview"]
    assert overview.count(r"\begin{table*}") == overview.count(r"\caption") > 1
    assert overview.count(r"\label{") == 1
    assert overview.count(r"\addtocounter{table}{-1}") == overview.count(r"\begin{table*}") - 1
    assert overview.count("clip\\_0 & ") == 3  # three noises; headings are broken, so one block has all columns
    assert overview.count("chance & ") == 1
    said = pdflatex(document(list(texts.values())))
    assert "Overfull" not in said
    assert "Float too large" not in said


def test_of_more_rows_than_have_room_the_chosen_have_names_and_the_others_are_grey(tmp_path: Path) -> None:
    methods = [
        (f"{label}_{i}", title, quality + i / 50, score)
        for i in range(4)
        for label, title, quality, score in stores.METHODS
    ]
    store = stores.write_store(tmp_path, methods=methods[:26], rates=(0.0, 0.4), seeds=(0, 1), curve=(0.5,))
    results = load(SUITE, store)
    chosen = chosen_of(results)
    sheets = figures_of(results)
    captions = {picture.name: picture.caption for picture in pictures(results)}
    for name in ("noise", "cost"):
        for panel in sheets[name].axes:
            assert {text.get_text() for text in panel.texts} == set(map(results.named, chosen))
            colours = [line.get_color() for line in panel.lines if len(line.get_xdata()) > 1]
            assert colours.count(OTHER["color"]) == 26 - len(chosen)
            assert {style_of(results, label)["color"] for label in chosen} < set(colours)
        assert f"In grey: {26 - len(chosen)} methods that are neither clip_0 nor bounds" in captions[name]
    assert "In grey" not in captions["radar"]
