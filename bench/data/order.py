"""The order of training rows: which rows each step trains on."""

from __future__ import annotations

from collections.abc import Sized

import numpy as np

from bench import counter
from bench.arrays import Ints
from bench.errors import UserError


def epoch_order(n: int, epoch: int, seed: int) -> Ints:
    """Return int64 [n]: the permutation of rows 0..n-1 that one epoch follows."""
    drawn = counter.random_words(counter.word(seed, "order", epoch), np.arange(n, dtype=np.int64))[:, 0]
    return np.argsort(drawn, kind="stable").astype(np.int64)


class RandomOrder:
    """Pairs that are equally fast to read in any order, so that an epoch shuffles all rows."""

    def order(self: Sized, epoch: int, seed: int) -> Ints:
        """Return `epoch_order` of these rows."""
        return epoch_order(len(self), epoch, seed)


def block_order(shards: Ints, block: int, epoch: int, seed: int) -> Ints:
    """Return int64 [n]: rows by blocks of `block` shards, the shards in random order, the rows of each block shuffled.

    shards: int64 [n], the shard of each row, numbered from 0. At most `block` shards have to be open at a time.
    """
    drawn = counter.random_words(counter.word(seed, "shards", epoch), np.arange(shards.max(initial=-1) + 1))[:, 0]
    rank = np.empty(len(drawn), np.int64)
    rank[np.argsort(drawn, kind="stable")] = np.arange(len(drawn))
    blocks = (rank // block).astype(np.uint16 if len(drawn) < 1 << 16 else np.uint32)  # uint16 gets a radix sort
    shuffled = epoch_order(len(shards), epoch, seed)
    return shuffled[np.argsort(blocks[shards[shuffled]], kind="stable")]


def steps_per_epoch(n: int, batch: int) -> int:
    """Return the number of whole batches in n rows; the last rows are dropped. Raises UserError unless 1 <= batch <= n.

    So a row occurs at most once in a batch.
    """
    if not 1 <= batch <= n:
        raise UserError(f"batch is {batch}, but there are {n} training pairs; it must lie between 1 and {n}")
    return n // batch
