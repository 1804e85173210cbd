"""Rows that are held rotated in memory, with their logits: a search along a line then needs no product with them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.evaluation.logistic.descent import ProbeRows


class Problem(ProbeRows):
    """The training rows of one probe, prepared once for fits at any number of strengths."""

    def __init__(self, features: Tensor, labels: Tensor, classes: int) -> None:
        """features [n, P] floating, labels [n] int64 in 0..classes-1. Computes in the features' dtype."""
        self.labels, self.count = labels, len(labels)
        self.mean = features.mean(0)
        centred = features - self.mean
        # in float64: the axes must be orthogonal, or the penalty would change
        variances, axes = torch.linalg.eigh((centred.T @ centred).double() / len(centred))
        self.axes = axes.to(features.dtype)
        ones = features.new_ones(len(features), 1)
        self.rows = torch.cat((centred @ self.axes, ones), dim=1)  # [n, P + 1]
        self.spread = torch.cat((variances.clamp(min=0).to(features.dtype), ones[0]))
        self.prior = (torch.bincount(labels, minlength=classes).to(features.dtype) / len(labels)).log()

    def line(self, theta: Tensor) -> _HeldLine:
        """Return the rows' line that begins at `theta`."""
        return _HeldLine(self.rows, self.labels[:, None], theta)


class _HeldLine:
    def __init__(self, rows: Tensor, labels: Tensor, theta: Tensor) -> None:
        self.rows, self.labels = rows, labels
        self.logits = rows @ theta
        self.change, self.length = torch.zeros_like(self.logits), 0.0
        self.shares = self.change  # [n, C], softmax of the logits where `at` evaluated last

    def aim(self, move: Tensor) -> None:
        if self.length:
            self.logits = self.logits + self.length * self.change
        self.change = self.rows @ move

    def at(self, length: float) -> tuple[Tensor, Tensor]:
        logs = F.log_softmax(torch.add(self.logits, self.change, alpha=length), 1)
        self.shares, self.length = logs.exp(), length
        value = -logs.gather(1, self.labels).mean(dtype=torch.float64)
        slope = torch.linalg.vecdot(self.shares, self.change)[:, None] - self.change.gather(1, self.labels)
        return value, slope.mean(dtype=torch.float64)

    def curvature(self) -> Tensor:
        return (self.shares * (1 - self.shares)).mean(0)

    def gradient(self) -> Tensor:
        minus = self.shares.new_full((1, 1), -1.0).expand_as(self.labels)
        return self.rows.T @ self.shares.scatter_add(1, self.labels, minus) / len(self.rows)
