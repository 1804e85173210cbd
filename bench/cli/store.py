"""Verbs on what is stored: measure a checkpoint, merge another store, free space."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli.options import RESULTS, DataFolder, Overrides, Plugins, Results, load_plugins, store_at, use_data
from bench.errors import UNFINISHED, UserError

if TYPE_CHECKING:
    from bench.store import Record
    from bench.store.collect import Item


def evaluate(
    checkpoint: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT",
            help="A run's weights or checkpoint, a state dict, open_clip's MODEL/TAG, or an exported folder.",
        ),
    ],
    suite: Annotated[str, typer.Option("--suite", metavar="SUITE", help="Whose tasks and towers: a file or a name.")],
    method: Annotated[
        str | None,
        typer.Option(
            "--method", metavar="LABEL", help="Reads a file that is not a run's; default: the suite's baseline."
        ),
    ] = None,
    towers: Annotated[
        str | None,
        typer.Option("--towers", metavar="MODEL", help="The file is a state dict of this architecture of open_clip."),
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the records there as well.")] = None,
    results: Results = RESULTS,
    overrides: Overrides = None,
    plugin: Plugins = None,
    data: DataFolder = None,
) -> None:
    """Evaluate a checkpoint without training. What is measured is stored below the suite and not measured again."""
    load_plugins(plugin)
    use_data(data)
    from bench.cli.text import record_table
    from bench.models.evaluate_checkpoint import evaluate_checkpoint
    from bench.store import Busy
    from bench.suite.suite import load_suite

    try:
        found = evaluate_checkpoint(
            checkpoint, load_suite(suite, overrides or ()), store_at(results).root, method=method, architecture=towers
        )
    except Busy as busy:
        typer.echo(f"{checkpoint}: another process evaluates it ({busy})", err=True)
        raise typer.Exit(UNFINISHED) from busy
    for line in record_table(found.records):
        typer.echo(line)
    typer.echo(f"tasks: {found.measured} measured, {found.known} measured before; stored in {found.out.folder}")
    if csv is not None:
        _write_csv(csv, found.records)
        typer.echo(csv)


def _write_csv(path: Path, records: Sequence[Record]) -> None:
    """All fields of records, one line each."""
    import csv
    import io
    from dataclasses import astuple, fields

    from bench.store import Record, files

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(Record)])
    writer.writerows(map(astuple, records))
    try:
        files.write_bytes(path, text.getvalue().encode())
    except OSError as error:
        raise UserError(f"--csv {path}: cannot be written: {error.strerror}") from error


def merge(
    source: Annotated[
        Path, typer.Argument(metavar="STORE", help="A results folder of another machine, or a tar archive of one.")
    ],
    results: Results = RESULTS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be taken; change nothing.")] = False,
) -> None:
    """Merge another store into this one. What is complete here stays as it is; contradictions are reported."""
    from bench.store.merge import merge as merged

    found = merged(source, store_at(results), dry_run)
    for problem in found.problems:
        typer.echo(problem, err=True)
    counts = {
        "new": len(found.new),
        "further than here": len(found.advanced),
        "here already": len(found.known),
        "busy, left out": len(found.busy),
    }
    typer.echo(f"runs: {', '.join(f'{count} {what}' for what, count in counts.items() if count) or 'none'}")
    typer.echo(
        f"also: {found.evaluations} evaluations of runs that were here, {found.evaluated} evaluated checkpoints, "
        f"{found.calibrations} calibrations, {len(found.plans)} plans"
    )
    if found.problems:
        typer.echo(f"left out: {len(found.problems)}, see above")
    if dry_run:
        typer.echo("nothing was changed")


def collect(
    results: Results = RESULTS,
    suite: Annotated[
        list[str] | None, typer.Option("--suite", metavar="NAME", help="Only runs of this suite; may be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show it; this is the default.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete what is shown.")] = False,
) -> None:
    """Show, and with --yes free, what no suite needs: runs without a plan, checkpoints of complete runs, leftovers.

    Records, ledgers and final weights of runs that a plan names are kept, and so is what a live process works on.
    """
    if dry_run and yes:
        raise UserError("--dry-run and --yes: say one of them")
    from bench.console.text import columns
    from bench.store.collect import RUN
    from bench.store.collect import collect as collected
    from bench.store.lookup import SHORT

    items = collected(store_at(results), suite or (), delete=yes)
    rows = [(item.path.name[:SHORT], _mib([item]), "no suite names this run") for item in items if item.kind == RUN]
    for kind in dict.fromkeys(item.kind for item in items):
        own = [item for item in items if item.kind == kind]
        rows.append((str(len(own)), _mib(own), kind))
    for line in columns(rows):
        typer.echo(line)
    typer.echo(f"freed {_mib(items)}" if yes else f"would free {_mib(items)}{'; --yes does it' if items else ''}")


def _mib(items: Sequence[Item]) -> str:
    return f"{sum(item.bytes for item in items) / 2**20:,.1f} MiB"
