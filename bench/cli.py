"""The verbs of the command line: arguments and printing. Whatever is heavy is imported by the verb that needs it."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.device import InUse
from bench.errors import UserError

if TYPE_CHECKING:
    from bench.data import Pairs
    from bench.data.noise import NoiseManifest
    from bench.launch.local import Summary
    from bench.run import Planned
    from bench.store import Store
    from bench.suite import Suite

UNFINISHED = 75  #: exit code: stopped on request or busy in another process; the same command goes on

app = typer.Typer(
    help="Compare noise-robust contrastive image-text learning methods: same budget, same noise, more than chance.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
noise = typer.Typer(help="Look at the noise of a suite.", no_args_is_help=True)
app.add_typer(noise, name="noise")

SuiteName = Annotated[str, typer.Argument(metavar="SUITE", help="A YAML file, or the name of a shipped suite.")]
Results = Annotated[Path, typer.Option("--results", metavar="DIR", help="Where results are stored.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A.B=VALUE", help="Change a value of the suite, as in --set train.lr=1e-3."),
]
Plugins = Annotated[
    list[str] | None, typer.Option("--plugin", metavar="FILE", help="A file with one more method in it.")
]
RESULTS = Path("results")


@app.command()
def run(
    suite: SuiteName,
    results: Results = RESULTS,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="LABEL", help="Only this method; may be repeated.")
    ] = None,
    seeds: Annotated[str, typer.Option("--seeds", metavar="0,1", help="Only these of the suite's seeds.")] = "",
    overrides: Overrides = None,
    plugin: Plugins = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be run and what it would take; run nothing.")
    ] = False,
) -> None:
    """Train and evaluate what is missing of a suite, then write its report.

    Runs already stored are not run again; an interrupted run goes on where it stopped.
    Exit codes: 0 all done, 1 a run failed, 2 bad input, 75 interrupted or busy elsewhere (the same command resumes).
    """
    _load_plugins(plugin)
    from bench.suite import load_suite

    chosen = load_suite(suite, overrides or ()).select(only or (), _numbers(seeds))
    store = _store(results)
    if dry_run:
        _dry_run(chosen, store)
        return
    from bench import progress
    from bench.launch.local import run_all

    planned = _planned(chosen, store)
    with progress.on() as shown:
        summary = run_all(planned, store, shown)
    if not summary.interrupted:
        page = store.suite(chosen.name) / "report.html"
        if not _is_fresh(page, chosen.name, store):
            _report(chosen.name, store)
        typer.echo(f"report: {page}")
    raise typer.Exit(_conclude(summary))


@app.command()
def report(suite: SuiteName, results: Results = RESULTS) -> None:
    """Write tables, figures and the HTML page of a suite from stored results. Works while runs are still going."""
    store = _store(results)
    for path in _report(_suite_name(suite, store), store):
        typer.echo(path)


@app.command()
def status(suite: SuiteName, results: Results = RESULTS) -> None:
    """Show which runs of a suite are done, running, failed or missing."""
    from bench.show import columns
    from reports.status import status as rows_of

    store = _store(results)
    rows = rows_of(_suite_name(suite, store), store)
    for line in columns([list(map(str, row)) for row in rows]):
        typer.echo(line)


@app.command()
def show(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or enough of its beginning.")],
    results: Results = RESULTS,
) -> None:
    """Show everything about one run: status, settings, ledger, environment, records."""
    from bench.show import describe, find_run

    typer.echo(describe(find_run(_store(results), run)))


@app.command()
def compare(
    suite: SuiteName,
    a: Annotated[str, typer.Argument(metavar="A", help="A method's label.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The label it is compared with.")],
    results: Results = RESULTS,
) -> None:
    """Say how two methods of a suite differ: difference, interval, p-value and cost per metric, and a verdict."""
    from reports.compare import compare as compared

    store = _store(results)
    typer.echo(compared(_suite_name(suite, store), store, a, b).text())


@app.command()
def methods(plugin: Plugins = None) -> None:
    """List the methods: paper, fidelity, what they keep, what a step costs, their presets."""
    _load_plugins(plugin)
    from bench.catalogue import catalogue

    typer.echo(catalogue())


@noise.command("show")
def noise_show(
    suite: SuiteName,
    rate: Annotated[
        float | None, typer.Option("--rate", help="One of the suite's rates; default: the highest.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="One of the suite's seeds; default: the first.")] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Corrupted pairs to show.")] = 20,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page with the pictures as well.")
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Show corrupted pairs of a suite: the picture's own caption and the one it got."""
    from bench.data.noise_page import noise_page, noise_text
    from bench.suite import load_suite

    pairs, manifest = _manifest(load_suite(suite, overrides or (), check_methods=False), rate, seed)
    typer.echo(noise_text(pairs, manifest, count), nl=False)
    if html is not None:
        html.write_text(noise_page(pairs, manifest, count), encoding="utf-8")
        typer.echo(html)


