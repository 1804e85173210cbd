"""BiCro, one network of its two: how a pair agrees with trusted neighbours on either side sets its margin."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from methods.base import Presets, RowWise, check, portion, similarities, spans
from methods.beta_mixture import beta_posteriors
from methods.division import Divided
from methods.hinges import hardest_hinges, mean_hinges
from methods.ncr import divided
from methods.protocol import About, Batch, Linear, Log, Space, Tensors

EDGE = 1e-4  #: the mixture's values are cut to [EDGE, 1 - EDGE]


# official: github.com/xu5zhao/BiCro@0231631 model.py (ContrastiveLoss, SGRAF.predict)
# official: github.com/xu5zhao/BiCro@0231631 co_train.py (BetaMixture1D)
@dataclass(frozen=True)
class BicroConfig:
    """Hyper-parameters of BiCro; shares of the run are those of 10 and 40 epochs."""

    margin: float = 0.2  #: m, by which a pair that is fully trusted must win
    floor: float = 0.5  #: labels no larger than this become 0
    warm: float = 0.2  #: share of the run without labels
    warm_rows: float = 0.3  #: kappa, share of a warm batch, its rows of smallest loss, that is trained on
    noisy_from: float = 0.6  #: share of the run after which rows that count as noisy are trained on
    #: whose label sets the margin of an image and a text that is not its own: the image's, or the "negative" text's, a
    #: slip of the official code
    margin_of: Literal["anchor", "negative"] = "anchor"
    #: "misaligned" is a slip of the official code: the labels of clean rows in the order of the batch go to the clean
    #: rows that are no anchors in the order of their losses
    clean_labels: Literal["aligned", "misaligned"] = "aligned"

    def __post_init__(self) -> None:
        check(self, "margin", 0 < self.margin < math.inf, "a finite number > 0")
        for name in ("floor", "warm", "noisy_from"):
            check(self, name, 0 <= getattr(self, name) <= 1, "in [0, 1]")
        check(self, "warm_rows", 0 < self.warm_rows <= 1, "in (0, 1]")
        check(self, "margin_of", self.margin_of in ("anchor", "negative"), '"anchor" or "negative"')
        check(self, "clean_labels", self.clean_labels in ("aligned", "misaligned"), '"aligned" or "misaligned"')


class Bicro(Divided, RowWise):
    """L = (1/B) sum_i sum_dir max_{j != i} [a_i + s_ij - s_ii]_+ over the rows in use, a_i = m (10^{y_i} - 1) / 9.

    Anchors, the tenth of a batch's clean rows of smallest loss, have label y = 1. A is how well the similarities of a
    row's image and text to those of its nearest anchor agree, at most 2: other clean rows have y = 1/2 + A/4, noisy
    ones A/2, and 0 up to the floor. The warm loss sums the hinges, m for a margin, over j in place of the largest,
    divides by B, and takes the rows of smallest loss alone.
    """

    name = "bicro"
    about = About(
        title="BiCro (one network)",
        summary="A triplet loss whose margin shrinks with the doubt about a pair: images that are similar should have "
        "similar texts. A few pairs of small loss are the measure, the rest are labelled by how far they follow it.",
        paper="Yang et al., CVPR 2023",
        equations="as in the official code, ContrastiveLoss and SGRAF.predict",
        fidelity="derived",
        bibtex="""@inproceedings{yang2023bicro,
  title = {{BiCro}: Noisy Correspondence Rectification for Multi-Modality Data via Bi-Directional Cross-Modal Similarity
    Consistency},
  author = {Yang, Shuo and Xu, Zhaopan and Wang, Kai and You, Yang and Yao, Hongxun and Liu, Tongliang and Xu, Min},
  booktitle = {Proceedings of the IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2023}
}""",
        state="loss in the last pass, probability of being clean and flag of every row",
        note="Two networks label each other's rows in the official code; here is one. Losses, labels and mixture equal "
        "executed official code, their assembly is ours: one step on clean and noisy rows together, losses of the "
        "training visits, cosines of global embeddings in place of scores and means of regions and words. The preset "
        "official has two slips: margins of the wrong pair and labels on the wrong rows. A third has no option: the "
        "mixture there gives probability 0 to the row of smallest loss; here losses are clipped, but rows of the "
        "smallest losses (up to 0.7 %) may still be taken for noisy. The paper was not read. A warm batch trains on "
        "one row at least.",
    )
    Config = BicroConfig
    presets: ClassVar[Presets] = {"official": {"margin_of": "negative", "clean_labels": "misaligned"}}
    space: ClassVar[Space] = {
        "margin": Log(0.05, 0.8),
        "floor": Linear(0.0, 0.9),
        "warm_rows": Linear(0.1, 1.0),
        "noisy_from": Linear(0.1, 1.0),
    }

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        ids, progress = batch.ids, batch.clock.progress
        row_loss = torch.cat([mean_hinges(z, self.config.margin, tile) for tile in spans(len(ids))])
        self.remember(ids, row_loss)
        constants = {"row_loss": row_loss}
        if not self.divides(batch.clock):
            chosen = row_loss.argsort(stable=True)[: max(portion(self.config.warm_rows, len(ids)), 1)]
            return constants | {"used": torch.zeros_like(row_loss, dtype=torch.bool).scatter(0, chosen, True)}
        clean = self.clean[ids]
        label = self.labels(z, row_loss, clean)
        return constants | {"label": label, "used": clean | (progress >= self.config.noisy_from)}

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        used, total = observed["used"][anchors], z["image"].shape[0]
        if "label" not in observed:
            return {"triplet": (mean_hinges(z, self.config.margin, anchors) * used).sum() / total}
        margins = self.config.margin * (10 ** observed["label"] - 1) / 9
        own = margins[anchors, None]
        of_images = own if self.config.margin_of == "anchor" else margins[None]
        return {"triplet": (hardest_hinges(z, (of_images, own), anchors) * used).sum() / total}

    def division(self, losses: Tensor) -> tuple[Tensor, Tensor]:
        probability = beta_posteriors(losses, EDGE)[0]
        return probability, divided(probability)

    def labels(self, z: Tensors, row_loss: Tensor, clean: Tensor) -> Tensor:
        """Labels y [B] in [0, 1] of rows with these losses [B] and flags, bool [B]; all 0 if none is clean."""
        trusted = clean.nonzero()[:, 0]
        if not len(trusted):
            return torch.zeros_like(row_loss)
        order = trusted[row_loss[trusted].argsort(stable=True)]
        best, rest = order.split([len(order) // 10 + 1, len(order) - len(order) // 10 - 1])
        agreement = torch.cat([_agreement(z, tile, best) for tile in spans(len(row_loss))])
        label = torch.where(clean, 0.5 + agreement / 4, agreement / 2)
        if self.config.clean_labels == "misaligned":
            label[rest] = label[trusted[: len(rest)]]
        label[best] = 1
        return torch.where(label <= self.config.floor, 0.0, label).clamp(0, 1)


def _agreement(z: Tensors, tile: slice, best: Tensor) -> Tensor:
    """A [n], at most 2: how alike a row's similarities are to the anchor nearest in images, and to that in texts."""
    images, texts = (similarities(z[name][tile], z[name][best]) for name in ("image", "text"))
    ratios = []
    for near, other in ((images, texts), (texts, images)):
        x, place = near.max(1, keepdim=True)
        y = other.gather(1, place)
        ratio = torch.where(x / y < 1, x / y, y / x)
        ratios.append(torch.where(x == y, 1.0, ratio)[:, 0])  # two zeros, too
    return ratios[0] + ratios[1]
