"""Hours and disk that the unfinished runs of a suite need, estimated before anything starts."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bench.catalogue.gpus import UTILISATION, Gpu, gpu_hours
from bench.catalogue.noise_kinds import KINDS
from bench.console.progress import duration
from bench.evaluation.workload import Workload, evaluation_workload
from bench.machine.device_lock import hold_device
from bench.planning.flops import count_forward_flops, meta_towers, step_prices
from bench.planning.planned import Planned
from bench.planning.planner import costed_run
from bench.planning.timing import time_steps
from bench.store import Damaged, Store
from bench.suite.run import Run
from bench.suite.settings import SNAPSHOTS, TowerSettings
from bench.towers.build import OpenClipTowers
from bench.training.inputs import InputsReader

TIMED_STEPS = 8
MAX_TIMED_FLOPS = 1e11  #: most FLOPs of a timed step without a GPU: about three seconds of a core


@dataclass(frozen=True)
class EvaluationCost:
    """Images and texts that the towers encode to evaluate runs, at every point of their curves and at the end."""

    read: Workload
    flops: int  #: of forward passes only


@dataclass(frozen=True)
class Estimate:
    """The cost of runs, whether or not their data is on this machine."""

    runs: int
    steps: int
    samples: int  #: pairs seen
    flops: int  #: of training
    disk_bytes: int  #: weights and checkpoints that are kept
    hours: float  #: of training, of one device
    evaluate_hours: float | None  #: of one device; None if no run of these towers was evaluated in this store
    where: str  #: the hardware: "8 A100", "this machine, one run at a time"
    source: str  #: where the hours come from
    devices: int = 1  #: that execute a run together
    evaluation: EvaluationCost | None = None

    @property
    def lines(self) -> list[str]:
        """Lines to print: cost, time, what times on a GPU exclude, how fast data has to be read."""
        evaluation = "not known yet" if self.evaluate_hours is None else duration(3600 * self.evaluate_hours)
        training, evaluating = 3600 * self.hours, 3600 * (self.evaluate_hours or 0)
        seconds = (training + evaluating) / self.devices
        lines = [
            f"to do: {self.runs} runs, {self.steps:,} steps, {self.samples:,} samples, {self.flops:.2e} FLOPs, "
            f"{self.disk_bytes / 2**30:,.1f} GiB",
            f"training {duration(training)}, evaluation {evaluation}; "
            f"in total {duration(seconds)} on {self.where}, {duration(seconds / self.runs)} per run",
            f"times estimated from {self.source}",
        ]
        if self.evaluation:
            read = self.evaluation.read
            lines += [
                f"evaluation is the towers' forwards on {read.images:,} images and {read.texts:,} texts, "
                f"{self.evaluation.flops:.2e} FLOPs, without fits of probes",
                f"hours exclude reading: the GPU never waits if {self.samples / (training or 1):,.0f} "
                f"pairs/s are decoded in training and {read.images / (evaluating or 1):,.0f} images/s in evaluation",
            ]
        return lines


def on_gpu(planned: Sequence[Planned], gpu: Gpu, utilisation: float = UTILISATION, devices: int = 1) -> Estimate:
    """Estimate training and evaluation on `devices` named cards at a share of their peak, without waiting for data.

    Raises UserError for a share outside (0, 1].
    """
    reader = InputsReader()
    measured = [_evaluation(group, reader) for group in _by_towers(planned)]
    evaluation = EvaluationCost(sum((one.read for one in measured), Workload()), sum(one.flops for one in measured))
    return Estimate(
        *_counted(planned, reader),
        hours=gpu_hours(sum(one.resolved.flops for one in planned), gpu, utilisation),
        evaluate_hours=gpu_hours(evaluation.flops, gpu, utilisation),
        where=f"{'one' if devices == 1 else devices} {gpu.name}",
        source=f"{gpu.name} at {utilisation:.0%} of {gpu.peak / 1e12:,.0f} TFLOP/s {gpu.precision} ({gpu.datasheet})",
        devices=devices,
        evaluation=evaluation,
    )


def _counted(planned: Sequence[Planned], reader: InputsReader) -> tuple[int, int, int, int, int]:
    """Return the first fields of `Estimate`."""
    resolved = [one.resolved for one in planned]
    samples = sum(one.steps * one.batch for one in resolved)
    steps, flops = sum(one.steps for one in resolved), sum(one.flops for one in resolved)
    disk = 0  # weights, and a checkpoint with AdamW's two moments; methods add little, and features are deleted
    for group in _by_towers(planned):
        weights = sum(x.numel() * x.element_size() for x in _towers(group[0], reader).state_dict().values())
        disk += weights * (len(SNAPSHOTS) + 1 + 3) * len(group)
    return len(planned), steps, samples, flops, disk


def _towers(planned: Planned, reader: InputsReader) -> OpenClipTowers:
    run = costed_run(planned)
    return meta_towers(run, reader.for_model(run))[0]


def _evaluation(group: Sequence[Planned], reader: InputsReader) -> EvaluationCost:
    """Estimate the evaluation of runs with the same towers."""
    towers = _towers(group[0], reader)
    per_image, per_text = count_forward_flops(towers, group[0].run.data.size)
    known: dict[tuple[object, ...], Workload] = {}
    total = Workload()
    for one in group:
        noisy = one.run.noise is not None and KINDS[one.run.noise].fixed and one.run.rate > 0
        rows = one.inputs.rows if noisy else 0
        for at in one.run.points:
            key = (one.run.evaluate.model_dump_json(), one.run.data.model_dump_json(), at, rows)
            if key not in known:
                known[key] = evaluation_workload(one.evaluation, at, rows)
            total += known[key]
    return EvaluationCost(total, total.images * per_image + total.texts * per_text)


def _by_towers(planned: Sequence[Planned]) -> list[list[Planned]]:
    groups: dict[str, list[Planned]] = {}
    for one in planned:
        groups.setdefault(one.run.towers.model_dump_json(), []).append(one)
    return list(groups.values())


def on_this_machine(planned: Sequence[Planned], store: Store) -> Estimate:
    """Divide FLOPs by the rate that finished runs of the same towers and batch reached, or that timed steps reach."""
    reader, first, evaluation = InputsReader(), planned[0].run, None
    finished = list(_alike(first, store))
    if finished:  # a ledger sums the seconds of all ranks
        rate = statistics.median(ranks * one["flops"] / one["train_seconds"] for one, ranks in finished)
        evaluation = statistics.median(one["evaluate_seconds"] / ranks for one, ranks in finished) * len(planned) / 3600
        source = f"{len(finished)} finished runs of these towers"
    else:
        timed = _affordable(planned[0])
        inputs = reader.inputs(timed)
        with hold_device(alone=False):
            seconds = time_steps(timed, inputs, TIMED_STEPS)
        flops = step_prices(timed, inputs).flops
        rate = statistics.mean(flops[name] / spent for name, spent in seconds.items())
        source = f"{TIMED_STEPS} timed steps of {first.label}"
        source += f" with {timed.train.batch} pairs" * (timed is not first)
    counted = _counted(planned, reader)
    hours = sum(one.resolved.flops for one in planned) / rate / 3600
    where = "this machine, one run at a time"
    return Estimate(*counted, hours=hours, evaluate_hours=evaluation, where=where, source=source)


def _affordable(planned: Planned) -> Run:
    """Return a run whose steps are timed in seconds on a CPU: the planned one, or one of a smaller batch."""
    run, flops = planned.run, max(planned.resolved.step_flops.values())
    if flops <= MAX_TIMED_FLOPS or torch.cuda.is_available():
        return run
    batch = max(2, int(run.train.batch * MAX_TIMED_FLOPS / flops))
    train = run.train.model_copy(update={"batch": batch, "bn_group": batch, "micro_batch": None})
    return dataclasses.replace(run, train=train)


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
