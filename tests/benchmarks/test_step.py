"""A training step of the harness against a bare loop: the same towers, loss, optimiser and batches already in memory."""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from pytest_benchmark.fixture import BenchmarkFixture

from bench import discovery
from bench.run import make_job
from bench.settings import Budget, DataSettings, EvaluateSettings, TowerSettings, TrainSettings
from bench.steps import plan
from bench.store import Store
from bench.suite import Run
from bench.train import train
from methods.protocol import Clock

STEPS, CUT = 60, 10


def a_run() -> Run:
    return Run(
        label="clip",
        method="clip",
        preset=None,
        config=discovery.resolve("clip", None, {}),
        data=DataSettings(),
        noise=None,
        rate=0.0,
        seed=0,
        budget=Budget(samples=128 * STEPS),
        towers=TowerSettings(),
        train=TrainSettings(),
        evaluate=EvaluateSettings(),
    )


def harness_seconds(folder: Path) -> list[float]:
    """Seconds of each step, whole: data, gather, observe, loss, backward, step, ledger, log, checkpoint."""
    store, run = Store(folder), a_run()
    planned = plan([run], store)[0]
    job = make_job(run, planned.resolved, store.run("one"), None, torch.device("cpu"))
    times = [time.perf_counter()]
    job.on_step = lambda *_: times.append(time.perf_counter())
    train(job)
    return [b - a for a, b in zip(times[CUT:], times[CUT + 1 :], strict=False)]


def bare_seconds(folder: Path) -> list[float]:
    """Seconds of each step of the shortest loop that does the same work, data included."""
    store, run = Store(folder), a_run()
    planned = plan([run], store)[0]
    job = make_job(run, planned.resolved, store.run("bare"), None, torch.device("cpu"))
    towers, rho = job.towers, torch.nn.Parameter(torch.tensor(2.6593))
    weights = [p for p in towers.parameters() if p.ndim >= 2]
    scalars = [rho, *(p for p in towers.parameters() if p.ndim < 2)]
    groups = [{"params": weights, "weight_decay": 0.1}, {"params": scalars, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.98), eps=1e-6, fused=True)
    targets, times = torch.arange(128), [time.perf_counter()]
    for step in range(STEPS):
        rows = next(job.loader.micro_batches(Clock(step, "train", step / STEPS, 0), slice(0, 128), 128, 0))
        image = F.normalize(towers.encode_image(rows.images), dim=-1)
        text = F.normalize(towers.encode_text(rows.tokens), dim=-1)
        logits = rho.exp() * image @ text.T
        loss = (F.cross_entropy(logits, targets) + F.cross_entropy(logits.T, targets)) / 2
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        times.append(time.perf_counter())
    return [b - a for a, b in zip(times[CUT:], times[CUT + 1 :], strict=False)]


def test_step_against_a_bare_loop(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """Medians of alternating blocks, so that a machine that drifts slows both."""
    rounds: list[tuple[list[float], list[float]]] = []

    def both() -> None:
        folder = tmp_path / str(len(rounds))
        rounds.append((harness_seconds(folder), bare_seconds(folder)))

    benchmark.pedantic(both, rounds=5, iterations=1)
    ratios = [statistics.median(harness) / statistics.median(bare) for harness, bare in rounds]
    benchmark.extra_info["harness / bare"] = ratios
    print(f"\nharness / bare: {sorted(ratios)}", file=sys.stderr)
    assert statistics.median(ratios) < 1.03
