"""Which rows make the global batch of a step."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from bench.arrays import Ints

if TYPE_CHECKING:
    from bench.data.pairs import Pairs

from bench.data.order import steps_per_epoch


@lru_cache(maxsize=2)
def _held_order(pairs: Pairs, epoch: int, seed: int) -> Ints:
    order = pairs.order(epoch, seed)
    order.flags.writeable = False
    return order


def batch_rows(pairs: Pairs, batch: int, step: int, seed: int) -> tuple[Ints, int]:
    """The rows of a global step, int64 [batch], and the epoch it belongs to; both follow from the step alone."""
    epoch, place = divmod(step, steps_per_epoch(len(pairs), batch))
    return _held_order(pairs, epoch, seed)[place * batch : (place + 1) * batch], epoch
