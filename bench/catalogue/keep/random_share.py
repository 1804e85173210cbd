"""`keep: {kind: random, share: k}`: the control beside any choice of rows; it differs in number alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bench.catalogue.keep.entry import Asked, Keep, kept_of

if TYPE_CHECKING:
    from bench.arrays import Ints


def _random(asked: Asked) -> Ints:
    from bench import counter

    return np.sort(counter.hash_order(asked.keys, f"random {asked.seed}".encode())[: kept_of(asked)])


RANDOM = Keep("random", "a random share of the pairs", _random, takes=("share",))
