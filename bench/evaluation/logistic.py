"""Multinomial logistic regression by preconditioned L-BFGS: the solver under the linear probe.

It minimises (1/n) sum_i cross-entropy_i + (strength / 2n) |W|^2 over weights W and a bias without penalty, which is
scikit-learn's `LogisticRegression(C=1/strength)`. The following makes it fast without moving the optimum. The bias is
free, so features are centred. The penalty does not change under rotation, so features are rotated to their principal
axes, where the curvature is nearly diagonal and known, and L-BFGS starts from it. Logits are linear along a search
direction, so a line search needs no product with the features. A fit may start from another strength's solution.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

MAX_ITERATIONS = 1000  # CLIP's (Radford et al. 2021, A.3)
GAP = 1e-5  # nats a row: stop when the quadratic model says the optimum is no further below
_MEMORY = 10


@dataclass(frozen=True)
class Solution:
    """logits = features @ weight + bias. A class without training rows has bias -inf: it is never predicted."""

    weight: Tensor  #: [P, C]
    bias: Tensor  #: [C]
    iterations: int  #: that the fit took

    def logits(self, features: Tensor) -> Tensor:
        """Map features [n, P] to logits [n, C]."""
        return features @ self.weight + self.bias

    def towards(self, other: Solution, share: float) -> Solution:
        """Return the point on the line from this solution (share 0) to `other` (share 1)."""
        weight, bias = (torch.lerp(a, b, share) for a, b in ((self.weight, other.weight), (self.bias, other.bias)))
        return Solution(weight, bias, 0)


class Problem:
    """The training rows of one probe, prepared once for fits at any number of strengths."""

    def __init__(self, features: Tensor, labels: Tensor, classes: int) -> None:
        """features [n, P] floating, labels [n] int64 in 0..classes-1. Computes in the features' dtype."""
        self.labels, self.classes = labels, classes
        self.mean = features.mean(0)
        centred = features - self.mean
        # in float64: the axes must be orthogonal, or the penalty would change
        variances, axes = torch.linalg.eigh((centred.T @ centred).double() / len(centred))
        self.axes = axes.to(features.dtype)
        ones = features.new_ones(len(features), 1)
        self.rows = torch.cat((centred @ self.axes, ones), dim=1)  # [n, P + 1], the bias as the last feature
        self.spread = torch.cat((variances.clamp(min=0).to(features.dtype), ones[0]))  # [P + 1]
        self.prior = (torch.bincount(labels, minlength=classes).to(features.dtype) / len(labels)).log()

    def fit(self, strength: float, start: Solution | None = None, gap: float = GAP) -> Solution:
        """Minimise at one L2 strength, from `start` or from zero weights, to within `gap` nats a row. Deterministic."""
        descent = _Descent(self, strength, self._theta(start))
        while descent.gap() > gap and descent.iterations < MAX_ITERATIONS and descent.step():
            pass
        weight = self.axes @ descent.theta[:-1]
        return Solution(weight, descent.theta[-1] - self.mean @ weight, descent.iterations)

    def _theta(self, start: Solution | None) -> Tensor:
        """Return a solution in rotated coordinates, [P + 1, C]."""
        if start is None:
            return torch.cat((self.rows.new_zeros(len(self.axes), self.classes), self.prior[None]))
        bias = start.bias + self.mean @ start.weight
        # a class that was absent there and is present here (or the other way round) starts from its frequency
        known = torch.isfinite(bias) & torch.isfinite(self.prior)
        return torch.cat((self.axes.T @ start.weight, torch.where(known, bias, self.prior)[None]))


