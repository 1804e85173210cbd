"""Training pixels made ahead of time by processes, in the order in which they will be asked for."""

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
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from bench.arrays import Ints
from bench.data.pairs import Pairs
from bench.errors import UserError
from bench.machine.device_lock import cores

CHUNK = 32  #: rows that a process makes at a time
WAITING = 4 * 2**30  #: bytes of pixels that may wait on a machine
SHARED = Path("/dev/shm")  #: where they wait


@dataclass(frozen=True)
class Item:
    """Rows of one step, a chunk at most."""

    rows: Ints
    epoch: int


@dataclass(frozen=True)
class Pixels:
    """How items are turned into pixels, here or in another process."""

    pairs: Pairs
    seed: int
    recipe: str
    views: int  #: the first one included

    def of(self, item: Item) -> list[Tensor]:
        """uint8 [b, H, W, 3] of each view."""
        return [
            torch.from_numpy(self.pairs.sampled(item.rows, item.epoch, self.seed, view, self.recipe))
            for view in range(self.views)
        ]


@dataclass(frozen=True)
class _Answers(Dataset[list[Tensor] | UserError]):
    """What another process sends back; an error raised there, torch would bury in a traceback of its own."""

    make: Callable[[Any], list[Tensor]]

    def __getitem__(self, item: Any) -> list[Tensor] | UserError:
        try:
            return self.make(item)
        except UserError as error:
            return error


class Ahead:
    """`workers` processes that `make` pixels of `items`, in order and some way ahead, until `close`."""

    def __init__(
        self, make: Callable[[Any], list[Tensor]], items: Iterator[Any], workers: int, chunk: int, rows: int
    ) -> None:
        # Forked, so that an index of millions of rows is shared and not copied. A forked process must leave the GPU
        # alone, and does: it decodes and nothing else. On macOS a fork breaks system libraries.
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
                generator=torch.Generator(),  # its seeds for the processes are not used, nor to be drawn from torch's
            )
        )

    def __next__(self) -> list[Tensor]:
        """The next item's pixels. Raises the UserError that making them did, RuntimeError where a process died."""
        try:
            made: list[Tensor] | UserError = next(self._made)
        except (ConnectionError, EOFError) as error:  # it died while it handed something over
            time.sleep(1.0)  # torch's own error, which says how it died, comes with a signal
            raise RuntimeError("a process that decodes images died") from error
        if isinstance(made, UserError):
            raise made
        return made

    def close(self) -> None:
        """End the processes, now and not when the last traceback that knows of them is gone."""
        self._made._shutdown_workers()


def processes(asked: int | None, ranks: int) -> int:
    """How many a rank gets: as asked, else its even share of the machine's cores but one, and 16 at most."""
    if asked is not None:
        return asked
    return max(1, min(16, cores() // _beside(ranks) - 1))


def _beside(ranks: int) -> int:
    """Processes that train on this machine, other runs' included where the launcher says so."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", ranks))


def room(size: int, rows: int, workers: int, ranks: int) -> tuple[int, int]:
    """Rows of `size` bytes in a chunk, and rows that may wait: `rows` at most, as far as shared memory reaches."""
    free = shutil.disk_usage(SHARED).free // 2 if SHARED.is_dir() else WAITING
    waiting = min(rows, min(WAITING, free) // _beside(ranks) // size)
    return max(1, min(CHUNK, waiting // (2 * workers))), waiting


def _obey_the_parent_alone(_worker: int) -> None:
    """A terminal or a scheduler sends its signals to all processes: the parent then still needs the next batch."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_await_the_end, daemon=True).start()


def _await_the_end() -> None:
    while sys.platform == "linux":
        if signal.sigwaitinfo({signal.SIGTERM}).si_pid == os.getppid():
            os._exit(0)
