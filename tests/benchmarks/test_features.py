"""A step on stored features against a bare loop of the same matrix products, loss and optimiser."""

from __future__ import annotations

import os
import runpy
import statistics
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
import yaml
from pytest_benchmark.fixture import BenchmarkFixture

from bench.store import Store, writing
from bench.suite.suite import load_suite
from bench.training.inputs import InputsReader
from bench.training.job import make_job
from bench.training.loop import Job, train
from bench.training.schedule import Resolved

STORED = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[1] / "training" / "stored.py")))
BATCH, WIDTH, DIM, ROWS = 1024, 768, 512, 8192
STEPS, WARM = int(os.environ.get("FEATURE_STEPS", "40")), 8
TARGET = 0.8  #: of the bare loop's speed


class BareLoop:
    """Two linear layers, a contrastive loss and AdamW on arrays in memory; captions and noise do not exist."""

    def __init__(self, images: torch.Tensor, texts: torch.Tensor) -> None:
        self.images, self.texts = images, texts
        self.heads = torch.nn.ModuleList([torch.nn.Linear(WIDTH, DIM), torch.nn.Linear(WIDTH, DIM)])
        self.rho = torch.nn.Parameter(torch.tensor(2.6593))
        parameters = [*self.heads.parameters(), self.rho]
        self.optimiser = torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.98), eps=1e-6, fused=True)
        self.targets, self.order = torch.arange(BATCH), np.random.default_rng(0)

    def step(self) -> None:
        rows = torch.from_numpy(self.order.permutation(len(self.images))[:BATCH])
        image, text = (
            F.normalize(head(x[rows].float()), dim=-1)
            for head, x in zip(self.heads, (self.images, self.texts), strict=True)
        )
        logits = self.rho.exp() * image @ text.T
        loss = (F.cross_entropy(logits, self.targets) + F.cross_entropy(logits.T, self.targets)) / 2
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()


def timed_steps(job: Job, bare: BareLoop) -> tuple[list[float], list[float]]:
    """(harness, bare) seconds of each step, taken in turn in one process, so that a busy machine slows both."""
    harness_times, bare_times, last = [], [], time.perf_counter()

    def between(_step: int, *_: float) -> None:
        nonlocal last
        entered = time.perf_counter()
        bare.step()
        left = time.perf_counter()
        harness_times.append(entered - last)
        bare_times.append(left - entered)
        last = time.perf_counter()

    job.on_step = between
    train(job)
    return harness_times[WARM:], bare_times[WARM:]


def suite(folder: Path) -> Path:
    """A suite of CLIP on ROWS pairs of features as wide as CLIP's, with a quarter of the captions shuffled."""
    features = folder / "features"
    STORED.training_set(features, rows=ROWS, widths=(WIDTH, WIDTH))
    settings = STORED.suite(features, train={"batch": BATCH, "threads": 1})
    settings["towers"]["dim"] = DIM
    path = folder / "speed.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def test_step_on_features_against_a_bare_loop(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """Captions, noise, lookups, order, ledger and log cost under a fifth of the loop."""
    (run,) = load_suite(suite(tmp_path)).runs()
    resolved = Resolved((("train", STEPS),), {"train": 1}, BATCH, ROWS // BATCH)
    shares: list[float] = []

    def one_round() -> None:
        with writing(Store(tmp_path / str(len(shares))).run("one")) as out:
            job = make_job(run, InputsReader().inputs(run), resolved, out, None, torch.device("cpu"))
            arrays = job.loader.pairs.image_array[:, 0], job.towers.tokenizer.texts.array
            harness, bare = timed_steps(job, BareLoop(*(torch.from_numpy(np.array(one)) for one in arrays)))
        shares.append(statistics.median(bare) / statistics.median(harness))

    benchmark.pedantic(one_round, rounds=3, iterations=1)
    benchmark.extra_info["speed of the bare loop that is reached"] = shares
    print(f"\nshare of the bare loop's speed, rounds: {', '.join(f'{one:.3f}' for one in shares)}", file=sys.stderr)
    assert statistics.median(shares) > TARGET