class _Descent:
    """L-BFGS (Nocedal & Wright, Algorithm 7.4) in coordinates scaled by the diagonal of the curvature at the start."""

    def __init__(self, problem: Problem, strength: float, theta: Tensor) -> None:
        self.problem, self.theta = problem, theta
        self.penalty = strength / len(problem.rows)
        self.iterations = 0
        self.logits = problem.rows @ theta
        self.value, _, self.shares = self._along(torch.zeros_like(self.logits), torch.zeros_like(theta), 0.0)
        curvature = problem.spread[:, None] * (self.shares * (1 - self.shares)).mean(0).clamp(min=1e-8)
        curvature[:-1] += self.penalty
        self.scale = curvature.rsqrt()
        self.gradient = self._gradient()
        self.pairs: list[tuple[Tensor, Tensor, Tensor]] = []  # steps, gradient changes, 1 / their product

    def gap(self) -> float:
        """Estimate the distance of the objective from its minimum; in scaled coordinates the curvature is about 1."""
        return 0.5 * float((self.gradient * self.gradient).sum())

    def step(self) -> bool:
        """Do one iteration. Returns False if, at this precision, the objective cannot decrease along the direction."""
        direction = self._direction()
        move = direction * self.scale
        change = self.problem.rows @ move
        length = self._search(change, move, float((self.gradient * direction).sum()))
        if length == 0.0:
            return False
        self.theta = self.theta + length * move
        self.logits = self.logits + length * change
        before, self.gradient = self.gradient, self._gradient()
        taken, bend = length * direction, self.gradient - before
        product = (taken * bend).sum()
        if float(product) > 0:
            self.pairs = [*self.pairs, (taken, bend, 1 / product)][-_MEMORY:]
        self.iterations += 1
        return True

    def _gradient(self) -> Tensor:
        """Return the gradient [P + 1, C] in scaled coordinates, at the current shares (softmax of the logits)."""
        labels = self.problem.labels[:, None]
        residual = self.shares.scatter_add(1, labels, self.shares.new_full((1, 1), -1.0).expand_as(labels))
        out = self.problem.rows.T @ residual / len(residual)
        out[:-1] += self.penalty * self.theta[:-1]
        return out * self.scale

    def _direction(self) -> Tensor:
        out, weights = -self.gradient, []
        for taken, bend, inverse in reversed(self.pairs):
            weights.append(inverse * (taken * out).sum())
            out = out - weights[-1] * bend
        if self.pairs:
            _, bend, inverse = self.pairs[-1]
            out = out / (inverse * (bend * bend).sum())
        for (taken, bend, inverse), weight in zip(self.pairs, reversed(weights), strict=True):
            out = out + (weight - inverse * (bend * out).sum()) * taken
        return out

    def _search(self, change: Tensor, move: Tensor, slope: float) -> float:
        """Step length under the strong Wolfe conditions by doubling and bisection; keeps value and shares there."""
        slack = 4 * torch.finfo(change.dtype).eps * (1 + abs(self.value))
        low, high, length = 0.0, float("inf"), 1.0
        if slope >= 0:
            return 0.0
        for _ in range(30):
            value, here, shares = self._along(change, move, length)
            if value > self.value + 1e-4 * length * slope + slack or here > -0.9 * slope:
                high = length
            elif here < 0.9 * slope:
                low = length
            else:
                self.value, self.shares = value, shares
                return length
            length = (low + high) / 2 if high < float("inf") else 2 * length
        return 0.0

    def _along(self, change: Tensor, move: Tensor, length: float) -> tuple[float, float, Tensor]:
        """Return the objective, its derivative along the direction, and the softmax [n, C], at `length` along it."""
        logs = F.log_softmax(torch.add(self.logits, change, alpha=length), 1)
        shares = logs.exp()
        labels = self.problem.labels[:, None]
        weights = self.theta[:-1] + length * move[:-1]
        value = -logs.gather(1, labels).mean(dtype=torch.float64)
        value += 0.5 * self.penalty * (weights * weights).sum(dtype=torch.float64)
        slope = (torch.linalg.vecdot(shares, change)[:, None] - change.gather(1, labels)).mean(dtype=torch.float64)
        slope += self.penalty * (weights * move[:-1]).sum(dtype=torch.float64)
        return float(value), float(slope), shares
