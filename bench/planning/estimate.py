"""Hours and disk that the unfinished runs of a suite need, estimated before anything starts."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench.catalogue.gpus import UTILISATION, Gpu, gpu_hours
from bench.catalogue.noise_kinds import KINDS
from bench.evaluation.workload import Workload, workload
from bench.machine.device_lock import device
from bench.planning.flops import count_forward_flops, meta_towers
from bench.planning.outcomes import is_complete
from bench.planning.planned import Planned
from bench.planning.planner import costed
from bench.planning.timing import time_steps
from bench.store import Damaged, Store
from bench.suite.run import Run
from bench.suite.settings import SNAPSHOTS, TowerSettings
from bench.towers.build import OpenClipTowers
from bench.training.inputs import InputsReader

TIMED_STEPS = 8


@dataclass(frozen=True)
class Evaluation:
    """Images and texts that the towers encode to evaluate runs, at every point of their curves and at the end."""

    read: Workload
    flops: int  #: of forward passes only


@dataclass(frozen=True)
class Training:
    """The cost of runs, whether or not their data is on this machine."""

    runs: int
    steps: int
    samples: int  #: pairs seen
    flops: int  #: of training
    hours: float  #: of training, of one device
    disk_bytes: int  #: weights and checkpoints that are kept
    source: str  #: where the hours come from
    evaluation: Evaluation
    evaluate_hours: float  #: of one device
    rates: tuple[float, float]  #: pairs a second in training and images a second in evaluation that these hours take

    @property
    def text(self) -> str:
        """The lines to print: the cost, and what the hours include."""
        return (
            f"{self.runs} runs, {self.steps:,} steps, {self.samples / 1e6:,.0f} M samples, {self.flops:.2e} FLOPs, "
            f"{self.hours:,.1f} hours of training and {self.evaluate_hours:,.1f} of evaluation, "
            f"{self.disk_bytes / 2**30:,.1f} GiB\n"
            f"hours are of {self.source}; evaluation is the towers' forwards on {self.evaluation.read.images:,} images "
            f"and {self.evaluation.read.texts:,} texts, {self.evaluation.flops:.2e} FLOPs, without fits of probes\n"
            f"reading is not in the hours: a card then waits for nothing if {self.rates[0]:,.0f} pairs/s are decoded "
            f"in training and {self.rates[1]:,.0f} images/s in evaluation"
        )


def on_gpu(planned: Sequence[Planned], gpu: Gpu, utilisation: float = UTILISATION) -> Training:
    """Estimate training and evaluation on a named card at a share of its peak, without waiting for data.

    Raises UserError for a share outside (0, 1].
    """
    reader = InputsReader()
    hours = gpu_hours(sum(one.resolved.flops for one in planned), gpu, utilisation)
    measured = [_evaluation(group, reader) for group in _by_towers(planned)]
    evaluate_hours = gpu_hours(sum(one.flops for one in measured), gpu, utilisation)
    source = f"one {gpu.name} at {utilisation:.0%} of {gpu.peak / 1e12:,.0f} TFLOP/s {gpu.precision} ({gpu.datasheet})"
    pairs = sum(one.resolved.steps * one.resolved.batch for one in planned) / hours / 3600 if hours else 0.0
    images = sum(one.read.images for one in measured) / evaluate_hours / 3600 if evaluate_hours else 0.0
    return Training(
        runs=len(planned),
        steps=sum(one.resolved.steps for one in planned),
        samples=sum(one.resolved.steps * one.resolved.batch for one in planned),
        flops=sum(one.resolved.flops for one in planned),
        hours=hours,
        disk_bytes=_disk(planned, reader),
        source=source,
        evaluation=Evaluation(sum((one.read for one in measured), Workload()), sum(one.flops for one in measured)),
        evaluate_hours=evaluate_hours,
        rates=(pairs, images),
    )


def _towers(planned: Planned, reader: InputsReader) -> OpenClipTowers:
    run = costed(planned)
    return meta_towers(run, reader.for_model(run))[0]


def _evaluation(group: Sequence[Planned], reader: InputsReader) -> Evaluation:
    """Estimate the evaluation of runs with the same towers."""
    towers = _towers(group[0], reader)
    per_image, per_text = count_forward_flops(towers, group[0].run.data.size)
    known: dict[tuple[object, ...], Workload] = {}
    total = Workload()
    for one in group:
        noisy = one.run.noise is not None and KINDS[one.run.noise].fixed and one.run.rate > 0
        rows = one.inputs.rows if noisy else 0
        for at in (*one.run.evaluate.curve, 1.0):
            key = (one.run.evaluate.model_dump_json(), one.run.data.model_dump_json(), at, rows)
            if key not in known:
                known[key] = workload(one.evaluation, at, rows)
            total += known[key]
    return Evaluation(total, total.images * per_image + total.texts * per_text)


def _by_towers(planned: Sequence[Planned]) -> list[list[Planned]]:
    groups: dict[str, list[Planned]] = {}
    for one in planned:
        groups.setdefault(one.run.towers.model_dump_json(), []).append(one)
    return list(groups.values())


@dataclass(frozen=True)
class Estimate:
    """The cost of the runs that are not complete, one after the other on this machine."""

    runs: int
    train_seconds: float
    evaluate_seconds: float | None  #: None if no run of these towers was evaluated in this store
    disk_bytes: int
    source: str  #: where the seconds come from


def estimate(planned: Sequence[Planned], store: Store) -> Estimate:
    """Divide FLOPs by the rate that finished runs of the same towers and batch reached, or that timed steps reach."""
    reader, todo = InputsReader(), [one for one in planned if not is_complete(one, store)]
    if not todo:
        return Estimate(0, 0.0, 0.0, 0, "nothing to do")
    flops = sum(one.resolved.flops for one in todo)
    first = todo[0].run
    finished = list(_alike(first, store))
    if finished:  # a ledger sums the seconds of all ranks
        rate = statistics.median(ranks * one["flops"] / one["train_seconds"] for one, ranks in finished)
        evaluation = statistics.median(one["evaluate_seconds"] / ranks for one, ranks in finished) * len(todo)
        source = f"{len(finished)} finished runs of these towers"
    else:
        with device(alone=False):
            seconds = time_steps(first, reader.inputs(first), TIMED_STEPS)
        rate = statistics.mean(todo[0].resolved.step_flops[name] / spent for name, spent in seconds.items())
        evaluation, source = None, f"{TIMED_STEPS} timed steps of {first.label}"
    return Estimate(len(todo), flops / rate, evaluation, _disk(todo, reader), source)


def _alike(first: Run, store: Store) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield ledger and number of ranks of each finished run of the same towers, batch and threads."""
    wanted = {"batch": first.train.batch, "threads": first.train.threads}
    for run in store.runs():
        try:
            settings, ledger, environment = run.settings(), run.ledger(), run.environment()
        except Damaged:
            continue
        train = settings.get("train") or {}
        towers = {**TowerSettings().model_dump(), **(settings.get("towers") or {})}  # older runs lack newer settings
        same = towers == first.towers.model_dump() and wanted.items() <= train.items()
        spent = ledger.keys() >= {"flops", "evaluate_seconds"} and ledger.get("train_seconds")
        if same and spent and run.status()["state"] == "done":
            yield ledger, environment.get("ranks", {}).get("world", 1)


def _disk(planned: Sequence[Planned], reader: InputsReader) -> int:
    """Return the bytes that runs store: weights, and a checkpoint with AdamW's two moments.

    Only the towers are counted, because methods add little to them. Features are deleted when a run is evaluated.
    """
    total = 0
    for group in _by_towers(planned):
        towers = _towers(group[0], reader)
        weights: int = sum(x.numel() * x.element_size() for x in towers.state_dict().values())
        total += weights * (len(SNAPSHOTS) + 1 + 3) * len(group)
    return total
