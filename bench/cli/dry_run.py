"""`bench run --dry-run`: what would be run, what it would take, and what is missing for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.errors import UserError

if TYPE_CHECKING:
    from bench.planning.planned import Planned
    from bench.store import Store
    from bench.suite.suite import Suite

GPU = "A100"  #: hours are those of, where a suite cannot be timed here and nothing is said


@dataclass(frozen=True)
class Cost:
    """How hours are estimated: on a named GPU at a share of its peak, or by steps timed here."""

    gpu: str | None
    utilisation: float | None
    calibrate: bool


def dry_run(suite: Suite, only: Sequence[str], seeds: Sequence[int], store: Store, cost: Cost) -> list[str]:
    """Lines for a person. Writes the plan of the whole suite, so that its report can be drawn; runs nothing."""
    from bench.console.text import columns
    from bench.planning import plan_file, requirements, tune
    from bench.store.lookup import SHORT
    from bench.training.inputs import InputsReader

    lacking = requirements.missing(suite)
    here = not any(
        gone(suite) for gone in (requirements.training, requirements.starts, requirements.noise, requirements.towers)
    )
    reader = InputsReader()
    choices = tune.known(suite, store, reader) if suite.tune and here else {}
    planned = plan_file.write(tune.tuned(suite, choices).select(only, seeds), choices, store, here, reader)
    trials = tune.missing(suite, store, only, choices, reader) if suite.tune and here else []
    rows = [("run", "stored", "steps", "")]
    for one in [*trials, *planned]:
        rows.append((one.id[:SHORT], _stored(one, store), f"{one.resolved.steps:,}", one.run.title))
    lines = columns(rows)
    if trials:
        lines.append("rows whose trials are still to be made are shown at the suite's settings")
    if suite.tune and not here:
        lines.append(f"{suite.tune.trials} trials of every row come on top; they are planned when the data is here")
    return [*lines, *_hours([*trials, *planned], store, suite, cost), *requirements.listing(lacking)]


def _stored(one: Planned, store: Store) -> str:
    from bench.planning.outcomes import is_complete

    if one.expected:
        return "no data"
    if is_complete(one, store):
        return "complete"
    state = str(store.run(one.id).status()["state"])
    return "trained" if state == "done" else state  # as `bench status` says


def _hours(planned: list[Planned], store: Store, suite: Suite, cost: Cost) -> list[str]:
    """What is still to do, by the means that were asked for; without any, here for embedded data and on `GPU` else."""
    from bench.catalogue import gpus
    from bench.console.progress import duration
    from bench.planning.estimate import calibrated, estimate, on_gpu
    from bench.planning.outcomes import is_complete

    todo = [one for one in planned if one.expected or not is_complete(one, store)]
    if not todo:
        return []
    if cost.calibrate:
        try:
            return f"to do: {calibrated(todo).text}".splitlines()
        except UserError as error:  # what is missing is still to be listed
            return [f"to do: {len(todo)} runs that cannot be timed: {error}"]
    if cost.gpu or not suite.data.embedded or planned[0].expected:
        share = gpus.UTILISATION if cost.utilisation is None else cost.utilisation
        return f"to do: {on_gpu(todo, gpus.find(cost.gpu or GPU), share).text}".splitlines()
    left = estimate(planned, store)
    evaluation = "not known yet" if left.evaluate_seconds is None else duration(left.evaluate_seconds)
    training, disk = duration(left.train_seconds), f"{left.disk_bytes / 2**20:,.0f} MiB"
    return [
        f"to do: {left.runs} runs, training {training}, evaluation {evaluation}, disk {disk}",
        f"seconds are those of {left.source}, on this machine",
    ]
