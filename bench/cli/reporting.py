"""Verbs that show stored results."""

from __future__ import annotations

from typing import Annotated

import typer

from bench.cli.options import RESULTS, Results, SuiteName, store_at, suite_name, write_report


def report(suite: SuiteName, results: Results = RESULTS) -> None:
    """Write tables, figures and the HTML page of a suite from stored results. Works while runs are still going."""
    store = store_at(results)
    for path in write_report(suite_name(suite, store), store):
        typer.echo(path)


def compare(
    suite: SuiteName,
    a: Annotated[str, typer.Argument(metavar="A", help="A method's label.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The label it is compared with.")],
    results: Results = RESULTS,
) -> None:
    """Say how two methods of a suite differ: difference, interval, p-value and cost per metric, and a verdict."""
    from reports.compare import compare as compared

    store = store_at(results)
    typer.echo(compared(suite_name(suite, store), store, a, b).text())
