"""`bench run --dry-run` and `bench.dry_run`: list the runs of a suite, estimate their cost, name missing inputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.catalogue import gpus
from bench.console import progress
from bench.console.progress import Progress, duration
from bench.console.text import columns
from bench.data.source import source
from bench.errors import UserError
from bench.planning import plan_file, requirements, tune
from bench.planning.estimate import estimate, on_gpu
from bench.planning.outcomes import is_complete
from bench.planning.planned import Planned
from bench.store import Store
from bench.store.doctor import problems
from bench.store.run import SHORT
from bench.suite.suite import Suite, load_suite
from bench.suite.unfit import left_out
from bench.training.inputs import InputsReader

GPU = "A100"  #: the card of the estimate if the suite cannot be timed here and no card is named


def dry_run(
    suite: Suite | str | Path,
    results: Path | str = "results",
    *,
    only: Sequence[str] = (),
    seeds: Sequence[int] = (),
    gpu: str | None = None,
    utilisation: float | None = None,
) -> list[str]:
    """Describe in lines of text what `run_suite` would do: its runs, their steps, estimated hours, missing inputs.

    suite, results, only, seeds: as `run_suite` takes them. gpu: the card whose hours are estimated, such as "a100", at
    the share `utilisation` of its peak.

    Trains nothing. Without `only` and `seeds` it writes the plan of the suite, so that its report can be drawn; with
    them it counts the cost of these runs alone and writes nothing. Raises UserError for bad settings and for options
    that contradict each other.

    >>> print(*bench.dry_run("quickstart"), sep="\\n")  # doctest: +SKIP
    """
    if utilisation is not None and gpu is None:
        raise UserError(f"--utilisation {utilisation:g}: is of a card; name it with --gpu")
    share = gpus.UTILISATION if utilisation is None else utilisation
    loaded = suite if isinstance(suite, Suite) else load_suite(suite)
    loaded.narrowed(only, seeds)  # refuses unknown labels and seeds before anything is planned
    store = Store(Path(results))
    with progress.on() as shown:
        return _lines(loaded, store, only, seeds, gpu, share, shown)


def _lines(
    suite: Suite,
    store: Store,
    only: Sequence[str],
    seeds: Sequence[int],
    gpu: str | None,
    share: float,
    shown: Progress,
) -> list[str]:
    """Plan the suite and describe its runs; `shown` says meanwhile what is looked for, planned and estimated."""
    shown.preparing("looking for data", suite.data.name)
    lacking = requirements.missing(suite)
    present = not any(
        missing(suite)
        for missing in (requirements.training, requirements.starts, requirements.noise, requirements.towers)
    )
    reader = InputsReader()
    labels = sorted({run.label for run in suite.narrowed(only).runs()}) if only else []
    choices = tune.known(suite, store, reader, shown, labels) if suite.tune and present else {}
    asked = tune.tuned(suite, choices).narrowed(only, seeds)
    if only or seeds:
        planned = plan_file.selected(asked, store, present, reader, shown)
    else:
        planned = plan_file.write(asked, choices, store, present, reader, shown)
    trials = tune.missing(suite, store, labels, choices, reader, shown) if suite.tune and present else []
    rows = [("run", "stored", "steps", "")]
    for one in [*trials, *planned]:
        rows.append((one.id[:SHORT], _stored(one, store), f"{one.resolved.steps:,}", one.run.title))
    lines = [*columns(rows), *_left_out(suite)]
    if trials:
        later = ", trials at their next budget alone" if suite.tune and len(suite.tune.rungs) > 1 else ""
        lines.append(f"rows whose trials are still to be made are shown at the suite's settings{later}")
    if suite.tune and not present:
        lines.append(f"{suite.tune.runs} trials of every row come on top; they are planned when the data is here")
    return [*lines, *_hours([*trials, *planned], store, suite, gpu, share, shown), *requirements.listing(lacking)]


def _left_out(suite: Suite) -> list[str]:
    """Rows without runs on towers that read stored features, with the reason."""
    reasons = {entry.label: left_out(suite, entry) for entry in suite.methods}
    return list(dict.fromkeys(f"not applicable: {reason}" for own in reasons.values() for reason in own.values()))


def _stored(one: Planned, store: Store) -> str:
    """The state of a run in the words of `bench status`, or "complete" if the suite needs nothing more of it."""
    if one.expected:
        return "no data"
    if is_complete(one, store):
        return "complete"
    state = "damaged" if problems(store.run(one.id)) else str(store.run(one.id).status()["state"])
    return "trained" if state == "done" else state


def _hours(
    planned: list[Planned], store: Store, suite: Suite, gpu: str | None, share: float, shown: Progress
) -> list[str]:
    """Estimate the runs that are not complete on a card at a share of its peak.

    Without a card, embedded data and stored features are estimated by steps timed on this machine, and other data on
    the card `GPU`.
    """
    todo = [one for one in planned if one.expected or not is_complete(one, store)]
    if not todo:
        return []
    shown.preparing("estimating", f"{len(todo)} runs")
    if gpu or not source(suite.data).in_memory or planned[0].expected:
        return f"to do: {on_gpu(todo, gpus.find(gpu or GPU), share).text}".splitlines()
    left = estimate(planned, store)
    evaluation = "not known yet" if left.evaluate_seconds is None else duration(left.evaluate_seconds)
    training, disk = duration(left.train_seconds), f"{left.disk_bytes / 2**20:,.0f} MiB"
    return [
        f"to do: {left.runs} runs, training {training}, evaluation {evaluation}, disk {disk}",
        f"seconds are those of {left.source}, on this machine",
    ]
