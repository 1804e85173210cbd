"""`bench store`: import another store, pack a suite's runs, free space, verify, retrain a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.cli import options
from bench.cli.options import RESULTS, exit_if, load_plugins, store_at, suite_name, use_data
from bench.console.text import echo
from bench.errors import UserError

app = typer.Typer(help="Stored runs: import, pack, free space, verify, train again.", no_args_is_help=True)


@app.command("import")
def merge(
    source: Annotated[
        Path,
        typer.Argument(metavar="STORE", help="A results folder of another machine, or a tar archive of one."),
    ],
    results: options.Results = RESULTS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be imported; change nothing.")] = False,
) -> None:
    """Merge another store into this one. Complete runs here stay unchanged.

    Runs that are damaged, forged or contradict ours are omitted and named; the exit code is then 1.
    """
    from bench.store.merge import merge_store as merged

    store = store_at(results)
    outcome = merged(source, store, dry_run)
    echo(*outcome.problems, err=True)
    counts = {
        "new": len(outcome.new),
        "further than here": len(outcome.advanced),
        "here already": len(outcome.known),
        "busy, omitted": len(outcome.busy),
    }
    echo(f"runs: {', '.join(f'{count} {what}' for what, count in counts.items() if count) or 'none'}")
    echo(f"also: {outcome.calibrations} calibrations, {len(outcome.plans)} plans")
    ours = {*outcome.new, *outcome.advanced, *outcome.known}
    for name, plan in ((name, store.plan(name)) for name in outcome.plans):
        cells = {cell["run"] for cell in plan["cells"]} if plan else set()  # a dry run takes no plan
        if cells:
            found = f"{len(cells & ours)} of the {len(cells)} runs of its tables"
            echo(f"{name}: {found}; others are trials and references")
    if outcome.problems:
        echo(f"skipped: {len(outcome.problems)}, see above")
    if dry_run:
        echo("nothing was changed")
    exit_if(outcome.problems)


@app.command()
def pack(
    suite: options.SuiteName,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The archive to write, NAME.tar.xz.")],
    results: options.Results = RESULTS,
) -> None:
    """Write the finished runs of a suite to one small archive without weights, which `bench store import` reads.

    Runs that are not finished are listed. Exit code 1 if a file of a run is damaged; the run is omitted and named.
    """
    from bench.store.pack import pack_runs as packed

    store = store_at(results)
    outcome = packed(suite_name(suite, store), store, out)
    echo(*(f"omitted: {line}" for line in outcome.unfinished))
    echo(*(f"omitted: {line}" for line in outcome.damaged), err=True)
    echo(f"{out}: {outcome.runs} runs, {_mib(outcome.bytes)}")
    exit_if(outcome.damaged)


@app.command("gc")
def collect(
    results: options.Results = RESULTS,
    yes: Annotated[bool, typer.Option("--yes", help="Delete what is shown.")] = False,
) -> None:
    """Show, and with --yes free, what no suite needs: runs without a plan, checkpoints of complete runs, leftovers.

    Records, ledgers and final weights of runs that a plan names are kept, and so is what a live process works on. A run
    with a damaged file is left alone and named; the exit code is then 1.
    """
    from bench.console.text import align_columns
    from bench.store.collect import UNNAMED_RUNS
    from bench.store.collect import collect_garbage as collected
    from bench.store.run import SHORT_ID

    items, damaged = collected(store_at(results), delete=yes)
    rows = [
        (item.path.name[:SHORT_ID], _mib(item.bytes), "no suite names this run")
        for item in items
        if item.kind == UNNAMED_RUNS
    ]
    for kind in dict.fromkeys(item.kind for item in items):
        own = [item for item in items if item.kind == kind]
        rows.append((str(len(own)), _mib(sum(item.bytes for item in own)), kind))
    echo(*align_columns(rows))
    freed = _mib(sum(item.bytes for item in items))
    echo(f"freed {freed}" if yes else f"would free {freed}{'; --yes does it' if items else ''}")
    echo(*(f"left alone: {error}" for error in damaged), err=True)
    exit_if(damaged)


@app.command()
def verify(
    results: options.Results = RESULTS,
    fix: Annotated[bool, typer.Option("--fix", help="Move damaged files aside.")] = False,
) -> None:
    """Check every stored byte: print one line for each damaged file, with the remedy.

    Weights and records are compared with their stored hashes. With --fix, what is damaged is renamed to NAME.damaged-1,
    so that `bench run` recomputes what it can. Exit code 1 if problems remain.
    """
    from bench.store import Damaged
    from bench.store.format import NAME
    from bench.store.verify import verify_store

    if not results.is_dir():
        raise UserError(f"--results {results}: no such folder; name the folder of a store")
    if not (results / "runs").is_dir() and not (results / NAME).exists():
        raise UserError(f"--results {results}: is not a store; name the folder that holds runs/")
    try:
        wrong, mended = verify_store(store_at(results), fix)
    except Damaged as error:  # store.json: nothing is looked at in a store whose format is not known
        echo(error)
        raise typer.Exit(1) from error
    echo(*wrong, *mended)
    echo(f"problems: {len(wrong)}" + (f", moved aside: {len(mended)}" if mended else ""))
    exit_if(wrong)


@app.command()
def retrain(
    run: options.RunId,
    weights: Annotated[
        bool, typer.Option("--weights", help="Train it in this store, to restore lost final weights.")
    ] = False,
    results: options.Results = RESULTS,
    plugin: options.Plugins = None,
    data: options.DataFolder = None,
) -> None:
    """Train a stored run again in a temporary store and compare: bytes, or losses on another type of machine.

    Exit code 1 if they differ.
    """
    load_plugins(plugin)
    use_data(data)
    from bench.board import retrain as again

    verified = (again.restore_weights if weights else again.retrain_run)(store_at(results), run)
    echo(f"{verified.title}: {'consistent' if verified.consistent else 'NOT consistent'}: {verified.text}")
    exit_if(not verified.consistent)


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"
