"""Where the ranks of one command meet: keys that all of them reach by address, and a process group for each run.

A rank that fails leaves its group. That closes its connections, which ends the step of all others, and the next run has
new ones. The network between the ranks is trusted, as torch.distributed demands.
"""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from bench.errors import UserError, one_line
from bench.launch.nodes.place import Place
from bench.planning.outcomes import State
from bench.training.distributed import join

MEETING = timedelta(minutes=10)  #: how long ranks wait for the others to start
LOOK = 0.05  #: seconds between looks at a key that is not told yet

# What rank 0 tells all others, of a run by its number: its plan; to begin; that all have ended; and to end the command.
RUN, GO, OVER, LEAVE = "run", "go", "over", "leave"
# What each of the others tells rank 0: that it will take part; how its part ended; that it ends.
HERE, END, LEFT = "here", "end", "left"


class End(NamedTuple):
    """How one rank's part of a run ended."""

    rank: int
    order: int  #: from 1, in which ranks ended; the first failure is the reason for the others
    state: State
    message: str
    error: dict[str, Any] | None  #: of a failed run, as its status holds it


class Meeting:
    """The connection of this rank to all others. Its methods raise `torch.distributed.DistError` if it is lost."""

    def __init__(self, place: Place) -> None:
        """Wait for the other ranks. Raises UserError if they do not come, or if this machine has no GPU for this one.

        The first rank holds the keys, or torchrun's agent does.
        """
        self.place = place
        self._starter = os.getppid()
        _take_gpu(place)
        try:
            store, _, _ = next(rendezvous("env://", timeout=MEETING))
        except dist.DistError as error:
            raise UserError(
                f"MASTER_ADDR, MASTER_PORT: rank {place.rank} of {place.world} met nobody at "
                f"{place.address}:{place.port} ({one_line(error, 200)})"
            ) from error
        self._store = PrefixStore("bench", store)

    @property
    def orphaned(self) -> bool:
        """Whether the process that started this rank is gone, so that nothing would end it."""
        return os.getppid() != self._starter

    def tell(self, word: str, number: int, value: str = "") -> None:
        """Say a word about run `number`: as rank 0 to all others, as another one to rank 0."""
        self._store.set(_key(word, number, self.place.rank), value)

    def heard(self, word: str, number: int, rank: int = 0) -> str | None:
        """Return what a rank told; None if it has not yet."""
        key = _key(word, number, rank)
        return self._store.get(key).decode() if self._store.check([key]) else None

    def wait(self, word: str, number: int, seconds: float) -> list[int]:
        """Wait until all ranks but 0 have said a word; return those that did not within `seconds`."""
        end, left = time.monotonic() + seconds, list(range(1, self.place.world))
        while left := [rank for rank in left if self.heard(word, number, rank) is None]:
            if time.monotonic() > end:
                break
            time.sleep(LOOK)
        return left

    def join(self, number: int) -> None:
        """Make the ranks one process group for run `number`; `bench.training.distributed.leave` undoes it."""
        place = self.place
        join(place.rank, place.world, PrefixStore(f"group{number}", self._store), near=place.near)

    def end(self, number: int, state: State, message: str, error: dict[str, Any] | None) -> End:
        """Tell how this rank's part of run `number` ended."""
        order = self._store.add(f"{number}/order", 1)
        self.tell(END, number, json.dumps([order, state, message, error]))
        return End(self.place.rank, order, state, message, error)

    def ends(self, number: int, seconds: float) -> list[End]:
        """Return how the parts of all ranks but 0 ended, without those that do not tell within `seconds`."""
        self.wait(END, number, seconds)
        told = {rank: self.heard(END, number, rank) for rank in range(1, self.place.world)}
        return [End(rank, *json.loads(text)) for rank, text in told.items() if text is not None]


def _key(word: str, number: int, rank: int) -> str:
    return f"{number}/{word}/{rank}"


def _take_gpu(place: Place) -> None:
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if gpus and place.local_rank >= gpus:
        raise UserError(
            f"LOCAL_RANK: {place.local_rank}, but this machine has {gpus} GPUs; start a rank a GPU: "
            f"torchrun --nproc-per-node {gpus}"
        )
    if gpus:
        torch.cuda.set_device(place.local_rank)
