"""Verbs that run a suite and look at its runs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli.options import (
    RESULTS,
    Overrides,
    Plugins,
    Results,
    SuiteName,
    load_plugins,
    store_at,
    suite_name,
    write_report,
)
from bench.errors import UNFINISHED, UserError

if TYPE_CHECKING:
    from bench.launch.work import Summary
    from bench.run import Planned
    from bench.store import Store
    from bench.suite import Suite
    from bench.tune import Choice


def run(
    suite: SuiteName,
    results: Results = RESULTS,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="LABEL", help="Only this method; may be repeated.")
    ] = None,
    seeds: Annotated[str, typer.Option("--seeds", metavar="0,1", help="Only these of the suite's seeds.")] = "",
    overrides: Overrides = None,
    plugin: Plugins = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Runs at a time, sharing this machine's cores.")] = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be run and what it would take; run nothing.")
    ] = False,
) -> None:
    """Train and evaluate what is missing of a suite, then write its report.

    Runs already stored are not run again; an interrupted run goes on where it stopped.
    Exit codes: 0 all done, 1 a run failed, 2 bad input, 75 interrupted or busy elsewhere (the same command resumes).
    """
    load_plugins(plugin)
    from bench.suite import load_suite

    asked = load_suite(suite, overrides or ())
    labels, numbers = tuple(only or ()), _numbers(seeds)
    asked.select(labels, numbers)  # names what it does not have before anything starts
    store = store_at(results)
    if dry_run:
        _dry_run(asked, labels, numbers, store)
        return
    from bench import progress, tune
    from bench.launch.local import refuse_sharing, run_all

    refuse_sharing(asked.budget.kind == "device_seconds", jobs)  # before steps are timed, which planning such runs does
    choices: dict[str, tune.Choice] = {}
    with progress.on() as shown:
        if asked.tune:
            choices, trials = tune.search(asked, store, labels, lambda todo: run_all(todo, store, shown, jobs))
            if trials.busy or trials.interrupted or trials.failed:
                raise typer.Exit(_conclude(trials))
        chosen = tune.tuned(asked, choices).select(labels, numbers)
        summary = run_all(_planned(chosen, choices, store), store, shown, jobs)
    if not summary.interrupted:
        page = store.suite(chosen.name) / "report.html"
        if not _is_fresh(page, chosen.name, store):
            write_report(chosen.name, store)
        typer.echo(f"report: {page}")
    raise typer.Exit(_conclude(summary))


def status(suite: SuiteName, results: Results = RESULTS) -> None:
    """Show which runs of a suite are done, running, failed or missing."""
    from bench.show import columns
    from reports.status import status as rows_of

    store = store_at(results)
    rows = rows_of(suite_name(suite, store), store)
    for line in columns([list(map(str, row)) for row in rows]):
        typer.echo(line)


def show(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or enough of its beginning.")],
    results: Results = RESULTS,
) -> None:
    """Show everything about one run: status, settings, ledger, environment, records."""
    from bench.show import describe, find_run

    typer.echo(describe(find_run(store_at(results), run)))


def _planned(suite: Suite, choices: Mapping[str, Choice], store: Store) -> list[Planned]:
    """The selected runs with ids and steps; writes the plan of the whole suite."""
    from bench import identity, plan, steps

    planned = steps.plan(suite.select().runs(), store)
    last = store.plan(suite.name)
    made = plan.build(suite, planned, choices, last)
    if last is None or identity.digest({**last, "made": made["made"]}) != identity.digest(made):
        store.write_plan(suite.name, made)
    if len(choices) == len(suite.methods):
        store.forget_trials(suite.name)  # the plan names them now
    chosen = {run.key for run in suite.runs()}
    return [one for one in planned if one.run.key in chosen]


def _conclude(summary: Summary) -> int:
    """Say in one line how it went; the exit code that says the same."""
    if not (summary.done or summary.failed or summary.busy or summary.interrupted):
        typer.echo(f"nothing to do: all {len(summary.skipped)} runs are done")
        return 0
    counts = {
        "done": len(summary.done),
        "done before": len(summary.skipped),
        "failed": len(summary.failed),
        "busy in another process": len(summary.busy),
    }
    said = [f"{count} {what}" for what, count in counts.items() if count]
    typer.echo(f"runs: {', '.join(said) or 'none done'}")
    if summary.failed:
        typer.echo(f"failed: {', '.join(run[:16] for run in summary.failed)}; bench show RUN says why", err=True)
    if summary.interrupted or summary.busy:
        typer.echo(f"resume with: {shlex.join(['bench', *sys.argv[1:]])}", err=True)
        return UNFINISHED
    return 1 if summary.failed else 0


def _dry_run(suite: Suite, only: Sequence[str], seeds: Sequence[int], store: Store) -> None:
    from bench import tune
    from bench.estimate import estimate
    from bench.launch.work import is_complete
    from bench.progress import duration
    from bench.show import SHORT, columns

    rows = [("run", "stored", "steps", "")]
    choices = tune.known(suite, store) if suite.tune else {}
    planned = _planned(tune.tuned(suite, choices).select(only, seeds), choices, store)
    trials = tune.missing(suite, store, only, choices) if suite.tune else []
    for one in [*trials, *planned]:
        stored = "complete" if is_complete(one, store) else store.run(one.id).status()["state"]
        rows.append((one.id[:SHORT], stored, f"{one.resolved.steps:,}", one.run.title))
    for line in columns(rows):
        typer.echo(line)
    if trials:
        typer.echo("rows whose trials are still to be made are shown at the suite's settings")
    left = estimate([*trials, *planned], store)
    if left.runs:
        evaluation = "not known yet" if left.evaluate_seconds is None else duration(left.evaluate_seconds)
        training, disk = duration(left.train_seconds), f"{left.disk_bytes / 2**20:,.0f} MiB"
        typer.echo(f"to do: {left.runs} runs, training {training}, evaluation {evaluation}, disk {disk}")
        typer.echo(f"seconds are those of {left.source}, on this machine")


def _is_fresh(page: Path, suite: str, store: Store) -> bool:
    """Whether a report is younger than its plan and than the last change of any run it shows."""
    ids = {cell["run"] for cell in (store.plan(suite) or {"cells": []})["cells"]}
    sources = [page.with_name("plan.json"), *(store.run(identity).path("status.json") for identity in ids)]
    made = page.stat().st_mtime_ns if page.exists() else 0
    return all(source.stat().st_mtime_ns < made for source in sources if source.exists())


def _numbers(text: str) -> list[int]:
    """ "0,1" -> [0, 1]."""
    try:
        return [int(part) for part in text.split(",")] if text.strip() else []
    except ValueError as error:
        raise UserError(f"--seeds {text}: should be whole numbers with commas between, as in --seeds 0,1") from error
