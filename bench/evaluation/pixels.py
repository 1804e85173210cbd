"""Pixels of evaluation images, batch by batch, decoded by processes while the batches before are in the towers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor

from bench.arrays import Ints, Pixels
from bench.data import MemoryPairs, Pairs
from bench.data.workers import Ahead, processes, room

AHEAD = 3  #: batches
FEW = 256  #: rows that are not worth a process


def _decoded(pairs: Pairs, rows: Ints) -> list[Tensor]:
    return [torch.from_numpy(pairs.images(rows))]


def batches(pairs: Pairs, rows: Ints, size: int) -> Iterator[Pixels]:
    """uint8 [b, H, W, 3] of `rows`, `size` rows a batch, in order. Raises the UserError that reading them did."""
    parts = [rows[start : start + size] for start in range(0, len(rows), size)]
    workers = min(processes(None, 1), len(rows) // FEW)
    if isinstance(pairs, MemoryPairs) or not workers:
        yield from map(pairs.images, parts)
        return
    one = pairs.images(rows[:1])
    chunk, waiting = room(one.nbytes, AHEAD * size, workers, 1)
    pieces = (part[start : start + chunk] for part in parts for start in range(0, len(part), chunk))
    ahead = Ahead(partial(_decoded, pairs), pieces, workers, chunk, waiting)
    try:
        for part in parts:
            whole = np.empty((len(part), *one.shape[1:]), np.uint8)
            for start in range(0, len(part), chunk):  # taken over at once: what is held here, shared memory holds
                whole[start : start + chunk] = next(ahead)[0].numpy()
            yield whole
    finally:
        ahead.close()
