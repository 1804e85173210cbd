"""NCR, one network of its two: rows with a large loss count as wrong, and a soft margin asks less of doubtful ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from methods.base import Presets, RowWise, check, spans, without_own
from methods.mixture import posteriors
from methods.normaliser import DIRECTIONS, differences
from methods.protocol import About, Batch, Diagnostic, Facts, Linear, Log, Space, Tensors

THRESHOLD = 0.5  #: probability above which a row counts as clean


# official: github.com/XLearning-SCU/2021-NeurIPS-NCR@60256ba NCR/model.py (ContrastiveLoss)
# official: github.com/XLearning-SCU/2021-NeurIPS-NCR@60256ba NCR/co_train.py (eval_train, split_prob)
@dataclass(frozen=True)
class NcrConfig:
    """Hyper-parameters of NCR; shares of the run are those of 5 and 40 epochs, as on Flickr30K."""

    margin: float = 0.2  #: alpha, by which a pair that is fully trusted must win
    soft_margin: Literal["exponential", "linear", "sin"] = "exponential"  #: from a target in [0, 1] to a share of alpha
    #: "paper": an anchor's margin is its own. "official": it depends on the image of the two that are compared and, if
    #: that counts as clean, on the other one's prediction, by a broadcast of [B, 1] against [B] in the official code
    margins: Literal["paper", "official"] = "paper"
    warm: float = 0.11  #: share of the run without targets, on all negatives
    noisy_from: float = 0.56  #: share of the run after which rows that count as noisy are trained on too

    def __post_init__(self) -> None:
        check(self, "margin", 0 < self.margin < math.inf, "a finite number > 0")
        shapes = ("exponential", "linear", "sin")
        check(self, "soft_margin", self.soft_margin in shapes, '"exponential", "linear" or "sin"')
        check(self, "margins", self.margins in ("paper", "official"), '"paper" or "official"')
        check(self, "warm", 0 <= self.warm <= 1, "in [0, 1]")
        check(self, "noisy_from", 0 <= self.noisy_from <= 1, "in [0, 1]")


class Ncr(RowWise):
    """L = (1/B) sum_i sum_dir max_{j != i} [a_i + s_ij - s_ii]_+ over the rows in use, a_i = alpha f(target_i).

    A clean row's target is w_i + (1 - w_i) P_i, a noisy one's P_i: w is the probability that a mixture gives a row by
    its loss in the last pass, P what the model says of it in this batch. The warm loss has a_i = alpha and the sum over
    j, divided by B, instead of the largest.
    """

    name = "ncr"
    about = About(
        title="NCR (one network)",
        summary="A triplet loss whose margin shrinks with the doubt about a pair. A mixture of two normal "
        "distributions, fitted to the losses of all pairs after every pass, says how doubtful a pair is.",
        paper="Huang et al., NeurIPS 2021",
        equations="as in the official code, ContrastiveLoss and split_prob",
        fidelity="derived",
        bibtex="""@inproceedings{huang2021ncr,
  title = {Learning with Noisy Correspondence for Cross-modal Matching},
  author = {Huang, Zhenyu and Niu, Guocheng and Liu, Xiao and Ding, Wenbiao and Xiao, Xinyan and Wu, Hua and Peng, Xi},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {34},
  year = {2021}
}""",
        state="loss in the last pass, probability of being clean and flag of every row",
        note="Two networks teach each other in the official code; here is one, which divides its rows by its own "
        "losses. Loss, predictions and division equal executed official code, their assembly is ours: losses of the "
        "training visits instead of a pass of evaluation, one step on clean and noisy rows together, cosines instead "
        "of SGR's scores. The mean of the rows' losses without targets is logged beside the loss, whose kind changes.",
    )
    Config = NcrConfig
    presets: ClassVar[Presets] = {"paper": {"margins": "paper"}, "official": {"margins": "official"}}
    space: ClassVar[Space] = {"margin": Log(0.05, 0.8), "warm": Linear(0.0, 0.5), "noisy_from": Linear(0.1, 1.0)}
    monitored = "row_loss"

    seen: Tensor
    fitted: Tensor
    row_loss: Tensor
    clean_probability: Tensor
    clean: Tensor

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        self.register_buffer("seen", torch.zeros(facts.rows, dtype=torch.bool))
        self.register_buffer("fitted", torch.tensor(False))
        self.register_buffer("row_loss", torch.zeros(facts.rows))
        self.register_buffer("clean_probability", torch.ones(facts.rows))
        self.register_buffer("clean", torch.ones(facts.rows, dtype=torch.bool))

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        ids, progress = batch.ids, batch.clock.progress
        row_loss = torch.cat([self._sums(z, tile).sum(0) for tile in spans(len(ids))])
        self.row_loss[ids] = row_loss.to(self.row_loss.dtype)
        self.seen[ids] = True
        constants = {"row_loss": row_loss, "prediction": self._predictions(row_loss)}
        if progress < self.config.warm or not bool(self.fitted):
            return constants
        clean = self.clean[ids]
        used = clean | (progress >= self.config.noisy_from)
        probability = self.clean_probability[ids].to(row_loss.dtype)
        return constants | {"clean": clean, "clean_probability": probability, "used": used}

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        total = z["image"].shape[0]
        if "used" not in observed:
            return {"triplet": self._sums(z, anchors).sum() / total}
        used, losses = observed["used"][anchors], z["image"].new_zeros(())
        for direction, margins in zip(DIRECTIONS, self._margins(observed, anchors), strict=True):
            hardest = without_own(margins + differences(z, *direction, anchors), anchors).amax(1)
            losses = losses + (hardest.clamp(min=0) * used).sum()
        return {"triplet": losses / total}

    def monitor(self, z: Tensors, observed: Tensors) -> dict[str, float]:
        return {"row_loss": float(observed["row_loss"].mean()), "clean": float(self.clean.double().mean())}

    def diagnostics(self, z: Tensors, observed: Tensors) -> tuple[Diagnostic, ...]:
        series = {"pairs": self.clean_probability[self.seen]}
        return (Diagnostic("clean", "Probability of being clean of each training pair", "probability", series),)

    def end_epoch(self, epoch: int) -> None:
        """Divide all rows that were ever visited by their last losses."""
        if not bool(self.seen.any()):
            return
        probability = posteriors(self.row_loss[self.seen], "smaller")
        self.clean_probability[self.seen] = probability
        self.clean[self.seen] = divided(probability)
        self.fitted.fill_(True)

    def _sums(self, z: Tensors, tile: slice) -> Tensor:
        """(1/B) sum_{j != i} [alpha + s_ij - s_ii]_+ of both directions, [2, n]."""
        hinges = [
            without_own(self.config.margin + differences(z, *direction, tile), tile).clamp(min=0).sum(1)
            for direction in DIRECTIONS
        ]
        return torch.stack(hinges) / z["image"].shape[0]

    def _predictions(self, row_loss: Tensor) -> Tensor:
        """P [B] in [0, 1]: what is left of the margin, relative to the mean of the best tenth of the batch."""
        left = (self.config.margin - row_loss / 2).clamp(0, self.config.margin)
        best = left.topk(len(left) // 10 + 1).values.mean()
        return torch.where(best > 0, left / best, 0.0).clamp(0, 1)

    def _margins(self, observed: Tensors, tile: slice) -> tuple[Tensor, Tensor]:
        """Margins of the tile's image anchors and text anchors against all candidates, [n, B] or [n, 1]."""
        clean, prediction = observed["clean"], observed["prediction"]
        trust = torch.where(clean, observed["clean_probability"], 0.0)
        if self.config.margins == "paper":
            margins = self._softened(trust + (1 - trust) * prediction)[tile, None]
            return margins, margins
        rows, columns = (tile, None), (None, slice(None))
        both = [
            torch.where(clean[image], trust[image] + (1 - trust[image]) * prediction[text], prediction[image])
            for image, text in ((rows, columns), (columns, rows))
        ]
        return self._softened(both[0]), self._softened(both[1])

    def _softened(self, target: Tensor) -> Tensor:
        """alpha f(target), from 0 to alpha."""
        shapes = {
            "exponential": lambda y: (10**y - 1) / 9,
            "linear": lambda y: y,
            "sin": lambda y: 0.5 + 0.5 * (math.pi * (y - 0.5)).sin(),
        }
        margin: Tensor = self.config.margin * shapes[self.config.soft_margin](target)
        return margin


def divided(probability: Tensor) -> Tensor:
    """bool [n]: clean rows, by their probabilities; about one in a hundred is noisy if no probability says so.

    If then none would be left, because all are equal, all are clean.
    """
    clean = probability > THRESHOLD
    if not bool(clean.all()):
        return clean
    above = probability > probability.sort().values[len(probability) // 100]
    return above if bool(above.any()) else clean
