"""OTTER: an averaged teacher's similarities say, by optimal transport, which other pairs a row also matches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from methods.base import LogitScale, Presets, WholeBatch, check, check_scale, directions, info_nce, similarities, unit
from methods.protocol import (
    TEMPERATURE,
    About,
    Batch,
    Clock,
    Cost,
    Facts,
    Identity,
    Linear,
    Log,
    Rows,
    Space,
    Tensors,
    Towers,
)
from methods.sinkhorn import masked_sinkhorn

LIMITS = (1.0, 100.0)  #: of both logit scales


# official: github.com/facebookresearch/OTTER@605d317 models/model.py L182-330 (DistillationModel), model_util.py L15-48
@dataclass(frozen=True)
class OtterConfig:
    """Hyper-parameters of OTTER; defaults are those of the official script."""

    alpha: float = 0.5  #: weight of CLIP's loss, as the sum of both directions; the distillation has the rest
    #: targets are rows of a transport plan between all rows of the batch; otherwise softmaxes of the similarities
    transport: bool = True
    regularisation: float = 0.15  #: lambda, similarities are divided by it in the plan's kernel
    iterations: int = 5  #: of rows and columns, in the plan
    teacher_scale: float = 100.0  #: similarities are multiplied by it where targets are softmaxes
    image_weight: float = 1.0  #: gamma_v, weight of the teacher's similarity of two images
    text_weight: float = 1.0  #: gamma_t, weight of the teacher's similarity of two texts
    remove_own: bool = True  #: no target lies on a row's own partner
    #: in how many equal blocks of rows the removed column starts again at 0. 1 removes every row's own; the official
    #: code runs a block a GPU and removes its first columns, which are the own ones of the first GPU's rows alone
    blocks: int = 1
    decay: float = 0.999  #: of the teacher, once it is reached
    temperature: float = 0.0202  #: CLIP's logit scale starts at 1/temperature (e^3.9)
    distill_temperature: float = 0.0202  #: the scale of the distillation starts at 1/distill_temperature
    learnable_scale: bool = True  #: learn both scales or keep them
    #: "step": scales are clamped to [1, 100] after every step. "forward": in the loss, as in the official code, where a
    #: scale beyond the limits has no gradient and stays there
    clamp: Literal["step", "forward"] = "step"

    def __post_init__(self) -> None:
        check(self, "alpha", 0 <= self.alpha <= 1, "in [0, 1]")
        for name in ("regularisation", "teacher_scale", "distill_temperature"):
            check(self, name, 0 < getattr(self, name) < math.inf, "a finite number > 0")
        for name in ("iterations", "blocks"):
            value = getattr(self, name)
            check(self, name, isinstance(value, int) and value >= 1, "a whole number >= 1")
        for name in ("image_weight", "text_weight"):
            check(self, name, 0 <= getattr(self, name) < math.inf, "a finite number >= 0")
        for name in ("transport", "remove_own"):
            check(self, name, isinstance(getattr(self, name), bool), "true or false")
        check(self, "decay", 0 <= self.decay <= 1, "in [0, 1]")
        check(self, "clamp", self.clamp in ("step", "forward"), '"step" or "forward"')
        check_scale(self)


class Otter(WholeBatch):
    """L = 2 alpha CLIP(a) + (1 - alpha) (1/B) sum_i [KL(T_i, softmax_j b s_ij) + KL(T'_i, softmax_j b s_ji)].

    T_i is row i, divided by its sum, of the plan with uniform marginals for the teacher's S_ij = gamma_v <v_i, v_j> +
    gamma_t <t_i, t_j> + <v_i, t_j>, without i = j; T' has <t_i, v_j> last.
    """

    name = "otter"
    about = About(
        title="OTTER",
        summary="Besides CLIP, matches the distribution over the other pairs of the batch that an averaged teacher "
        "gives, made balanced by optimal transport. What a batch holds twice then need not be told apart.",
        paper="Wu et al., ICLR 2022",
        equations="as in the official code, DistillationModel",
        fidelity="official-checked",
        bibtex="""@inproceedings{wu2022otter,
  title = {Data Efficient Language-Supervised Zero-Shot Recognition with Optimal Transport Distillation},
  author = {Wu, Bichen and Cheng, Ruizhe and Zhang, Peizhao and Gao, Tianren and Gonzalez, Joseph E. and Vajda, Peter},
  booktitle = {International Conference on Learning Representations},
  year = {2022}
}""",
        state="two logit scales; the towers' average over steps",
        note="Read from the authors' code, not from the paper. Their gathers carry no gradient from one GPU to "
        "another, ours do. Their eight GPUs remove the own pair from the targets of the first one's rows alone: "
        "blocks = 8, in no preset because the loss then depends on the order of rows. Their scales have no gradient "
        "beyond their limits (preset official, clamp). The teacher copies BatchNorm's buffers, which their average "
        "leaves out. A correct pair gives up 1 - alpha of its target, by design.",
    )
    Config = OtterConfig
    presets: ClassVar[Presets] = {
        "official": {"alpha": 0.5, "regularisation": 0.15, "iterations": 5, "clamp": "forward"},
    }
    space: ClassVar[Space] = {
        "temperature": TEMPERATURE["temperature"],
        "distill_temperature": Log(0.005, 0.5),
        "alpha": Linear(0.0, 1.0),
        "regularisation": Log(0.03, 1.0),
    }
    side = "ema"
    identities = (
        Identity("with all weight on CLIP it is twice that", "clip", {"alpha": 1.0, "temperature": 0.07}, factor=2.0),
    )

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        self.scale = LogitScale(config.temperature, config.learnable_scale)
        self.distill_scale = LogitScale(config.distill_temperature, config.learnable_scale)

    def cost(self, phase: str) -> Cost:
        return Cost(side_image=1.0, side_text=1.0)

    def encode(self, towers: Towers, rows: Rows) -> Tensors:
        with torch.no_grad():
            teacher = {
                "side_image": unit(towers.side.encode_image(rows.images)),
                "side_text": unit(towers.side.encode_text(rows.tokens)),
            }
        return {**super().encode(towers, rows), **teacher}

    def side_decay(self, clock: Clock) -> float:
        """As after the update that the official code makes before its next step, the second one after the first."""
        # official: github.com/facebookresearch/OTTER@605d317 ema.py
        updates = clock.step + 2
        return min(float(self.config.decay), (1 + updates) / (10 + updates))

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        """`image_targets` T and `text_targets` T', [B, B], the anchor first."""
        image, text = z["side_image"], z["side_text"]
        alike = self.config.image_weight * similarities(image, image) + self.config.text_weight * similarities(
            text, text
        )
        across = similarities(image, text)
        return {"image_targets": self._targets(alike + across), "text_targets": self._targets(alike + across.T)}

    def _targets(self, similarity: Tensor) -> Tensor:
        config, rows = self.config, torch.arange(len(similarity), device=similarity.device)
        allowed = torch.ones_like(similarity, dtype=torch.bool)
        if config.remove_own:
            allowed[rows, rows % max(1, len(rows) // config.blocks)] = False
        if not config.transport:
            logits: Tensor = config.teacher_scale * similarity
            return logits.masked_fill(~allowed, -math.inf).softmax(1)
        plan = masked_sinkhorn(-similarity, allowed, config.regularisation, config.iterations, threshold=0.0)
        return plan / plan.sum(1, keepdim=True)

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        alpha, distilled = self.config.alpha, self.distill_scale().new_zeros(())
        targets = (observed["image_targets"], observed["text_targets"])
        for target, (logits, _) in zip(targets, directions(z, self._limited(self.distill_scale), anchors), strict=True):
            distilled = distilled + (torch.xlogy(target, target) - target * logits.log_softmax(1)).sum()
        return {
            "contrastive": 2 * alpha * info_nce(z, self._limited(self.scale), anchors),
            "distilled": (1 - alpha) * distilled / len(z["image"]),
        }

    def _limited(self, scale: LogitScale) -> Tensor:
        value: Tensor = scale()
        return value.clamp(*LIMITS) if self.config.clamp == "forward" else value

    def after_step(self, clock: Clock) -> None:
        if self.config.clamp == "step":
            self.scale.clamp_()
            self.distill_scale.clamp_()