def _manifest(suite: Suite, rate: float | None, seed: int | None) -> tuple[Pairs, NoiseManifest]:
    """The training pairs and one of the suite's noise manifests."""
    from bench.data import load
    from bench.data.noise import shuffled_captions

    if suite.noise.kind != "shuffled_captions":
        raise UserError(
            f"suite {suite.name}: {suite.noise.kind} draws anew in every step; there is no fixed set to show"
        )
    rate = max(suite.noise.rates) if rate is None else rate
    seed = suite.seeds[0] if seed is None else seed
    for option, value, known in (("--rate", rate, suite.noise.rates), ("--seed", seed, suite.seeds)):
        if value not in known:
            raise UserError(f"{option} {value}: suite {suite.name} has {', '.join(map(str, known))}")
    pairs = load(f"{suite.data.name}/train", suite.data.size)
    return pairs, shuffled_captions(pairs, rate, seed)


def _planned(suite: Suite, store: Store) -> list[Planned]:
    """The selected runs with ids and steps; writes the plan of the whole suite."""
    from bench import identity, plan, steps

    planned = steps.plan(suite.select().runs(), store)
    last = store.plan(suite.name)
    made = plan.build(suite, planned, last)
    if last is None or identity.digest({**last, "made": made["made"]}) != identity.digest(made):
        store.write_plan(suite.name, made)
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
        typer.echo("bench status SUITE says which runs failed, bench show RUN why", err=True)
    if summary.interrupted or summary.busy:
        typer.echo(f"resume with: {shlex.join(['bench', *sys.argv[1:]])}", err=True)
        return UNFINISHED
    return 1 if summary.failed else 0


def _dry_run(suite: Suite, store: Store) -> None:
    from bench.estimate import estimate
    from bench.launch.local import is_complete
    from bench.progress import duration
    from bench.show import SHORT, columns

    rows = [("run", "stored", "steps", "")]
    planned = _planned(suite, store)
    for one in planned:
        stored = "complete" if is_complete(one, store) else store.run(one.id).status()["state"]
        rows.append((one.id[:SHORT], stored, f"{one.resolved.steps:,}", one.run.title))
    for line in columns(rows):
        typer.echo(line)
    left = estimate(planned, store)
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


def _store(results: Path) -> Store:
    from bench.store import Store

    return Store(results)


def _report(name: str, store: Store) -> list[str]:
    """Build a suite's report; returns what was written."""
    from reports.build import build

    return [str(path) for path in build(name, store).paths]


def _suite_name(suite: str, store: Store) -> str:
    """The name of a suite given by file or name; a note where its plan was made from other settings.

    A suite whose file is gone can still be reported on by name.
    """
    from bench import resources

    plan = store.plan(suite) if Path(suite).name == suite else None
    if plan is not None and not resources.is_suite(suite):
        return suite
    from bench.suite import load_suite

    loaded = load_suite(suite, check_methods=False)
    plan = store.plan(loaded.name)
    if plan is not None and plan["suite_hash"] != loaded.hash:
        note = f"note: the last plan of {loaded.name} was made from other settings than {suite} has now"
        typer.echo(f"{note}; 'bench run {suite} --dry-run' brings it up to date", err=True)
    return loaded.name


def _load_plugins(files: list[str] | None) -> None:
    from bench import discovery

    for file in files or ():
        discovery.add_plugin(file)


def _numbers(text: str) -> list[int]:
    """ "0,1" -> [0, 1]."""
    try:
        return [int(part) for part in text.split(",")] if text.strip() else []
    except ValueError as error:
        raise UserError(f"--seeds {text}: should be whole numbers with commas between, as in --seeds 0,1") from error


def main() -> None:
    """The `bench` command."""
    # Threads that spin while they wait (300,000 times by default) make a busy machine crawl: a small ResNet's step on
    # two cores took 32 ms idle and 1,200 ms beside another process, with 1,000 times 41 and 96. Read when torch loads.
    if not os.environ.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}:
        os.environ["GOMP_SPINCOUNT"] = "1000"
    try:
        app(prog_name="bench")
    except UserError as error:
        typer.echo(str(error), err=True)
        sys.exit(2)
    except InUse as error:
        typer.echo(str(error), err=True)
        sys.exit(UNFINISHED)
