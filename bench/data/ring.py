"""Shared memory in which worker processes leave micro-batches, one after the other, to be read where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle

import torch
from torch import Tensor

from bench.data.workers import each, pieces


class Ring:
    """A few buffers that are filled and read in turn. `settle` and `close` wait for copies to a GPU."""

    def __init__(self, like: Sequence[Tensor], rows: int, buffers: int, device: torch.device) -> None:
        """Each buffer has, for each tensor of `like`, one of `rows` such rows.

        Raises RuntimeError if the machine has no such shared memory left (torch then leaves a file without a block).
        """
        sizes = [(buffers, rows, *x.shape[1:]) for x in like]
        #: of each tensor of `like` [buffers, rows, ...]; no file has a name, so a killed process leaves none
        self.fields = [torch.empty(size, dtype=x.dtype).share_memory_() for size, x in zip(sizes, like, strict=True)]
        self._turn = cycle(range(buffers))
        self.device = device  #: where they are copied to
        self._registered: list[Tensor] = []
        self._copied = torch.cuda.Event() if device.type == "cuda" else None

    def register(self) -> bool:
        """Register the buffers with CUDA, which then copies from them asynchronously. Return False if it refuses.

        Call it after processes were forked, because a driver may keep registered memory from them.
        """
        if self.device.type != "cuda":
            return True
        runtime = torch.cuda.cudart()
        for x in self.fields:
            if int(runtime.cudaHostRegister(x.data_ptr(), x.nbytes, 0)):
                self._release()
                with suppress(RuntimeError):  # CUDA keeps the error for whoever launches the next kernel
                    torch.zeros(1, device=self.device)
                return False
            self._registered.append(x)
        return True

    def take(self, rows: int) -> list[Tensor]:
        """Return the first `rows` rows of each tensor of the next buffer."""
        buffer = next(self._turn)
        return [x[buffer, :rows] for x in self.fields]

    def reading(self) -> None:
        """Note that a copy from a buffer was begun on the current stream."""
        if self._copied is not None:
            self._copied.record(torch.cuda.current_stream(self.device))

    def settle(self) -> None:
        """Wait until the copies that were begun are over."""
        if self._copied is not None:
            self._copied.synchronize()

    def close(self) -> None:
        """Wait for copies and forget the buffers; their memory is freed once no process and no tensor uses it."""
        self.settle()
        self._release()
        self.fields.clear()

    def _release(self) -> None:
        for x in self._registered:
            torch.cuda.cudart().cudaHostUnregister(x.data_ptr())
        self._registered = []


@dataclass(frozen=True)
class Plan:
    """Sizes of a ring."""

    buffers: int
    waiting: int  #: rows that workers are asked for ahead of those that are taken


def plan(rows: int, size: int, message: int, workers: int, waiting: int, most: int) -> Plan | None:
    """Return the sizes for steps of `rows` rows in micro-batches of `size`; None if `most` rows do not hold them.

    `waiting` rows are made ahead of time, or fewer if `most` is too small. message: rows that a worker is asked for at
    a time.
    """
    parts = enumerate(pieces(rows, size))
    messages = [number for number, part in parts for _ in pieces(part.stop - part.start, message)]
    for ahead in range(each(waiting, message, workers), 1, -1):
        if (buffers := buffers_for(messages, ahead * workers)) * size <= most:
            return Plan(buffers, ahead * workers * message)
    return None


def buffers_for(messages: Sequence[int], ahead: int) -> int:
    """Return how many buffers hold a step's micro-batches while workers fill those that follow.

    messages: of each message of a step, the number of its micro-batch, from 0 on and in order; ahead: how many workers
    are asked for beyond the one that is taken. The furthest one is asked for with a step's last message, when all
    micro-batches of that step are still in use.
    """
    steps, message = divmod(len(messages) - 1 + ahead, len(messages))
    return steps * (messages[-1] + 1) + messages[message] + 1
