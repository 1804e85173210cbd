"""Which rows make the global batch of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.arrays import Ints
from bench.data.order import steps_per_epoch

if TYPE_CHECKING:
    from bench.data.pairs import Pairs


class Batches:
    """The global batches of one run. They follow from (seed, step) alone."""

    def __init__(self, pairs: Pairs, batch: int, seed: int) -> None:
        self._pairs, self._batch, self._seed = pairs, batch, seed
        self._orders: dict[int, Ints] = {}  #: of the last two epochs, as workers may already read the next one

    def rows(self, step: int) -> tuple[Ints, int]:
        """The rows of a global step, int64 [batch] and read-only, and the epoch it belongs to.

        Raises UserError if the batch is larger than the number of pairs.
        """
        epoch, place = divmod(step, steps_per_epoch(len(self._pairs), self._batch))
        return self._order(epoch)[place * self._batch : (place + 1) * self._batch], epoch

    def _order(self, epoch: int) -> Ints:
        if epoch not in self._orders:
            order = self._pairs.order(epoch, self._seed)
            order.flags.writeable = False
            self._orders = dict([*self._orders.items(), (epoch, order)][-2:])
        return self._orders[epoch]
