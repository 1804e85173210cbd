"""How far a Dirichlet distribution is from the uniform one, without the cancellation of its formula."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

SERIES = 20.0  #: from here on the asymptotic series are exact to fp64; below, the functions themselves are
#: coefficients of x^-1, x^-2, ... in h(x) + ln(x) / 2 and in h'(x), from Stirling's series (Bernoulli's numbers)
_VALUE = (1 / 3, 1 / 12, 1 / 90, -1 / 120, -1 / 210, 1 / 252, 1 / 210, -1 / 240)
_SLOPE = (-1 / 2, -1 / 3, -1 / 6, -1 / 30, 1 / 30, 1 / 42, -1 / 42, -1 / 30, 1 / 30)


def divergence_from_uniform(evidence: Tensor) -> Tensor:
    """[n, B] evidence e >= 0 -> [n] KL(Dir(1 + e) || Dir(1)), in the evidence's precision.

    With S = B + sum e the formula is lnG(S) - sum lnG(1 + e) - lnG(B) + sum e (psi(1 + e) - psi(S)), lnG and psi the
    log-gamma function and its derivative. Its terms grow as S ln S and cancel. Written with h(x) = (x - 1) (psi(x) - 1)
    - lnG(x), which grows as -ln(x) / 2, it is sum h(1 + e) - h(S) + (B - 1) (psi(S) - 1) - lnG(B), in which nothing
    larger than B ln S is left; so is its gradient, times e.
    """
    total = evidence.shape[1]
    strength = total + evidence.sum(1)
    curved: Callable[[Tensor], Tensor] = _Curved.apply
    parts = curved(1 + evidence).sum(1) - curved(strength)
    return parts + (total - 1) * (strength.digamma() - 1) - math.lgamma(total)


class _Curved(torch.autograd.Function):
    """h(x) for x >= 1, elementwise; its derivative is (x - 1) psi'(x) - 1."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        near, far = x.clamp(max=SERIES), x.clamp(min=SERIES)
        direct = (near - 1) * (near.digamma() - 1) - near.lgamma()
        series = _inverse_powers(far, _VALUE) - far.log() / 2 + (1 - math.log(2 * math.pi)) / 2
        return torch.where(x < SERIES, direct, series)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        near, far = x.clamp(max=SERIES), x.clamp(min=SERIES)
        direct = (near - 1) * torch.polygamma(1, near) - 1
        return gradients[0] * torch.where(x < SERIES, direct, _inverse_powers(far, _SLOPE))


def _inverse_powers(x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """Sum of c_k x^-k over k = 1, 2, ..., by Horner's rule."""
    inverse, total = 1 / x, torch.zeros_like(x)
    for coefficient in reversed(coefficients):
        total = (total + coefficient) * inverse
    return total
