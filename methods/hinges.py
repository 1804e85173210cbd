"""Hinges of a triplet loss on cosines: what BiCro and L2RM judge a pair by, and what they train on."""

from __future__ import annotations

import torch
from torch import Tensor

from methods.base import without_own
from methods.normaliser import DIRECTIONS, differences
from methods.protocol import Tensors


def mean_hinges(z: Tensors, margin: float, tile: slice) -> Tensor:
    """r_i = (1/B) sum_{j != i} ([margin + s_ij - s_ii]_+ + [margin + s_ji - s_ii]_+) of the tile's rows, [n]."""
    sums = [without_own(margin + differences(z, *one, tile), tile).clamp(min=0).sum(1) for one in DIRECTIONS]
    return (sums[0] + sums[1]) / z["image"].shape[0]


def hardest_hinges(z: Tensors, margins: tuple[Tensor, Tensor], tile: slice) -> Tensor:
    """max_{j != i} [a_ij + s_ij - s_ii]_+ + max_{j != i} [a'_ij + s_ji - s_ii]_+ of the tile's rows, [n].

    Margins of image anchors and of text anchors are [n, 1], [1, B] or [n, B].
    """
    hardest = [
        without_own(margin + differences(z, *one, tile), tile).amax(1).clamp(min=0)
        for one, margin in zip(DIRECTIONS, margins, strict=True)
    ]
    return torch.stack(hardest).sum(0)
