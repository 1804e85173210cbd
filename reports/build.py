"""A suite's whole report from its plan and the store. Never imports torch."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import resources
from bench.console.text import align_columns
from bench.errors import UserError, nearest
from bench.store import Store
from bench.store.files import write_bytes
from reports.figures.chosen import BEST, chosen_of
from reports.figures.figure_cache import FILE, kept, keys, listed
from reports.figures.figure_registry import FIGURES, draw, draw_all, names
from reports.figures.histograms import read
from reports.figures.pictures import PAPER, SCREEN, Picture
from reports.pages.answer import cost_answer, next_step, scoreboard, validity_sentences, verdict
from reports.papers.ours_vs_printed import paper_tables
from reports.results import Results, load
from reports.statistics.regimes import regimes
from reports.tables.footnotes import damaged_runs
from reports.tables.latex import document, for_a_paper, references, refuse_unknown
from reports.tables.suite_tables import paper_table, tables
from reports.tables.table import Table, in_one_scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Built:
    """The files that were written, and the runs that the report still lacks."""

    paths: tuple[Path, ...]
    failed: tuple[str, ...]  #: ids of runs
    missing: tuple[str, ...]  #: ids of runs that are neither done nor failed nor damaged
    damaged: tuple[str, ...]  #: a sentence for each run that a damaged file keeps out
    unfit: tuple[str, ...]  #: a sentence for each width of a paper at which figures have no room
    scoreboard: tuple[str, ...]  #: lines of a table: a row a noise
    answers: tuple[str, ...]  #: who is better, whether it can speak of robustness, costs, and the next command


def build(
    suite: str,
    store: Store,
    outline: Mapping[str, Any] | None = None,
    widths: Sequence[str] = ("page",),
    methods: Sequence[str] | int = BEST,
) -> Built:
    """Write `report.html`, `records.csv`, `tables/` and `figures/` next to the suite's plan; the page comes first.

    Without a plan, the `outline` of a suite that declares a paper's tables takes its place; no cell of ours has a run
    then. It works at any time: a cell without a value says why. Figures are drawn as PDF for a page of a paper, and for
    the other `widths`, "column". Files of an earlier report are replaced one by one, and its tables and figures that no
    longer exist are removed. `methods`: of tables/paper.tex, the table of a paper: labels, or how many of the best
    besides the baseline and the bounds.
    Raises UserError if the suite has neither a plan in this store nor a paper's tables, and if a report with numbers
    would be replaced by one without any.
    """
    from reports.pages.html import printed_page

    plan = store.plan(suite)
    if plan is None and outline is not None and outline["tables"]:
        results = Results(outline, ())
        made = paper_tables(results, resources.published_folder())
        files = {"report.html": printed_page(results, made).encode(), **table_files(results, made)}
        return _write(store.suite(suite), results, files, ())
    results = load(suite, store)
    _refuse_to_empty(store.suite(suite), results)
    files, unfit = _files(results, store.suite(suite), list(dict.fromkeys(("page", *widths))), methods)
    return _write(store.suite(suite), results, files, unfit)


def _refuse_to_empty(folder: Path, results: Results) -> None:
    """Raise UserError if no run of the plan is in the store, but the report that is there has numbers."""
    if any(run.state != "missing" for run in results.runs):
        return
    written = folder / "tables" / "overview.csv"
    text = written.read_text("utf-8", errors="replace") if written.is_file() else ""
    lines = csv.DictReader(io.StringIO(text))
    measured = any(line.get(key) for line in lines for key in line if key and key.endswith(" n"))
    if measured:
        kept = f"{written}: has numbers, but no run of the plan is in this store, so a new report has none"
        raise UserError(f"{kept}; bring the runs with bench store import, or remove that file to write it anyway")


def is_fresh(suite: str, store: Store) -> bool:
    """Return whether the suite's report is younger than its plan and than the last change of any run it shows."""
    page, plan = store.suite(suite) / "report.html", store.plan(suite) or {"cells": []}
    shown = {cell["run"] for cell in plan["cells"]}
    parts = ("status.json", "evaluations")  # a finished run keeps its status, and evaluations may still be added
    sources = [page.with_name("plan.json"), *(store.run(one).path(part) for one in shown for part in parts)]
    made = page.stat().st_mtime_ns if page.exists() else 0
    return all(source.stat().st_mtime_ns < made for source in sources if source.exists())


