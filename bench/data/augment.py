"""Augmentation of drawn art: keyed by (seed, row, epoch, view), independent of the other rows of the batch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bench import counter
from bench.arrays import Ints, Pixels
from bench.catalogue import augmentations


@dataclass(frozen=True)
class DrawnRecipe:
    """Ranges of uniform draws; each recipe is an entry of `bench.catalogue.augmentations`."""

    shift: float  #: at most this share of the image's side, in both directions
    zoom: float  #: factor in [1 - zoom, 1 + zoom]
    turn: float  #: at most this many degrees, in both directions
    flip: bool  #: flip left-right with probability 0.5
    shade: float  #: multiply all ink by a factor in [1 - shade, 1 + shade]
    tint: float  #: multiply the ink of each channel by a factor in [1 - tint, 1 + tint]


def augment(images: Pixels, rows: Ints, epoch: int, seed: int, view: int = 0, recipe: str = "emoji") -> Pixels:
    """Augment images uint8 [b, H, W, 3] of `rows` [b] into the same shape.

    A bilinear affine warp, which fills with white, then a scaling of the ink (white minus colour). `view` numbers
    further views of the same image. Raises UserError if `recipe` is not one of drawn art.
    """
    ranges: DrawnRecipe | None = augmentations.augmentation_recipe(recipe, "drawn art")
    if ranges is None or not len(images):
        return images
    import torch  # here, because it takes seconds, and processes that only index data do not need it
    import torch.nn.functional as F

    draws = counter.uniforms(counter.word(seed, "augment", epoch, view), rows, 9).astype(np.float64)
    span = 2 * draws - 1  # [-1, 1)
    ink = torch.from_numpy(255 - images).permute(0, 3, 1, 2).float().contiguous()
    zoom = 1 + ranges.zoom * span[:, 0]
    angle = math.radians(ranges.turn) * span[:, 1]
    mirror = np.where(draws[:, 2] < 0.5, -1.0, 1.0) if ranges.flip else 1.0
    cos, sin = np.cos(angle) / zoom, np.sin(angle) / zoom
    shift = 2 * ranges.shift * span[:, 3:5]
    # coefficients [b, 1, 1] from output to input coordinates, both in [-1, 1]
    coefficients = np.stack([cos * mirror, -sin, shift[:, 0], sin * mirror, cos, shift[:, 1]])
    xx, xy, x, yx, yy, y = torch.from_numpy(coefficients).float()[:, :, None, None]
    height, width = images.shape[1:3]
    across = ((torch.arange(width) * 2 + 1) / width - 1)[None, None, :]
    down = ((torch.arange(height) * 2 + 1) / height - 1)[None, :, None]
    # no matrix product, whose rounding may depend on the batch size
    grid = torch.stack([xx * across + xy * down + x, yx * across + yy * down + y], dim=-1)
    ink = F.grid_sample(ink, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    gain = (1 + ranges.shade * span[:, 5:6]) * (1 + ranges.tint * span[:, 6:9])
    ink.mul_(torch.from_numpy(gain).float()[:, :, None, None]).round_().clamp_(0, 255)
    return np.asarray(255 - ink.to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy())
