"""Training rows as they are asked for and made: pixels of each view, captions, and the captions' tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from bench.arrays import Ints
from bench.data.noise import Noise
from bench.data.noise.manifest import draw_captions, drawn_of
from bench.data.pairs import Pairs
from methods.base import spans

MAX_KEPT_TEXTS = (
    1 << 16
)  #: pairs whose texts are read once and kept: beside small towers, reading them again is half of a step


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
    """What was made for a `RowRequest`."""

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
    noise: Noise | None
    tokenizer: Callable[[list[str]], Tensor]
    seed: int
    recipe: str
    views: int  #: number of views, the first one included

    @cached_property
    def _texts(self) -> list[tuple[str, ...]]:
        return (self.noise or Noise()).texts(self.pairs, np.arange(len(self.pairs)))

    def _captions(self, asked: RowRequest) -> list[str]:
        if len(self.pairs) > MAX_KEPT_TEXTS:
            return draw_captions(self.pairs, self.noise, asked.donors, asked.epoch, self.seed)
        return drawn_of([self._texts[row] for row in asked.donors.tolist()], asked.donors, asked.epoch, self.seed)

    def __call__(self, asked: RowRequest) -> PreparedRows:
        """Return pixels, captions and tokens. Raises UserError if an image cannot be read."""
        captions = self._captions(asked)
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
