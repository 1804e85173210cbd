"""Gradient ascent: the plainest unlearning of noisy pairs, NCU's baseline."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F

from methods.base import Contrastive, Presets, check, check_scale
from methods.forget import Confidence, confidence_odds, forget_set, log_odds
from methods.protocol import About, Batch, Identity, Log, Phase, Space, Tensors


@dataclass(frozen=True)
class GradientAscentConfig:
    """Hyper-parameters of gradient ascent; the paper gives none, all values are ours."""

    forget: float = 0.1  #: share of the batch, of lowest confidence, whose loss is ascended
    smoothing: float = 0.1  #: label smoothing of the other rows
    forget_weight: float = 1.0  #: weight of the ascent against the rest
    limit: float | None = 2.0  #: the ascent stops where its loss exceeds this many ln B; null: it never stops
    confidence: Confidence = "two_sided"  #: mean of both softmaxes, or the image's only
    lr_scale: float = 0.1  #: times the suite's learning rate (5e-5 of 5e-4)
    temperature: float = 0.07  #: the logit scale starts at 1/temperature; the reference run's takes its place
    learnable_scale: bool = True  #: learn the scale (clamped to [1, 100]) or keep it

    def __post_init__(self) -> None:
        check(self, "forget", 0 <= self.forget < 1, "in [0, 1)")
        check(self, "smoothing", 0 <= self.smoothing < 1, "in [0, 1)")
        check(self, "forget_weight", 0 <= self.forget_weight < math.inf, "a finite number >= 0")
        check(self, "limit", self.limit is None or 0 < self.limit < math.inf, "null or a finite number > 0")
        check(self, "confidence", self.confidence in ("two_sided", "image_to_text"), '"two_sided" or "image_to_text"')
        check(self, "lr_scale", 0 < self.lr_scale < math.inf, "a finite number > 0")
        check_scale(self)


class GradientAscent(Contrastive):
    """L = -1/2 sum_dir mean_F CE + 1/2 sum_dir mean_R smoothed CE; all B candidates stay in every softmax."""

    name = "gradient_ascent"
    about = About(
        title="GA (reconstructed)",
        summary="Starts from a trained CLIP, ascends the contrastive loss of the least confident pairs and descends "
        "that of the others. What noisy pairs taught is thereby pushed out of the model.",
        paper="Han et al., ICCV 2025 (as a baseline)",
        equations="Section 5.3, in words",
        fidelity="reconstructed",
        bibtex="""@inproceedings{ncu2025,
  title = {Unlearning the Noisy Correspondence Makes {CLIP} More Robust},
  author = {Han, Haochen and Wang, Alex Jinpeng and Ye, Peijun and Liu, Fangming},
  booktitle = {International Conference on Computer Vision},
  year = {2025}
}""",
        state="logit scale",
        note="Unverified: the paper says one sentence and published no code. All but the sign is our choice, also that "
        "the ascent stops at 2 ln B: a loss without upper bound would otherwise swallow the rest.",
    )
    Config = GradientAscentConfig
    presets: ClassVar[Presets] = {"paper": {}}
    space: ClassVar[Space] = {
        "forget": Log(0.01, 0.5),
        "smoothing": Log(0.01, 0.5),
        "forget_weight": Log(0.1, 10.0),
        "lr_scale": Log(0.01, 1.0),
    }
    reference = "clip"
    identities = (Identity("nothing forgotten, nothing smoothed: CLIP", "clip", {"forget": 0.0, "smoothing": 0.0}),)

    def phases(self) -> tuple[Phase, ...]:
        return (Phase(lr_scale=self.config.lr_scale),)

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        odds = log_odds(z, self.scale())
        forgotten = forget_set(confidence_odds(odds, self.config.confidence), self.config.forget)
        count = int(forgotten.sum())
        ascended = -F.logsigmoid(odds[:, forgotten]).mean() if count else odds.new_zeros(())
        return {
            "forget": forgotten.to(odds.dtype) / max(count, 1),
            "retain": (~forgotten).to(odds.dtype) / (len(forgotten) - count),
            "stopped": ascended > self._limit(len(forgotten)),
        }

    def _limit(self, total: int) -> float:
        return math.inf if self.config.limit is None else self.config.limit * math.log(total)

    def monitor(self, z: Tensors, observed: Tensors) -> dict[str, float]:
        return {"stopped": float(observed["stopped"])}

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        config, total = self.config, z["image"].shape[0]
        forget = retain = self.scale().new_zeros(())
        for logits, _ in self.logits(z, anchors):
            own = logits.diagonal(anchors.start)
            hard = logits.logsumexp(1) - own
            smoothed = hard + config.smoothing * (own - logits.mean(1))
            # Beyond the limit the term is constant: its mean over F is the limit, its gradient 0.
            ascended = torch.where(observed["stopped"], self._limit(total), hard)
            forget = forget - (observed["forget"][anchors] * ascended).sum() / 2
            retain = retain + (observed["retain"][anchors] * smoothed).sum() / 2
        return {"forget": config.forget_weight * forget, "retain": retain}
