"""Worker processes that decode and augment images ahead of time, in the order in which they will be read."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from bench.arrays import Ints
from bench.data.pairs import Pairs
from bench.errors import UserError
from bench.machine.capacity import cores

CHUNK = 32  #: rows that a process makes at a time, if they are large
BYTES = 5 << 20  #: of smaller rows; to receive a chunk costs a process about 1 ms, however small it is
MESSAGE = 128  #: rows that a process is asked for at a time where it leaves them in shared memory
WAITING = 4 * 2**30  #: bytes of finished pixels that one machine buffers at most
SHARED = Path("/dev/shm")  #: the shared memory that buffers them

T = TypeVar("T")


@dataclass(frozen=True)
class Item:
    """Rows of one step, at most a chunk of them."""

    rows: Ints  #: [b]
    epoch: int


@dataclass(frozen=True)
class Pixels:
    """Turns items into pixels, in this process or in another one."""

    pairs: Pairs
    seed: int
    recipe: str
    views: int  #: number of views, the first one included

    def of(self, item: Item) -> list[Tensor]:
        """Return uint8 [b, H, W, 3] for each view. Raises UserError if an image cannot be read."""
        return [
            torch.from_numpy(self.pairs.sampled(item.rows, item.epoch, self.seed, view, self.recipe))
            for view in range(self.views)
        ]


@dataclass(frozen=True)
class _Answers(Dataset[T | UserError]):
    """Calls `make` in a worker process and returns a UserError instead of raising it.

    DataLoader would wrap a raised error in a RuntimeError whose message is a whole traceback.
    """

    make: Callable[[Any], T]

    def __getitem__(self, item: Any) -> T | UserError:
        try:
            return self.make(item)
        except UserError as error:
            return error


class Prefetcher(Generic[T]):
    """An iterator over `make(item)` for each of `items`, in order, computed ahead of time by worker processes.

    `close` ends the processes.
    """

    def __init__(self, make: Callable[[Any], T], items: Iterator[Any], workers: int, chunk: int, rows: int) -> None:
        """Start `workers` processes, which together buffer about `rows` rows; an item has at most `chunk` rows."""
        # A fork shares an index of millions of rows instead of copying it. A forked process must not use the GPU; these
        # only decode. On macOS a fork breaks system libraries.
        context = "fork" if sys.platform == "linux" else "spawn"
        self._made: Any = iter(
            DataLoader(
                _Answers(make),
                batch_size=None,
                sampler=items,
                num_workers=workers,
                prefetch_factor=each(rows, chunk, workers),
                worker_init_fn=_obey_the_parent_alone,
                multiprocessing_context=context,
                generator=torch.Generator(),  # DataLoader draws unused seeds; torch's global generator must not move
            )
        )

    def __next__(self) -> T:
        """Return what `make` made of the next item.

        Raises the UserError that `make` raised, RuntimeError if a worker process died, and StopIteration at the end.
        """
        try:
            made: T | UserError = next(self._made)
        except (ConnectionError, EOFError) as error:  # the process died while it sent a result
            time.sleep(1.0)  # a signal handler of torch raises an error that says how the process died
            raise RuntimeError("a process that decodes images died") from error
        if isinstance(made, UserError):
            raise made
        return made

    def close(self) -> None:
        """End the processes now; without this they live as long as any traceback refers to this object."""
        self._made._shutdown_workers()


def processes(asked: int | None, ranks: int) -> int:
    """Number of worker processes of a rank: `asked`, or by default its share of the cores minus one, from 1 to 16."""
    if asked is not None:
        return asked
    return max(1, min(16, cores() // _beside(ranks) - 1))


def _beside(ranks: int) -> int:
    """Number of training processes on this machine: LOCAL_WORLD_SIZE if a launcher set it, else `ranks`."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", ranks))


def room(size: int, rows: int, workers: int, ranks: int) -> tuple[int, int]:
    """Return the rows of a chunk and the rows to buffer, for rows of `size` bytes each.

    At most `rows` rows are buffered, and fewer if the shared memory of this machine is too small for them. A chunk has
    BYTES, if that is more than CHUNK rows and every worker has two of them to make.
    """
    waiting = min(rows, space(ranks) // size)
    return max(1, min(max(CHUNK, BYTES // size), waiting // (2 * workers))), waiting


def space(ranks: int) -> int:
    """Bytes of shared memory that one of `ranks` training processes may take, at most WAITING."""
    free = shutil.disk_usage(SHARED).free // 2 if SHARED.is_dir() else WAITING
    return min(WAITING, free) // _beside(ranks)


def each(rows: int, chunk: int, workers: int) -> int:
    """Return how many chunks each worker is asked for ahead of the one that is taken, to buffer about `rows` rows."""
    return max(2, rows // (chunk * workers))


def message(chunk: int, waiting: int, workers: int) -> int:
    """Return the rows that a worker is asked for at a time where it leaves them in shared memory: whole chunks.

    What is taken then is captions alone, but each time costs up to 0.3 ms; a worker that is to end ends its rows first.
    """
    return chunk * max(1, min(MESSAGE // chunk, waiting // (2 * workers * chunk)))


def pieces(rows: int, size: int) -> Iterator[slice]:
    """Yield 0 to `rows` in slices of `size`; the last may be shorter."""
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def _obey_the_parent_alone(_worker: int) -> None:
    """Ignore SIGINT, and SIGTERM from anyone but the parent.

    Terminals and schedulers signal every process of a job, but the parent still needs the next batch to stop cleanly.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_await_the_end, daemon=True).start()


def _await_the_end() -> None:
    """Exit on a SIGTERM that the parent sent."""
    while sys.platform == "linux":
        if signal.sigwaitinfo({signal.SIGTERM}).si_pid == os.getppid():
            os._exit(0)
