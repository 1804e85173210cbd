"""Ranks: the processes that execute each run together, started by torchrun, SLURM or `--processes`.

The first rank alone plans and claims, because a folder that machines share may show each of them another state. Then
all make the same run: they call the same functions in the same order, and the first one writes.

A rank that fails leaves the run's process group. That closes its connections, which ends the step of all others, and
the next run has a new group. The network between the ranks is trusted, as torch.distributed demands.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from bench.distributed import current_group, join_group, leave_group
from bench.store import Busy, RunStore
from bench.training.checkpoint import checkpoint_step
from bench.training.loop import Interrupted, NotFinite

START_TIMEOUT = 60.0  #: seconds for all ranks to begin a run
END_TIMEOUT = 20.0  #: seconds for a rank to end after another one; torchrun kills what is left 30 s after a death
POLL_SECONDS = 0.05  #: seconds between checks for a key that is not there yet


def gpu_count() -> int:
    """Return the number of GPUs that torch can use."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


class RankFailed(Exception):
    """Another rank failed first; `described` is its error as a status holds it."""

    def __init__(self, rank: int, message: str, error: dict[str, Any]) -> None:
        super().__init__(f"rank {rank}: {message}")
        self.described = error


class RankLost(Interrupted):
    """Ranks are gone. The run continues from its checkpoint when the same command starts again."""

    def __init__(self, ranks: list[int], step: int) -> None:
        names = f"rank {ranks[0]} is" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))} are"
        super().__init__(step)
        self.args = (f"{names} lost; the last checkpoint is of step {step}",)


def message_of(error: Exception) -> str:
    """Return an error in one line, for the message of a run that failed."""
    return str(error) if isinstance(error, RankFailed) else f"{type(error).__name__}: {error}"


def error_status(error: Exception) -> dict[str, Any]:
    """Return an error as status.json holds it; a loss that became NaN or infinite adds its step and term."""
    if isinstance(error, RankFailed):
        return error.described
    found: dict[str, Any] = {
        "type": type(error).__name__,
        "message": str(error),
        "traceback": "".join(traceback.format_exception(error)),
    }
    if isinstance(error, NotFinite):
        found.update(step=error.step, term=error.term)
    return found


class _End(NamedTuple):
    """Early end of one rank's part of a run."""

    order: int  #: from 1, in which ranks ended; the first failure is the reason for the others
    rank: int
    message: str
    error: dict[str, Any]  #: as `error_status` gives it


class Ranks:
    """The ranks that execute runs together, as one of them sees them."""

    def __init__(
        self,
        rank: int = 0,
        world: int = 1,
        store: Store | None = None,
        near: bool = True,
        orphaned: Callable[[], bool] = lambda: False,
    ) -> None:
        """store: keys that all ranks reach. near: all are on this machine. orphaned: whether nobody would end this."""
        self.rank, self.world, self.near, self.orphaned = rank, world, near, orphaned
        self.lost: list[int] = []  #: ranks that are gone, so that no further run can start
        self._store, self._told, self._runs = store, count(), count()

    def first(self, value: Any = None, stopped: Collection[object] = ()) -> Any:
        """Return the first rank's value, on every rank, for as long as it takes.

        Raises Interrupted on another rank that is orphaned, or once something is in `stopped`, and DistError if the
        connection is lost.
        """
        if self._store is None:
            return value
        key = f"told/{next(self._told)}"
        if not self.rank:
            self._store.set(key, pickle.dumps(value))  # type: ignore[arg-type]
            return value
        while not self._store.check([key]):
            if stopped or self.orphaned():
                raise Interrupted(0)
            time.sleep(POLL_SECONDS)
        return pickle.loads(self._store.get(key))

    @contextmanager
    def together(self, run: RunStore) -> Iterator[None]:
        """Make the ranks one process group for the time of the context, in which they make `run`.

        If this rank fails because another one did, raises RankFailed with the other's error, and if ranks are gone,
        RankLost; the other ranks have left the group then as well.
        """
        if self._store is None:
            yield
            return
        number = next(self._runs)
        try:
            self._collect(f"{number}/here", b"", START_TIMEOUT)
            if self.lost:
                raise RankLost(self.lost, checkpoint_step(run) or 0)
            join_group(self.rank, self.world, PrefixStore(f"group{number}", self._store), near=self.near)
            yield
            current_group().rows(0)  # none leaves while another one still works
        except Exception as error:
            reason = self._reason(number, error, run)
            if reason is error:
                raise
            raise reason from error
        finally:
            leave_group()

    def leave(self, code: int = 0) -> None:
        """End the command on all ranks with the first one's exit code, once those that are not lost have heard it."""
        with contextlib.suppress(dist.DistError):
            if not self.rank:
                self.first(code)
            if self._store is not None and not self.lost:
                self._collect("left", b"", END_TIMEOUT)

    def _reason(self, number: int, error: Exception, run: RunStore) -> Exception:
        """Leave the group, which ends the step of the others; return the error that was the first."""
        ends: list[_End] = []
        if not self.lost:
            assert self._store is not None
            try:
                order = self._store.add(f"{number}/order", 1)
                own = _End(order, self.rank, message_of(error), error_status(error))
                traceback.clear_frames(error.__traceback__)  # what they hold of the group keeps its connections open
                leave_group()
                told = self._collect(f"{number}/end", json.dumps(own).encode(), END_TIMEOUT)
                ends = [_End(*json.loads(end)) for end in told]
            except dist.DistError:  # what holds the keys is gone, with its machine or its process
                self.lost = [rank for rank in range(self.world) if rank != self.rank]
        if isinstance(error, Interrupted | Busy):
            return error
        if self.lost:
            return RankLost(self.lost, checkpoint_step(run) or 0)
        first = min(ends)
        if first.rank == self.rank or first.message == message_of(error):  # all saw it, such as a loss of NaN
            return error
        return RankFailed(first.rank, first.message, first.error)

    def _collect(self, key: str, value: bytes, seconds: float) -> list[bytes]:
        """Give a value and return those of all ranks; note as lost those that give none within `seconds`."""
        assert self._store is not None
        self._store.set(f"{key}/{self.rank}", value)  # type: ignore[arg-type]
        end, keys = time.monotonic() + seconds, [f"{key}/{rank}" for rank in range(self.world)]
        while not self._store.check(keys) and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
        there = [rank for rank, one in enumerate(keys) if self._store.check([one])]
        self.lost = [rank for rank in range(self.world) if rank not in there]
        return [self._store.get(keys[rank]) for rank in there]


ALONE = Ranks()  #: a process that executes its runs alone
