"""A mixture of two normal distributions of one number a row, as noisy-correspondence methods fit it to every pass."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

ROUNDING = 64  #: values that differ by no more units of relative rounding, in the type they come in, count as equal

Component = Literal["smaller", "larger"]  #: of the two means


@dataclass(frozen=True)
class Mixture:
    """Parameters of the two components, [2] each in fp64, the one of smaller mean first."""

    means: Tensor
    variances: Tensor
    weights: Tensor
    iterations: int  #: of EM

    def log_joint(self, x: Tensor) -> Tensor:
        """ln of weight times density, [2, n], of values [n] on the scale of the fit."""
        distances = (x - self.means[:, None]) ** 2 / self.variances[:, None]
        return (self.weights.log() - 0.5 * (2 * math.pi * self.variances).log())[:, None] - 0.5 * distances


@torch.no_grad()
def posteriors(
    x: Tensor,
    component: Component,
    iterations: int = 10,
    tolerance: float = 1e-2,
    added_variance: float = 5e-4,
    rescaled: bool = True,
) -> Tensor:
    """[n] probability that each of the values x [n] is of the component of smaller or larger mean; type of x.

    All are 1 where no two values differ by more than rounding. `rescaled` maps x to [0, 1] first, and the added
    variance counts there. Fitted in fp64 on the CPU: every rank gets the same bits. The defaults are NCR's and GSC's.
    """
    values = x.detach().to("cpu", torch.float64)
    rounding = ROUNDING * torch.finfo(x.dtype).eps
    if len(values) < 2 or float(values.max() - values.min()) <= rounding * float(values.abs().max()):
        return torch.ones_like(x)
    if rescaled:
        values = scaled(values)
    log_joint = fit(values, iterations, tolerance, added_variance).log_joint(values)
    chosen = log_joint[0 if component == "smaller" else 1]
    return (chosen - log_joint.logsumexp(0)).exp().to(x)


def scaled(x: Tensor) -> Tensor:
    """(x - min) / (max - min) of at least two different values."""
    low = x.min()
    return (x - low) / (x.max() - low)


def fit(x: Tensor, iterations: int, tolerance: float, added_variance: float) -> Mixture:
    """EM on at least two different values [n] in fp64, from the best cut in two; `added_variance` must be > 0.

    Ends after `iterations`, or once the mean log-likelihood rises by less than `tolerance`. This is GaussianMixture of
    scikit-learn, whose start is drawn: on weakly bimodal values it depends on the seed.
    """
    mixture = _maximised(x, _two_means(x), added_variance, 0)
    before = -math.inf
    for number in range(1, iterations + 1):
        log_joint = mixture.log_joint(x)
        log_density = log_joint.logsumexp(0)
        mixture = _maximised(x, (log_joint - log_density).exp(), added_variance, number)
        likelihood = float(log_density.mean())
        if abs(likelihood - before) < tolerance:
            break
        before = likelihood
    order = mixture.means.argsort(stable=True)
    return Mixture(mixture.means[order], mixture.variances[order], mixture.weights[order], mixture.iterations)


def _two_means(x: Tensor) -> Tensor:
    """Responsibilities 0 or 1, [2, n], of the cut with the smallest sum of squares within its parts, the first such."""
    ordered = x.sort().values
    left = torch.arange(1, len(x), dtype=x.dtype)  # number of values below each cut
    # The sum of squares between the parts is larger where that within is smaller.
    sums = (ordered - ordered.mean()).cumsum(0)[:-1]
    between = sums**2 / (left * (len(x) - left))
    below = x <= ordered[int(between.argmax())]
    return torch.stack((below, ~below)).to(x)


def _maximised(x: Tensor, responsibilities: Tensor, added_variance: float, iterations: int) -> Mixture:
    """The M-step, given responsibilities [2, n]."""
    counts = responsibilities.sum(1) + 10 * torch.finfo(x.dtype).eps
    means = (responsibilities * x).sum(1) / counts
    variances = (responsibilities * (x - means[:, None]) ** 2).sum(1) / counts + added_variance
    return Mixture(means, variances, counts / counts.sum(), iterations)
