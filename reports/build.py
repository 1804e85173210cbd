"""A suite's whole report from its plan and the store. Never imports torch."""

from __future__ import annotations

import csv
import gc
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from subprocess import PIPE, Popen
from typing import TYPE_CHECKING, Any

from bench import resources
from bench.console.markup import html
from bench.errors import UserError, nearest
from bench.store import Store
from bench.store.files import write_bytes
from reports.answer import answers
from reports.footnotes import damaged_runs
from reports.gallery import Pictures, gallery
from reports.latex import document, for_a_paper, references
from reports.own import paper_tables
from reports.results import Results, load
from reports.table import Table, in_one_scale
from reports.tables import tables
from reports.wins import wins_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from reports.drawing import Picture

MANY = 100  #: runs from which on the report is worth a second process, which takes a second to start
#: what the second process imports before it has the results; writers of PNG and PDF would load when they are first used
_DRAWING = (
    *("reports.figures", "reports.rank_diagram", "reports.win_map"),
    *("matplotlib.backends.backend_agg", "matplotlib.backends.backend_pdf"),
)


@dataclass(frozen=True)
class Built:
    """The files that were written, and the runs that the report still lacks."""

    paths: tuple[Path, ...]
    failed: tuple[str, ...]  #: ids of runs
    missing: tuple[str, ...]  #: ids of runs that are neither done nor failed nor damaged
    damaged: tuple[str, ...]  #: a sentence for each run that a damaged file keeps out
    answers: tuple[str, ...]  #: a paragraph a noise


def build(
    suite: str,
    store: Store,
    outline: Mapping[str, Any] | None = None,
    widths: Sequence[str] = ("page",),
    pictures: Pictures | None = None,
) -> Built:
    """Write `report.html`, `records.csv`, `tables/` and `figures/` beside the suite's plan; the page comes first.

    Without a plan, the `outline` of a suite that declares a paper's tables takes its place; no cell of ours has a run
    then. It works at any time: a cell without a value says why. Figures are drawn as PDF for these `widths` of a
    paper, "page" and "column". The page shows the worst examples if `pictures` says where they come from. Files of an
    earlier report are replaced one by one, and its tables and figures that no longer exist are removed.
    Raises UserError if the suite has neither a plan in this store nor a paper's tables, and if a report with numbers
    would be replaced by one without any.
    """
    with _no_collector():
        plan = store.plan(suite)
        if plan is None and outline is not None and outline["tables"]:
            results = Results(outline, ())
            return _write(store.suite(suite), results, _printed_files(results))
        with _scores(plan, widths) as begin:
            results = load(suite, store)
            _refuse_to_empty(store.suite(suite), results)
            files = _files(results, begin(results), widths, pictures)
        return _write(store.suite(suite), results, files)


def _refuse_to_empty(folder: Path, results: Results) -> None:
    """Raise UserError if no run of the plan is in the store, but the report that is there has numbers."""
    if any(run.state != "missing" for run in results.runs):
        return
    written = folder / "tables" / "overview.csv"
    try:
        with written.open(encoding="utf-8", newline="") as lines:
            measured = any(
                line.get(key) for line in csv.DictReader(lines) for key in line if key and key.endswith(" n")
            )
    except (OSError, UnicodeDecodeError, csv.Error):  # no table, or none of ours
        return
    if measured:
        kept = f"{written}: has numbers, and no run of the plan is in this store, so the report would have none"
        raise UserError(f"{kept}; bring the runs with bench import, or remove that file to write it all the same")


def is_fresh(suite: str, store: Store) -> bool:
    """Return whether the suite's report is younger than its plan and than the last change of any run it shows."""
    page, plan = store.suite(suite) / "report.html", store.plan(suite) or {"cells": []}
    shown = {cell["run"] for cell in plan["cells"]}
    parts = ("status.json", "evaluations")  # a finished run keeps its status, and evaluations may still be added
    sources = [page.with_name("plan.json"), *(store.run(one).path(part) for one in shown for part in parts)]
    made = page.stat().st_mtime_ns if page.exists() else 0
    return all(source.stat().st_mtime_ns < made for source in sources if source.exists())


