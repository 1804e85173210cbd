"""Training examples as worker processes make them: the pixels of some rows, their captions and the captions' tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bench.arrays import Ints
from bench.data.noise import Noise, draw_captions
from bench.data.workers import Item, Pixels, pieces


@dataclass(frozen=True)
class Asked:
    """Rows of one step, and the rows whose captions they take."""

    item: Item
    donors: Ints  #: [b]

    def __len__(self) -> int:
        return len(self.donors)

    def part(self, rows: slice) -> Asked:
        """Return some of the rows."""
        return Asked(Item(self.item.rows[rows], self.item.epoch), self.donors[rows])

    def parts(self, size: int) -> Iterator[Asked]:
        """Yield the rows, `size` at a time."""
        return map(self.part, pieces(len(self), size))


@dataclass(frozen=True)
class Made:
    """What was made for an `Asked`."""

    pixels: list[Tensor]  #: uint8 [b, H, W, 3] of each view
    captions: list[str]
    tokens: Tensor  #: [b, L] int64

    @property
    def tensors(self) -> list[Tensor]:
        """Pixels and tokens."""
        return [*self.pixels, self.tokens]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        return sum(x.nbytes for x in self.tensors)


@dataclass(frozen=True)
class Examples:
    """Turns `Asked` into `Made`, in this process or in another one."""

    pixels: Pixels
    noise: Noise | None
    tokenizer: Callable[[list[str]], Tensor]

    def captions(self, asked: Asked) -> list[str]:
        """Return the b captions of the rows in their epoch."""
        return draw_captions(self.pixels.pairs, self.noise, asked.donors, asked.item.epoch, self.pixels.seed)

    def of(self, asked: Asked) -> Made:
        """Return pixels, captions and tokens. Raises UserError if an image cannot be read."""
        captions = self.captions(asked)
        return Made(self.pixels.of(asked.item), captions, self.tokenizer(captions))


def joined(made: Iterable[Made], rows: int, pinned: bool) -> Made:
    """Copy what was made of consecutive parts of `rows` rows, each at once: a kept part occupies shared memory."""
    whole, captions = list[Tensor](), list[str]()
    for part in made:
        whole = whole or [torch.empty((rows, *x.shape[1:]), dtype=x.dtype, pin_memory=pinned) for x in part.tensors]
        for to, x in zip(whole, part.tensors, strict=True):
            to[len(captions) : len(captions) + len(x)] = x
        captions += part.captions
    return Made(whole[:-1], captions, whole[-1])
