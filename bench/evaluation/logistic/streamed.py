"""Rows that are read in chunks, for features of which no second copy fits into memory.

The weights are rotated instead of the rows, and a chunk is centred when it is read. Value, derivative and gradient
of a trial point come from one pass over the rows, so an array of all rows and all classes is never in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.evaluation.logistic.descent import MEMORY_PAIRS, ProbeRows
from bench.evaluation.logistic.rows import Labelled

CHUNK_BYTES = 128 << 20  #: bytes of a chunk's rows, their copies and logits
_FITS = 20  #: solutions that a sweep keeps, at most


def chunk_rows(width: int, classes: int) -> int:
    """Return the rows of a chunk: features as read, on the device, centred and in float64, and four times logits."""
    return max(1, CHUNK_BYTES // (4 * (5 * width + 4 * classes)))


def working_bytes(width: int, classes: int) -> int:
    """Return the bytes that a sweep takes besides features and labels, whatever their number of rows.

    A chunk; weights in single precision: the pairs of L-BFGS, solutions, and a dozen while a step is made; axes and
    covariance in float64 with LAPACK's copies.
    """
    weights = 4 * (width + 1) * classes
    return CHUNK_BYTES + weights * (2 * MEMORY_PAIRS + _FITS + 12) + 8 * width * width * 6


class StreamedProblem(ProbeRows):
    """The training rows of one probe: several splits as they are, on any device or mapped from a file."""

    def __init__(self, splits: Sequence[Labelled], classes: int, device: torch.device) -> None:
        """Labels in 0..classes-1. Computes on `device` in the features' dtype, and sums chunks in float64."""
        self.splits, self.device, self.count = splits, device, sum(map(len, splits))
        width = splits[0].table.shape[1]
        self.size = chunk_rows(width, classes)
        exact = torch.float64
        total = torch.zeros(width, dtype=exact, device=device)
        product = torch.zeros(width, width, dtype=exact, device=device)
        classed = torch.zeros(classes, dtype=torch.int64, device=device)
        for features, labels in self.chunks():
            total += features.sum(0, dtype=exact)
            classed += torch.bincount(labels, minlength=classes)
        dtype = splits[0].table.dtype
        self.mean = (total / self.count).to(dtype)
        for features, _ in self.chunks():
            centred = features - self.mean
            product += centred.T @ centred
        variances, axes = torch.linalg.eigh(product / self.count)
        self.axes = axes.to(dtype)
        self.spread = torch.cat((variances.clamp(min=0).to(dtype), self.mean.new_ones(1)))
        self.prior = (classed.to(dtype) / self.count).log()

    def chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield features [m, P] and labels [m] of all rows, in order, on the problem's device."""
        for split in self.splits:
            yield from split.chunks(self.size, self.device)

    def line(self, theta: Tensor) -> _StreamedLine:
        """Return the rows' line that begins at `theta`."""
        return _StreamedLine(self, theta)


class _StreamedLine:
    def __init__(self, rows: StreamedProblem, theta: Tensor) -> None:
        self.rows, self.theta, self.length, self.begins = rows, theta, 0.0, True
        self.move = self.slopes = torch.zeros_like(theta)  # slopes [P + 1, C]: the gradient where `at` evaluated last
        self.variances = theta.new_zeros(theta.shape[1], dtype=torch.float64)

    def aim(self, move: Tensor) -> None:
        self.theta, self.move, self.begins = self.theta + self.length * self.move, move, False

    def at(self, length: float) -> tuple[Tensor, Tensor]:
        theta, self.length = self.theta + length * self.move, length
        value = theta.new_zeros((), dtype=torch.float64)
        sums = torch.zeros_like(theta, dtype=torch.float64)
        weight = self.rows.axes @ theta[:-1]
        for features, labels in self.rows.chunks():
            centred = features - self.rows.mean
            logs = F.log_softmax(torch.addmm(theta[-1], centred, weight), 1)
            value -= logs.gather(1, labels[:, None]).sum(dtype=torch.float64)
            shares = logs.exp_()
            if self.begins:
                self.variances += (shares - shares * shares).sum(0, dtype=torch.float64)
            shares[torch.arange(len(labels), device=labels.device), labels] -= 1
            sums[:-1] += centred.T @ shares
            sums[-1] += shares.sum(0, dtype=torch.float64)
        sums /= self.rows.count
        self.slopes = torch.cat((self.rows.axes.T @ sums[:-1].to(theta.dtype), sums[-1:].to(theta.dtype)))
        return value / self.rows.count, (self.slopes * self.move).sum(dtype=torch.float64)

    def curvature(self) -> Tensor:
        return (self.variances / self.rows.count).to(self.theta.dtype)

    def gradient(self) -> Tensor:
        return self.slopes.clone()