@contextmanager
def _no_collector() -> Iterator[None]:
    """A report makes a hundred thousand objects and keeps them; looking for garbage among them takes a fifth of it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _write(folder: Path, results: Results, files: Mapping[str, bytes]) -> Built:
    for name, content in files.items():
        write_bytes(folder / name, content, durable=False)
    _remove_others(folder, {folder / name for name in files})
    states = {run.run: run.state for run in results.runs}
    return Built(
        paths=tuple(folder / name for name in files),
        failed=tuple(run for run, state in states.items() if state == "failed"),
        missing=tuple(run for run, state in states.items() if state not in ("failed", "done", "damaged")),
        damaged=damaged_runs(results),
        answers=tuple(answers(results)) if results.runs else (),
    )


@contextmanager
def _scores(
    plan: Mapping[str, Any] | None, widths: Sequence[str] = ()
) -> Iterator[Callable[[Results], Callable[[], list[Picture]]]]:
    """Yield a function that begins the figures of scores, and returns another that waits for them.

    Those of a large suite are drawn in a process beside this one, which imports what it needs while this one reads the
    store.
    """
    if plan is None or len(plan["cells"]) < MANY:
        yield lambda results: partial(_pictures, results, widths)
        return
    # No fork, which would copy torch's threads half, and none of multiprocessing's processes, which run the script that
    # asked for the report once more.
    command = [sys.executable, "-c", f"from {__name__} import draw; draw({tuple(widths)})"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with Popen(command, stdin=PIPE, stdout=PIPE, env=environment) as beside:
        try:
            yield partial(_begun, beside, widths)
        finally:
            beside.kill()


def _begun(beside: Popen[bytes], widths: Sequence[str], results: Results) -> Callable[[], list[Picture]]:
    """Send the results to the other process; return a function that waits for its figures."""
    assert beside.stdin is not None
    with suppress(BrokenPipeError), beside.stdin as pipe:  # a process that failed is noticed when its figures are due
        pipe.write(pickle.dumps(results))
    return partial(_drawn, beside, results, widths)


def draw(widths: Sequence[str]) -> None:
    """Draw the figures of scores of the results that stdin has, and write them to stdout, both pickled.

    It is for the process beside the one that makes a report, and takes it for itself, which goes on without scipy.
    """
    sys.modules["scipy"] = None  # type: ignore[assignment]  # seaborn does without, and importing it takes a second
    with _no_collector():
        for name in _DRAWING:
            import_module(name)
        drawn = [replace(picture, figure=None) for picture in _pictures(pickle.load(sys.stdin.buffer), widths)]
    pickle.dump(drawn, sys.stdout.buffer)
    sys.stdout.flush()
    os._exit(0)  # to tidy up takes a while, in which the other process would wait


def _drawn(beside: Popen[bytes], results: Results, widths: Sequence[str]) -> list[Picture]:
    """Return the figures that the other process drew; draw them here if it failed."""
    assert beside.stdout is not None
    content = beside.stdout.read()  # of our own process: a pickle that is read from a file is never executed
    drawn: list[Picture] = pickle.loads(content) if beside.wait() == 0 else _pictures(results, widths)
    return drawn


def _pictures(results: Results, widths: Sequence[str] = ()) -> list[Picture]:
    """Every figure of scores that there are numbers for."""
    from reports.drawing import in_sizes
    from reports.figures import pictures
    from reports.rank_diagram import ranks_picture

    over_sets = (in_sizes(draw, widths) for draw in (_wins(results), partial(ranks_picture, results)))
    return [*pictures(results, widths), *(one for one in over_sets if one)]


def _wins(results: Results) -> Callable[[], Picture | None]:
    """Return the function that draws the map of wins."""
    from reports.win_map import wins_picture

    return partial(wins_picture, results, wins_table(results)) if len(results.ranked) > 1 else lambda: None


def _files(
    results: Results,
    drawn: Callable[[], list[Picture]],
    widths: Sequence[str],
    pictures: Pictures | None,
) -> dict[str, bytes]:
    from reports.csv import records_csv
    from reports.diagnostics import learned
    from reports.html import page, table_sections

    made = all_tables(results)
    of_tables, sections, records = table_files(results, made), table_sections(results, made), records_csv(results)
    similarities, own = learned(results, widths)
    examples = gallery(results, pictures) if pictures else html("")
    scores = drawn()  # last, because another process may be at it
    whole = page(results, made, scores, similarities, own, examples, sections)
    files = {"report.html": whole.encode(), "records.csv": records.encode(), **of_tables}
    for picture in (*scores, *([similarities] if similarities else []), *own.values()):
        files[f"figures/{picture.name}.png"] = picture.png
        for width, pdf in picture.pdf.items():
            files[f"figures/{picture.name}{'' if width == 'page' else f'-{width}'}.pdf"] = pdf
    return files


def all_tables(results: Results) -> list[Table]:
    """Every table of a suite's report: its own, then those of the papers that it asks for."""
    return list(map(in_one_scale, (*tables(results), *paper_tables(results, resources.published()))))


