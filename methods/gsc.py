"""GSC: pairs whose two sides have other neighbours in the batch are trusted less, in the loss and as neighbours."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from methods.base import LogitScale, Presets, WholeBatch, check, check_scale, directions, similarities, spans
from methods.mixture import posteriors
from methods.protocol import TEMPERATURE, About, Batch, Clock, Diagnostic, Facts, Identity, Linear, Log, Space, Tensors

BATCH = 128  #: of all official runs


# official: github.com/MediaBrain-SJTU/GSC@2759ba0 GSC/model/RINCE.py (RINCE.train_batch, RINCE.split_batch)
@dataclass(frozen=True)
class GscConfig:
    """Hyper-parameters of GSC; defaults are those of the official scripts for Flickr30K and CC152K."""

    structure_weight: float = 0.01  #: gamma, weight of the structure loss; the script for COCO trains with 1
    beta: float = 0.7  #: weight of the new value in the moving averages behind a pair's target
    #: kappa, an affinity within a modality is sigma(kappa <v_i, v_j>). 1 reads the official code literally, where a
    #: network makes it; 5 is a guess
    intra_scale: float = 5.0
    #: multiply the structure logits, which grow with the batch, by 128/B; the official code leaves them as they are
    per_batch: bool = True
    temperature: float = 0.07  #: the logit scale is, or starts at, 1/temperature
    learnable_scale: bool = False  #: learn the scale (clamped to [1, 100]) or keep it

    def __post_init__(self) -> None:
        check(self, "structure_weight", 0 <= self.structure_weight < math.inf, "a finite number >= 0")
        check(self, "beta", 0 <= self.beta <= 1, "in [0, 1]")
        check(self, "intra_scale", 0 <= self.intra_scale < math.inf, "a finite number >= 0")
        check(self, "per_batch", isinstance(self.per_batch, bool), "true or false")
        check_scale(self)


class Gsc(WholeBatch):
    """L = (1/B) sum_i y_i [CLIP's loss of pair i + gamma (LSE_j Z_ij - Z_ii)], y detached.

    Z = omega A A'^T, A_ij = sigma(kappa <v_i, v_j>) y_j and A' likewise of the texts: how alike two rows' neighbours
    are. y is the smaller of two moving averages, of the softmax share of a pair and of the probability that its A_i and
    A'_i agree.
    """

    name = "gsc"
    about = About(
        title="GSC",
        summary="Weighs each pair by how sure the model is of it and by whether its image and its text have the same "
        "neighbours in the batch. A loss on these neighbourhoods joins InfoNCE.",
        paper="Zhao et al., CVPR 2024",
        equations="as in the official code, RINCE.train_batch",
        fidelity="official-checked",
        bibtex="""@inproceedings{zhao2024gsc,
  title = {Mitigating Noisy Correspondence by Geometrical Structure Consistency Learning},
  author = {Zhao, Zihua and Chen, Mengxi and Dai, Tianjie and Yao, Jiangchao and Han, Bo and Zhang, Ya and
    Wang, Yanfeng},
  booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2024}
}""",
        state="softmax share, disagreement of neighbours, their moving averages and target of every row",
        note="On cosines of global embeddings; the official scores, also within a modality, come from SGR. The body of "
        "the paper could not be read. kappa = 5 and logits per batch of 128 are ours; the preset official has neither. "
        "Its class is named RINCE but has nothing to do with that loss.",
    )
    Config = GscConfig
    presets: ClassVar[Presets] = {"official": {"intra_scale": 1.0, "per_batch": False}}
    space: ClassVar[Space] = {**TEMPERATURE, "structure_weight": Log(1e-3, 3.0), "beta": Linear(0.2, 1.0, limit="high")}
    identities = (
        Identity(
            "without the structure loss it is CLIP as long as all targets are 1",
            equals="clip",
            config={"structure_weight": 0.0},
            other={"temperature": 0.07, "learnable_scale": False},
        ),
    )

    seen: Tensor
    share: Tensor
    disagreement: Tensor
    share_average: Tensor
    agreement_average: Tensor
    target: Tensor

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        self.scale = LogitScale(config.temperature, config.learnable_scale)
        self.register_buffer("seen", torch.zeros(facts.rows, dtype=torch.bool))
        self.register_buffer("disagreement", torch.zeros(facts.rows))
        for name in ("share", "share_average", "agreement_average", "target"):
            self.register_buffer(name, torch.ones(facts.rows))

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        ids = batch.ids
        target = self.target[ids].to(z["image"].dtype)
        shares, disagreements = [], []
        for tile in spans(len(ids)):
            own = [
                (logits.diagonal(tile.start) - logits.logsumexp(1)).exp()
                for logits, _ in directions(z, self.scale(), tile)
            ]
            shares.append((own[0] + own[1]) / 2)
            disagreements.append(_disagreement(*self._affinities(z, target, tile)))
        self.share[ids] = torch.cat(shares).to(self.share.dtype)
        self.disagreement[ids] = torch.cat(disagreements).to(self.disagreement.dtype)
        self.seen[ids] = True
        return {"target": target}

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        target, total = observed["target"], z["image"].shape[0]
        cross = target.new_zeros(())
        for logits, own in directions(z, self.scale(), anchors):
            cross = cross + (target * F.cross_entropy(logits, own, reduction="none")).sum() / 2
        image, text = self._affinities(z, target, anchors)
        size = BATCH / total if self.config.per_batch else 1.0
        logits = size * image @ text.T
        # The image rows alone, as in the official code: text anchors would take the columns.
        structure = (target * (logits.logsumexp(1) - logits.diagonal())).sum()
        return {"cross_modal": cross / total, "structure": self.config.structure_weight * structure / total}

    def monitor(self, z: Tensors, observed: Tensors) -> dict[str, float]:
        return {"mean_target": float(observed["target"].mean())}

    def diagnostics(self, z: Tensors, observed: Tensors) -> tuple[Diagnostic, ...]:
        return (Diagnostic("target", "Target of each training pair", "target", {"pairs": self.target[self.seen]}),)

    def after_step(self, clock: Clock) -> None:
        self.scale.clamp_()

    def end_epoch(self, epoch: int) -> None:
        """Fit the mixture to the disagreements of all rows that were ever visited, and move averages and targets."""
        seen, beta = self.seen, self.config.beta
        consistent = posteriors(self.disagreement[seen], "smaller")
        self.agreement_average[seen] = torch.lerp(self.agreement_average[seen], consistent, beta)
        self.share_average[seen] = torch.lerp(self.share_average[seen], self.share[seen], beta)
        self.target.copy_(torch.minimum(self.share_average, self.agreement_average))

    def _affinities(self, z: Tensors, target: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        """Rows of A and of A', [n, B] each: affinities to every row of the same modality, times that row's target."""
        affinities = [
            (self.config.intra_scale * similarities(z[name][rows], z[name])).sigmoid() * target
            for name in ("image", "text")
        ]
        return affinities[0], affinities[1]


def _disagreement(image: Tensor, text: Tensor) -> Tensor:
    """One minus the cosine of corresponding rows of A and A', [n]; 1 for rows of zeros.

    As half the squared distance of unit rows it keeps its digits where all cosines are near 1, as in a first pass.
    """
    apart = (F.normalize(image, dim=1) - F.normalize(text, dim=1)).square().sum(1) / 2
    return torch.where(image.any(1), apart, 1.0)
