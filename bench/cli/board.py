"""`bench board`: submitted and committed comparisons."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.cli import options
from bench.cli.options import exit_if, load_plugins, store_at, suite_name
from bench.console.text import echo
from bench.errors import UserError

app = typer.Typer(help="Submitted and committed comparisons.", no_args_is_help=True)
BOARD = Path("results/board")


@app.command()
def reference(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="A folder with one folder per comparison.")] = Path(
        "results/reference"
    ),
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Default: next to the archives.")] = None,
) -> None:
    """Write pages and tables of committed comparisons from their archives, an index, and the page of claims.

    A comparison is a folder with runs.tar.xz, which `bench store pack` writes.
    """
    from reports.reference.render import render

    echo(*(path for path in render(folder, out or folder) if path.suffix in (".html", ".md")))


@app.command()
def submit(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="The folder where the runs are stored.")],
    suite: options.SuiteName,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The bundle; default: results/board/SUITE.tar.xz.")
    ] = None,
    plugin: options.Plugins = None,
) -> None:
    """Write the finished runs of a suite to a checked bundle for a pull request: no weights.

    Runs that are not finished are listed and omitted. Nothing is written unless the bundle passes `bench board check`.
    """
    load_plugins(plugin)
    from bench.board.retrain import write_submission as submitted

    store = store_at(results)
    name = suite_name(suite, store)
    packed, checked = submitted(name, store, out or BOARD / f"{name}.tar.xz")
    echo(*(f"omitted: {line}" for line in packed.unfinished))
    echo(*checked.text())
    echo(*checked.problems, err=True)
    exit_if(checked.problems)
    echo(f"{checked.path}: {packed.bytes / 2**20:,.2f} MiB; commit it and open a pull request")


@app.command()
def check(
    bundles: Annotated[
        list[Path] | None, typer.Argument(metavar="[BUNDLE]...", help="Bundles, or folders of them; results/board.")
    ] = None,
    rerun: Annotated[
        str | None,
        typer.Option("--rerun", metavar="RUN|cheapest", help="Retrain a run of the one bundle; record the outcome."),
    ] = None,
    plugin: options.Plugins = None,
) -> None:
    """Check bundles: files, ids, plans, budgets, noise manifests, scores against outcomes, duplicates.

    Exit code 1 if something is wrong. A bundle that passes is consistent, not proven.
    """
    load_plugins(plugin)
    from bench.board.bundle import check_folder
    from bench.board.retrain import rerun_bundle

    outcomes = check_folder(bundles or [BOARD])
    for one in outcomes:
        echo(*one.text())
        echo(*one.problems, err=True)
    exit_if(any(one.problems for one in outcomes))
    if bundles and not outcomes:
        raise UserError(f"{', '.join(map(str, bundles))}: holds no bundle; `bench board submit` writes them")
    if not outcomes:
        echo("no bundles")
    if rerun is not None:
        if len(outcomes) != 1:
            raise UserError(f"--rerun: needs exactly one bundle, not {len(outcomes)}")
        verified = rerun_bundle(outcomes[0].path, rerun)
        echo(f"rerun: {verified.title}: {verified.text}")
        exit_if(not verified.consistent)


@app.command()
def site(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="An empty folder, or an earlier site.")],
    results: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RESULTS]...", help="Stores, archives, or folders of them; results/reference, /board."),
    ] = None,
    home: Annotated[str, typer.Option("--home", metavar="URL", help="Address of the documentation to link to.")] = "",
) -> None:
    """Write the board over stored comparisons: one page with filters and sorting, and a CSV file."""
    from bench.board.bundle import check_bundle
    from reports.site.board import site as build_site

    echo(*build_site(results or [Path("results/reference"), BOARD], out, check_bundle, home))
