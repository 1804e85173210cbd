"""Ranks of `bench check`: processes that start once, and train the same in four layouts for every method."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_pre_hook

from bench.checks.subject import Failed
from bench.checks.trainings import Training, make_training, pack_tensors
from bench.distributed import Group
from bench.machine.processes import start_process
from bench.store import RunStore, RunWriter
from bench.training.loop import train
from bench.training.optimizer import named_parameters

TASK_TIMEOUT = 900.0  #: seconds to wait for one task, on a busy machine too, before the ranks are given up
IMPORTED_MODULES = (__name__, "timm", "open_clip")  #: what towers need
WORLD_SIZE = 3
#: name -> (first rank, number of ranks, micro-batch); rank 2 works alone while ranks 0 and 1 work together
LAYOUTS: dict[str, tuple[int, int, int | None]] = {
    "three ranks in micro-batches": (0, 3, 8),
    "two ranks": (0, 2, None),
    "one process": (2, 1, None),
    "one process in micro-batches": (2, 1, 16),
}
TrainingResults = dict[str, list[dict[str, Any]]]  #: layout -> for each rank: training's name -> its results


class RankPool:
    """Three processes under gloo, which start when they are first asked. A context manager: leaving it ends them."""

    def __init__(self) -> None:
        self._processes: list[BaseProcess] = []
        self._connections: list[Connection] = []
        self._scratch: TemporaryDirectory[str] | None = None
        self._thread = ThreadPoolExecutor(1)  # asks them, while the caller continues
        self._asked: dict[str, Future[TrainingResults]] = {}

    def __enter__(self) -> RankPool:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._end()
        self._thread.shutdown()

    def ask(self, name: str, trainings: Mapping[str, Training]) -> None:
        """Start these trainings in all layouts; `answer(name)` waits for them. A second call does nothing."""
        if name not in self._asked:
            self._asked[name] = self._thread.submit(self._answer, dict(trainings))

    def answer(self, name: str) -> TrainingResults:
        """Return the results of `ask`. Raises Failed if a rank raised or hangs; the next `ask` starts new ranks."""
        return self._asked.pop(name).result()

    def _answer(self, trainings: dict[str, Training]) -> TrainingResults:
        if not self._processes:
            self._start()
        try:
            for connection in self._connections:
                connection.send(trainings)
            by_rank = [self._received(rank) for rank in range(WORLD_SIZE)]
        except OSError as error:
            self._end()
            raise Failed("a rank failed: its process ended") from error
        errors = [one for one in by_rank if isinstance(one, tuple)]
        if errors:
            self._end()
            raise Failed(f"a rank failed: {min(errors)[1]}")  # the first one: the others lost their connection to it
        return {
            layout: [by_rank[rank][layout] for rank in range(first, first + world)]
            for layout, (first, world, _) in LAYOUTS.items()
        }

    def _received(self, rank: int) -> Any:
        """Return results by layout, or when the rank failed and why."""
        if not self._connections[rank].poll(TASK_TIMEOUT):
            return time.monotonic(), f"no answer in {TASK_TIMEOUT:g} s"
        try:
            return self._connections[rank].recv()
        except EOFError:
            return time.monotonic(), "its process ended"

    def _start(self) -> None:
        self._scratch = TemporaryDirectory(ignore_cleanup_errors=True)
        for rank in range(WORLD_SIZE):
            ours, theirs = Pipe()
            with theirs:
                self._processes.append(
                    start_process(_serve, (theirs, rank, Path(self._scratch.name)), IMPORTED_MODULES)
                )
            self._connections.append(ours)

    def _end(self) -> None:
        """End the ranks and remove what they wrote."""
        for process in self._processes:
            process.kill()  # they have nothing to save, and an orderly end takes seconds
            process.join()
        for connection in self._connections:
            connection.close()
        self._processes, self._connections = [], []
        if self._scratch is not None:
            self._scratch.cleanup()


class MetricsOnly(RunWriter):
    """Writes the lines of every step. Weights and checkpoints, which nobody reads here, are not written."""

    def write_path(self, name: str, writer: Callable[[Path], object]) -> None:
        """Write nothing."""


def train_layout(training: Training, out: RunStore, group: Group) -> dict[str, Any]:
    """Losses and gradients of every step, and the state at the end."""
    gradients: list[bytes] = []  # of each optimiser step that is taken

    def keep(*_: Any) -> None:
        by_name = ((name, p.grad) for name, p in named_parameters(job.method, job.towers))
        gradients.append(pack_tensors({name: grad for name, grad in by_name if grad is not None}))

    with out.claim() as claim, register_optimizer_step_pre_hook(keep):
        job = make_training(training, MetricsOnly(claim), group)
        train(job)
    method: Any = job.method
    return {
        "losses": [line["terms"] for line in out.metrics()],
        "gradients": gradients,
        "towers": pack_tensors(job.towers.state_dict()),
        "method": pack_tensors(method.state_dict()),
    }


def _serve(connection: Connection, rank: int, folder: Path) -> None:
    """Do this rank's part of all trainings that arrive through `connection`, until its other end closes."""
    os.nice(10)  # the checks have a core for themselves; the ranks, which are asked early, take the rest
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    meeting, idle = f"file://{(folder / 'meeting').resolve()}", timedelta(hours=12)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=WORLD_SIZE, timeout=idle)
    two = dist.new_group([0, 1], timeout=idle)
    with contextlib.suppress(EOFError):
        while True:
            trainings = connection.recv()
            try:
                connection.send(_work(trainings, rank, two, folder / f"{rank}"))
            except Exception as error:  # the other ranks fail when this process ends
                connection.send((time.monotonic(), f"{type(error).__name__}: {error}"))
                os._exit(1)


def _work(
    trainings: Mapping[str, Training], rank: int, two: dist.ProcessGroup | None, folder: Path
) -> dict[str, dict[str, Any]]:
    """Do this rank's part of all layouts; return layout -> training's name -> its results."""
    found: dict[str, dict[str, Any]] = {}
    for number, (layout, (first, world, micro)) in enumerate(LAYOUTS.items()):
        if first <= rank < first + world:
            group = Group(rank - first, world, two if world == 2 else None)
            found[layout] = {
                name: train_layout(replace(training, micro=micro), RunStore(folder / f"{number}-{place}"), group)
                for place, (name, training) in enumerate(trainings.items())
            }
    shutil.rmtree(folder)
    return found
