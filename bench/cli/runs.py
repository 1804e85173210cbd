"""Verbs that run a suite and look at its runs."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli.options import (
    RESULTS,
    DataFolder,
    Overrides,
    Plugins,
    Results,
    SuiteName,
    load_plugins,
    store_at,
    suite_name,
    use_data,
    write_report,
)
from bench.errors import UNFINISHED, UserError, nearest

if TYPE_CHECKING:
    from bench.planning.outcomes import Summary


def run(
    suite: SuiteName,
    results: Results = RESULTS,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="LABEL", help="Only this method; may be repeated.")
    ] = None,
    seeds: Annotated[str, typer.Option("--seeds", metavar="0,1", help="Only these of the suite's seeds.")] = "",
    overrides: Overrides = None,
    plugin: Plugins = None,
    data: DataFolder = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Runs at a time; each process has train.threads.")] = 1,
    gpus: Annotated[int | None, typer.Option("--gpus", min=1, help="GPUs a run, with a process each.")] = None,
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, help="Processes a run, on a machine without GPUs.")
    ] = None,
    launcher: Annotated[
        str, typer.Option("--launcher", metavar="NAME", help="local: on this machine; slurm: one job a run.")
    ] = "local",
    track: Annotated[
        str | None, typer.Option("--track", metavar="tensorboard|wandb", help="Stream metrics there as well.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be run, what it would take, what is missing; run nothing.")
    ] = False,
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="NAME", help="With --dry-run: hours of this card, such as a100.")
    ] = None,
    utilisation: Annotated[
        float | None, typer.Option("--utilisation", metavar="SHARE", help="With --gpu: of the card's peak; 0.35.")
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate", help="With --dry-run: hours of this machine, evaluation too, by 20 timed steps."),
    ] = False,
) -> None:
    """Train and evaluate what is missing of a suite, then write its report.

    Runs already stored are not run again; an interrupted run goes on where it stopped.
    Exit codes: 0 all done or handed to SLURM, 1 a run failed, 2 bad input, 75 interrupted or busy elsewhere (the same
    command resumes).
    """
    load_plugins(plugin)
    use_data(data)
    from bench.launch.launcher import LAUNCHERS
    from bench.suite.suite import load_suite

    asked = load_suite(suite, overrides or ())
    labels, numbers = tuple(only or ()), _numbers(seeds)
    asked.select(labels, numbers)  # refuses unknown labels and seeds before anything starts
    if launcher not in LAUNCHERS:
        raise UserError(
            f"--launcher {launcher}: should be {' or '.join(LAUNCHERS.names())}{nearest(launcher, LAUNCHERS.names())}"
        )
    store = store_at(results)
    _refuse_odd_estimates(dry_run, gpu, utilisation, calibrate)
    if dry_run:
        from bench.cli.dry_run import Cost
        from bench.cli.dry_run import dry_run as said

        for line in said(asked, labels, numbers, store, Cost(gpu, utilisation, calibrate)):
            typer.echo(line)
        return
    from bench.launch.run_suite import run_suite
    from reports.build import is_fresh

    summary = run_suite(
        asked,
        results,
        only=labels,
        seeds=numbers,
        jobs=jobs,
        gpus=gpus,
        processes=processes,
        launcher=launcher,
        track=track,
    )
    if not (summary.interrupted or summary.queued) and store.plan(asked.name) is not None:
        if not is_fresh(asked.name, store):
            write_report(asked.name, store)
        typer.echo(f"report: {store.suite(asked.name) / 'report.html'}")
    raise typer.Exit(_conclude(summary))


def _refuse_odd_estimates(dry_run: bool, gpu: str | None, utilisation: float | None, calibrate: bool) -> None:
    if not dry_run and (gpu or utilisation or calibrate):
        raise UserError("--gpu, --utilisation and --calibrate estimate hours; they go with --dry-run")
    if calibrate and (gpu or utilisation):
        raise UserError("--calibrate times this machine; leave --gpu and --utilisation away")
    if utilisation is not None and gpu is None:
        raise UserError(f"--utilisation {utilisation:g}: is of a card; name it with --gpu")


def status(suite: SuiteName, results: Results = RESULTS) -> None:
    """Show which runs of a suite are done, running, failed or missing, and the SLURM jobs of those not done."""
    from bench.console.text import columns
    from bench.launch.jobs import jobs
    from bench.store.lookup import SHORT
    from reports.status import status as rows_of

    store = store_at(results)
    name = suite_name(suite, store)
    cells = (store.plan(name) or {"cells": []})["cells"]
    runs = {one: store.run(one) for cell in cells for one in (cell["run"], cell["reference_run"]) if one}
    found = rows_of(name, store)
    trained = {row[-2] for row in found if row[3] == "trained"}
    known = jobs(run for run in runs.values() if run.status()["state"] != "done" or run.id[:SHORT] in trained)
    shown = {identity[:SHORT]: job.shown for identity, job in known.items()}
    rows = [[*row[:-1], ", ".join(filter(None, (row[-1], shown.get(row[-2]))))] for row in found]
    for line in columns(rows):
        typer.echo(line)


def show(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or enough of its beginning.")],
    results: Results = RESULTS,
) -> None:
    """Show everything about one run: status, settings, ledger, environment, records."""
    from bench.cli.text import describe
    from bench.store.lookup import find_run

    typer.echo(describe(find_run(store_at(results), run)))


def _conclude(summary: Summary) -> int:
    """Say in one line how it went; the exit code that says the same."""
    if not (summary.done or summary.failed or summary.busy or summary.interrupted or summary.queued):
        typer.echo(f"nothing to do: all {len(summary.skipped)} runs are done")
        return 0
    counts = {
        "done": len(summary.done),
        "done before": len(summary.skipped),
        "failed": len(summary.failed),
        "busy in another process": len(summary.busy),
        "in SLURM's queue (bench status shows them)": len(summary.queued),
    }
    said = [f"{count} {what}" for what, count in counts.items() if count]
    typer.echo(f"runs: {', '.join(said) or 'none done'}")
    if summary.failed:
        typer.echo(f"failed: {', '.join(run[:16] for run in summary.failed)}; bench show RUN says why", err=True)
    if summary.interrupted or summary.busy:
        typer.echo(f"resume with: {shlex.join(['bench', *sys.argv[1:]])}", err=True)
        return UNFINISHED
    return 1 if summary.failed else 0


def _numbers(text: str) -> list[int]:
    """ "0,1" -> [0, 1]."""
    try:
        return [int(part) for part in text.split(",")] if text.strip() else []
    except ValueError as error:
        raise UserError(f"--seeds {text}: should be whole numbers with commas between, as in --seeds 0,1") from error