def refuse_widths(widths: Sequence[str], said: str) -> None:
    """Raise UserError that begins with `said` for a width that no paper has."""
    from reports.drawing import PAPER

    for width in widths:
        if width not in PAPER:
            raise UserError(f"{said}: {width!r} should be {' or '.join(PAPER)}{nearest(width, PAPER)}")


def figure_of(results: Results, name: str, methods: Sequence[str] = (), width: str | None = None) -> Figure:
    """Draw one figure of a suite's report: the radar with the `methods` that are named, at a `width` of a paper.

    Raises UserError if there is none of that name, or no numbers for it, for a width that is unknown or too narrow for
    it, and for methods that it does not take.
    """
    from reports.drawing import PAPER, SCREEN, look

    if methods and name != "radar":
        raise UserError(f"methods: the figure {name!r} shows all; the radar takes them")
    refuse_widths([width] if width else [], "width")
    drawn = _drawers(results, name, methods)
    with look(PAPER[width] if width else SCREEN):
        made = drawn[name]() if name in drawn else None
    if made is not None and made.figure is not None:
        return made.figure
    if name not in drawn:
        raise UserError(f"{name!r} is not a figure of this report{nearest(name, drawn)}")
    if width:
        figure_of(results, name, methods)  # raises if it has no numbers
        raise UserError(f"the figure {name!r} has no room at the width of a {width}")
    raise UserError(f"there are no numbers for the figure {name!r}")


def _drawers(results: Results, name: str, methods: Sequence[str]) -> dict[str, Callable[[], Picture | None]]:
    """The functions that draw the figures of a report, by name; diagnostics are read if no other has this `name`."""
    from reports.diagnostics import drawers
    from reports.figures import FIGURES
    from reports.radar import radar
    from reports.rank_diagram import ranks_picture

    known: dict[str, Callable[[], Picture | None]] = {key: partial(draw, results) for key, draw in FIGURES.items()}
    known |= {"radar": partial(radar, results, methods), "ranks": partial(ranks_picture, results)}
    known["wins"] = lambda: _wins(results)()
    return known if name in known else {**known, **drawers(results)}


def _printed_files(results: Results) -> dict[str, bytes]:
    """A report without a plan: the papers' tables, every cell of ours missing."""
    from reports.html import printed_page

    made = paper_tables(results, resources.published())
    return {"report.html": printed_page(results, made).encode(), **table_files(results, made)}


def table_files(results: Results, made: Sequence[Table]) -> dict[str, bytes]:
    """Return tables as CSV and LaTeX, and a document of all, by their names beside the page."""
    from reports.csv import table_csv

    files: dict[str, bytes] = {}
    for table in made:
        files[f"tables/{table.name}.csv"] = table_csv(table).encode()
    latex = {table.name: for_a_paper(results, table) for table in made}
    files |= {f"tables/{name}.tex": text.encode() for name, text in latex.items()}
    inputs = [rf"\input{{{name}}}" for name in latex]
    return {**files, "tables/all.tex": document([*inputs, *references(results, list(latex.values()))]).encode()}


def _remove_others(folder: Path, written: set[Path]) -> None:
    for kind in ("tables/*.csv", "tables/*.tex", "figures/*.pdf", "figures/*.png"):
        for path in folder.glob(kind):
            if path not in written:
                path.unlink()
