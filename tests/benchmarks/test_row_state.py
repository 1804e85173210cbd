"""What a method's state of every row costs a step: SogCLR on three million rows of features, and on few."""

from __future__ import annotations

import statistics
import sys
import threading
import time
from pathlib import Path

import torch
import yaml
from pytest_benchmark.fixture import BenchmarkFixture

from bench.store import Store, writing
from bench.suite.suite import load_suite
from bench.training.inputs import InputsReader
from bench.training.job import make_job
from bench.training.loop import Job, train
from bench.training.schedule import Resolved

BATCH, WIDTH, DIM = 1024, 768, 512
MANY, FEW = 3_000_000, 4 * BATCH
STEPS, WARM = 24, 6
LIMIT = 1.02  #: a step with the state of MANY rows, in steps with that of FEW


class Turns:
    """Two trainings in threads of their own that take a step in turn; seconds are the processor's in each thread."""

    def __init__(self, jobs: tuple[Job, Job]) -> None:
        self.seconds: tuple[list[float], list[float]] = ([], [])
        self._turns = (threading.Semaphore(1), threading.Semaphore(0))
        self._threads = [threading.Thread(target=self._train, args=(at, job)) for at, job in enumerate(jobs)]

    def _train(self, at: int, job: Job) -> None:
        own, other = self._turns[at], self._turns[1 - at]
        own.acquire()
        last = time.thread_time()

        def between(_step: int, *_: float) -> None:
            nonlocal last
            self.seconds[at].append(time.thread_time() - last)
            other.release()
            own.acquire()
            last = time.thread_time()

        job.on_step = between
        try:
            train(job)
        finally:
            other.release()

    def ratio(self) -> float:
        """Median step of the first job over that of the second."""
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()
        assert [len(one) for one in self.seconds] == [STEPS, STEPS]
        first, second = (statistics.median(one[WARM:]) for one in self.seconds)
        return first / second


def suite(folder: Path, rows: int) -> Path:
    """A suite of SogCLR on so many synthetic pairs of features."""
    settings = {
        "name": "state",
        "data": {"name": "many", "features": "nowhere", "shards": f"synthetic:{rows}", "widths": [WIDTH, WIDTH]},
        "noise": {"rates": [0.0]},
        "budget": {"samples": STEPS * BATCH},
        "towers": {"image": "features", "text": "features", "dim": DIM},
        "train": {"batch": BATCH, "threads": 1},
        "evaluate": {"tasks": ["retrieval"], "datasets": {"retrieval": ["flickr30k"]}},
        "methods": ["clip", "sogclr"],
    }
    path = folder / f"{rows}.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def test_state_of_three_million_rows(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """A step gathers and scatters a batch of the state; what lies beside it costs nothing."""
    ratios: list[float] = []

    def job(rows: int, out: object) -> Job:
        (run,) = [one for one in load_suite(suite(tmp_path, rows)).runs() if one.label == "sogclr"]
        resolved = Resolved((("train", STEPS),), {"train": 1}, BATCH, rows // BATCH)
        made = make_job(run, InputsReader().inputs(run), resolved, out, None, torch.device("cpu"))  # type: ignore[arg-type]
        state = max(buffer.shape[0] for buffer in made.method.buffers() if buffer.ndim)  # type: ignore[attr-defined]
        assert state == rows
        return made

    def one_round() -> None:
        store = Store(tmp_path / str(len(ratios)))
        with writing(store.run("many")) as many, writing(store.run("few")) as few:
            ratios.append(Turns((job(MANY, many), job(FEW, few))).ratio())

    benchmark.pedantic(one_round, rounds=3, iterations=1)
    text = ", ".join(f"{ratio:.3f}" for ratio in ratios)
    benchmark.extra_info["step with the state of 3 M rows, in steps with few"] = text
    print(f"\nstep with the state of 3 M rows, in steps with few, rounds: {text}", file=sys.stderr)
    assert statistics.median(ratios) < LIMIT
