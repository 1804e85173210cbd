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


@torch.no_grad()
def partial_sinkhorn(
    cost: Tensor, allowed: Tensor, mass: float, reg: float, iterations: int = 1000, threshold: float = 1e-3
) -> Tensor:
    """Plan [n, n] between marginals of at most 1/n that moves about `mass`, exactly 0 where `allowed` is False.

    What is left goes to a further row and column, whose cells cost 100 times the dearest of the others. Alternates the
    potentials at most `iterations` times, until the length of the row potentials' last move is less than `threshold`.
    """
    total, dearest = len(cost), float(cost.max())
    kernel = torch.full((total + 1, total + 1), -100 * dearest / reg, dtype=cost.dtype, device=cost.device)
    kernel[-1, -1] = -201 * dearest / reg
    kernel[:-1, :-1] = (-cost / reg).masked_fill(~allowed, -math.inf)
    marginal = cost.new_full((total + 1,), 1 / total)
    marginal[-1] = 1 - mass
    log_marginal = marginal.log()
    f = g = torch.zeros_like(marginal)  # potentials, in units of `reg`
    for _ in range(iterations):
        before = f
        f = log_marginal - (kernel + g).logsumexp(1)
        g = log_marginal - (kernel + f[:, None]).logsumexp(0)
        if reg * float((f - before).norm()) < threshold:
            break
    return (kernel + f[:, None] + g).exp()[:-1, :-1]
