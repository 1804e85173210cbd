"""`bench stats`: statistical power of the stored seeds, agreement, claims and tables of papers."""

from __future__ import annotations

from typing import Annotated

import typer

from bench.cli.options import RESULTS, Results, SuiteName, exit_if, store_at, suite_name
from bench.console.text import echo

app = typer.Typer(help="Statistical power, agreement of comparisons, and the papers' tables.", no_args_is_help=True)
PIPED_WIDTH = 100  #: characters a line if the output is not a terminal


@app.command()
def power(
    suite: SuiteName,
    difference: Annotated[
        float, typer.Option("--difference", metavar="POINTS", help="Wanted difference from the baseline, in points.")
    ] = 1.0,
    results: Results = RESULTS,
) -> None:
    """Print which differences the stored seeds of a suite can detect, and how many seeds a wanted one takes.

    A pilot with three seeds is enough. Exit code 1 if a file of a run is damaged; its numbers are omitted.
    """
    from reports.seeds import seed_needs

    store = store_at(results)
    text, damaged = seed_needs(suite_name(suite, store), store, difference)
    echo(*text.split("\n"))
    exit_if(damaged)


@app.command()
def agreement(
    suite: SuiteName,
    other: Annotated[str | None, typer.Argument(metavar="[OTHER]", help="A second suite of the same store.")] = None,
    results: Results = RESULTS,
) -> None:
    """Print whether two suites, or the noises of one, rank the methods alike on the primary metric, as Markdown.

    Exit code 1 if a file of a run is damaged; its numbers are omitted.
    """
    from reports.reference.agreement import agreement_text, ranking
    from reports.results import load
    from reports.tables.footnotes import damaged_runs

    store = store_at(results)
    read = [load(suite_name(one, store), store) for one in (suite, other) if one]
    echo(*agreement_text(*map(ranking, read)).rstrip("\n").split("\n"))
    damaged = [line for one in read for line in damaged_runs(one)]
    echo(*damaged, err=True)
    exit_if(damaged)


@app.command()
def claims(suite: SuiteName, results: Results = RESULTS) -> None:
    """Print which of the papers' orderings hold in a suite, do not hold, or are inconclusive, as Markdown.

    Exit code 1 if a file of a run is damaged; its numbers are omitted.
    """
    from bench import resources
    from reports.reference.claims import read_claims
    from reports.reference.claims_page import claims_part, claims_text
    from reports.results import load
    from reports.tables.footnotes import damaged_runs

    store = store_at(results)
    read = load(suite_name(suite, store), store)
    part = claims_part(read, read_claims(resources.published_folder()))
    echo(*claims_text([part]).rstrip("\n").split("\n"))
    damaged = damaged_runs(read)
    echo(*damaged, err=True)
    exit_if(damaged)


@app.command()
def published(
    table: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TABLE]", help="As in ncu/1 or 'ncu Table 1'; a paper alone lists its tables."),
    ] = None,
) -> None:
    """Print a table of a paper as it is printed there, or list all tables."""
    from bench.console.text import align_columns, terminal_width
    from bench.resources import published_folder as folder
    from reports.papers.printed_tables import alone, find, papers
    from reports.tables.text import table_text

    words = " ".join(table or ())
    name, number = find(words)
    chosen = [one for one in papers(folder(), name) if number in ("", one.layout.number)]
    if number:
        echo(*table_text(alone(chosen[0]), terminal_width(PIPED_WIDTH)).split("\n"))
        return
    rows = [(f"{one.paper.name}/{one.layout.number}", f"{len(one.numbers)}", one.layout.title) for one in chosen]
    echo(*align_columns([("table", "numbers", "what"), *rows]))
