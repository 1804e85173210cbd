"""One process of a team: takes runs from its starter, says what becomes of them, and ends with it."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from bench.adapters import registry
from bench.console.progress import Progress
from bench.launch.claimed import Options, assist, work
from bench.store import Store
from bench.training.distributed import join, leave
from bench.training.inputs import InputsReader

PATIENCE = 0.5  #: seconds between messages on the steps of one run
STOPPING = {signal.SIGTERM, signal.SIGINT, signal.SIGUSR2}  #: what people, shells and SLURM send to all of a job


@dataclass(frozen=True)
class Post:
    """A process's place."""

    rank: int
    world: int
    device: int  #: GPU, where there are any, modulo their number
    meeting: Path  #: the file at which the ranks meet


class Remote(Progress):
    """Progress of a run as messages to the process that shows it."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self.orphaned = False

    def send(self, *message: object) -> None:
        """Hand over a message, or note that nobody is there any more."""
        try:
            self.connection.send(message)
        except OSError:
            self.orphaned = True

    def stage(self, name: str) -> None:
        self.send("stage", name)

    def step(self, step: int, steps: int, loss: float, samples_per_second: float) -> None:
        if step == steps or time.monotonic() - self._spoken >= PATIENCE:
            self._spoken = time.monotonic()
            self.send("step", step, steps, loss, samples_per_second)


def serve(connection: Connection, post: Post, root: Path, plugins: list[str], options: Options, stop: Any) -> None:
    """Work off runs until the other end closes. Without that other end the run in hand stops at a checkpoint."""
    # A terminal and SLURM send these to every process; the first one tells the rest.
    for number in (signal.SIGINT, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    os.environ["LOCAL_WORLD_SIZE"] = str(post.world * options.jobs)  # torchrun's name; the loader shares by it
    if torch.cuda.is_available():
        torch.cuda.set_device(post.device % torch.cuda.device_count())
    if post.world > 1:
        join(post.rank, post.world, post.meeting)
    for plugin in plugins:
        registry.add_plugin(plugin)
    store, remote, reader = Store(root), Remote(connection), InputsReader()
    while True:
        try:
            one = connection.recv()
        except (EOFError, OSError):
            leave()
            return
        if post.rank:
            remote.send("end", *assist(one, store, stop.is_set, reader))
        else:
            should_stop = lambda: remote.orphaned or stop.is_set()  # noqa: E731
            summon = (lambda: remote.send("summon")) if post.world > 1 else None
            state, message = work(one, store, remote, should_stop, options.track, summon, reader)
            remote.send("end", state, message, None)
