"""A training step of the harness against a bare loop with the same towers, loss, optimiser and batches."""

from __future__ import annotations

import copy
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from pytest_benchmark.fixture import BenchmarkFixture

from bench.loading.loader import Loader
from bench.planning.planner import plan
from bench.store import Store, writing
from bench.suite.settings import Budget
from bench.towers.batchnorm import grouped_norms
from bench.training.inputs import InputsReader
from bench.training.job import make_job
from bench.training.loop import TrainingJob, train
from methods.protocol import Clock

from ..towers.small import a_run

STEPS, WARM = 120, 20


class BareLoop:
    """The shortest loop that does the same work: the same batches, towers, loss and optimiser, nothing else."""

    def __init__(self, job: TrainingJob) -> None:
        own = job.loader  # a loader that two share would begin anew at every step of this one
        self.loader = Loader(
            own.pairs,
            None,
            own.towers,
            batch=own.batch,
            seed=own.seed,
            recipe=own.recipe,
            dtype=own.dtype,
            device=own.device,
        )
        self.towers = copy.deepcopy(job.towers)
        self.rho = torch.nn.Parameter(torch.tensor(2.6593))
        weights = [p for p in self.towers.parameters() if p.ndim >= 2]
        scalars = [self.rho, *(p for p in self.towers.parameters() if p.ndim < 2)]
        groups = [{"params": weights, "weight_decay": 0.1}, {"params": scalars, "weight_decay": 0.0}]
        self.optimiser = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.98), eps=1e-6, fused=True)
        self.targets = torch.arange(128)

    def step(self, step: int) -> None:
        clock = Clock(step=step, phase="train", progress=step / STEPS, epoch=0)
        rows = self.loader.on_device(next(self.loader.micro_batches(clock, slice(0, 128), 128, 0)))
        image = F.normalize(self.towers.encode_image(rows.images), dim=-1)
        text = F.normalize(self.towers.encode_text(rows.tokens), dim=-1)
        logits = self.rho.exp() * image @ text.T
        loss = (F.cross_entropy(logits, self.targets) + F.cross_entropy(logits.T, self.targets)) / 2
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()


def interleaved_seconds(folder: Path) -> tuple[list[float], list[float]]:
    """(harness, bare) seconds of each step, taken in turn in one process, so that a machine that drifts slows both."""
    store, run = Store(folder), a_run(seed=0, budget=Budget(samples=128 * STEPS))
    with writing(store.run("one")) as out:
        resolved = plan([run], store)[0].resolved
        return timed_steps(make_job(run, InputsReader().inputs(run), resolved, out, None, torch.device("cpu")))


def timed_steps(job: TrainingJob) -> tuple[list[float], list[float]]:
    """(harness, bare) seconds of each step of a job."""
    bare = BareLoop(job)
    harness_times, bare_times, last = [], [], time.perf_counter()

    def between(step: int, *_: float) -> None:
        nonlocal last
        entered = time.perf_counter()
        bare.step(step - 1)
        for norm in grouped_norms(bare.towers):
            norm.seen.clear()
        left = time.perf_counter()
        harness_times.append(entered - last)
        bare_times.append(left - entered)
        last = time.perf_counter()

    job.on_step = between
    train(job)
    return harness_times[WARM:], bare_times[WARM:]


def test_step_against_a_bare_loop(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """Data, gather, observe, loss, backward, step, ledger and log of the harness cost under 3 % more."""
    ratios: list[float] = []

    def one_round() -> None:
        harness, bare = interleaved_seconds(tmp_path / str(len(ratios)))
        ratios.append(statistics.median(harness) / statistics.median(bare))

    benchmark.pedantic(one_round, rounds=5, iterations=1)
    ratio = f"{statistics.median(ratios):.3f} times its seconds"
    benchmark.extra_info.update(peer="a bare loop with the same towers, loss and batches", ratio=ratio)
    print(f"\nharness / bare, median step, rounds: {', '.join(f'{r:.3f}' for r in sorted(ratios))}", file=sys.stderr)
    assert statistics.median(ratios) < 1.03
