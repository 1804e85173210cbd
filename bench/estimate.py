"""What is still to do of a suite: hours and disk, said before anything starts."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from bench.device import device
from bench.gpus import UTILISATION, Gpu, gpu_hours
from bench.launch.work import is_complete
from bench.run import Planned, build
from bench.settings import SNAPSHOTS
from bench.steps import CALIBRATION_STEPS, costed, time_steps
from bench.store import Store

TIMED_STEPS = 8


@dataclass(frozen=True)
class Training:
    """What runs come to, whether their data is here or not."""

    runs: int
    steps: int
    samples: int  #: pairs seen
    flops: int
    hours: float  #: of one device
    disk_bytes: int  #: weights and checkpoints that are kept
    source: str  #: where the hours come from

    @property
    def text(self) -> str:
        """One line for a person."""
        return (
            f"{self.runs} runs, {self.steps:,} steps, {self.samples / 1e6:,.0f} M samples, {self.flops:.2e} FLOPs, "
            f"{self.hours:,.1f} hours, {self.disk_bytes / 2**30:,.1f} GiB; hours are of {self.source}"
        )


def on_gpu(planned: Sequence[Planned], gpu: Gpu, utilisation: float = UTILISATION) -> Training:
    """Training on a named card at a share of its peak. Evaluation and waiting for data are not in it.

    Raises UserError for a share outside (0, 1].
    """
    hours = gpu_hours(sum(one.resolved.flops for one in planned), gpu, utilisation)
    source = f"one {gpu.name} at {utilisation:.0%} of {gpu.peak / 1e12:,.0f} TFLOP/s {gpu.precision} ({gpu.datasheet})"
    return _training(planned, hours, source)


def calibrated(planned: Sequence[Planned], steps: int = CALIBRATION_STEPS) -> Training:
    """Training on this machine's device, from `steps` real steps of the first run of every pair of towers."""
    hours = 0.0
    firsts: list[str] = []
    with device(alone=False):
        for group in _by_towers(planned):
            first = group[0]
            seconds = time_steps(costed(first), steps)
            rate = statistics.mean(first.resolved.step_flops[name] / spent for name, spent in seconds.items())
            hours += sum(one.resolved.flops for one in group) / rate / 3600
            firsts.append(first.run.title)
    return _training(planned, hours, f"this machine, {steps} timed steps of {'; '.join(firsts)}")


def _training(planned: Sequence[Planned], hours: float, source: str) -> Training:
    return Training(
        runs=len(planned),
        steps=sum(one.resolved.steps for one in planned),
        samples=sum(one.resolved.steps * one.resolved.batch for one in planned),
        flops=sum(one.resolved.flops for one in planned),
        hours=hours,
        disk_bytes=_disk(planned),
        source=source,
    )


def _by_towers(planned: Sequence[Planned]) -> list[list[Planned]]:
    groups: dict[str, list[Planned]] = {}
    for one in planned:
        groups.setdefault(one.run.towers.model_dump_json(), []).append(one)
    return list(groups.values())


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
    finished = [
        (run.ledger(), run.environment().get("ranks", {}).get("world", 1))
        for run in store.runs()
        if run.status()["state"] == "done"
        and run.settings()["towers"] == first.towers.model_dump()
        and run.settings()["train"]["batch"] == first.train.batch
        and run.settings()["train"]["threads"] == first.train.threads
    ]
    if finished:  # a ledger sums the seconds of all ranks
        rate = statistics.median(ranks * one["flops"] / one["train_seconds"] for one, ranks in finished)
        evaluation = statistics.median(one["evaluate_seconds"] for one, _ in finished) * len(todo)
        source = f"{len(finished)} finished runs of these towers"
    else:
        with device(alone=False):
            seconds = time_steps(first, TIMED_STEPS)
        rate = statistics.mean(todo[0].resolved.step_flops[name] / spent for name, spent in seconds.items())
        evaluation, source = None, f"{TIMED_STEPS} timed steps of {first.label}"
    return Estimate(len(todo), flops / rate, evaluation, _disk(todo), source)


def _disk(planned: Sequence[Planned]) -> int:
    """Bytes that runs keep: weights, and a checkpoint with AdamW's two moments.

    Counted on meta tensors, by towers; what a method adds to them is little. Features are deleted when a run is
    evaluated.
    """
    total = 0
    for group in _by_towers(planned):
        run = costed(group[0])
        with torch.device("meta"):
            towers, _ = build(run)
        weights: int = sum(x.numel() * x.element_size() for x in towers.state_dict().values())
        total += weights * (len(SNAPSHOTS) + 1 + 3) * len(group)
    return total
