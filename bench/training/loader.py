"""From a step number to this rank's rows of the global batch: order, captions under noise, augmentation."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import count

import torch
from torch import Tensor

from bench.data.noise import Noise
from bench.data.pairs import MemoryPairs, Pairs
from bench.data.ring import Ring, plan
from bench.data.workers import CHUNK, Item, Pixels, Prefetcher, message, pieces, room, space
from bench.towers.build import OpenClipTowers, normalise
from bench.training.ahead import InPlace, StepsAhead
from bench.training.batches import Batches
from bench.training.examples import Asked, Examples, Made, joined
from bench.training.resident import Resident
from methods.protocol import Clock, Rows


@dataclass(frozen=True)
class HostRows:
    """A micro-batch whose pixels stay on the host as uint8; the towers' input takes 4 or 8 bytes each.

    Pixels of worker processes hold until the next step is begun: the processes then write others in their place.
    """

    #: of each view, uint8 [b, H, W, 3], stored features [b, P] or, if these lie on the device, their rows [b]; pinned
    #: where there is a GPU
    pixels: list[Tensor]
    tokens: Tensor  #: the text tower's input, or the rows [b] of stored features that lie on the device
    captions: list[str]
    ids: Tensor
    positions: range
    clock: Clock


class Loader:
    """Batches of one run. They depend on (seed, step) alone, never on ranks, micro-batches or earlier steps.

    `workers` processes prepare pixels, captions and tokens of the next steps in advance; `features`: images are stored
    features, which a thread gathers in advance. `close` ends both.
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
        features: bool = False,
    ) -> None:
        self.pairs = pairs if noise is None else noise.applied(pairs)
        self.noise, self.towers = noise, towers
        self.batch, self.seed, self.recipe = batch, seed, recipe
        self.batches = Batches(self.pairs, batch, seed)
        self.dtype, self.device = dtype, device
        self.workers, self.features = workers, features
        self.seconds = 0.0  #: that the caller has waited, in total
        self._in_place: InPlace | None = None
        self._ahead: Prefetcher[Made] | None = None  #: in its place where shared memory does not hold a step
        self._steps: StepsAhead[HostRows] = StepsAhead()
        self._chunk = CHUNK  #: rows that are decoded at a time, by this process or by a worker
        self._ready: object = None  #: (step, share, size, views) that the workers prefetch next

    @cached_property
    def _resident(self) -> Resident | None:
        """Stored features that lie on the GPU; None if there is none, or if they do not fit."""
        if not self.features or self.device.type != "cuda":
            return None
        return Resident.of(self.pairs, self.towers.tokenizer, self.device, torch.cuda.mem_get_info(self.device)[0])

    def ids(self, step: int) -> Tensor:
        """[B] int64, unique: the training rows of the global batch."""
        return torch.tensor(self.batches.rows(step)[0], device=self.device)

    def micro_batches(self, clock: Clock, share: slice, size: int, views: int) -> Iterator[HostRows]:
        """The rank's `share` of the global batch in pieces of `size` consecutive rows, with `views` further views.

        Raises UserError, naming the pair, if an image cannot be read, and RuntimeError if a process died.
        """
        began = time.perf_counter()
        if self.workers:
            self._start(clock.step, share, size, 1 + views)
        if self._in_place is not None:
            self._in_place.ring.settle()  # workers may write where the step before lay
        for micro_batch in self._of_step(clock, share, size, 1 + views):
            self.seconds += time.perf_counter() - began
            yield replace(micro_batch, clock=clock)
            began = time.perf_counter()
        if self.workers:
            self._ready = (clock.step + 1, share, size, 1 + views)

    def _of_step(self, clock: Clock, share: slice, size: int, views: int) -> Iterable[HostRows]:
        """The micro-batches of a step; those of stored features are small, so a thread makes them a step ahead."""
        if not self.features:
            return self._made(clock, share, size, views)
        _ = self._resident  # copied here, once, and not by the thread
        settings = (share.start, share.stop, size, views)
        return self._steps.parts(
            clock.step, settings, lambda step: self._made(replace(clock, step=step), share, size, views)
        )

    def _made(self, clock: Clock, share: slice, size: int, views: int) -> Iterator[HostRows]:
        first = share.start
        for asked in self._asked(clock.step, share, size):
            made, ids = self._collected(asked, views), asked.item.rows
            yield HostRows(
                pixels=made.pixels,
                tokens=made.tokens,
                captions=made.captions,
                ids=torch.from_numpy(ids).to(self.device, non_blocking=True),
                positions=range(first, first + len(ids)),
                clock=clock,
            )
            first += len(ids)

    def _asked(self, step: int, share: slice, size: int) -> Iterator[Asked]:
        """The rows of each micro-batch of a step."""
        rows, epoch = self.batches.rows(step)
        donors = rows if self.noise is None else rows[self.noise.donors_in_batch(step, self.batch)]
        for part in pieces(len(rows[share]), size):
            yield Asked(Item(rows[share][part].copy(), epoch), donors[share][part].copy())

    def _examples(self, views: int) -> Examples:
        return Examples(Pixels(self.pairs, self.seed, self.recipe, views), self.noise, self.towers.tokenizer)

    def on_device(self, micro_batch: HostRows) -> Rows:
        """A micro-batch as `encode` takes it. Pinned pixels are copied to a GPU asynchronously."""
        resident, pixels, tokens = self._resident, micro_batch.pixels, micro_batch.tokens
        if resident is not None:
            pixels = [resident.images[view.to(self.device, non_blocking=True)] for view in pixels]
            if resident.texts is not None and tokens.ndim == 1:
                tokens = resident.texts[tokens.to(self.device, non_blocking=True)]
        first, *views = (normalise(view, self.device, self.towers.channels).to(self.dtype) for view in pixels)
        if self._in_place is not None:
            self._in_place.ring.reading()
        own = (tokens, micro_batch.captions, micro_batch.ids, micro_batch.positions, micro_batch.clock)
        return Rows(first, *own, tuple(views))

    def close(self) -> None:
        """End the worker processes and the thread, if there are any. The next step starts them again."""
        self._steps.close()
        if self._in_place is not None:
            self._in_place.close()
        if self._ahead is not None:
            self._ahead.close()
        self._in_place = self._ahead = self._ready = None

    def _collected(self, asked: Asked, views: int) -> Made:
        """The rows of a micro-batch, made in this process or collected from the workers; their tokens on the device."""
        here, pinned = self._examples(views), self.device.type == "cuda"
        if self.features:
            captions = here.captions(asked)
            pixels = [view.pin_memory() if pinned else view for view in self._stored(here.pixels, asked.item)]
            return Made(pixels, captions, self._tokens(captions))
        if isinstance(self.pairs, MemoryPairs):
            made = here.of(asked)
        elif self._in_place is not None:
            made = self._in_place.take(len(asked))
        elif self._ahead is not None:
            chunks = (next(self._ahead) for _ in pieces(len(asked), self._chunk))
            made = joined(chunks, len(asked), pinned)
        else:  # decoded pictures are large: a few are made at a time
            made = joined(map(here.of, asked.parts(self._chunk)), len(asked), pinned)
        return replace(made, tokens=made.tokens.to(self.device, non_blocking=True))

    def _stored(self, here: Pixels, item: Item) -> list[Tensor]:
        """Stored features [b, P] of each view, or their rows [b] on the device."""
        if self._resident is None:
            return here.of(item)
        place = partial(self._resident.image_rows, self.pairs, item.rows, item.epoch, self.seed)
        return [torch.from_numpy(place(view)) for view in range(here.views)]

    def _tokens(self, captions: list[str]) -> Tensor:
        rows = self._resident.text_rows(captions) if self._resident else None
        if rows is None:
            return self.towers.tokenize(captions)
        tokens = torch.from_numpy(rows)
        return tokens.pin_memory() if self.device.type == "cuda" else tokens

    def _start(self, step: int, share: slice, size: int, views: int) -> None:
        """Restart the workers if `step` is not the prefetched one."""
        if self._ready != (step, share, size, views):
            self.close()
            examples, rows = self._examples(views), share.stop - share.start
            ranks, a_row = self.batch // rows, examples.of(next(self._asked(step, share, 1)))
            self._chunk, waiting = room(a_row.nbytes, rows, self.workers, ranks)
            micro_batches = (asked for later in count(step) for asked in self._asked(later, share, size))
            at_once = message(self._chunk, waiting, self.workers)
            fitting = plan(rows, size, at_once, self.workers, waiting, space(ranks) // a_row.nbytes)
            ring = None
            with suppress(RuntimeError):  # another process took the shared memory first
                ring = None if fitting is None else Ring(a_row.tensors, size, fitting.buffers, self.device)
            if fitting is not None and ring is not None:
                sizes = {"chunk": self._chunk, "message": at_once, "waiting": fitting.waiting}
                self._in_place = InPlace(examples, micro_batches, ring, self.workers, **sizes)
            else:
                chunks = (chunk for asked in micro_batches for chunk in asked.parts(self._chunk))
                self._ahead = Prefetcher(examples.of, chunks, self.workers, self._chunk, waiting)
        self._ready = None  # until the whole step is taken
