"""The verb that looks for damage in a store, and repairs it."""

from __future__ import annotations

from typing import Annotated

import typer

from bench.cli.options import RESULTS, Results, store_at
from bench.console.text import echo
from bench.errors import UserError


def doctor(
    results: Results = RESULTS,
    fix: Annotated[bool, typer.Option("--fix", help="Move damaged files aside.")] = False,
) -> None:
    """Look at everything that is stored, to the last byte: what is damaged, a line each, with the remedy.

    Weights and records are compared with their stored hashes. With --fix, what is damaged is renamed to NAME.damaged-1,
    so that `bench run` makes again what it can. Exit code 1 if problems remain.
    """
    from bench.store import Damaged
    from bench.store.doctor import examine

    if not results.is_dir():
        raise UserError(f"--results {results}: no such folder, so nothing was looked at; name the folder of a store")
    try:
        wrong, mended = examine(store_at(results), fix)
    except Damaged as error:  # store.json: nothing is looked at in a store whose format is not known
        echo(error)
        raise typer.Exit(1) from error
    echo(*wrong, *mended)
    echo(f"problems: {len(wrong)}" + (f", moved aside: {len(mended)}" if mended else ""))
    if wrong:
        raise typer.Exit(1)
