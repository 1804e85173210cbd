"""Pixels of evaluation images, batch by batch, decoded by processes while the batches before are in the towers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from bench.data import MemoryPairs, Pairs
from bench.data.arrays import Ints, Pixels
from bench.data.workers import CHUNK, Ahead, processes
from bench.errors import UserError

AHEAD = 3  #: batches
FEW = 256  #: rows that are not worth a process


@dataclass(frozen=True)
class _Images(Dataset[list[Tensor] | UserError]):
    """How rows are turned into pixels in another process."""

    pairs: Pairs

    def __getitem__(self, rows: Ints) -> list[Tensor] | UserError:
        try:
            return [torch.from_numpy(self.pairs.images(rows))]
        except UserError as error:
            return error


def batches(pairs: Pairs, rows: Ints, size: int) -> Iterator[Pixels]:
    """uint8 [b, H, W, 3] of `rows`, `size` rows a batch, in order. Raises the UserError that reading them did."""
    parts = [rows[start : start + size] for start in range(0, len(rows), size)]
    workers = min(processes(None, 1), len(rows) // FEW)
    if isinstance(pairs, MemoryPairs) or not workers:
        yield from map(pairs.images, parts)
        return
    pieces = [[part[start : start + CHUNK] for start in range(0, len(part), CHUNK)] for part in parts]
    ahead = Ahead(_Images(pairs), (piece for of_part in pieces for piece in of_part), workers, CHUNK, AHEAD * size)
    try:
        for of_part in pieces:
            yield np.concatenate([next(ahead)[0].numpy() for _ in of_part])
    finally:
        ahead.close()
