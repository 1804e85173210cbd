"""Names of the arrays that data comes in."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Pixels = npt.NDArray[np.uint8]


def ragged(starts: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Return, for lists of `counts` [k] items that begin at `starts` [k], each item's position and number in its list.

    Both are int64 [counts.sum()], list after list.
    """
    inside = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(starts, counts) + inside, inside
