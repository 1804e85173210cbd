"""A mixture of two beta distributions of one number a row, as BiCro and L2RM fit it to the losses of every pass."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods.mixture import ROUNDING, scaled

SMALLEST = 1e-12  #: of weighted densities in the E-step; added to the density that a posterior is divided by
NARROWEST = 1e-9  #: smallest variance of a component, so that its parameters stay finite where all its values are one


@dataclass(frozen=True)
class BetaMixture:
    """Parameters of the two components, [2] each in fp64: first the one that started at small values."""

    alpha: Tensor
    beta: Tensor
    weights: Tensor

    def joint(self, x: Tensor) -> Tensor:
        """Weight times density, [2, n], of values [n] in (0, 1)."""
        alpha, beta = self.alpha[:, None], self.beta[:, None]
        normaliser = torch.lgamma(alpha) + torch.lgamma(beta) - torch.lgamma(alpha + beta)
        log_density = (alpha - 1) * x.log() + (beta - 1) * torch.log1p(-x) - normaliser
        return self.weights[:, None] * log_density.exp()

    def posteriors(self, x: Tensor) -> Tensor:
        """Probability of either component given values [n] in (0, 1), [2, n]."""
        joint = self.joint(x)
        return joint / (joint.sum(0) + SMALLEST)


@torch.no_grad()
def beta_posteriors(x: Tensor, edge: float, iterations: int = 10) -> Tensor:
    """[2, n] probabilities that values x [n] are of the component started at the small, at the large end; type of x.

    All are 1 where no two values differ by more than rounding. Values are scaled to [0, 1] and cut to
    [edge, 1 - edge]. Fitted in fp64 on the CPU: every rank gets the same bits.
    """
    values = x.detach().to("cpu", torch.float64)
    rounding = ROUNDING * torch.finfo(x.dtype).eps
    if len(values) < 2 or float(values.max() - values.min()) <= rounding * float(values.abs().max()):
        return torch.ones_like(x).expand(2, -1)
    inner = scaled(values).clamp(edge, 1 - edge)
    return beta_fit(inner, iterations).posteriors(inner).to(x)


def beta_fit(x: Tensor, iterations: int) -> BetaMixture:
    """EM from Beta(1, 2) and Beta(2, 1) on values [n] in (0, 1), fp64; the M-step fits weighted means and variances."""
    mixture = BetaMixture(x.new_tensor([1, 2]), x.new_tensor([2, 1]), x.new_tensor([0.5, 0.5]))
    for _ in range(iterations):
        joint = mixture.joint(x).clamp(min=SMALLEST)
        responsibilities = joint / joint.sum(0)
        counts = responsibilities.sum(1)
        means = (responsibilities * x).sum(1) / counts
        variances = (responsibilities * (x - means[:, None]) ** 2).sum(1) / counts
        alpha = means * (means * (1 - means) / variances.clamp(min=NARROWEST) - 1)
        mixture = BetaMixture(alpha, alpha * (1 - means) / means, counts / len(x))
    return mixture
