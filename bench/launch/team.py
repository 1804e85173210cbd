"""A team: the processes that make one run together.

Rank 0 alone claims the run, measures it and writes to the store; the others score pairs, train and extract features
with it. If a rank raises or dies, all are ended, because the others would wait for it for ever. The run is then failed,
and the next run gets new processes.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from bench.adapters import registry
from bench.console.progress import Progress
from bench.launch.claimed import Options, fail
from bench.launch.nursery import Child, Flag, Nursery
from bench.launch.rank import STOPPING, RankInfo, begin, read_data
from bench.machine.private_folder import ScratchFolder
from bench.planning.outcomes import State, Summary
from bench.planning.planned import Planned
from bench.store import Store
from bench.suite.run import Run


@dataclass(frozen=True)
class TeamContext:
    """What all teams of one call share."""

    nursery: Nursery  #: starts the processes
    store: Store
    options: Options
    stop: Flag  #: once it is set, every process stops at a checkpoint

    def read_data(self, runs: list[Run]) -> None:
        """Have the nursery read what the runs share, so that the processes it forks share the memory."""
        with _signals_blocked():
            self.nursery.call(read_data, (runs,))


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block the signals that end a process, until a new process has handlers of its own."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)


class Team:
    """The processes that make one run at a time. `number` counts the teams that work beside each other."""

    def __init__(self, shared: TeamContext, number: int, progress: Progress) -> None:
        self.shared, self.number, self.progress = shared, number, progress.beside()
        self.one: Planned | None = None
        self.processes: list[Child] = []
        self.connections: list[Connection] = []
        self._at_work: set[int] = set()  #: ranks that work on the run and have not sent "end"
        self._outcome: tuple[State, str] = ("failed", "")
        self._folder: ScratchFolder | None = None
        self._start()

    def _start(self) -> None:
        world = self.shared.options.ranks
        self._folder = folder = ScratchFolder("ranks")
        with _signals_blocked():
            for rank in range(world):
                ours, theirs = Pipe()
                info = RankInfo(rank, world, self.number * world + rank, folder.path / "meeting")
                arguments = (info, self.shared.store.root, registry.plugins(), self.shared.options)
                descriptors = (theirs.fileno(), *self.shared.stop.descriptors)
                with theirs:
                    self.processes.append(self.shared.nursery.start(begin, arguments, descriptors))
                self.connections.append(ours)

    def begin(self, one: Planned, number: int, total: int) -> None:
        """Send a run to rank 0; start new processes first if one of them is gone."""
        if not self.processes or not all(process.is_alive() for process in self.processes):
            self.close(patience=0)
            self._start()
        self.one, self._at_work = one, {0}
        self.progress.run_started(one.run, number, total)
        self.connections[0].send(one)

    def listen(self, connection: Connection, summary: Summary) -> None:
        """Handle one message of a rank, or its death; at the end of the run, add its final state to `summary`."""
        if connection not in self.connections:
            return  # its process was ended meanwhile
        assert self.one is not None
        rank = self.connections.index(connection)
        try:
            kind, *content = connection.recv()
        except (EOFError, OSError):
            kind, content = "died", []
        if kind == "summon":
            self._summon()
        elif kind == "died":
            self._broken(None)
        elif kind == "end":
            self._ended(rank, *content)
        else:
            getattr(self.progress, kind)(*content)
        if not self._at_work:
            summary.add(self._outcome[0], self.one.id)
            self.progress.run_finished(self.one.run, *self._outcome)
            self.one = None

    def _summon(self) -> None:
        """Send the run to every further rank, because rank 0 begins to train or to evaluate."""
        for rank, connection in enumerate(self.connections[1:], start=1):
            try:
                connection.send(self.one)
            except OSError:
                self._broken(None)
                return
            self._at_work.add(rank)

    def _ended(self, rank: int, state: State, message: str, error: dict[str, Any] | None) -> None:
        """Note that a rank ended its part of the run; if it did not succeed, end the others."""
        self._at_work.discard(rank)
        if rank == 0:
            self._outcome = (state, message)
        if state in ("failed", "busy") and (self._at_work or rank):
            if rank or state == "failed":
                self._broken((message, error, rank))
            else:
                self.close(patience=0)  # another process took the run over: the other ranks would wait for ever

    def _broken(self, reported: tuple[str, dict[str, Any] | None, int] | None) -> None:
        """End every rank and fail the run; `reported` is the message, the error and the rank that sent it.

        If a process died, its death is the reason: the other ranks only report that they lost their connection to it.
        """
        assert self.one is not None
        gone = wait([process.sentinel for process in self.processes], timeout=1.0 if reported else 10.0)
        dead = [rank for rank, process in enumerate(self.processes) if process.sentinel in gone]
        if dead:
            message = self._last_words(dead)
            error: dict[str, Any] | None = {"type": "Process", "message": message}
        else:
            silent = "a process fell silent"
            message, error, rank = reported or (silent, {"type": "Process", "message": silent}, 0)
            message = f"rank {rank}: {message}" if rank else message
        self.close(patience=0)
        self._outcome = ("failed", message)
        if error is not None:  # without one, rank 0 has written the status itself
            self._outcome = fail(self.one, self.shared.store, message, error)

    def _last_words(self, dead: list[int]) -> str:
        """Return a message with the exit codes of the ranks that died."""
        for rank in dead:
            self.processes[rank].join()
        codes = {rank: self.processes[rank].exitcode for rank in dead}
        if len(self.processes) == 1:
            return f"its process ended with exit code {codes[0]}"
        ends = [f"rank {rank} ended with exit code {code}" for rank, code in codes.items()]
        return f"of its {len(self.processes)} processes {', '.join(ends)}"

    def close(self, patience: float = 10.0) -> None:
        """Ask the processes to end by closing their connections; kill those that still run after `patience` seconds."""
        for connection in self.connections:
            connection.close()
        for process in self.processes:
            process.join(timeout=patience)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()
        self.processes, self.connections, self._at_work = [], [], set()
        if self._folder is not None:
            self._folder.remove()
