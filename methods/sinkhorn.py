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
    kernel, forbidden = -cost / reg, ~allowed
    f, g = cost.new_zeros(rows, 1), cost.new_zeros(1, columns)  # potentials, in units of `reg`
    for _ in range(iterations):
        before = f
        f = -math.log(rows) - (kernel + g).masked_fill_(forbidden, _FORBIDDEN).logsumexp(1, keepdim=True)
        g = -math.log(columns) - (kernel + f).masked_fill_(forbidden, _FORBIDDEN).logsumexp(0, keepdim=True)
        if reg * float((f - before).abs().sum()) < threshold:
            break
    return (kernel + f + g).masked_fill_(forbidden, -math.inf).exp()
