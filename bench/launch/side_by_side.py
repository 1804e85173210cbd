"""Execute several runs at a time, or one run on several processes.

Small towers leave most of a machine idle, large ones need all of its GPUs. A team of processes, the ranks, makes one
run at a time. Every process computes with the suite's `train.threads`, and on a machine with GPUs each takes one in
turn. The number of jobs changes no result.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection
from dataclasses import replace
from multiprocessing import Pipe, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.distributed import FileStore  # type: ignore[attr-defined]

from bench.adapters import registry
from bench.console.progress import Progress
from bench.launch.claimed import Call, mark_failed, work_on_run
from bench.launch.launchers import LaunchOptions
from bench.launch.ranks import ALONE, Ranks, gpu_count
from bench.machine.processes import STOP_SIGNALS, start_process
from bench.planning.planned import Planned
from bench.store import Store
from bench.training.inputs import InputsReader

IMPORTED_MODULES = (__name__, "torch.utils.flop_counter", "pyarrow.parquet")  #: what runs import
MESSAGE_INTERVAL = 0.5  #: seconds between messages on the steps of one run


def run_side_by_side(waiting: list[Planned], call: Call, requested: list[int]) -> None:
    """Execute the runs `waiting` in `options.jobs` teams of `options.ranks`; note the final state of each.

    After a stop request to this process, or to one of theirs, every process writes its checkpoint and ends. A process
    that dies fails only its own run.
    """
    waiting, summary = list(waiting), call.summary
    started, stopping = len(summary.skipped), False
    total = started + len(waiting)
    teams = [_Team(number, call) for number in range(min(call.options.jobs, len(waiting)))]
    try:
        while True:
            if not stopping and (requested or summary.full or any(team.asked_to_stop for team in teams)):
                stopping = True
                for team in teams:
                    team.send(None)
            for team in teams:
                running = {other.one.id for other in teams if other.one}
                one = None if team.one or stopping else _next(waiting, running, call)
                if one:
                    team.begin(one, started, total)
                    started += 1
            busy = {connection: team for team in teams if team.one for connection in team.connections}
            if not busy:
                break
            for connection in wait(list(busy), timeout=0.2):
                assert isinstance(connection, Connection)
                busy[connection].listen(connection)
    finally:
        for team in teams:
            team.close()
    summary.interrupted += [one.id for one in waiting]


def _next(waiting: list[Planned], running: Collection[str], call: Call) -> Planned | None:
    """Remove and return the first run of `waiting` that can start now; also remove runs before it that never can."""
    ahead = set(running)
    for one in list(waiting):
        if one.reference in ahead:
            ahead.add(one.id)
            continue
        waiting.remove(one)
        if not call.cannot_start(one):
            return one
    return None


class _Team:
    """The processes that make one run at a time. `number` counts the teams that work at the same time."""

    def __init__(self, number: int, call: Call) -> None:
        self.number, self.call = number, replace(call, progress=call.progress.beside())
        self.one: Planned | None = None
        self.connections: list[Connection] = []
        self.asked_to_stop = False  #: whether one of its processes got SIGTERM
        self._processes: list[BaseProcess] = []
        self._folder: TemporaryDirectory[str] | None = None

    def begin(self, one: Planned, number: int, total: int) -> None:
        """Have the processes execute a run; start new ones first if one of them is gone."""
        if not self._processes or not all(process.is_alive() for process in self._processes):
            self.close(patience=0)
            self._start()
        self.one = one
        self.call.progress.run_started(one.run.title, number, total)
        self.send(one)

    def _start(self) -> None:
        self._folder = folder = TemporaryDirectory(ignore_cleanup_errors=True)
        root, options = self.call.store.root, self.call.options
        given = (self.number, Path(folder.name) / "meeting", root, registry.known_plugins(), options)
        for rank in range(options.ranks):
            ours, theirs = Pipe()
            with theirs:
                self._processes.append(start_process(serve_runs, (theirs, rank, *given), IMPORTED_MODULES))
            self.connections.append(ours)

    def send(self, one: Planned | None) -> None:
        """Send a run to all processes, or None as a request to stop."""
        for connection in self.connections:
            with contextlib.suppress(OSError):  # it died, which `listen` notes
                connection.send(one)

    def listen(self, connection: Connection) -> None:
        """Handle one message of a rank, or its death; at the end of the run, add its final state to the summary."""
        if connection not in self.connections or self.one is None:
            return  # its process was ended meanwhile
        try:
            kind, *content = connection.recv()
        except (EOFError, OSError):
            message = self._ended()
            end = mark_failed(self.one, self.call.store, message, {"type": "Process", "message": message})
            kind, content = "end", list(end)
        if kind == "end":
            self.call.end(self.one, *content)
            self.one = None
        elif kind == "stop":
            self.asked_to_stop = True
        elif kind == "stage":
            self.call.progress.stage(*content)
        elif kind == "measured":
            self.call.progress.measured(*content)
        else:
            self.call.progress.step(*content)

    def _ended(self) -> str:
        """End every rank, as one of them died; return a message with the exit codes of those that did."""
        gone = wait([process.sentinel for process in self._processes], timeout=10.0)
        dead = {rank: process for rank, process in enumerate(self._processes) if process.sentinel in gone}
        for process in dead.values():
            process.join()
        ends = [f"ended with exit code {process.exitcode}" for process in dead.values()]
        if len(self._processes) == 1:
            message = f"its process {ends[0] if ends else 'fell silent'}"
        else:
            named = [f"rank {rank} {end}" for rank, end in zip(dead, ends, strict=True)]
            message = f"of its {len(self._processes)} processes {', '.join(named) or 'one fell silent'}"
        self.close(patience=0)
        return message

    def close(self, patience: float = 10.0) -> None:
        """Ask the processes to end by closing their connections; kill those that still run after `patience` seconds."""
        for connection in self.connections:
            connection.close()
        for process in self._processes:
            process.join(timeout=patience)
            process.kill()
            process.join()
            process.close()
        self._processes, self.connections = [], []
        if self._folder is not None:
            self._folder.cleanup()


class _Starter(Progress):
    """The process that started this one: it is sent the progress of a run, and says that the run is to stop."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self.terminated = False  #: whether this process got SIGTERM
        self._orphaned = self._said = False

    def should_stop(self) -> bool:
        """Return whether the run is to stop: the starter says so or is gone, or this process got SIGTERM."""
        if self.terminated and not self._said:
            self._said = True
            self.send("stop")
        return self.terminated or self._orphaned or self.connection.poll()

    def send(self, *message: object) -> None:
        """Send a message, or note that the receiving process is gone."""
        try:
            self.connection.send(message)
        except OSError:
            self._orphaned = True

    def stage(self, name: str) -> None:
        self.send("stage", name)

    def measured(self, done: int, total: int) -> None:
        self.send("measured", done, total)

    def step(self, step: int, steps: int, loss: float, samples_per_second: float) -> None:
        if step == steps or time.monotonic() - self._spoken >= MESSAGE_INTERVAL:
            self._spoken = time.monotonic()
            self.send("step", step, steps, loss, samples_per_second)


