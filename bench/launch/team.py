"""Processes that make one run together: the first has it in hand, the others join its training.

Only the first claims, evaluates and writes. A rank that raises or dies takes the others with it, because they would
wait for it for ever; the run is then failed, and the next one gets new processes.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from bench.adapters import registry
from bench.console.progress import Progress
from bench.launch.claimed import Options, fail
from bench.launch.rank import STOPPING, Post, serve
from bench.planning.outcomes import State, Summary
from bench.planning.planned import Planned
from bench.store import Store


@dataclass(frozen=True)
class Yard:
    """What the teams of one call share."""

    context: Any  #: of multiprocessing
    store: Store
    options: Options
    stop: Any  #: an Event: everybody stops at a checkpoint


class Team:
    """The ranks of one run at a time. `number` counts the teams that work beside each other."""

    def __init__(self, yard: Yard, number: int, progress: Progress) -> None:
        self.yard, self.number, self.progress = yard, number, progress.beside()
        self.one: Planned | None = None
        self.processes: list[Any] = []
        self.connections: list[Connection] = []
        self._at_work: set[int] = set()  #: ranks that have not said the end
        self._outcome: tuple[State, str] = ("failed", "")
        self._folder = Path()
        self._start()

    def _start(self) -> None:
        world = self.yard.options.ranks
        self._folder = Path(tempfile.mkdtemp(prefix="bench-ranks-"))
        # What asks to stop waits until the new process can hear it; by default it would end it.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        try:
            for rank in range(world):
                ours, theirs = self.yard.context.Pipe()
                post = Post(rank, world, self.number * world + rank, self._folder / "meeting")
                arguments = (theirs, post, self.yard.store.root, registry.plugins(), self.yard.options, self.yard.stop)
                process = self.yard.context.Process(target=serve, args=arguments)
                process.start()
                theirs.close()
                self.processes.append(process)
                self.connections.append(ours)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)

    def begin(self, one: Planned, number: int, total: int) -> None:
        """Hand the first rank a run."""
        if not self.processes or not all(process.is_alive() for process in self.processes):
            self.close(patience=0)
            self._start()
        self.one, self._at_work = one, {0}
        self.progress.run_started(one.run, number, total)
        self.connections[0].send(one)

    def listen(self, connection: Connection, summary: Summary) -> None:
        """Take one message of a rank, or notice that it died; at the end of the run, note what became of it."""
        if connection not in self.connections:
            return  # of a team that was ended since
        assert self.one is not None
        rank = self.connections.index(connection)
        try:
            kind, *said = connection.recv()
        except (EOFError, OSError):
            kind, said = "died", []
        if kind == "summon":
            self._summon()
        elif kind == "died":
            self._broken(None)
        elif kind == "end":
            self._ended(rank, *said)
        else:
            getattr(self.progress, kind)(*said)
        if not self._at_work:
            summary.add(self._outcome[0], self.one.id)
            self.progress.run_finished(self.one.run, *self._outcome)
            self.one = None

    def _summon(self) -> None:
        for rank, connection in enumerate(self.connections[1:], start=1):
            try:
                connection.send(self.one)
            except OSError:
                self._broken(None)
                return
            self._at_work.add(rank)

    def _ended(self, rank: int, state: State, message: str, error: dict[str, Any] | None) -> None:
        self._at_work.discard(rank)
        if rank == 0:
            self._outcome = (state, message)
        if state in ("failed", "busy") and (self._at_work or rank):
            if rank or state == "failed":
                self._broken((message, error, rank))
            else:
                self.close(patience=0)  # taken over by another process: the others wait for messages that never come

    def _broken(self, told: tuple[str, dict[str, Any] | None, int] | None) -> None:
        """End every rank and fail the run by what came first: a death, as the others only say that they lost it."""
        assert self.one is not None
        gone = wait([process.sentinel for process in self.processes], timeout=1.0 if told else 10.0)
        dead = [rank for rank, process in enumerate(self.processes) if process.sentinel in gone]
        if dead:
            message = self._last_words(dead)
            error: dict[str, Any] | None = {"type": "Process", "message": message}
        else:
            said = "a process fell silent"
            message, error, rank = told or (said, {"type": "Process", "message": said}, 0)
            message = f"rank {rank}: {message}" if rank else message
        self.close(patience=0)
        self._outcome = ("failed", message)
        if error is not None:  # the first rank has written its own
            self._outcome = fail(self.one, self.yard.store, message, error)

    def _last_words(self, dead: list[int]) -> str:
        for rank in dead:
            self.processes[rank].join()
        codes = {rank: self.processes[rank].exitcode for rank in dead}
        if len(self.processes) == 1:
            return f"its process ended with exit code {codes[0]}"
        said = [f"rank {rank} ended with exit code {code}" for rank, code in codes.items()]
        return f"of its {len(self.processes)} processes {', '.join(said)}"

    def close(self, patience: float = 10.0) -> None:
        """Let the processes go; end those that stay longer than `patience` seconds."""
        for connection in self.connections:
            connection.close()
        for process in self.processes:
            process.join(timeout=patience)
            if process.is_alive():
                process.kill()
                process.join()
        self.processes, self.connections, self._at_work = [], [], set()
        shutil.rmtree(self._folder, ignore_errors=True)
