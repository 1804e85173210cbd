"""Loader: a step's rows of the global batch on this rank, in order, with captions under noise and augmentation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count

import numpy as np
import torch
from torch import Tensor

from bench.arrays import Ints
from bench.data.noise.manifest import Noise, drawn_of
from bench.data.order import steps_per_epoch
from bench.data.pairs import Pairs
from bench.loading.workers import Prefetcher, buffer_sizes
from bench.towers.build import OpenClipTowers, normalise
from methods.base import spans
from methods.protocol import Clock, Rows

#: pairs whose texts are read once and kept: with small towers, reading them again is half of a step
MAX_KEPT_TEXTS = 1 << 16


class Batches:
    """The global batches of one run. They follow from (seed, step) alone."""

    def __init__(self, pairs: Pairs, batch: int, seed: int) -> None:
        self._pairs, self._batch, self._seed = pairs, batch, seed
        self._orders: dict[int, Ints] = {}  #: of the last two epochs, as workers may already read the next one

    def rows(self, step: int) -> tuple[Ints, int]:
        """The rows of a global step, int64 [batch] and read-only, and the epoch it belongs to.

        Raises UserError if the batch is larger than the number of pairs.
        """
        epoch, place = divmod(step, steps_per_epoch(len(self._pairs), self._batch))
        if epoch not in self._orders:
            order = self._pairs.order(epoch, self._seed)
            order.flags.writeable = False
            self._orders = dict([*self._orders.items(), (epoch, order)][-2:])
        return self._orders[epoch][place * self._batch : (place + 1) * self._batch], epoch


@dataclass(frozen=True)
class RowRequest:
    """Rows of one step, and the rows whose captions they take."""

    rows: Ints  #: [b]
    donors: Ints  #: [b]
    epoch: int

    def __len__(self) -> int:
        return len(self.rows)

    def parts(self, size: int) -> Iterator[RowRequest]:
        """Yield the rows, `size` at a time; the last part may be smaller."""
        for part in spans(len(self), size):
            yield RowRequest(self.rows[part].copy(), self.donors[part].copy(), self.epoch)


@dataclass(frozen=True)
class PreparedRows:
    """Rows that were made for a `RowRequest`."""

    pixels: list[Tensor]  #: of each view, uint8 [b, H, W, 3], or stored features [b, P]
    captions: list[str]
    tokens: Tensor  #: int64 [b, L], or stored features [b, Q]

    @property
    def tensors(self) -> list[Tensor]:
        """Pixels and tokens."""
        return [*self.pixels, self.tokens]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        return sum(x.nbytes for x in self.tensors)


@dataclass(frozen=True)
class RowMaker:
    """Turns `RowRequest` into `PreparedRows`, in this process or in another one."""

    pairs: Pairs
    noise: Noise
    tokenizer: Callable[[list[str]], Tensor]
    seed: int
    recipe: str
    views: int  #: number of views, the first one included

    @cached_property
    def _texts(self) -> list[tuple[str, ...]]:
        return self.noise.texts(self.pairs, np.arange(len(self.pairs)))

    def __call__(self, asked: RowRequest) -> PreparedRows:
        """Return pixels, captions and tokens. Raises UserError if an image cannot be read."""
        if len(self.pairs) > MAX_KEPT_TEXTS:
            texts = self.noise.texts(self.pairs, asked.donors)
        else:
            texts = [self._texts[row] for row in asked.donors.tolist()]
        captions = drawn_of(texts, asked.donors, asked.epoch, self.seed)
        pixels = [
            torch.from_numpy(self.pairs.sampled(asked.rows, asked.epoch, self.seed, view, self.recipe))
            for view in range(self.views)
        ]
        return PreparedRows(pixels, captions, self.tokenizer(captions))


def join_parts(parts: Iterable[PreparedRows], rows: int, pinned: bool) -> PreparedRows:
    """Put parts of consecutive rows together, `rows` in all; each is copied at once, as it occupies shared memory."""
    whole, captions = list[Tensor](), list[str]()
    for part in parts:
        if len(part.captions) == rows and not pinned:
            return part
        whole = whole or [torch.empty((rows, *x.shape[1:]), dtype=x.dtype, pin_memory=pinned) for x in part.tensors]
        for to, x in zip(whole, part.tensors, strict=True):
            to[len(captions) : len(captions) + len(x)] = x
        captions += part.captions
    return PreparedRows(whole[:-1], captions, whole[-1])


@dataclass(frozen=True)
class HostRows:
    """A micro-batch whose pixels stay on the host as uint8; the towers' input takes 4 or 8 bytes each."""

    pixels: list[Tensor]  #: of each view, uint8 [b, H, W, 3] or stored features [b, P]; pinned where there is a GPU
    tokens: Tensor  #: the text tower's input, on the device
    captions: list[str]
    ids: Tensor
    positions: range
    clock: Clock


