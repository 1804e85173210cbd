"""Which rows a step trains on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bench import counter
from bench.arrays import Ints
from bench.errors import UserError

if TYPE_CHECKING:
    pass


def epoch_order(n: int, epoch: int, seed: int) -> Ints:
    """int64 [n]: the permutation of rows 0..n-1 that one pass over the data follows."""
    drawn = counter.words(counter.word(seed, "order", epoch), np.arange(n, dtype=np.int64))[:, 0]
    return np.argsort(drawn, kind="stable").astype(np.int64)


def block_order(shards: Ints, block: int, epoch: int, seed: int) -> Ints:
    """int64 [n]: shards in a drawn order, `block` of them at a time, the rows of each block shuffled.

    shards: int64 [n], each row's, numbered from 0. Whatever reads rows so has `block` shards in hand at a time.
    """
    drawn = counter.words(counter.word(seed, "shards", epoch), np.arange(shards.max(initial=-1) + 1))[:, 0]
    place = np.empty(len(drawn), np.int64)
    place[np.argsort(drawn, kind="stable")] = np.arange(len(drawn))
    blocks = (place // block).astype(np.uint16 if len(drawn) < 1 << 16 else np.uint32)  # 16 bits are sorted by radix
    shuffled = epoch_order(len(shards), epoch, seed)
    return shuffled[np.argsort(blocks[shards[shuffled]], kind="stable")]


def steps_per_epoch(n: int, batch: int) -> int:
    """Whole batches in n rows; the rest is dropped, so that rows are unique in a batch. UserError when n < batch."""
    if not 1 <= batch <= n:
        raise UserError(f"batch is {batch}, but there are {n} training pairs; it must lie between 1 and {n}")
    return n // batch
