"""Text from outside is shown as text: a plan and records whose every string is hostile change no output's structure."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from html.parser import HTMLParser
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.patches import Patch
from matplotlib.text import Text

from bench.console.text import align_columns, storable, visible
from bench.store import Record, RunStore, Store
from reports.build import _files
from reports.compare import compare
from reports.figures.chosen import BEST
from reports.figures.diagnostics import _scale
from reports.figures.figure_style import LONGEST, SCREEN, Sheet, finish, look, named, plain
from reports.pages.html import _section
from reports.results import Results, load
from reports.status import status
from reports.tables.csv import table_csv
from reports.tables.latex import document, table_latex
from reports.tables.suite_tables import tables
from reports.tables.table import Cell, Column, Row, Table
from reports.tables.text import table_text

from . import stores

SUITE = "emoji_noisy"
HTML = "\"><img src=x onerror=alert(1)><script>alert(2)</script><a href='javascript:alert(3)'>&amp;<!--"
LATEX = "$\\frac{1}$ \\input{x} 100 % #1 _a^b~{ \n\n\\par 中 \u0416 é \u0331 *"
TERMINAL = "\x1b[2J\x1b]0;x\x07\u202eevil\u202c\u200b\rover\n| fake | row |\x00"
LONG = "_" + "word " * 1000
TEXTS = {"html": HTML, "latex": LATEX, "terminal": TERMINAL, "long": LONG}
ALL = HTML + LATEX + TERMINAL
Turn = Callable[[str], str]
TEXT = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("<>&\"'$\\%#_{}~^=+-@\x1b\n\u202e"), max_size=30
)
WORDS = {"state", "kind", "rule"}  #: fields of a plan that hold one of a few words, which its reader checks


def turned(value: Any, turn: Turn, key: str = "") -> Any:
    """JSON with every string in it turned, also names of data sets, hyper-parameters and packages."""
    if isinstance(value, str):
        return value if key in WORDS or not value else task(value, turn) if key == "task" else turn(value)
    if isinstance(value, list):
        return [turned(one, turn) for one in value]
    if isinstance(value, Mapping):
        name_of = NAMED.get(key, lambda name, _: name)
        return {name_of(name, turn): turned(one, turn, name) for name, one in value.items()}
    return value


def task(name: str, turn: Turn) -> str:
    """The detail of a task turned; its family says how it is measured and shown."""
    return turn(name) if "/" in name else name


def chance(name: str, turn: Turn) -> str:
    of_task, _, metric = name.rpartition("/")
    return f"{task(of_task, turn)}/{metric}"


def by_name(name: str, turn: Turn) -> str:
    return turn(name)


#: mappings of a plan or a run whose keys come from outside
NAMED = {"datasets": by_name, "config": by_name, "packages": by_name, "chance": chance}


def turned_record(record: Record, turn: Turn) -> Record:
    names = ("run", "dataset", "score", "checkpoint", "data")
    changed = {name: turn(getattr(record, name)) for name in names if getattr(record, name)}
    return replace(record, task=task(record.task, turn), **changed)


class Diagnosed:
    """A run's store whose diagnostics have other words."""

    def __init__(self, stored: RunStore, turn: Turn) -> None:
        self._stored, self._turn = stored, turn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stored, name)

    def diagnostics(self) -> list[dict[str, Any]]:
        entries = self._stored.diagnostics()
        for entry in entries:
            entry["series"] = {
                name if entry["name"].endswith("similarity") else self._turn(name): one
                for name, one in entry["series"].items()
            }
            entry |= {name: self._turn(entry[name]) for name in ("title", "axis")}
        return entries


