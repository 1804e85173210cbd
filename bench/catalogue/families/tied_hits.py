"""Hits among ranked candidates of which some are tied. Needs no torch: evaluation and reports compute with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def hit_probability(better: np.ndarray, tied_wrong: np.ndarray, tied_right: np.ndarray, k: int) -> NDArray[np.float64]:
    """Return float64 [n]: the probability that a right answer is among the first k (0 or 1 without ties).

    Of each query: candidates better than its best right answer, wrong ones as good as it, right ones as good as it (at
    least 1). 1 - C(wrong, p) / C(wrong + right, p) for the p = k - better places that are left for tied candidates.
    """
    missed = np.ones(len(better))
    tied = tied_wrong + tied_right
    for draw in range(k):
        wrong_left, left = np.maximum(tied_wrong - draw, 0), np.maximum(tied - draw, 1)
        missed = np.where(better + draw < k, missed * (wrong_left / left), missed)
    return 1.0 - missed
