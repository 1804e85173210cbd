"""Means and log-variances read from a tower's output vector, for towers of any kind, stored features among them."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from methods.base import unit, wide
from methods.protocol import Towers


class VectorHead(nn.Module):
    """A tower's output x [b, D], not normalised -> the unit mean x / |x| and the log-variance W x + b, both [b, D].

    W is drawn with standard deviation D^(-1/2), b starts at `logvar`.
    """

    drops_patches = False

    def __init__(self, side: Literal["image", "text"], dim: int, logvar: float) -> None:
        super().__init__()
        self.side = side
        self.head = nn.Linear(dim, dim)
        nn.init.normal_(self.head.weight, std=dim**-0.5)
        nn.init.constant_(self.head.bias, logvar)

    def forward(self, towers: Towers, inputs: Tensor) -> tuple[Tensor, Tensor]:
        vectors = towers.encode_image(inputs) if self.side == "image" else towers.encode_text(inputs)
        device = "cpu" if vectors.is_meta else vectors.device.type
        with torch.autocast(device, enabled=False):  # around -10, bfloat16 has steps of 1/16
            logvar: Tensor = self.head(wide(vectors))
        return unit(vectors), logvar