def hostile(results: Results, turn: Turn) -> Results:
    """The same results with every string from outside turned; states and metrics keep their meaning."""
    runs = []
    for run in results.runs:
        records = [turned_record(record, turn) for record in run.records.values()]
        runs.append(
            replace(
                run,
                method=turn(run.method),
                noise=turn(run.noise),
                run=turn(run.run),
                manifest=turned(run.manifest, turn),
                status=turned(run.status, turn),
                records={(one.at, one.dataset, one.task, one.metric, one.score): one for one in records},
                environment=turned(run.environment, turn),
                reference=run.reference and turn(run.reference),
                stored=cast("RunStore", Diagnosed(run.stored, turn)),
            )
        )
    plan = turned(results.plan, turn)
    plan["primary"]["metric"], plan["protocol"] = results.plan["primary"]["metric"], results.plan["protocol"]
    return Results(plan, tuple(runs))


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Two methods under two noises, one of them failed."""
    chosen = [one for one in stores.METHODS if one[0] in ("clip", "sogclr")]
    store = stores.write_store(
        tmp_path_factory.mktemp("clean"),
        methods=chosen,
        seeds=(0, 1),
        curve=(0.5,),
        states={("sogclr", 0.4, 1): "failed"},
    )
    return load(SUITE, store)


class Seen(HTMLParser):
    """Elements with the names of their attributes, links and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.links += [str(value) for name, value in attrs if name in ("href", "src")]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def written(clean: Results, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return _files(clean, tmp_path_factory.mktemp("written"), ("page",), BEST)[0]


def test_a_hostile_plan_and_store_give_the_same_report_with_other_words(
    clean: Results, written: dict[str, bytes], tmp_path: Path
) -> None:
    turned_results = hostile(clean, lambda text: text + ALL)
    files = _files(turned_results, tmp_path, ("page",), BEST)[0]
    before, after = (Seen(one["report.html"].decode()) for one in (written, files))
    assert after.tags == before.tags
    papers = "https://scholar.google.com/scholar?q="  # what follows is quoted
    assert all(link.startswith(("#", "data:", papers)) for link in after.links)
    assert all(re.fullmatch(r"[\w%./~-]+", link.removeprefix(papers)) for link in after.links if papers in link)
    assert storable(f"clip{ALL}") in after.text
    assert all(re.fullmatch(r"(tables/|figures/)?[A-Za-z0-9_-]+\.[a-z]+", path) for path in files)
    kinds, same = (Counter(path.partition(".")[2] for path in one) for one in (files, written))
    assert kinds == same
    for path in files:
        if path.endswith(".tex"):
            check_latex(files[path].decode())
        if path.endswith(".csv"):
            cells = [cell for line in csv.reader(io.StringIO(files[path].decode(), newline="")) for cell in line]
            assert any(storable(ALL) in cell for cell in cells)


def test_families_that_we_do_not_know_name_no_file_by_themselves(clean: Results) -> None:
    strange = ("..", "cost", "a b\n", "zero_shot\x00", "run-x", "x" * 300, "fine_one")
    run = clean.runs[0]
    first = next(iter(run.records.values()))
    more = [replace(first, at=1.0, task=f"{name}/concept") for name in strange]
    records = {(one.at, one.dataset, one.task, one.metric, one.score): one for one in more}
    made = tables(Results(clean.plan, (replace(run, records={**run.records, **records}), *clean.runs[1:])))
    names = [table.name for table in made]
    assert len({name.lower() for name in names}) == len(names)
    assert all(re.fullmatch("[a-z0-9_-]{1,60}", name) for name in names)
    assert {"zero_shot", "cost"} <= set(names)
    unknown = [table for table in made if table.name.startswith("family-")]
    assert len(unknown) == len(strange)
    assert unknown[0].title == ".."


def test_what_is_printed_of_a_hostile_store_keeps_its_lines(clean: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    results = hostile(clean, lambda text: text + TERMINAL)
    monkeypatch.setattr("reports.compare.load", lambda *_: results)
    monkeypatch.setattr("reports.status.load", lambda *_: results)
    store = Store("unused")
    own = compare(SUITE, store, f"sogclr{TERMINAL}", f"clip{TERMINAL}").text().split("\n")
    monkeypatch.setattr("reports.compare.load", lambda *_: clean)
    same = compare(SUITE, store, "sogclr", "clip").text().split("\n")
    assert [line.replace(visible(TERMINAL), "").split() for line in own] == [line.split() for line in same]
    assert all(line.isprintable() for line in align_columns(status(SUITE, store)))
    for table in tables(results):
        assert all(line.isprintable() for line in table_text(table).split("\n"))
        assert len(table_text(table).split("\n")) < 400


def check_latex(text: str) -> None:
    """Only characters that pdflatex prints, no empty line within an argument, and groups that close."""
    assert all(one.isascii() or one in "“”‘’—…ßæÆœŒøØłŁı" for one in text)
    assert not re.search(r"\n\s*\n", text)
    bare = re.sub(r"\\[\\{}%&#$_]", "", text)
    depths = list(accumulate((one == "{") - (one == "}") for one in bare))
    assert min(depths) == depths[-1] == 0
    assert bare.count("$") % 2 == 0


def tables_of(text: str) -> Table:
    """A small table with this text at every place where one can stand."""
    column, row = Column("c", text, text, description=text), Row(text, (Cell("value", text=text),), text)
    return Table(
        "drawn", text, (column, replace(column, name="d")), (replace(row, cells=row.cells * 2),), text, (text,)
    )


@settings(deadline=None, max_examples=100)
@given(TEXT)
def test_any_text_is_a_table_in_latex(text: str) -> None:
    latex = table_latex(tables_of(text))
    check_latex(latex)
    body = latex[latex.index(r"\toprule") : latex.index(r"\bottomrule")].splitlines()
    assert sum(line.endswith(r" \\") for line in body) == 4 if text else 2
    assert [len(re.findall(r"(?<!\\)&", line)) for line in body if line.endswith(r" \\")][-1] == 2


@pytest.mark.parametrize("name", TEXTS)
def test_hostile_latex_compiles(pdflatex: Callable[[str], str], name: str) -> None:
    pdflatex(document([table_latex(tables_of(TEXTS[name]))]))


@settings(deadline=None, max_examples=100)
@given(TEXT)
def test_any_text_is_a_table_in_html_and_comes_back_from_csv(text: str) -> None:
    table = tables_of(text)
    nothing = Results({"noises": [], "methods": []}, ())
    seen, plain_one = (Seen(_section(nothing, one, {})) for one in (table, tables_of("x" if text else "")))
    assert seen.tags == plain_one.tags
    (line,) = list(csv.DictReader(io.StringIO(table_csv(table), newline="")))
    stored = storable(text)
    assert line["row"] in (stored, f"'{stored}")
    assert line["noise"] == line["row"]
    assert line["row"] == stored or stored.lstrip("'")[:1] in "=+-@\t\r\n＝＋－＠"


@settings(deadline=None, max_examples=6)
@given(TEXT)
@example("$\\frac{1}$")
@example("$")
@example("_hidden")
@example("中\n\x00")
@example("x" * 5000)
def test_any_text_is_drawn_as_it_is(text: str) -> None:
    with look():
        label = plain(text)
        sheet = Sheet([Patch(label=label)], 1, 2.0 + SCREEN.letter * len(named(text)), 1.5, (0.5, 0.1, 0.5, 0.3))
        panel = sheet.panel(0, title=label, xlabel=label)
        panel.set_yticks([0.5], [label])
        picture = finish("drawn", text, sheet.figure)
    assert picture.png.startswith(b"\x89PNG")
    assert label.isprintable()
    assert len(label) <= LONGEST
    texts = [one for one in sheet.figure.findobj(Text) if one.get_text() == label]
    assert not any(one.get_parse_math() for one in texts)


def test_powers_of_ten_are_as_large_as_other_numbers() -> None:
    with look():
        panel = Sheet((), 1, 3.0, 2.0, (0.5, 0.1, 0.5, 0.3)).panel(0)
        _scale(panel, [{"edges": [1e-3, 1e3], "log": True}])
        panel.figure.draw_without_rendering()
    labels = panel.get_xticklabels()
    assert {"0.001", "0.1", "10"} <= {label.get_text() for label in labels}
    assert not any(label.get_parse_math() for label in labels)
