"""DCL: debiased contrastive learning; the share of false negatives in a batch is estimated and taken out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from methods.base import Presets, RowWise, check, similarities
from methods.protocol import TEMPERATURE, About, Identity, Log, Space, Tensors


@dataclass(frozen=True)
class DclConfig:
    """Hyper-parameters of debiased contrastive learning."""

    tau_plus: float = 0.1  #: prior probability that a negative is really a positive
    temperature: float = 0.01  #: fixed
    in_modal_negatives: bool = False  #: other images are negatives of an image too (2B - 2), as in the authors' code

    def __post_init__(self) -> None:
        check(self, "tau_plus", 0 <= self.tau_plus < 1, "in [0, 1)")
        check(self, "temperature", 0 < self.temperature < math.inf, "a finite number > 0")
        check(self, "in_modal_negatives", isinstance(self.in_modal_negatives, bool), "true or false")


class Dcl(RowWise):
    """L = 1/2 mean_i [ln(P_i + G_i) - s_ii/tau] in both directions, P_i = e^{s_ii/tau}.

    G_i = max((S_i - tau+ n P_i)/(1 - tau+), n e^{-1/tau}), S_i = sum of e^{s_ij/tau} over the n negatives of anchor i.
    """

    name = "dcl"
    about = About(
        title="DCL (debiased)",
        summary="Takes the expected share of false negatives out of the contrastive loss's denominator. Negatives "
        "then repel, in expectation, as if none of them were a positive.",
        paper="Chuang et al., NeurIPS 2020",
        equations="Equation 8 with M = 1",
        fidelity="official-checked",
        bibtex="""@inproceedings{chuang2020debiased,
  title = {Debiased Contrastive Learning},
  author = {Chuang, Ching-Yao and Robinson, Joshua and Lin, Yen-Chen and Torralba, Antonio and Jegelka, Stefanie},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2020}
}""",
        note="Debiased, not decoupled (Yeh et al. 2022). Two modalities as in NUCLR's code; NUCLR's tuned temperature "
        "is not published, 0.01 is its scripts' value. The authors train images alone at 0.5 (preset official).",
    )
    Config = DclConfig
    presets: ClassVar[Presets] = {
        "paper": {"tau_plus": 0.1},
        # official: github.com/chingyaoc/DCL@7d6345f main.py (train, argument defaults)
        "official": {"tau_plus": 0.1, "temperature": 0.5, "in_modal_negatives": True},
    }
    space: ClassVar[Space] = {"temperature": TEMPERATURE["temperature"], "tau_plus": Log(0.01, 0.5)}
    identities = (
        Identity(
            "without false negatives (tau_plus 0) it is CLIP at a fixed temperature",
            equals="clip",
            config={"tau_plus": 0.0, "temperature": 0.07},
            other={"temperature": 0.07, "learnable_scale": False},
        ),
    )

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        by_image = self._direction(z["image"], z["text"], anchors)
        by_text = self._direction(z["text"], z["image"], anchors)
        return {"debiased": (by_image + by_text) / (2 * z["image"].shape[0])}

    def _direction(self, anchors: Tensor, candidates: Tensor, tile: slice) -> Tensor:
        """Sum of ln(P + G) - s_ii/tau over the tile's anchors."""
        temperature, tau_plus = self.config.temperature, self.config.tau_plus
        logits: Tensor = similarities(anchors[tile], candidates) / temperature
        own, negatives, count = logits.diagonal(tile.start), logits.clone(), len(candidates) - 1
        negatives.diagonal(tile.start).fill_(-math.inf)
        if self.config.in_modal_negatives:
            within = similarities(anchors[tile], anchors) / temperature
            within.diagonal(tile.start).fill_(-math.inf)
            negatives, count = torch.cat([negatives, within], dim=1), 2 * count
        # The official codes exponentiate as it stands, which overflows in fp32 at tau = 0.01. The peak cancels in the
        # value and in the gradient, so it is a constant.
        # official: github.com/bokun-wang/NUCLR@ddaec8d models/losses.py (DCL_Loss)
        # official: github.com/chingyaoc/DCL@7d6345f main.py (train)
        peak = torch.maximum(own, negatives.amax(1)).detach()
        positive = (own - peak).exp()
        total = (negatives - peak[:, None]).exp().sum(1)
        least = count * (-1 / temperature - peak).exp()
        debiased = torch.maximum((total - tau_plus * count * positive) / (1 - tau_plus), least)
        return ((positive + debiased).log() + peak - own).sum()
