"""L-BFGS descent, which asks a problem for the cross-entropy of its rows along lines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

MAX_ITERATIONS = 1000  # CLIP's (Radford et al. 2021, A.3)
MAX_GAP = 1e-5  # nats a row: stop when the quadratic model says the optimum is no further below
MEMORY_PAIRS = 10  #: pairs of L-BFGS


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


class LossLine(Protocol):
    """The mean cross-entropy of rows along a line through [P + 1, C]. Before `aim` it is a single point."""

    def aim(self, move: Tensor) -> None:
        """Go to the point that `at` evaluated last; the line leads along `move` from there."""

    def at(self, length: float) -> tuple[Tensor, Tensor]:
        """Return value and derivative, float64 [], at `length` times the move."""

    def curvature(self) -> Tensor:
        """Return [C]: the mean over rows of p (1 - p), at the beginning."""

    def gradient(self) -> Tensor:
        """Return the gradient [P + 1, C] where `at` evaluated last."""


class ProbeRows(ABC):
    """The training rows of one probe in the coordinates of its fits: centred, rotated, the bias as the last feature."""

    count: int  #: n
    mean: Tensor  #: [P]
    axes: Tensor  #: [P, P], orthogonal
    spread: Tensor  #: [P + 1], the mean of the square of each feature
    prior: Tensor  #: [C], logarithms of the classes' frequencies

    @abstractmethod
    def line(self, theta: Tensor) -> LossLine:
        """Return a line that begins at weights and bias, [P + 1, C]."""

    def fit(self, strength: float, start: Solution | None = None, gap: float = MAX_GAP) -> Solution:
        """Minimise at one L2 strength, from `start` or from zero weights, to within `gap` nats a row. Deterministic."""
        if start is None:
            theta = torch.cat((self.mean.new_zeros(len(self.axes), len(self.prior)), self.prior[None]))
        else:
            bias = start.bias + self.mean @ start.weight
            # a class with rows in only one of the two problems starts from its frequency
            known = torch.isfinite(bias) & torch.isfinite(self.prior)
            theta = torch.cat((self.axes.T @ start.weight, torch.where(known, bias, self.prior)[None]))
        descent = _Descent(self, strength, theta)
        while descent.gap() > gap and descent.iterations < MAX_ITERATIONS and descent.step():
            pass
        weight = self.axes @ descent.theta[:-1]
        return Solution(weight, descent.theta[-1] - self.mean @ weight, descent.iterations)


class _Descent:
    """L-BFGS (Nocedal & Wright, Algorithm 7.4) in coordinates scaled by the diagonal of the curvature at the start."""

    def __init__(self, rows: ProbeRows, strength: float, theta: Tensor) -> None:
        self.theta = theta
        self.penalty = strength / rows.count
        self.iterations = 0
        self.line = rows.line(theta)
        self.value, _ = self._along(torch.zeros_like(theta), 0.0)
        curvature = rows.spread[:, None] * self.line.curvature().clamp(min=1e-8)
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
        length = self._search(move, float((self.gradient * direction).sum()))
        if length == 0.0:
            return False
        self.theta = self.theta + length * move
        before, self.gradient = self.gradient, self._gradient()
        taken, bend = length * direction, self.gradient - before
        product = (taken * bend).sum()
        if float(product) > 0:
            self.pairs = [*self.pairs, (taken, bend, 1 / product)][-MEMORY_PAIRS:]
        self.iterations += 1
        return True

    def _gradient(self) -> Tensor:
        """Return the gradient [P + 1, C] in scaled coordinates, at theta, where the line was evaluated last."""
        out = self.line.gradient()
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

    def _search(self, move: Tensor, slope: float) -> float:
        """Step length under the strong Wolfe conditions by doubling and bisection; keeps the value there."""
        slack = 4 * torch.finfo(move.dtype).eps * (1 + abs(self.value))
        low, high, length = 0.0, float("inf"), 1.0
        if slope >= 0:
            return 0.0
        self.line.aim(move)
        for _ in range(30):
            value, here = self._along(move, length)
            if value > self.value + 1e-4 * length * slope + slack or here > -0.9 * slope:
                high = length
            elif here < 0.9 * slope:
                low = length
            else:
                self.value = value
                return length
            length = (low + high) / 2 if high < float("inf") else 2 * length
        return 0.0

    def _along(self, move: Tensor, length: float) -> tuple[float, float]:
        """Return the objective and its derivative along the line, at `length`."""
        value, slope = self.line.at(length)
        weights = self.theta[:-1] + length * move[:-1]
        value += 0.5 * self.penalty * (weights * weights).sum(dtype=torch.float64)
        slope += self.penalty * (weights * move[:-1]).sum(dtype=torch.float64)
        return float(value), float(slope)
