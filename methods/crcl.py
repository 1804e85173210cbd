"""CRCL: a label of every pair, refined by what the model thinks of it, weighs attraction against repulsion."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from methods.base import Contrastive, Presets, check, check_scale, directions, spans
from methods.protocol import TEMPERATURE, About, Batch, Diagnostic, Facts, Identity, Linear, Log, Space, Tensors

SMALLEST = 1e-5  #: shares below it count as their own tangent: the relative error is 3e-11


# official: github.com/QinYang79/CRCL@4a96406 CRCL_NeurIPS23/model/CRCL.py (CRCL.train_self)
@dataclass(frozen=True)
class CrclConfig:
    """Hyper-parameters of CRCL; the threshold and the weight are literals in the official code."""

    alpha: float = 0.8  #: weight of a pair's old label in its moving average
    threshold: float = 0.1  #: smaller labels become 0
    complementary_weight: float = 5.0  #: lambda, weight of the complementary loss
    #: share of the run in which all labels are 1: two of the 32 epochs of the official code's last stage
    warm: float = 2 / 32
    #: passes through training, each from new towers, that hand on their labels; the official code makes four
    stages: int = 1
    floor: float = 0.0  #: added to the normalisers of the softmax; 1e-10 in the official code
    temperature: float = 0.05  #: the logit scale is, or starts at, 1/temperature
    learnable_scale: bool = False  #: learn the scale (clamped to [1, 100]) or keep it

    def __post_init__(self) -> None:
        check(self, "alpha", 0 <= self.alpha <= 1, "in [0, 1]")
        check(self, "threshold", 0 <= self.threshold <= 1, "in [0, 1]")
        check(self, "complementary_weight", 0 <= self.complementary_weight < math.inf, "a finite number >= 0")
        check(self, "warm", 0 <= self.warm <= 1, "in [0, 1]")
        check(self, "stages", self.stages == 1, "1: no phase can start the towers afresh, as every further stage does")
        check(self, "floor", 0 <= self.floor < math.inf, "a finite number >= 0")
        check_scale(self)


class Crcl(Contrastive):
    """L = (1/B) sum_i sum_dir [-y_i ln p_ii + lambda N_i / T_i^(1 - y_i)], y detached.

    p are the softmax shares of a direction, N_i = sum_{j != i} tan p_ij, and T_i = N_i + tan p_ii.
    """

    name = "crcl"
    about = About(
        title="CRCL",
        summary="Gives every pair a label between 0 and 1, a moving average of the share that the softmax leaves it. "
        "The label weighs InfoNCE against a bounded loss that only pushes negatives away.",
        paper="Qin et al., NeurIPS 2023",
        equations="as in the official code, CRCL.train_self",
        fidelity="official-checked",
        bibtex="""@inproceedings{qin2023crcl,
  title = {Cross-modal Active Complementary Learning with Self-refining Correspondence},
  author = {Qin, Yang and Sun, Yuan and Peng, Dezhong and Zhou, Joey Tianyi and Peng, Xi and Hu, Peng},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {36},
  year = {2023}
}""",
        state="label of every row",
        note="On cosines of global embeddings; the official scores come from VSE-infinity. One stage: the official "
        "code trains four times from new towers and hands the labels on. The body of the paper could not be read.",
    )
    Config = CrclConfig
    presets: ClassVar[Presets] = {"official": {"floor": 1e-10}}
    space: ClassVar[Space] = {
        **TEMPERATURE,
        "alpha": Linear(0.2, 1.0, limit="high"),
        "complementary_weight": Log(0.5, 50.0),
    }
    identities = (
        Identity(
            "with labels of 1 and no complementary loss it is CLIP, twice",
            equals="clip",
            config={"complementary_weight": 0.0, "warm": 1.0},
            other={"temperature": 0.05, "learnable_scale": False},
            factor=2.0,
        ),
    )

    label: Tensor

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        self.register_buffer("label", torch.ones(facts.rows))

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        parts = []
        for tile in spans(len(batch.ids)):
            own = [log_p.diagonal(tile.start).exp() for log_p in self._log_shares(z, tile)]
            parts.append((own[0] + own[1]) / 2)
        agreement = torch.cat(parts)
        if batch.clock.progress < self.config.warm:
            self.label[batch.ids] = agreement.to(self.label.dtype)
            return {"label": torch.ones_like(agreement)}
        label = torch.lerp(agreement, self.label[batch.ids].to(agreement.dtype), self.config.alpha)
        label = label.masked_fill(label < self.config.threshold, 0.0)
        self.label[batch.ids] = label.to(self.label.dtype)
        return {"label": label}

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        y, total = observed["label"][anchors], z["image"].shape[0]
        active = complementary = y.new_zeros(())
        for log_p in self._log_shares(z, anchors):
            active = active - (y * log_p.diagonal(anchors.start)).sum()
            log_tangents = log_p + _log_ratio(log_p)
            own = torch.zeros_like(log_p, dtype=torch.bool)
            own.diagonal(anchors.start).fill_(True)
            negatives = log_tangents.masked_fill(own, -math.inf).logsumexp(1)
            complementary = complementary + (negatives - (1 - y) * log_tangents.logsumexp(1)).exp().sum()
        return {"active": active / total, "complementary": self.config.complementary_weight * complementary / total}

    def monitor(self, z: Tensors, observed: Tensors) -> dict[str, float]:
        return {"mean_label": float(observed["label"].mean())}

    def diagnostics(self, z: Tensors, observed: Tensors) -> tuple[Diagnostic, ...]:
        return (Diagnostic("label", "Refined label of each training pair", "label", {"pairs": self.label}),)

    def _log_shares(self, z: Tensors, tile: slice) -> list[Tensor]:
        """ln p of both directions, [n, B] each: softmax shares over all candidates, the floor in the normaliser."""
        shares = []
        for logits, _ in directions(z, self.scale(), tile):
            normaliser = logits.logsumexp(1, keepdim=True)
            if self.config.floor > 0:
                normaliser = torch.logaddexp(normaliser, normaliser.new_tensor(self.config.floor).log())
            shares.append(logits - normaliser)
        return shares


def _log_ratio(log_p: Tensor) -> Tensor:
    """ln(tan p / p), which tends to 0 with p; a share that underflows keeps the logarithm of its tangent so."""
    p = log_p.exp().clamp(min=SMALLEST)
    return (p.tan() / p).log()