def serve_runs(
    connection: Connection,
    rank: int,
    team: int,
    meeting: Path,
    root: Path,
    plugins: list[str],
    options: LaunchOptions,
) -> None:
    """Execute the runs that arrive through `connection` until its other end closes; the first rank reports.

    team: its number. meeting: the file through which torch.distributed connects the team's ranks. If the starter dies
    during a run, the run stops at a checkpoint.
    """
    starter, world = _Starter(connection), options.ranks

    def terminate(_number: int, _frame: object) -> None:
        starter.terminated = True

    for number in STOP_SIGNALS:  # the starter hears those that all processes of a job get
        signal.signal(number, terminate if number == signal.SIGTERM else signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    os.environ["LOCAL_WORLD_SIZE"] = str(world * options.jobs)  # torchrun's; the loader divides the cores by it
    if gpus := gpu_count():
        torch.cuda.set_device((team * world + rank) % gpus)
    for plugin in plugins:
        registry.add_plugin(plugin)
    ranks, store, reader = ALONE, Store(root), InputsReader()
    if world > 1:
        above = parent_process()
        orphaned = lambda: above is not None and not above.is_alive()  # noqa: E731
        ranks = Ranks(rank, world, FileStore(str(meeting), world), orphaned=orphaned)
    with open(os.devnull, "w") as unread:
        progress = Progress(unread) if rank else starter
        with contextlib.suppress(EOFError, OSError):
            while True:
                one = connection.recv()
                if one is None:  # a request to stop that came after the end of its run
                    continue
                end = work_on_run(one, store, progress, starter.should_stop, options.track, reader, ranks)
                if not rank:
                    starter.send("end", *end)
