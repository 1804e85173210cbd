"""`keep: {kind: trusted, rows: n}`: n pairs that somebody looked at, drawn among the clean ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bench.catalogue.keep.entry import Asked, Keep
from bench.catalogue.keep.oracle import clean

if TYPE_CHECKING:
    from bench.arrays import Ints


def _trusted(asked: Asked) -> Ints:
    from bench import counter

    assert asked.rows is not None
    order = counter.hash_order(asked.keys, f"trusted {asked.seed}".encode())
    chosen = order[np.isin(order, clean(asked))]
    if len(chosen) < asked.rows:
        raise ValueError(f"{asked.rows} trusted pairs were asked for, but only {len(chosen)} are clean")
    return np.sort(chosen[: asked.rows])


TRUSTED = Keep(
    "trusted",
    "pairs drawn among those that are known to be clean",
    _trusted,
    takes=("rows",),
    uses="trusted pairs",
    reference_keeps_all=True,
)
