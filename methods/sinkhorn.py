"""Entropic optimal transport with forbidden cells, in the log domain."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_FORBIDDEN = -1e6  #: log kernel of a forbidden cell; finite, so that a row with nothing allowed stays finite


@torch.no_grad()
def masked_sinkhorn(
    cost: Tensor, allowed: Tensor, reg: float = 0.03, iterations: int = 100, threshold: float = 1e-4
) -> Tensor:
    """Plan [n, m] with uniform marginals 1/n and 1/m, exactly 0 where `allowed` is False.

    Alternates the row and column potentials at most `iterations` times, until the row potentials together move by less
    than `threshold`. Ends on a column update, so columns sum to 1/m and rows to about 1/n.
    """
    rows, columns = cost.shape
    f, g = cost.new_zeros(rows, 1), cost.new_zeros(1, columns)

    def log_plan() -> Tensor:
        return torch.where(allowed, (f + g - cost) / reg, _FORBIDDEN)

    for _ in range(iterations):
        moved = reg * (-math.log(rows) - log_plan().logsumexp(1, keepdim=True))
        f = f + moved
        g = g + reg * (-math.log(columns) - log_plan().logsumexp(0, keepdim=True))
        if float(moved.abs().sum()) < threshold:
            break
    return log_plan().exp()
