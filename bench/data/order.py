"""Which rows a step trains on."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from bench.data import counter
from bench.data.pairs import Ints
from bench.errors import UserError


def epoch_order(n: int, epoch: int, seed: int) -> Ints:
    """int64 [n]: the permutation of rows 0..n-1 that one pass over the data follows."""
    drawn = counter.words(counter.word(seed, "order", epoch), np.arange(n, dtype=np.int64))[:, 0]
    return np.argsort(drawn, kind="stable").astype(np.int64)


@lru_cache(maxsize=2)
def _held_order(n: int, epoch: int, seed: int) -> Ints:
    order = epoch_order(n, epoch, seed)
    order.flags.writeable = False
    return order


def steps_per_epoch(n: int, batch: int) -> int:
    """Whole batches in n rows; the rest is dropped, so that rows are unique in a batch. UserError when n < batch."""
    if not 1 <= batch <= n:
        raise UserError(f"batch is {batch}, but there are {n} training pairs; it must lie between 1 and {n}")
    return n // batch


def batch_rows(n: int, batch: int, step: int, seed: int) -> tuple[Ints, int]:
    """The rows of a global step, int64 [batch], and the epoch it belongs to; both follow from the step alone."""
    epoch, place = divmod(step, steps_per_epoch(n, batch))
    return _held_order(n, epoch, seed)[place * batch : (place + 1) * batch], epoch
