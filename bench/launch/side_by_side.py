"""Several runs at a time, each in a process of its own: small towers leave most of a machine idle.

The processes share the cores evenly, and on a machine with GPUs each takes one in turn. Weights depend on the number of
threads in their last bits, so a machine's runs should all be made with the same number of jobs.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Collection
from multiprocessing.connection import Connection, wait
from typing import Any

from bench import discovery
from bench.launch.work import Summary, cannot_start, work
from bench.progress import Progress
from bench.run import Planned, progress_of
from bench.store import Store

PATIENCE = 0.5  #: seconds between messages on the steps of one run


def run_side_by_side(
    waiting: list[Planned], summary: Summary, store: Store, progress: Progress, requested: list[int], jobs: int
) -> None:
    """Work off `waiting` in `jobs` processes and note in `summary` what became of each run.

    A stop request reaches every process, which then writes its checkpoint. A process that dies fails its run alone.
    """
    waiting, before = list(waiting), len(summary.skipped)
    total, started = before + len(waiting), before
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    workers = [_Worker(context, number, jobs, store, stop, progress) for number in range(min(jobs, len(waiting)))]
    try:
        while True:
            if requested:
                stop.set()
            stopping = stop.is_set()  # a process that was asked itself has told the others, but not `requested`
            for worker in workers:
                running = {other.one.id for other in workers if other.one}
                one = None if worker.one or stopping else _next(waiting, running, summary, store, progress)
                if one:
                    worker.begin(one, started, total)
                    started += 1
            busy = {worker.connection: worker for worker in workers if worker.one}
            if not busy:
                break
            for connection in wait(list(busy), timeout=0.2):
                busy[connection].listen(summary)
    finally:
        for worker in workers:
            worker.close()
    summary.interrupted += [one.id for one in waiting]


def _next(
    waiting: list[Planned], running: Collection[str], summary: Summary, store: Store, progress: Progress
) -> Planned | None:
    """Take the first run out of `waiting` that can start now, and every one before it that never will."""
    ahead = set(running)
    for one in list(waiting):
        if one.reference in ahead:
            ahead.add(one.id)
            continue
        waiting.remove(one)
        if not cannot_start(one, summary, store, progress):
            return one
    return None


class _Worker:
    """A process, and the run it has in hand."""

    def __init__(self, context: Any, number: int, jobs: int, store: Store, stop: Any, progress: Progress) -> None:
        self.make = (context, number, jobs, store, stop)
        self.store, self.progress = store, progress.beside()
        self.one: Planned | None = None
        self._start()

    def _start(self) -> None:
        context, number, jobs, store, stop = self.make
        self.connection, theirs = context.Pipe()
        threads = max(1, (os.cpu_count() or 1) // jobs)
        args = (theirs, store.root, discovery.plugins(), threads, number, stop)
        self.process = context.Process(target=_serve, args=args, daemon=True)
        self.process.start()
        theirs.close()

    def begin(self, one: Planned, number: int, total: int) -> None:
        """Hand the process a run."""
        if not self.process.is_alive():
            self._start()
        self.one = one
        self.progress.run_started(one.run, number, total)
        self.connection.send(one)

    def listen(self, summary: Summary) -> None:
        """Take one message of the process, or notice that it died."""
        assert self.one is not None
        try:
            kind, *said = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            message = f"its process ended with exit code {self.process.exitcode}"
            out = self.store.run(self.one.id)
            out.set_status("failed", **progress_of(out), error={"type": "Process", "message": message})
            kind, said = "end", ["failed", message]
        if kind == "end":
            summary.add(said[0], self.one.id)
            self.progress.run_finished(self.one.run, *said)
            self.one = None
        else:
            getattr(self.progress, kind)(*said)

    def close(self) -> None:
        """Let the process go."""
        self.connection.close()
        self.process.join(timeout=10)
        if self.process.is_alive():
            self.process.kill()


class _Remote(Progress):
    """Progress of a run as messages to the process that shows it."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self.orphaned = False

    def send(self, *message: object) -> None:
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


def _serve(connection: Connection, root: Any, plugins: list[str], threads: int, number: int, stop: Any) -> None:
    """Work off runs until the other end closes. Without that other end the run in hand stops at a checkpoint."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to every process; the first one tells the rest
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    torch.set_num_threads(threads)
    if torch.cuda.is_available():
        torch.cuda.set_device(number % torch.cuda.device_count())
    for plugin in plugins:
        discovery.add_plugin(plugin)
    store, remote = Store(root), _Remote(connection)
    while True:
        try:
            one = connection.recv()
        except (EOFError, OSError):
            return
        state, message = work(one, store, remote, lambda: remote.orphaned or stop.is_set())
        remote.send("end", state, message)
