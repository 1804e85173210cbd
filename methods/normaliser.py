"""What SogCLR, iSogCLR and NUCLR share: every row remembers the normaliser of its softmax between its visits."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from methods.base import RowWise, similarities
from methods.protocol import Batch, Facts, Tensors

DIRECTIONS = (("image", "text"), ("text", "image"))  #: anchors, their candidates


def differences(z: Tensors, direction: str, other: str, tile: slice) -> Tensor:
    """d_ij = s_ij - s_ii of the tile's anchors, [n, B]."""
    s = similarities(z[direction][tile], z[other])
    return s - s.diagonal(tile.start)[:, None]  # s_ii as it stands in s: its rounding cancels, and d_ii is 0


def floored(log_u: Tensor, peak: Tensor, floor: float) -> Tensor:
    """log(u + floor e^peak), the denominator of SogCLR's and iSogCLR's weights."""
    return torch.logaddexp(log_u, math.log(floor) + peak) if floor > 0 else log_u


class Normalised(RowWise):
    """L = (1/B) sum_i sum_j p_ij d_ij for each direction, p detached, over a normaliser u_i that row i keeps."""

    seen: Tensor

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        self.register_buffer("seen", torch.zeros(facts.rows, dtype=torch.bool))
        for direction, _ in DIRECTIONS:
            self.register_buffer(f"log_u_{direction}", torch.zeros(facts.rows))
            # The official codes' running maximum starts at 0 because the diagonal is among its exponents.
            # official: github.com/bokun-wang/NUCLR@ddaec8d models/losses.py (GCL_Loss, RGCL_Loss)
            self.register_buffer(f"peak_{direction}", torch.zeros(facts.rows))

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        sums = [(observed[one] * differences(z, one, other, anchors)).sum() for one, other in DIRECTIONS]
        return {"global_contrastive": (sums[0] + sums[1]) / z["image"].shape[0]}

    def replaced(self, batch: Batch) -> Tensor:
        """bool [B]: rows whose u becomes g, whatever it was, by the config's `start`."""
        if self.config.start == "touch":
            return ~self.seen[batch.ids]
        return torch.full_like(self.seen[batch.ids], batch.clock.epoch == 0)

    def average(
        self, direction: str, ids: Tensor, log_g: Tensor, replaced: Tensor, shift: Tensor | float = 0.0
    ) -> Tensor:
        """log u <- log((1 - gamma) u e^shift + gamma g), [B], with u = 0 before a row's first visit.

        Where `replaced` [B] is True, u <- g.
        """
        gamma, log_u = self.config.gamma, getattr(self, f"log_u_{direction}")
        old = torch.where(self.seen[ids], log_u[ids], -math.inf).to(log_g.dtype) + shift
        moved = log_g if gamma == 1 else torch.logaddexp(math.log1p(-gamma) + old, math.log(gamma) + log_g)
        new = torch.where(replaced, log_g, moved)
        log_u[ids] = new.to(log_u.dtype)
        return new

    def raise_peak(self, direction: str, ids: Tensor, largest: Tensor) -> tuple[Tensor, Tensor]:
        """Running maxima of these rows before and after this step, [B] each."""
        peak = getattr(self, f"peak_{direction}")
        old = peak[ids].to(largest.dtype)
        new = torch.maximum(old, largest)
        peak[ids] = new.to(peak.dtype)
        return old, new