def _write(folder: Path, results: Results, files: Mapping[str, bytes], unfit: tuple[str, ...]) -> Built:
    (folder / FILE).unlink(missing_ok=True)  # until all figures of this report lie there
    for name, content in files.items():
        write_bytes(folder / name, content, durable=False)
    kinds = ("tables/*.csv", "tables/*.tex", "figures/*.pdf", "figures/*.png")
    there = {path for kind in kinds for path in folder.glob(kind)}
    for path in there - {folder / name for name in files}:
        path.unlink()
    states = {run.run: run.state for run in results.runs}
    return Built(
        paths=tuple(folder / name for name in files if name != FILE),
        failed=tuple(run for run, state in states.items() if state == "failed"),
        missing=tuple(run for run, state in states.items() if state not in ("failed", "done", "damaged")),
        damaged=damaged_runs(results),
        unfit=unfit,
        scoreboard=tuple(align_columns(scoreboard(results))) if results.runs else (),
        answers=tuple(_answers(results)) if results.runs else (),
    )


def _answers(results: Results) -> Iterable[str]:
    over_budgets = [one.sentence(results) for one in regimes(results)]
    said = (verdict(results), *over_budgets, *validity_sentences(results), cost_answer(results), next_step(results))
    return filter(None, said)


def _files(
    results: Results, folder: Path, widths: Sequence[str], methods: Sequence[str] | int
) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Every file of a report by its name, last the list of its figures, see `figure_cache`; and which do not fit.

    Figures that an earlier report left in `folder` are taken from there, if they would be the same.
    """
    from reports.pages.html import page
    from reports.tables.csv import records_csv

    learned, made = read(results), all_tables(results)
    wanted = keys(results, learned, widths)
    drawn = kept(folder, wanted)
    drawn |= draw_all(results, learned, [name for name in wanted if name not in drawn], widths)
    files = {"report.html": page(results, made, drawn).encode(), "records.csv": records_csv(results).encode()}
    files |= table_files(results, made, methods)
    pictures = [picture for name in wanted if (picture := drawn[name])]
    for picture in pictures:
        files |= {f"figures/{name}": content for name, content in picture.files().items()}
    return {**files, FILE: listed(wanted, drawn)}, tuple(_unfit(pictures, widths))


def _unfit(pictures: Sequence[Picture], widths: Sequence[str]) -> Iterable[str]:
    """For each width, say which figures are not drawn."""
    for width in widths:
        if left_out := [one.name for one in pictures if width not in one.pdf]:
            size = f"{PAPER[width].width:g} inches wide and at most {PAPER[width].height:g} high"
            yield f"not legible in a {width} ({size}), so not drawn: {', '.join(left_out)}"


def all_tables(results: Results) -> list[Table]:
    """Every table of a suite's report: its own, then those of the papers that it asks for."""
    return list(map(in_one_scale, (*tables(results), *paper_tables(results, resources.published_folder()))))


def refuse_widths(widths: Sequence[str], said: str) -> None:
    """Raise UserError that begins with `said` for a width that no paper has."""
    for width in widths:
        if width not in PAPER:
            raise UserError(f"{said}: {width!r} should be {' or '.join(PAPER)}{nearest(width, PAPER)}")


def figure_of(results: Results, name: str, methods: Sequence[str] = (), width: str | None = None) -> Figure:
    """Draw one figure of a suite's report: the radar with the `methods` that are named, at a `width` of a paper.

    Raises UserError if there is none of that name, or no numbers for it, for a width that is unknown or too narrow for
    it, and for methods that it does not take.
    """
    from reports.figures.figure_style import look
    from reports.figures.radar import radar

    if methods and name != "radar":
        raise UserError(f"methods: the figure {name!r} shows all methods; only the radar takes a choice")
    refuse_widths([width] if width else [], "width")
    learned = {} if name in FIGURES else read(results)
    known = names(results, learned)
    if name not in known:
        raise UserError(f"{name!r} is not a figure of this report{nearest(name, known)}")
    with look(PAPER[width] if width else SCREEN):
        made = radar(results.longest, methods) if methods else draw(name, results, learned)
    if made is not None and made.figure is not None:
        return made.figure
    if width:
        figure_of(results, name, methods)  # raises if it has no numbers
        raise UserError(f"the figure {name!r} is not legible at the width of a {width}")
    raise UserError(f"there are no numbers for the figure {name!r}")


def table_files(results: Results, made: Sequence[Table], methods: Sequence[str] | int = BEST) -> dict[str, bytes]:
    """Return tables as CSV and LaTeX, with one of these methods for a paper and a document of all, by their names."""
    from reports.tables.csv import table_csv

    files = {f"tables/{table.name}.csv": table_csv(table).encode() for table in made}
    latex = {table.name: for_a_paper(results, table) for table in made}
    if results.runs:
        chosen = chosen_of(results, methods) if isinstance(methods, int) else methods
        refuse_unknown(chosen, made[0])
        latex["paper"] = for_a_paper(results, paper_table(results, made[0], chosen))
    files |= {f"tables/{name}.tex": text.encode() for name, text in latex.items()}
    inputs = [rf"\input{{{name}}}\clearpage" for name in latex]  # TeX holds all floats that wait in its memory
    return {**files, "tables/preview.tex": document([*inputs, *references(results, list(latex.values()))]).encode()}
