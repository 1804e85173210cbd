"""Commands that execute a suite and show its runs."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli import options
from bench.cli.options import RESULTS, exit_if, load_plugins, store_at, suite_name, use_data, write_report
from bench.console.text import echo
from bench.errors import EXIT_UNFINISHED, UserError

if TYPE_CHECKING:
    from bench.planning.outcomes import RunOutcomes


def run(
    suite: options.SuiteName,
    results: options.Results = RESULTS,
    only: options.Only = None,
    seeds: options.Seeds = "",
    overrides: options.Overrides = None,
    plugin: options.Plugins = None,
    data: options.DataFolder = None,
    jobs: options.Jobs = None,
    gpus: options.Gpus = None,
    processes: options.Processes = None,
    launcher: options.LauncherName = "local",
    track: options.Track = None,
    dry_run: options.DryRun = False,
    plan_only: options.PlanOnly = False,
    gpu: options.GpuName = None,
    utilisation: options.Utilisation = None,
) -> None:
    """Train and evaluate the missing runs of a suite, then write its report.

    Runs already stored are not run again; an interrupted run resumes. Under torchrun, also
    over several machines, all ranks execute each run together:
    torchrun --nnodes 2 --nproc-per-node 8 -m bench run SUITE.

    Exit codes: 0 all done or handed to SLURM, 1 a run failed, 2 bad input or a full disk,
    75 interrupted or busy elsewhere (the same command resumes), 130 ended at once by Ctrl-C,
    before the runs or by the second one.
    """

    def lead() -> int:
        import bench

        loaded, labels, numbers = bench.load_suite(suite, overrides or ()), only or [], _numbers(seeds)
        store_at(results)
        if (gpu or utilisation is not None) and not dry_run:
            raise UserError("--gpu and --utilisation estimate hours; they need --dry-run")
        if plan_only:
            if dry_run or track or jobs or gpus or processes or launcher != "local":
                raise UserError(
                    "--plan-only: not with --dry-run, and --track, --jobs, --gpus, --processes and --launcher are for "
                    "`bench worker`"
                )
            from bench.launch.worker import queue_suite

            count, worker = queue_suite(loaded, results, labels, numbers), shlex.join(["bench", "worker", str(results)])
            echo(f"queued: {count} runs of {loaded.name}; execute them with: {worker}")
            return 0
        if dry_run:
            estimate = partial(bench.dry_run, gpus=gpus, launcher=launcher, gpu=gpu, utilisation=utilisation)
            echo(*estimate(loaded, results, only=labels, seeds=numbers))
            return 0
        start = partial(bench.run_suite, jobs=jobs, gpus=gpus, processes=processes, launcher=launcher, track=track)
        return _reported(loaded.name, results, start(loaded, results, only=labels, seeds=numbers))

    raise typer.Exit(_on_all_ranks(plugin, data, results, lead))


def worker(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="The folder where suites are queued.")],
    suite: options.QueuedSuites = None,
    plugin: options.Plugins = None,
    data: options.DataFolder = None,
    jobs: options.Jobs = None,
    gpus: options.Gpus = None,
    processes: options.Processes = None,
    track: options.Track = None,
) -> None:
    """Execute the runs that `bench run SUITE --plan-only` queued, alongside other workers, until none is left.

    A run is executed by one worker. A worker waits for the runs that others hold and takes
    over those of a worker that died: at once on the same machine, after ten minutes without
    a sign of life from another one. A run that failed is not tried again until its suite is
    queued again. `bench report SUITE` then writes the report.

    Exit codes: 0 all are done, whoever executed them, 1 a run failed, 2 bad input or a full
    disk, 75 stopped on request (the same command continues), 130 ended at once by Ctrl-C.
    """

    def lead() -> int:
        from bench.launch.launchers import LaunchOptions
        from bench.launch.worker import work_on_queue

        store_at(results)
        return _conclude(work_on_queue(results, suite or (), LaunchOptions(jobs or 0, gpus, processes, track)))

    raise typer.Exit(_on_all_ranks(plugin, data, results, lead))


def _on_all_ranks(plugin: list[str] | None, data: Path | None, results: Path, lead: Callable[[], int]) -> int:
    """Register plug-ins and data; call `lead`, in rank 0 if a launcher started several, and return its exit code.

    results: a folder that all ranks see.
    """
    if os.environ.get("WORLD_SIZE", "1") != "1":
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # torch prints stacks of a rank that ended; we say which
    if sys.stderr.isatty():
        echo("loading torch", err=True)  # which takes seconds; what comes after shows its own progress
    from bench.launch.torchrun import launcher_place, meet_ranks, on_all_ranks

    here = launcher_place()
    load_plugins(plugin)
    use_data(data)
    return lead() if here is None else on_all_ranks(meet_ranks(here), results, lead)


def _reported(name: str, results: Path, summary: RunOutcomes) -> int:
    """Write the report of a suite unless it is up to date, or runs are still to come; print where it is.

    Returns the exit code of `_conclude`.
    """
    from reports.build import is_fresh

    store = store_at(results)
    if not (summary.interrupted or summary.queued) and store.plan(name) is not None:
        if not is_fresh(name, store):
            write_report(name, store)
        echo(f"report: {store.suite(name) / 'report.html'}")
    return _conclude(summary)


def status(suite: options.SomeSuite = None, results: options.Results = RESULTS) -> None:
    """Show the runs of a suite: done, running, failed or missing, with jobs of SLURM or Ray; or list all suites.

    Exit code 1 if a file of a run is damaged; the run's line names it.
    """
    from bench.console.text import align_columns
    from bench.results import suite_rows
    from reports.status import status as status_rows

    store = store_at(results)
    if suite is None:
        echo(*align_columns(suite_rows(store)))
        return
    rows = status_rows(suite_name(suite, store), store)
    echo(*align_columns(rows))
    exit_if(any(row[3] == "damaged" for row in rows))


def show(run: options.RunId, results: options.Results = RESULTS) -> None:
    """Show everything about one run: status, settings, ledger, environment, records.

    Exit code 1 if a file of it is damaged; the file is named, and all others are shown.
    """
    from bench.cli.text import describe_run
    from bench.store.run import find_run
    from bench.store.verify import run_problems

    stored = find_run(store_at(results), run)
    damaged = run_problems(stored)
    echo(*describe_run(stored, damaged).split("\n"))
    exit_if(damaged)


def _conclude(summary: RunOutcomes) -> int:
    """Print the outcome of the runs in one line; return the corresponding exit code."""
    if not (summary.done or summary.failed or summary.busy or summary.interrupted or summary.queued):
        echo(f"nothing to do: all {len(summary.skipped)} runs are done")
        return 0
    counts = {
        "done": len(summary.done),
        "done before": len(summary.skipped),
        "failed": len(summary.failed),
        "busy in another process": len(summary.busy),
        "in SLURM's queue (bench status shows them)": len(summary.queued),
    }
    parts = [f"{count} {what}" for what, count in counts.items() if count]
    echo(f"runs: {', '.join(parts) or 'none done'}")
    if summary.failed:
        echo(f"failed: {', '.join(run[:16] for run in summary.failed)}; bench show RUN says why", err=True)
    if summary.interrupted or summary.busy:
        echo(f"resume with: {shlex.join(['bench', *sys.argv[1:]])}", err=True)
        return EXIT_UNFINISHED
    return 1 if summary.failed else 0


def _numbers(text: str) -> list[int]:
    """Parse the seeds: "0,1" becomes [0, 1]."""
    try:
        return [int(part) for part in text.split(",")] if text.strip() else []
    except ValueError as error:
        raise UserError(f"--seeds {text}: should be whole numbers separated by commas, as in --seeds 0,1") from error
