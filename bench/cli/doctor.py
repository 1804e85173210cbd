"""The verb that looks for damage in a store, and repairs it."""

from __future__ import annotations

from typing import Annotated

import typer

from bench.cli.options import RESULTS, Results, store_at
from bench.console.text import echo
from bench.errors import UserError


def doctor(
    results: Results = RESULTS,
    fix: Annotated[bool, typer.Option("--fix", help="Move damaged files aside, and remove leftovers.")] = False,
) -> None:
    """Look at everything that is stored, to the last byte: what is damaged or left over, a line each, with the remedy.

    Weights and records are compared with their stored hashes. With --fix, what is damaged is renamed to NAME.damaged-1,
    so that `bench run` makes again what it can. Exit code 1 if problems remain.
    """
    from bench.store import Damaged
    from bench.store.doctor import examine

    if not results.is_dir():
        raise UserError(f"--results {results}: no such folder, so nothing was looked at; name the folder of a store")
    try:
        found = examine(store_at(results), fix)
    except Damaged as error:  # store.json: nothing is looked at in a store whose format is not known
        echo(error)
        raise typer.Exit(1) from error
    echo(*found.wrong, *found.repaired)
    if found.aside:
        where = found.aside[0]
        echo(f"moved aside and kept: {len(found.aside)}, such as {where}; delete them when nobody needs them")
    echo(f"problems: {len(found.wrong)}" + (f", repaired: {len(found.repaired)}" if found.repaired else ""))
    if found.wrong:
        raise typer.Exit(1)
