"""A step on stored features against a bare loop of the same matrix products, loss and optimiser."""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import yaml
from pytest_benchmark.fixture import BenchmarkFixture

from bench.store import Store, writing
from bench.suite.suite import load_suite
from bench.training.inputs import InputsReader
from bench.training.job import make_job
from bench.training.loop import TrainingJob, train
from bench.training.schedule import ResolvedSteps

from ..training import stored

BATCH, WIDTH, DIM, ROWS = 1024, 768, 512, 8192
STEPS, WARM = 32, 8
TARGET = 0.8  #: of the bare loop's speed


class BareLoop:
    """Two linear layers, a contrastive loss and AdamW on arrays in memory; captions and noise do not exist.

    It multiplies images by texts and texts by images, as a loss does whose anchors are shared out among ranks.
    """

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
        logits = [self.rho.exp() * (one @ other.T) for one, other in ((image, text), (text, image))]
        loss = sum(F.cross_entropy(of, self.targets) for of in logits) / 2
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()


def clocks() -> np.ndarray:
    """Seconds by the wall, and of the processor in all threads of this process."""
    return np.array([time.perf_counter(), time.process_time()])


def speeds(job: TrainingJob, bare: BareLoop) -> np.ndarray:
    """Shares of the bare loop's speed, by the wall and by the processor, from the medians of steps.

    Steps are taken in turn in one process, so that a busy machine slows both loops.
    """
    harness, plain, last = [], [], clocks()

    def between(_step: int, *_: float) -> None:
        nonlocal last
        entered = clocks()
        bare.step()
        left = clocks()
        harness.append(entered - last)
        plain.append(left - entered)
        last = clocks()

    job.on_step = between
    train(job)
    return np.median(plain[WARM:], axis=0) / np.median(harness[WARM:], axis=0)


def suite(folder: Path) -> Path:
    """A suite of CLIP on ROWS pairs of features as wide as CLIP's, with a quarter of the captions shuffled."""
    features = folder / "features"
    stored.training_set(features, rows=ROWS, widths=(WIDTH, WIDTH))
    settings = stored.suite(features, train={"batch": BATCH, "threads": 1})
    settings["towers"]["dim"] = DIM
    path = folder / "speed.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def test_step_on_features_against_a_bare_loop(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """Captions, noise, lookups, order, ledger and log cost under a fifth of the loop."""
    (run,) = load_suite(suite(tmp_path)).runs()
    resolved = ResolvedSteps((("train", STEPS),), {"train": 1}, BATCH, ROWS // BATCH)
    shares: list[np.ndarray] = []

    def one_round() -> None:
        with writing(Store(tmp_path / str(len(shares))).run("one")) as out:
            job = make_job(run, InputsReader().inputs(run), resolved, out, None, torch.device("cpu"))
            arrays = job.loader.pairs.image_array[:, 0], job.towers.tokenizer.texts.array
            shares.append(speeds(job, BareLoop(*(torch.from_numpy(np.array(one)) for one in arrays))))

    benchmark.pedantic(one_round, rounds=3, iterations=1)
    rounds = ", ".join(f"{wall:.3f} ({processor:.3f})" for wall, processor in shares)
    ratio = f"{statistics.median(wall for wall, _ in shares):.3f} times its speed"
    benchmark.extra_info.update(peer="a bare loop of the same products", ratio=ratio)
    print(f"\nshares of the bare loop's speed, by the wall (by the processor), rounds: {rounds}", file=sys.stderr)
    assert statistics.median(wall for wall, _ in shares) > TARGET
