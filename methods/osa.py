"""OSA: a frozen estimator's cosine, measured from where its two modalities are orthogonal, weighs each pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods.base import Contrastive, Presets, check, check_scale, stream, unit, wide
from methods.protocol import About, Batch, Choice, Cost, Diagnostic, Facts, Need, Rows, Space, Tensors, Towers

NOISE_IDS = 100  #: token ids of the noise texts are below it


@dataclass(frozen=True)
class OsaConfig:
    """Hyper-parameters of OSA."""

    #: x, what the weight x^2 (1 - x^2) is taken of: "max", as the official code, the cosine above the shift divided by
    #: the batch's largest, so that the best pair of every batch weighs nothing; "none", the cosine above the shift
    normalise: Literal["max", "none"] = "max"
    shift: float | None = None  #: b, the estimator's cosine of unrelated inputs; null: measured on noise
    shift_pairs: int = 64  #: noise images, and noise texts, that the shift is measured on
    temperature: float = 0.07  #: the logit scale starts at 1/temperature; the reference run's takes its place
    learnable_scale: bool = True  #: learn the scale (clamped to [1, 100]) or keep it

    def __post_init__(self) -> None:
        check(self, "normalise", self.normalise in ("max", "none"), '"max" or "none"')
        check(self, "shift", self.shift is None or -1 <= self.shift < 1, "null or in [-1, 1)")
        check(self, "shift_pairs", self.shift_pairs >= 1, ">= 1")
        check_scale(self)


class Osa(Contrastive):
    """L = 1/2 (1/B) sum_i w_i [CE_i(l) + CE_i(l^T)], w_i = x_i^2 (1 - x_i^2), x_i = [c_i - b]_+ / max_k [c_k - b]_+.

    c_i is the frozen estimator's cosine of pair i, and b that of unrelated inputs.
    """

    name = "osa"
    about = About(
        title="OSA",
        summary="Weighs each pair by the cosine that a frozen model gives it, measured from that model's cosine of "
        "unrelated inputs. Pairs below it teach nothing and stay negatives.",
        paper="Li et al., 2024 (arXiv 2410.01944)",
        equations="read from the authors' code, the paper could not be obtained",
        fidelity="official-checked",
        bibtex="""@misc{li2024osa,
  title = {One-step Noisy Label Mitigation},
  author = {Li, Hao and Gu, Jiayang and Song, Jingkuan and Zhang, An and Gao, Lianli},
  year = {2024},
  eprint = {2410.01944},
  archivePrefix = {arXiv}
}""",
        state="logit scale, shift",
        note="The authors' estimator is OpenAI's CLIP; here it is the reference run, trained on the same noisy pairs, "
        "and the training starts there too. Dividing by the batch's largest cosine gives the cleanest pair of every "
        "batch the weight 0; normalise: none does not. The estimator takes no part in the evaluation.",
    )
    Config = OsaConfig
    # official: github.com/leolee99/OSA@d64645b main_clip.py (weight_function, CrossEn); README: batches of 256, and as
    # many noise images and texts
    presets: ClassVar[Presets] = {"official": {"normalise": "max", "shift_pairs": 256}}
    space: ClassVar[Space] = {"normalise": Choice(("max", "none"))}
    reference = "clip"
    side = "reference"
    needs: ClassVar[frozenset[Need]] = frozenset({"pixels", "text_transformer"})

    shift: Tensor

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        self.register_buffer("shift", torch.tensor(config.shift or 0.0))

    @classmethod
    def needs_under(cls, config: Any) -> frozenset[Need]:
        return cls.needs if config.shift is None else frozenset()

    def prepare(self, towers: Towers) -> None:
        if self.config.shift is None:
            self.shift.fill_(self._cosine_of_noise(towers))

    @torch.no_grad()
    def _cosine_of_noise(self, towers: Towers) -> Tensor:
        """Mean cosine, by the estimator, of all pairs of uniform pixels in [0, 1] and uniform token ids.

        As in the official code the pixels are not normalised, and the ids have neither start nor end.
        """
        visual: Any = towers.visual
        size = visual.image_size if isinstance(visual.image_size, tuple) else (visual.image_size,) * 2
        tables = [module.num_embeddings for module in towers.text.modules() if isinstance(module, nn.Embedding)]
        count, draws = self.config.shift_pairs, stream(self.facts.seed, "osa/shift")
        images = torch.rand(count, 3, *size, generator=draws)
        tokens = torch.randint(min(NOISE_IDS, max(tables)), (count, towers.context_length), generator=draws)
        image = unit(torch.cat([towers.side.encode_image(part) for part in images.split(32)]))
        text = unit(torch.cat([towers.side.encode_text(part) for part in tokens.split(32)]))
        return image.mean(0) @ text.mean(0)

    def cost(self, phase: str) -> Cost:
        return Cost(side_image=1.0, side_text=1.0)

    def encode(self, towers: Towers, rows: Rows) -> Tensors:
        with torch.no_grad():
            seen = {
                "side_image": unit(towers.side.encode_image(rows.images)),
                "side_text": unit(towers.side.encode_text(rows.tokens)),
            }
        return {**super().encode(towers, rows), **seen}

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        cosines = (wide(z["side_image"]) * wide(z["side_text"])).sum(1)
        above = (cosines - self.shift.to(cosines.dtype)).clamp(0, 1)
        if self.config.normalise == "max":  # the official code divides 0 by 0 if no cosine is above the shift
            above = above / above.max().clamp(min=torch.finfo(above.dtype).tiny)
        squared = above.square()
        return {"cosines": cosines, "weights": squared * (1 - squared)}

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        losses = self.scale().new_zeros(())
        for logits, own in self.logits(z, anchors):
            each = F.cross_entropy(logits, own, reduction="none")
            losses = losses + (observed["weights"][anchors] * each).sum()
        return {"weighted_contrastive": losses / (2 * z["image"].shape[0])}

    def monitor(self, z: Tensors, observed: Tensors) -> dict[str, float]:
        weights = observed["weights"]
        return {"mean_weight": float(weights.mean()), "weightless": float((weights == 0).double().mean())}

    def diagnostics(self, z: Tensors, observed: Tensors) -> tuple[Diagnostic, ...]:
        series = {"pairs": observed["cosines"], "shift": self.shift.reshape(1)}
        return (Diagnostic("estimated", "What the estimator says of pairs", "cosine similarity", series),)
