"""What is still to do of a suite: hours and disk, said before anything starts."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.device import device
from bench.launch.work import is_complete
from bench.run import Planned, build
from bench.settings import SNAPSHOTS
from bench.steps import time_steps
from bench.store import Store

TIMED_STEPS = 8


@dataclass(frozen=True)
class Estimate:
    """For the runs that are not complete, one after the other on this machine."""

    runs: int
    train_seconds: float
    evaluate_seconds: float | None  #: None where no run of these towers was ever evaluated in this store
    disk_bytes: int
    source: str  #: where the seconds come from


def estimate(planned: Sequence[Planned], store: Store) -> Estimate:
    """FLOPs over the rate that finished runs of the same towers and batch reached, or that a few timed steps reach."""
    todo = [one for one in planned if not is_complete(one, store)]
    if not todo:
        return Estimate(0, 0.0, 0.0, 0, "nothing to do")
    flops = sum(one.resolved.flops for one in todo)
    first = todo[0].run
    ledgers = [
        run.ledger()
        for run in store.runs()
        if run.status()["state"] == "done"
        and run.settings()["towers"] == first.towers.model_dump()
        and run.settings()["train"]["batch"] == first.train.batch
    ]
    if ledgers:
        rate = statistics.median(one["flops"] / one["train_seconds"] for one in ledgers)
        evaluation = statistics.median(one["evaluate_seconds"] for one in ledgers) * len(todo)
        source = f"{len(ledgers)} finished runs of these towers"
    else:
        with device(alone=False):
            seconds = time_steps(first, TIMED_STEPS)
        rate = statistics.mean(todo[0].resolved.step_flops[name] / spent for name, spent in seconds.items())
        evaluation, source = None, f"{TIMED_STEPS} timed steps of {first.label}"
    return Estimate(len(todo), flops / rate, evaluation, _disk(todo[0]) * len(todo), source)


def _disk(one: Planned) -> int:
    """Bytes that one run of a suite keeps: weights, and a checkpoint with AdamW's two moments.

    All runs of a suite have the same towers. Features are deleted when a run is evaluated.
    """
    towers, _ = build(one.run)
    weights: int = sum(x.numel() * x.element_size() for x in towers.state_dict().values())
    return weights * (len(SNAPSHOTS) + 1 + 3)
