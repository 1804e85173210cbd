"""Training examples as worker processes make them: the pixels of some rows, their captions and the captions' tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from bench.arrays import Ints
from bench.data.noise import Noise, draw_captions
from bench.data.workers import Item, Pixels


@dataclass(frozen=True)
class Asked:
    """Rows of one step, and the rows whose captions they take."""

    item: Item
    donors: Ints  #: [b]

    def part(self, rows: slice) -> Asked:
        """Return some of the rows."""
        return Asked(Item(self.item.rows[rows], self.item.epoch), self.donors[rows])


@dataclass(frozen=True)
class Made:
    """What a worker sends for an `Asked`."""

    pixels: list[Tensor]  #: uint8 [b, H, W, 3] of each view
    captions: list[str]
    tokens: Tensor  #: [b, L] int64

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        return sum(x.nbytes for x in (*self.pixels, self.tokens))


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
