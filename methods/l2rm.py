"""L2RM: rows that count as wrong are matched anew among each other, by partial optimal transport."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from methods.base import LogitScale, Presets, WholeBatch, check, check_scale, directions, similarities, spans
from methods.beta_mixture import beta_posteriors
from methods.division import Divided
from methods.hinges import hardest_hinges, mean_hinges
from methods.protocol import TEMPERATURE, About, Batch, Clock, Facts, Log, Space, Tensors
from methods.sinkhorn import partial_sinkhorn

EDGE = 1e-3  #: the mixture's values are cut to [EDGE, 1 - EDGE]
SMALLEST = 1e-10  #: of costs and of the plan's cells
ABSENT = 1e-7  #: added to the labels of the reverse cross-entropy, 1 and 0
FEWEST = 3  #: rows that are matched anew; of two each would get the other's partner


# official: github.com/hhc1997/L2RM@a766c22 models.py (SGRAF.forward, partial_ot, sinkhorn_log_domain)
# official: github.com/hhc1997/L2RM@a766c22 main_L2RM.py
@dataclass(frozen=True)
class L2rmConfig:
    """Hyper-parameters of L2RM on Flickr30K; the share of the run is that of 5 and 35 epochs."""

    margin: float = 0.2  #: m, by which a clean pair must win
    mass: float = 0.1  #: mu, what the plan moves in all; the cells of a full plan sum to 1
    regularisation: float = 0.01  #: epsilon, costs are divided by it in the plan's kernel; 0.07 on COCO and CC152K
    #: omega, weight of a noisy row beside a clean one: the official code adds a mean of 128 rows to a sum
    rematch_weight: float = 1 / 128
    #: no row is matched to its own partner. The official code leaves that out where it knows that no caption is wrong
    mask_own: bool = True
    warm: float = 0.125  #: share of the run on symmetric cross-entropy
    temperature: float = 0.05  #: the logit scale is, or starts at, 1/temperature
    learnable_scale: bool = False  #: learn the scale (clamped to [1, 100]) or keep it

    def __post_init__(self) -> None:
        for name in ("margin", "regularisation"):
            check(self, name, 0 < getattr(self, name) < math.inf, "a finite number > 0")
        check(self, "mass", 0 < self.mass < 1, "in (0, 1)")
        check(self, "rematch_weight", 0 <= self.rematch_weight < math.inf, "a finite number >= 0")
        check(self, "mask_own", isinstance(self.mask_own, bool), "true or false")
        check(self, "warm", 0 <= self.warm <= 1, "in [0, 1]")
        check_scale(self)


class L2rm(Divided, WholeBatch):
    """L = (1/B) sum_{clean i} sum_dir max_{j != i} [m + s_ij - s_ii]_+ + (omega/2B) sum_{noisy i} sum_dir J(y_i, q_i).

    J(y, q) = KL(y, q) + KL(q, y): q_i is the softmax of row i over the noisy rows' partners, y_i its row, divided by
    its sum, of a plan that moves the mass mu at costs 1 - s, and nothing between partners. Warm, L = CLIP + (1/2B)
    sum_i sum_dir [-(1 - p_ii) ln 1e-7 - p_ii ln(1 + 1e-7)].
    """

    name = "l2rm"
    about = About(
        title="L2RM",
        summary="Trains on clean pairs with a triplet loss, and gives the images and texts of doubtful ones new "
        "partners among each other, by optimal transport. A mixture of two beta distributions, fitted to the losses "
        "after every pass, says which pairs are which.",
        paper="Han et al., CVPR 2024",
        equations="as in the official code, SGRAF.forward and partial_ot",
        fidelity="derived",
        bibtex="""@inproceedings{han2024l2rm,
  title = {Learning to Rematch Mismatched Pairs for Robust Cross-Modal Retrieval},
  author = {Han, Haochen and Zheng, Qinghua and Dai, Guang and Luo, Minnan and Wang, Jingdong},
  booktitle = {Proceedings of the IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2024}
}""",
        state="loss in the last pass, probability of being clean and flag of every row",
        note="Losses and transport equal executed official code, the assembly is ours: one step on clean and noisy "
        "rows together, weighted as there in batches of 128, hinges against the whole batch, losses of the "
        "training visits, one mixture a pass. The official code forbids own partners unless the noise rate that "
        "it is told is 0; here they are forbidden at any rate, and mask_own: false is the other form. The "
        "learned cost is left out: its training moves no weight by more than 2e-6 a step from 1 - s. "
        "Normalisers have no added 1e-10. The plan may end before it has converged, as there. The paper was not "
        "read. Rows of the component that is likelier at the smallest loss are clean, as there: if that component is "
        "broad, the division is upside down.",
    )
    Config = L2rmConfig
    presets: ClassVar[Presets] = {
        "official": {
            "margin": 0.2,
            "temperature": 0.05,
            "mass": 0.1,
            "regularisation": 0.01,
            "rematch_weight": 1 / 128,
        },
    }
    space: ClassVar[Space] = {
        "temperature": TEMPERATURE["temperature"],
        "margin": Log(0.05, 0.8),
        "regularisation": Log(0.005, 0.2),
        "rematch_weight": Log(0.001, 1.0),
    }

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        self.scale = LogitScale(config.temperature, config.learnable_scale)

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        """`row_loss` [B]; once rows are divided `clean`, bool [B], and, of n noisy rows, their `plan` [n, n]."""
        row_loss = torch.cat([mean_hinges(z, self.config.margin, tile) for tile in spans(len(batch.ids))])
        self.remember(batch.ids, row_loss)
        constants = {"row_loss": row_loss}
        if not self.divides(batch.clock):
            return constants
        clean = self.clean[batch.ids]
        constants["clean"] = clean
        if int((~clean).sum()) >= FEWEST:
            constants["plan"] = self.plan(1 - similarities(z["image"][~clean], z["text"][~clean]))
        return constants

    def plan(self, costs: Tensor) -> Tensor:
        """Partial transport plan [n, n] in fp64 between images and texts at these costs [n, n]."""
        allowed = torch.ones_like(costs, dtype=torch.bool)
        if self.config.mask_own:
            allowed.fill_diagonal_(False)
        return partial_sinkhorn(
            costs.double().clamp(min=SMALLEST), allowed, self.config.mass, self.config.regularisation
        )

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        total = len(z["image"])
        if "clean" not in observed:
            return {"symmetric": self._symmetric(z, anchors) / total}
        margin = self.scale().new_tensor(self.config.margin).reshape(1, 1)
        clean = observed["clean"]
        triplet = (hardest_hinges(z, (margin, margin), anchors) * clean).sum() / total
        if "plan" not in observed:
            return {"triplet": triplet}
        return {"triplet": triplet, "rematched": self.config.rematch_weight * self._rematched(z, observed) / total}

    def _symmetric(self, z: Tensors, anchors: slice) -> Tensor:
        costs: Tensor = self.scale().new_zeros(())
        for logits, own in directions(z, self.scale(), anchors):
            forward = F.cross_entropy(logits, own, reduction="none")
            missed = -torch.expm1(-forward)
            reverse = -math.log(ABSENT) * missed - math.log1p(ABSENT) * (1 - missed)
            costs = costs + (forward + reverse).sum() / 2
        return costs

    def _rematched(self, z: Tensors, observed: Tensors) -> Tensor:
        """Half the sum over both directions and the noisy rows of J, a scalar."""
        rows, plan = {name: z[name][~observed["clean"]] for name in ("image", "text")}, observed["plan"]
        costs: Tensor = self.scale().new_zeros(())
        for cells, (logits, _) in zip((plan, plan.T), directions(rows, self.scale(), slice(0, len(plan))), strict=True):
            target = cells.to(logits).clamp(min=SMALLEST)
            target = target / target.sum(1, keepdim=True)
            log_share = logits.log_softmax(1)
            costs = costs + ((target - log_share.exp()) * (target.log() - log_share)).sum() / 2
        return costs

    def division(self, losses: Tensor) -> tuple[Tensor, Tensor]:
        """Of the component that the smallest loss belongs to; clean above one half, and no share of rows is noisy."""
        both = beta_posteriors(losses, EDGE)
        probability = both[both[:, losses.argmin()].argmax()]
        return probability, probability > 0.5

    def after_step(self, clock: Clock) -> None:
        self.scale.clamp_()
