"""Verbs that show stored results."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from bench.cli.options import RESULTS, DataFolder, Results, SuiteName, store_at, suite_name, use_data, write_report
from bench.console.text import echo

PAGE = 100  #: characters a line if the output is not a terminal


def report(
    suite: SuiteName,
    results: Results = RESULTS,
    data: DataFolder = None,
    figures: Annotated[
        str, typer.Option("--figures", metavar="WIDTHS", help="PDFs for a paper: page, column or page,column.")
    ] = "page",
) -> None:
    """Write tables, figures and the HTML page of a suite from stored results. Works while runs are still going.

    Exit code 1 if a file of a run is damaged: the report says so in the place of its numbers.
    """
    from bench.planning.plan_file import outline
    from bench.suite.suite import load_suite
    from reports.build import refuse_widths

    use_data(data)
    store = store_at(results)
    widths = [width.strip() for width in figures.split(",")]
    refuse_widths(widths, "--figures")
    name = suite_name(suite, store)
    planned = store.plan(name) is not None
    built = write_report(name, store, None if planned else outline(load_suite(suite, check_methods=False)), widths)
    echo(built.paths[0])
    folders = Counter(path.parent.name for path in built.paths if path.parent != built.paths[0].parent)
    echo(*(f"{count} files in {name}/ beside it" for name, count in folders.items()))
    if built.damaged:
        raise typer.Exit(1)


def compare(
    suite: SuiteName,
    a: Annotated[str, typer.Argument(metavar="A", help="A method's label.")],
    b: Annotated[
        str | None, typer.Argument(metavar="[B]", help="What it is compared with; default: the baseline.")
    ] = None,
    results: Results = RESULTS,
) -> None:
    """Say how two methods of a suite differ: difference, interval, p-value and cost per metric, and a verdict.

    Exit code 1 if a file of a run is damaged; its numbers are left out.
    """
    import bench

    store = store_at(results)
    comparison = bench.Results(results, suite_name(suite, store)).compare(a, b)
    echo(*comparison.text().split("\n"))
    if comparison.damaged:
        raise typer.Exit(1)


def power(
    suite: SuiteName,
    difference: Annotated[
        float, typer.Option("--difference", metavar="POINTS", help="Wanted difference from the baseline, in points.")
    ] = 1.0,
    results: Results = RESULTS,
) -> None:
    """Say which differences the stored seeds of a suite can show, and how many seeds a wanted one takes.

    A pilot with three seeds is enough. Exit code 1 if a file of a run is damaged; its numbers are left out.
    """
    from reports.seeds import seed_needs

    store = store_at(results)
    needs = seed_needs(suite_name(suite, store), store, difference)
    echo(*needs.text().split("\n"))
    if needs.damaged:
        raise typer.Exit(1)


def agreement(
    suite: SuiteName,
    other: Annotated[str | None, typer.Argument(metavar="[OTHER]", help="A second suite of the same store.")] = None,
    results: Results = RESULTS,
) -> None:
    """Say whether two suites, or the noises of one, rank the methods alike on the headline numbers, as Markdown.

    Exit code 1 if a file of a run is damaged; its numbers are left out.
    """
    from reports.reference.agreement import agreement_text, ranking
    from reports.results import load
    from reports.tables.footnotes import damaged_runs

    store = store_at(results)
    read = [load(suite_name(one, store), store) for one in (suite, other) if one]
    echo(*agreement_text(*map(ranking, read)).rstrip("\n").split("\n"))
    damaged = [line for one in read for line in damaged_runs(one)]
    echo(*damaged, err=True)
    if damaged:
        raise typer.Exit(1)


def published(
    table: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TABLE]", help="As in ncu/1 or 'ncu Table 1'; a paper alone lists its tables."),
    ] = None,
) -> None:
    """Print a table of a paper as it is printed there, or list all tables."""
    from bench.console.text import columns, terminal_width
    from bench.resources import published as folder
    from reports.papers.printed_tables import alone, find, papers
    from reports.tables.text import table_text

    words = " ".join(table or ())
    name, number = find(words)
    chosen = [one for one in papers(folder(), name) if number in ("", one.layout.number)]
    if number:
        echo(*table_text(alone(chosen[0]), terminal_width(PAGE)).split("\n"))
        return
    rows = [(f"{one.paper.name}/{one.layout.number}", f"{len(one.numbers)}", one.layout.title) for one in chosen]
    echo(*columns([("table", "numbers", "what"), *rows]))
