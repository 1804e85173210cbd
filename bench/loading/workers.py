"""Prefetching by worker processes, in the order in which results are read."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from bench.errors import UserError
from bench.machine.capacity import cores

CHUNK_ROWS = 32  #: rows that a process makes at a time, if they are large
CHUNK_BYTES = 5 << 20  #: of smaller rows; to receive a chunk costs a process about 1 ms, however small it is
MAX_BUFFER_BYTES = 4 * 2**30  #: bytes of finished pixels that one machine buffers at most
SHARED_MEMORY = Path("/dev/shm")  #: the shared memory that buffers them

T = TypeVar("T")


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


class Prefetcher(Iterator[T]):
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
                prefetch_factor=max(2, rows // (chunk * workers)),
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
            traceback.clear_frames(error.__traceback__)
            time.sleep(1.0)  # a signal handler of torch raises an error that says how the process died
            raise RuntimeError("a process that decodes images died") from error
        except RuntimeError as error:
            traceback.clear_frames(error.__traceback__)  # whoever keeps it would keep the other processes
            raise
        if isinstance(made, UserError):
            raise made
        return made

    def close(self) -> None:
        """End the processes."""
        self._made = None  # torch ends them with the iterator


def worker_count(asked: int | None, ranks: int) -> int:
    """Number of worker processes of a rank: `asked`, or by default its share of the cores minus one, from 1 to 16."""
    if asked is not None:
        return asked
    return max(1, min(16, cores() // _beside(ranks) - 1))


def _beside(ranks: int) -> int:
    """Number of training processes on this machine: LOCAL_WORLD_SIZE if a launcher set it, else `ranks`."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", ranks))


def buffer_sizes(size: int, rows: int, workers: int, ranks: int) -> tuple[int, int]:
    """Return the rows of a chunk and the rows to buffer, for rows of `size` bytes each.

    At most `rows` rows are buffered, and fewer if the shared memory of this machine is too small for them. A chunk has
    CHUNK_BYTES, or CHUNK_ROWS rows if these are more, but every worker has two to make. Without workers no row is
    buffered.
    """
    chunk = max(CHUNK_ROWS, CHUNK_BYTES // size)
    if not workers:
        return chunk, 0
    free = shutil.disk_usage(SHARED_MEMORY).free // 2 if SHARED_MEMORY.is_dir() else MAX_BUFFER_BYTES
    waiting = min(rows, min(MAX_BUFFER_BYTES, free) // _beside(ranks) // size)
    return max(1, min(chunk, waiting // (2 * workers))), waiting


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
