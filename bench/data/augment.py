"""Augmentation of training images: keyed by (seed, row, epoch, view), whatever else is in the batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bench import counter
from bench.arrays import Ints, Pixels
from bench.catalogue import augmentations

if TYPE_CHECKING:  # it takes seconds, and what only reads data (the index's processes) does without
    import torch

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Recipe:
    """Ranges of uniform draws, an entry of `bench.catalogue.augmentations` each.

    Lengths are shares of the image's side, angles degrees.
    """

    shift: float
    zoom: float  #: factor in [1 - zoom, 1 + zoom]
    turn: float
    flip: bool  #: left-right, one time in two
    shade: float  #: all ink times a factor in [1 - shade, 1 + shade]
    tint: float  #: the ink of each channel, likewise


def augment(images: Pixels, rows: Ints, epoch: int, seed: int, view: int = 0, recipe: str = "emoji") -> Pixels:
    """uint8 [b, H, W, 3] -> uint8 [b, H, W, 3]; what leaves the frame is lost, what enters is white.

    Bilinear affine warp, then ink (white minus colour) is scaled. `view` numbers further views of the same image.
    UserError where `recipe` is not one of drawn art.
    """
    ranges: Recipe | None = augmentations.recipe(recipe, "drawn art")
    if ranges is None or not len(images):
        return images
    import torch
    import torch.nn.functional as F

    draws = counter.uniforms(counter.word(seed, "augment", epoch, view), rows, 9).astype(np.float64)
    span = 2 * draws - 1  # [-1, 1)
    ink = torch.from_numpy(255 - images).permute(0, 3, 1, 2).float().contiguous()
    grid = _grid(_affine(span, draws, ranges), *images.shape[1:3])
    ink = F.grid_sample(ink, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    gain = (1 + ranges.shade * span[:, 5:6]) * (1 + ranges.tint * span[:, 6:9])
    ink.mul_(torch.from_numpy(gain).float()[:, :, None, None]).round_().clamp_(0, 255)
    return np.asarray(255 - ink.to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy())


def _affine(span: Floats, draws: Floats, ranges: Recipe) -> torch.Tensor:
    """[6, b, 1, 1]: coefficients xx, xy, x, yx, yy, y from output to input coordinates, both in [-1, 1]."""
    import torch

    zoom = 1 + ranges.zoom * span[:, 0]
    angle = math.radians(ranges.turn) * span[:, 1]
    mirror = np.where(draws[:, 2] < 0.5, -1.0, 1.0) if ranges.flip else 1.0
    cos, sin = np.cos(angle) / zoom, np.sin(angle) / zoom
    shift = 2 * ranges.shift * span[:, 3:5]
    rows = np.stack([cos * mirror, -sin, shift[:, 0], sin * mirror, cos, shift[:, 1]])
    return torch.from_numpy(rows).float()[:, :, None, None]


def _grid(affine: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """[b, H, W, 2] sampling points. Element by element: a matrix product may round differently in another batch."""
    import torch

    xx, xy, x, yx, yy, y = affine
    across = ((torch.arange(width) * 2 + 1) / width - 1)[None, None, :]
    down = ((torch.arange(height) * 2 + 1) / height - 1)[None, :, None]
    return torch.stack([xx * across + xy * down + x, yx * across + yy * down + y], dim=-1)
