"""CREAM, one network of its two: doubtful pairs hand a share of their target to the batch's negatives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from methods.base import Contrastive, Presets, check, check_scale, directions, spans, without_own
from methods.division import Divided
from methods.mixture import posteriors
from methods.ncr import divided
from methods.protocol import TEMPERATURE, About, Batch, Identity, Linear, Space, Tensors

ENOUGH = 0.85  #: share of clean rows above which theirs mine every negative
TINY = 1e-6  #: added to the sum of an anchor's affinities


# official: github.com/XLearning-SCU/2024-TIP-CREAM@f487d6f InfoNCELoss.py (InfoNCELoss)
# official: github.com/XLearning-SCU/2024-TIP-CREAM@f487d6f train.py (eval_train)
@dataclass(frozen=True)
class CreamConfig:
    """Hyper-parameters of CREAM; shares of the run are those of 5 and 40 epochs."""

    warm: float = 0.111  #: share of the run on CLIP's loss, twice
    hard_from: float = 0.333  #: share of the run after which clean rows mine negatives, too
    noisy_from: float = 0.444  #: share of the run after which rows that count as noisy are trained on
    uniform: bool = False  #: spread a row's doubt evenly over its negatives in place of by affinity
    detach: bool = False  #: no gradient through the affinities; the official code lets it through
    temperature: float = 0.07  #: the logit scale is, or starts at, 1/temperature
    learnable_scale: bool = False  #: learn the scale (clamped to [1, 100]) or keep it

    def __post_init__(self) -> None:
        for name in ("warm", "hard_from", "noisy_from"):
            check(self, name, 0 <= getattr(self, name) <= 1, "in [0, 1]")
        for name in ("uniform", "detach"):
            check(self, name, isinstance(getattr(self, name), bool), "true or false")
        check_scale(self)


class Cream(Divided, Contrastive):
    """L = (1/B) sum_i sum_dir sum_j w_ij (-ln p_ij) over the anchors in use, w_ii = y_i.

    w_ij = (1 - y_i) k_ij / sum_k k_ik of negatives, k_ij = (1 + s_ij)/2, and 0 where that is less than the anchor's
    floor. A clean row's label y is w + (1 - w) P, a noisy one's P: w is the probability that a mixture gives a row by
    its loss in the last pass, P the mean softmax share of its own partner. Warm, y = 1 and all anchors are in use.
    """

    name = "cream"
    about = About(
        title="CREAM (one network)",
        summary="InfoNCE whose target moves from the own caption to similar captions of the batch, the more a pair is "
        "doubted. A mixture of two normal distributions, fitted to the losses after every pass, and the model's own "
        "prediction say how far.",
        paper="Ma et al., TIP 2024",
        equations="as in the official code, InfoNCELoss and train.py",
        fidelity="derived",
        bibtex="""@article{ma2024cream,
  title = {Cross-Modal Retrieval With Noisy Correspondence via Consistency Refining and Mining},
  author = {Ma, Xinran and Yang, Mouxing and Li, Yunfan and Hu, Peng and Lv, Jiancheng and Peng, Xi},
  journal = {IEEE Transactions on Image Processing},
  volume = {33},
  pages = {2587--2598},
  year = {2024}
}""",
        state="loss in the last pass, probability of being clean and flag of every row",
        note="Two networks exchange their divisions in the official code; here is one, so no row is clean for one and "
        "noisy for the other. Loss, predictions and mixture equal executed official code, their assembly is ours: one "
        "step on clean and noisy rows together, losses of the training visits, cosines in place of SGR's scores. The "
        "paper was not read. Where at most 85 % of the rows are clean the floor is the batch's mean label, which "
        "hardly any negative's share exceeds, so that little is mined.",
    )
    Config = CreamConfig
    presets: ClassVar[Presets] = {"official": {"uniform": False, "detach": False}}
    space: ClassVar[Space] = {**TEMPERATURE, "warm": Linear(0.0, 0.5), "noisy_from": Linear(0.1, 1.0)}
    identities = (
        Identity(
            "as long as it is warm it is CLIP, twice",
            equals="clip",
            config={"warm": 1.0},
            other={"temperature": 0.07, "learnable_scale": False},
            factor=2.0,
        ),
    )

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        ids = batch.ids
        losses = torch.cat([self._losses(z, tile) for tile in spans(len(ids))], dim=1)
        self.remember(ids, losses.sum(0))
        constants = {"row_loss": losses.sum(0), "prediction": losses.neg().exp().mean(0)}
        if not self.divides(batch.clock):
            return constants
        clean, prediction = self.clean[ids], constants["prediction"]
        trust = torch.where(clean, self.clean_probability[ids].to(prediction.dtype), 0.0)
        label = trust + (1 - trust) * prediction
        mean = label.mean().expand_as(label)
        if float(self.clean.double().mean()) > ENOUGH:
            floor = torch.where(clean, 0.0, mean)
        else:
            floor = torch.where(clean, math.inf, mean) if batch.clock.progress < self.config.hard_from else mean
        used = clean | (batch.clock.progress >= self.config.noisy_from)
        return constants | {"label": label, "floor": floor, "used": used}

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        total, costs = z["image"].shape[0], self.scale().new_zeros(())
        for s, own in directions(z, self.scale().new_ones(()), anchors):
            logits = self.scale() * s
            if "label" not in observed:
                costs = costs + F.cross_entropy(logits, own, reduction="sum")
                continue
            label, floor = observed["label"][anchors, None], observed["floor"][anchors, None]
            weights = self._shares(s, own) * (1 - label)
            weights = torch.where(weights < floor, 0.0, weights).scatter(1, own[:, None], label)
            costs = costs - ((weights * logits.log_softmax(1)).sum(1) * observed["used"][anchors]).sum()
        return {"contrastive": costs / total}

    def division(self, losses: Tensor) -> tuple[Tensor, Tensor]:
        probability = posteriors(losses, "smaller")
        return probability, divided(probability)

    def _losses(self, z: Tensors, tile: slice) -> Tensor:
        """-ln p_ii of image and of text anchors, [2, n]: as a sum over negatives, it keeps its digits near 0."""
        parts = []
        for logits, _ in self.logits(z, tile):
            lead = without_own(logits - logits.diagonal(tile.start)[:, None], tile).logsumexp(1)
            parts.append(torch.logaddexp(lead, torch.zeros_like(lead)))
        return torch.stack(parts)

    def _shares(self, s: Tensor, own: Tensor) -> Tensor:
        """Each negative's share of an anchor's doubt, [n, B] from cosines [n, B]; they sum to about 1."""
        if self.config.uniform:
            return torch.full_like(s, 1 / (s.shape[1] - 1))
        affinities = ((1 + s) / 2).scatter(1, own[:, None], 0.0)
        shares = affinities / (affinities.sum(1, keepdim=True) + TINY)
        return shares.detach() if self.config.detach else shares
