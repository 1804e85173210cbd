"""Verbs of the committed comparisons."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.cli.options import RESULTS, Results, SuiteName, store_at, suite_name
from bench.console.text import echo


def reference(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="A folder with one folder a comparison.")] = Path(
        "results/reference"
    ),
) -> None:
    """Write pages and tables of committed comparisons from their archives, an index, and what holds of the papers.

    A comparison is a folder with runs.tar.xz, which `bench pack` writes.
    """
    from reports.reference.render import CLAIMS, INDEX, render

    rendered = render(folder)
    echo(*(f"{name}: has no archive of its runs and stays as it is" for name in rendered.bare))
    echo(*(path for path in rendered.paths if path.name in (INDEX, CLAIMS) or path.suffix == ".html"))


def claims(suite: SuiteName, results: Results = RESULTS) -> None:
    """Say which orderings that the five papers print hold in a suite, do not, or cannot be told, as Markdown."""
    from bench import resources
    from reports.reference.claims import read_claims
    from reports.reference.claims_page import claims_text
    from reports.results import load

    store = store_at(results)
    text = claims_text(load(suite_name(suite, store), store), read_claims(resources.published()))
    echo(*text.rstrip("\n").split("\n"))
