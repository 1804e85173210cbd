"""One process of a team: it receives runs from the process that started it, makes them and reports back."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from torch.distributed import FileStore  # type: ignore[attr-defined]

from bench import data
from bench.adapters import registry
from bench.console.progress import Progress
from bench.errors import UserError
from bench.evaluation import EvaluationPlan
from bench.launch.claimed import Options, assist, work
from bench.launch.nursery import Flag
from bench.store import Store
from bench.suite.run import Run
from bench.towers.build import tokenizer_of
from bench.training.distributed import join, leave
from bench.training.inputs import InputsReader

PATIENCE = 0.5  #: seconds between messages on the steps of one run
STOPPING = {
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGUSR2,
}  #: signals that shells and SLURM send to every process of a job


@dataclass(frozen=True)
class RankInfo:
    """Rank and device of one process of a team."""

    rank: int
    world: int  #: processes in the team
    device: int  #: index of its GPU, modulo the number of GPUs; unused without GPUs
    meeting: Path  #: the file through which torch.distributed connects the ranks


class Remote(Progress):
    """Sends the progress of a run to the process that prints it."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self.orphaned = False

    def send(self, *message: object) -> None:
        """Send a message, or note that the receiving process is gone."""
        try:
            self.connection.send(message)
        except OSError:
            self.orphaned = True

    def stage(self, name: str) -> None:
        self.send("stage", name)

    def measured(self, done: int, total: int) -> None:
        self.send("measured", done, total)

    def step(self, step: int, steps: int, loss: float, samples_per_second: float) -> None:
        if step == steps or time.monotonic() - self._spoken >= PATIENCE:
            self._spoken = time.monotonic()
            self.send("step", step, steps, loss, samples_per_second)


#: of this process. A process that a nursery forks has what that one has read, as far as its runs need it.
_reader = InputsReader()


@contextmanager
def _summoned(remote: Remote) -> Iterator[None]:
    """Have the further ranks train and evaluate the run of this one."""
    remote.send("summon")
    yield


def read_data(runs: list[Run]) -> None:
    """Read the embedded data that runs train and are measured on, for the processes that are forked from this one.

    What cannot be read here is reported by the run that needs it.
    """
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # threads would not survive a fork
    for run in (run for run in runs if run.data.embedded):
        plan = EvaluationPlan(run.data, run.evaluate)
        measured = {name for task in plan.chosen() for name in (task.dataset, task.train, task.validation)}
        with contextlib.suppress(UserError):
            inputs = _reader.inputs(run)
            tokenizer_of(run.towers, inputs.vocabularies)
            inputs.summary()  # which hashes the pairs
            for name in measured & {*data.names()}:
                plan.load(name)


def begin(
    descriptor: int, read: int, write: int, info: RankInfo, root: Path, plugins: list[str], options: Options
) -> None:
    """Call `serve` in a process that a nursery forked, with the descriptors of its connection and of the flag."""
    serve(Connection(descriptor), info, root, plugins, options, Flag((read, write)))


def serve(connection: Connection, info: RankInfo, root: Path, plugins: list[str], options: Options, stop: Flag) -> None:
    """Make the runs that arrive through `connection` until its other end closes.

    If the starter dies during a run, the run stops at a checkpoint.
    """
    # A terminal and SLURM send these to every process of a job; the starter hears them and sets `stop`.
    for number in (signal.SIGINT, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    os.environ["LOCAL_WORLD_SIZE"] = str(
        info.world * options.jobs
    )  # torchrun's name; the loader divides the cores by it
    if torch.cuda.is_available():
        torch.cuda.set_device(info.device % torch.cuda.device_count())
    if info.world > 1:
        join(info.rank, info.world, FileStore(str(info.meeting), info.world), near=True)
    for plugin in plugins:
        registry.add_plugin(plugin)
    store, remote = Store(root), Remote(connection)
    while True:
        try:
            one = connection.recv()
        except (EOFError, OSError):
            leave()
            return
        if info.rank:
            remote.send("end", *assist(one, store, stop.is_set, _reader))
        else:
            should_stop = lambda: remote.orphaned or stop.is_set()  # noqa: E731
            together = partial(_summoned, remote) if info.world > 1 else nullcontext
            state, message = work(one, store, remote, should_stop, options.track, together, _reader)
            remote.send("end", state, message, None)
