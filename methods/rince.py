"""RINCE: a contrastive loss between InfoNCE and a symmetric loss, which tolerates wrong positives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from methods.base import Presets, RowWise, check, similarities
from methods.protocol import About, Identity, Log, Space, Tensors

LARGEST_POWER = 80.0  #: P^q = e^{q s/tau} must stay below fp32's 3.4e38 with room for sums


@dataclass(frozen=True)
class RinceConfig:
    """Hyper-parameters of RINCE."""

    q: float = 0.1  #: 1 is the symmetric loss, towards 0 the gradient becomes InfoNCE's
    lam: float = 0.01  #: lambda, density of the positives: weight of the normaliser against the positive
    temperature: float = 0.07  #: fixed: with a learnable one the loss is unbounded below once positives align
    in_modal_negatives: bool = False  #: other images are negatives of an image too, as in the authors' SimCLR code

    def __post_init__(self) -> None:
        check(self, "temperature", 0 < self.temperature < math.inf, "a finite number > 0")
        check(self, "q", 0 < self.q <= 1, "in (0, 1]")
        largest = LARGEST_POWER * self.temperature
        # Not scale-free, so nothing can be subtracted before the power is taken.
        check(self, "q", self.q <= largest, f"<= {LARGEST_POWER:g} * temperature = {largest:g}, or e^(q/tau) overflows")
        check(self, "lam", 0 < self.lam < math.inf, "a finite number > 0")
        check(self, "in_modal_negatives", isinstance(self.in_modal_negatives, bool), "true or false")


class Rince(RowWise):
    """L = 1/2 mean_i [-P_i^q + (lambda Z_i)^q] / q in both directions, P_i = e^{s_ii/tau}, Z_i = sum_j e^{s_ij/tau}."""

    name = "rince"
    about = About(
        title="RINCE (Chuang)",
        summary="Replaces the logarithm of InfoNCE by a power q, up to a symmetric loss at q = 1. Pairs that the model "
        "finds unlikely, such as wrong ones, then pull less.",
        paper="Chuang et al., CVPR 2022",
        equations="Equations 5-6",
        fidelity="formula-checked",
        bibtex="""@inproceedings{chuang2022rince,
  title = {Robust Contrastive Learning against Noisy Views},
  author = {Chuang, Ching-Yao and Hjelm, R Devon and Wang, Xin and Vineet, Vibhav and Joshi, Neel and Torralba, Antonio
    and Jegelka, Stefanie and Song, Yale},
  booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2022}
}""",
        note="Not the ranking loss of the same name (Hoffmann et al. 2022). The form for two modalities is ours; with "
        "in-modal negatives it equals the authors' SimCLR code. A learnable logit scale is not offered: the loss falls "
        "without bound as it grows. q, lambda and temperature of the comparison in Bayesian weighted CL are not "
        "published: the defaults are unverified for it.",
    )
    Config = RinceConfig
    presets: ClassVar[Presets] = {
        "paper": {"q": 0.1, "lam": 0.01},
        # official: github.com/chingyaoc/RINCE@c7f8534 ImageNet/simclr/simclr_module.py (sym_loss)
        "official": {"q": 0.1, "lam": 0.01, "temperature": 0.1, "in_modal_negatives": True},
    }
    space: ClassVar[Space] = {
        "temperature": Log(0.0125, 0.5),
        "q": Log(0.01, 1.0),
        "lam": Log(1e-3, 0.3),
    }  # q <= 80 * temperature, or powers overflow
    identities = (
        Identity(
            "as q goes to 0 the gradient becomes CLIP's at a fixed temperature, whatever lambda",
            equals="clip",
            config={"q": 1e-10, "lam": 0.3, "temperature": 0.07},
            other={"temperature": 0.07, "learnable_scale": False},
            gradient_only=True,
            rtol=1e-6,
        ),
    )

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        total = z["image"].shape[0]
        return {
            "image_anchored": self._direction(z["image"], z["text"], anchors) / (2 * total),
            "text_anchored": self._direction(z["text"], z["image"], anchors) / (2 * total),
        }

    def _direction(self, anchors: Tensor, candidates: Tensor, tile: slice) -> Tensor:
        """Sum of [-P^q + (lambda Z)^q] / q over the tile's anchors, powers taken of logarithms."""
        q, temperature = self.config.q, self.config.temperature
        logits: Tensor = similarities(anchors[tile], candidates) / temperature
        own = logits.diagonal(tile.start)
        if self.config.in_modal_negatives:
            within = similarities(anchors[tile], anchors) / temperature
            within.diagonal(tile.start).fill_(-math.inf)
            logits = torch.cat([logits, within], dim=1)
        log_normaliser = math.log(self.config.lam) + logits.logsumexp(1)
        summed: Tensor = ((q * log_normaliser).exp() - (q * own).exp()).sum() / q
        return summed
