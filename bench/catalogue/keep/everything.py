"""`keep: all`, the default: nothing is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bench.catalogue.keep.entry import Asked, Keep

if TYPE_CHECKING:
    from bench.arrays import Ints


def _everything(asked: Asked) -> Ints:
    return np.arange(len(asked.keys), dtype=np.int64)


ALL = Keep("all", "all pairs", _everything)
