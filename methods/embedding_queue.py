"""A queue of embeddings of past steps, and which of them is nearest: RoCLIP's pool, SafeCLIP's banks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from methods.base import similarities, spans, unit


class EmbeddingQueue(nn.Module):
    """`size` rows [size, D], written in turn; a batch that reaches the end is cut there, and the next starts over.

    official: github.com/BigML-CS-UCLA/SafeCLIP@91488ce src/memory_bank.py

    Without `noise` a place counts as an entry once it was written. With it, all start as normal draws, as in lightly's
    memory bank, which the official codes use: their lengths are near sqrt(D), not 1.
    """

    entries: Tensor
    pointer: Tensor
    filled: Tensor

    def __init__(self, size: int, dim: int, noise: torch.Generator | None = None) -> None:
        super().__init__()
        entries = torch.zeros(size, dim) if noise is None else torch.randn(size, dim, generator=noise)
        self.register_buffer("entries", entries)
        self.register_buffer("pointer", torch.tensor(0))  # the next place to write
        self.register_buffer("filled", torch.tensor(0 if noise is None else size))

    def places(self, x: Tensor) -> Tensor:
        """[n, D] -> [n] places of the entries with the largest cosine; there must be an entry."""
        directions = unit(self.entries[: int(self.filled)])
        return torch.cat([similarities(x[tile], directions).argmax(1) for tile in spans(len(x))])

    def nearest(self, x: Tensor) -> Tensor | None:
        """[n, D] -> the entries with the largest cosine, [n, D] as they were written; None if there is no entry."""
        return self.entries[self.places(x)] if int(self.filled) else None

    @torch.no_grad()
    def push(self, rows: Tensor, ids: Tensor) -> None:
        """Write rows [n, D] in the order of their ids [n], so that their places in the batch do not matter."""
        start = int(self.pointer)
        written = rows[ids.argsort()][: len(self.entries) - start]
        stop = start + len(written)
        self.entries[start:stop] = written.to(self.entries.dtype)
        self.filled.clamp_(min=stop)
        self.pointer.fill_(0 if stop == len(self.entries) else stop)
