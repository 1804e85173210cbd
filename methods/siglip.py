"""SigLIP: one binary decision a pair instead of a softmax over the batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from methods.base import LogitScale, Presets, RowWise, check, pair_decisions, similarities, wide
from methods.protocol import About, Clock, Facts, Linear, Log, Rows, Space, Tensors, Towers


@dataclass(frozen=True)
class SiglipConfig:
    """Hyper-parameters of SigLIP."""

    scale: float = 10.0  #: initial logit scale e^rho
    bias: float = -10.0  #: initial bias; starts near the odds of a random pair being a match
    # official: github.com/bokun-wang/NUCLR@ddaec8d models/losses.py (SigLipLoss)
    unnormalised: bool = False  #: train on raw projections, as the code behind NUCLR's SigLIP row does

    def __post_init__(self) -> None:
        check(self, "scale", 0 < self.scale < math.inf, "a finite number > 0")
        check(self, "bias", math.isfinite(self.bias), "a finite number")
        check(self, "unnormalised", isinstance(self.unnormalised, bool), "true or false")


class Siglip(RowWise):
    """L = -(1/B) sum_ij ln sigma(y_ij (e^rho <v_i, t_j> + b))."""

    name = "siglip"
    about = About(
        title="SigLIP",
        summary="Decides for every image-text combination of the batch whether it is a pair, by logistic regression. "
        "No softmax couples the candidates, so that no decision depends on which others are in the batch.",
        paper="Zhai et al., ICCV 2023",
        equations="Section 3.2",
        fidelity="official-checked",
        bibtex="""@inproceedings{zhai2023siglip,
  title = {Sigmoid Loss for Language Image Pre-Training},
  author = {Zhai, Xiaohua and Mustafa, Basil and Kolesnikov, Alexander and Beyer, Lucas},
  booktitle = {International Conference on Computer Vision},
  year = {2023}
}""",
        state="logit scale, bias",
        note="The logit scale is clamped to [1, 100] as in open_clip; the authors' code leaves it free.",
    )
    Config = SiglipConfig
    presets: ClassVar[Presets] = {"paper": {}}
    space: ClassVar[Space] = {"scale": Log(2.0, 200.0), "bias": Linear(-15.0, 0.0)}

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        self.scale = LogitScale(1.0 / config.scale)
        self.bias = nn.Parameter(torch.tensor(float(config.bias)))

    def encode(self, towers: Towers, rows: Rows) -> Tensors:
        if not self.config.unnormalised:
            return super().encode(towers, rows)
        return {"image": wide(towers.encode_image(rows.images)), "text": wide(towers.encode_text(rows.tokens))}

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        logits = self.scale() * similarities(z["image"][anchors], z["text"]) + self.bias
        # Divided by B, not by B^2: the paper's sum runs over the pairs of one image.
        return {"sigmoid": pair_decisions(logits, anchors) / z["image"].shape[0]}

    def after_step(self, clock: Clock) -> None:
        self.scale.clamp_()