class Loader:
    """Batches of one run. They depend on (seed, step) alone, never on ranks, micro-batches or earlier steps.

    `workers` processes prepare pixels, captions and tokens of the next steps in advance; without any, this process
    makes them when they are asked for. `close` ends the processes.
    """

    def __init__(
        self,
        pairs: Pairs,
        noise: Noise | None,
        towers: OpenClipTowers,
        *,
        batch: int,
        seed: int,
        recipe: str,
        dtype: torch.dtype,
        device: torch.device,
        workers: int = 0,
    ) -> None:
        self.noise, self.towers = Noise() if noise is None else noise, towers
        self.pairs = self.noise.applied(pairs)
        self.batch, self.seed, self.recipe = batch, seed, recipe
        self.batches = Batches(self.pairs, batch, seed)
        self.dtype, self.device, self.workers = dtype, device, workers
        self.seconds = 0.0  #: that the caller has waited, in total
        self._chunks: Iterator[PreparedRows] = iter(())  #: of the step after the last one and of those that follow
        self._size = 1  #: rows of a chunk, which are made at a time
        self._ready: object = None  #: (step, share, size, views) that the next chunks are of

    def ids(self, step: int) -> Tensor:
        """[B] int64, unique: the training rows of the global batch."""
        return torch.tensor(self.batches.rows(step)[0], device=self.device)

    def micro_batches(self, clock: Clock, share: slice, size: int, views: int) -> Iterator[HostRows]:
        """The rank's `share` of the global batch in pieces of `size` consecutive rows, with `views` further views.

        Raises UserError, naming the pair, if an image cannot be read, and RuntimeError if a process died.
        """
        began, first = time.perf_counter(), share.start
        if self._ready != (clock.step, share, size, views):
            self._start(clock.step, share, size, 1 + views)
        self._ready = None  # until the whole step is taken
        for asked in self._asked(clock.step, share, size):
            chunks = (next(self._chunks) for _ in spans(len(asked), self._size))
            made = join_parts(chunks, len(asked), pinned=self.device.type == "cuda")
            held = HostRows(
                pixels=made.pixels,
                tokens=made.tokens.to(self.device, non_blocking=True),
                captions=made.captions,
                ids=torch.from_numpy(asked.rows).to(self.device, non_blocking=True),
                positions=range(first, first + len(asked)),
                clock=clock,
            )
            first += len(asked)
            self.seconds += time.perf_counter() - began
            yield held
            began = time.perf_counter()
        self._ready = (clock.step + 1, share, size, views)

    def on_device(self, micro_batch: HostRows) -> Rows:
        """A micro-batch as `encode` takes it. Pinned pixels are copied to a GPU asynchronously."""
        pixels = (normalise(view, self.device, self.towers.channels).to(self.dtype) for view in micro_batch.pixels)
        first, *views = pixels
        own = (micro_batch.tokens, micro_batch.captions, micro_batch.ids, micro_batch.positions, micro_batch.clock)
        return Rows(first, *own, tuple(views))

    def close(self) -> None:
        """End the worker processes, if there are any. The next step starts them again."""
        if isinstance(self._chunks, Prefetcher):
            self._chunks.close()
        self._chunks, self._ready = iter(()), None

    def _asked(self, step: int, share: slice, size: int) -> Iterator[RowRequest]:
        """The rows of each micro-batch of a step."""
        rows, epoch = self.batches.rows(step)
        donors = rows[self.noise.donors_in_batch(step, self.batch)]
        return RowRequest(rows[share], donors[share], epoch).parts(size)

    def _start(self, step: int, share: slice, size: int, views: int) -> None:
        """Begin to make the micro-batches of `step` and of all steps after it."""
        self.close()
        make = RowMaker(self.pairs, self.noise, self.towers.tokenizer, self.seed, self.recipe, views)
        rows, a_row = share.stop - share.start, make(next(self._asked(step, share, 1)))
        self._size, waiting = buffer_sizes(a_row.nbytes, rows, self.workers, self.batch // rows)
        micro_batches = (asked for later in count(step) for asked in self._asked(later, share, size))
        chunks = (chunk for asked in micro_batches for chunk in asked.parts(self._size))
        if self.workers:
            self._chunks = Prefetcher(make, chunks, self.workers, self._size, waiting)
        else:
            self._chunks = map(make, chunks)
