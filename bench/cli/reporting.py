"""Commands that show stored results."""

from __future__ import annotations

import csv
from collections import Counter
from typing import Annotated

import typer

from bench.cli import options
from bench.cli.options import RESULTS, exit_if, store_at, suite_name, use_data, write_report
from bench.console.text import echo


def report(
    suite: options.SuiteName,
    results: options.Results = RESULTS,
    data: options.DataFolder = None,
    figures: Annotated[
        str, typer.Option("--figures", metavar="WIDTHS", help="PDFs for a paper: page, or also column.")
    ] = "page",
    methods: Annotated[
        str,
        typer.Option(
            "--methods",
            metavar="A,B|K",
            help="Rows of tables/paper.tex: labels, such as 'clip,\"clip, last\"', or the K best.",
        ),
    ] = "4",
) -> None:
    """Write tables, figures and the HTML page of a suite from stored results. Works while runs are still going.

    Exit code 1 if a file of a run is damaged: the report says so in the place of its numbers.
    """
    from bench.planning.plan_file import plan_outline
    from bench.suite.suite import load_suite
    from reports.build import refuse_widths

    use_data(data)
    store = store_at(results)
    widths = [width.strip() for width in figures.split(",")]
    refuse_widths(widths, "--figures")
    labels = next(csv.reader([methods])) or [methods]  # of nothing, csv reads no field
    shape = {"widths": widths, "methods": int(methods) if methods.isdecimal() else labels}
    name = suite_name(suite, store)
    planned = store.plan(name) is not None
    outline = None if planned else plan_outline(load_suite(suite, check_methods=False))
    built = write_report(name, store, outline, **shape)
    echo(built.paths[0])
    folders = Counter(path.parent.name for path in built.paths if path.parent != built.paths[0].parent)
    echo(*(f"{count} files in {name}/ next to it" for name, count in folders.items()))
    echo(*built.unfit)
    exit_if(built.damaged)


def compare(
    suite: options.SuiteName,
    a: Annotated[str, typer.Argument(metavar="A", help="A method's label.")],
    b: Annotated[
        str | None, typer.Argument(metavar="[B]", help="The method to compare with; default: the baseline.")
    ] = None,
    results: options.Results = RESULTS,
) -> None:
    """Compare two methods of a suite: difference, interval, p-value and cost per metric, and a verdict.

    Exit code 1 if a file of a run is damaged; its numbers are omitted.
    """
    import bench

    store = store_at(results)
    comparison = bench.Results(results, suite_name(suite, store)).compare(a, b)
    echo(*comparison.text().split("\n"))
    exit_if(comparison.damaged)
