"""PAU: learned prototypes of the other modality say how certain a row is, in line with how many others it resembles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from methods.base import Contrastive, Presets, check, check_scale, info_nce, similarities, stream, unit, wide
from methods.protocol import TEMPERATURE, About, Batch, Diagnostic, Facts, Identity, Log, Space, Tensors

SIDES = (("image", "text"), ("text", "image"))  #: rows, and the modality of the prototypes that they meet


# official: github.com/leolee99/PAU@1604ccc Image-Text-Retrieval/modules/criterions.py (TotalLoss), README.md
@dataclass(frozen=True)
class PauConfig:
    """Hyper-parameters of PAU; defaults are those of the README's command, but for the temperature's start."""

    prototypes: int = 8  #: K, of each modality
    certainty_temperature: float = 5.0  #: tau_u, logits of prototypes are divided by it
    uncertainty_weight: float = 100.0  #: omega_u, weight of U; the official parser's default is 0.5
    variance_weight: float = 0.015  #: omega_w, weight of W, which keeps prototypes apart
    #: mean cosine of an image and another pair's text, up to which a step leaves U out: it divides by it. null: never,
    #: as in the official code, which starts from CLIP's weights, whose mean is well above 0
    least_mean: float | None = 0.05
    temperature: float = 0.07  #: the logit scale starts at 1/temperature
    learnable_scale: bool = True  #: learn the scale (clamped to [1, 100]) or keep it

    def __post_init__(self) -> None:
        check(self, "prototypes", isinstance(self.prototypes, int) and self.prototypes >= 1, "a whole number >= 1")
        check(self, "certainty_temperature", 0 < self.certainty_temperature < math.inf, "a finite number > 0")
        for name in ("uncertainty_weight", "variance_weight"):
            check(self, name, 0 <= getattr(self, name) < math.inf, "a finite number >= 0")
        check(self, "least_mean", self.least_mean is None or 0 <= self.least_mean < 1, "null or in [0, 1)")
        check_scale(self)


class Pau(Contrastive):
    """L = CLIP + omega_u U + omega_w W, U = 1/2 (1/B) sum_i [(k_i - o_i mean k / mean o)^2 + the same of the texts].

    The certainty of an image is k_i = e_i / (K + e_i), e_i = sum_k exp(a <v_i, Y_k> / tau_u) over unit prototypes Y of
    texts, and o_i = sum_{j != i} s_ij. W = (a^2 / K^2) sum_{k != l} [<X_k, X_l>^2 + <Y_k, Y_l>^2]; X meet texts.
    """

    name = "pau"
    about = About(
        title="PAU",
        summary="Measures how certain a row is by its closeness to learned prototypes of the other modality, and "
        "regresses that on how much it resembles the other pairs of the batch. Ambiguity is so told apart from error.",
        paper="Li et al., NeurIPS 2023",
        equations="as in the official code, TotalLoss",
        fidelity="official-checked",
        bibtex="""@inproceedings{li2023pau,
  title = {Prototype-based Aleatoric Uncertainty Quantification for Cross-modal Retrieval},
  author = {Li, Hao and Song, Jingkuan and Gao, Lianli and Zhu, Xiaosu and Shen, Heng Tao},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2023}
}""",
        state="logit scale, K prototypes of each modality",
        note="Read from the authors' code, not from the paper. They fine-tune OpenAI's CLIP; here it trains from "
        "what the suite starts with. U divides by the mean cosine of other pairs, which may then be 0 or less; a step "
        "in which it is small leaves U out (preset official leaves out none). Re-ranking by certainties, tuned on the "
        "evaluated set, is left out, and a pair's confidence is its cosine. Their script chooses the epoch on the test "
        "split; here the suite says which weights are scored.",
    )
    Config = PauConfig
    presets: ClassVar[Presets] = {
        "official": {
            "prototypes": 8,
            "certainty_temperature": 5.0,
            "uncertainty_weight": 100.0,
            "variance_weight": 0.015,
            "least_mean": None,
            "temperature": 0.01,
        },
    }
    space: ClassVar[Space] = {
        **TEMPERATURE,
        "uncertainty_weight": Log(0.1, 1000.0),
        "certainty_temperature": Log(0.5, 20.0),
    }
    identities = (
        Identity("without its two terms it is CLIP", "clip", {"uncertainty_weight": 0.0, "variance_weight": 0.0}),
    )

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        for modality in ("image", "text"):
            rows = torch.empty(config.prototypes, facts.dim)
            nn.init.xavier_uniform_(rows, generator=stream(facts.seed, f"pau/{modality}"))
            self.register_parameter(f"{modality}_prototypes", nn.Parameter(rows))

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        """`mean_other`, the mean cosine of an image and another pair's text, and `used`, whether U counts; numbers."""
        mean = self._others(z, "image", "text").mean() / max(1, len(batch.ids) - 1)
        least = self.config.least_mean
        return {"mean_other": mean, "used": mean != 0 if least is None else mean > least}

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        scale, config, total = self.scale(), self.config, z["image"].shape[0]
        residuals = scale.new_zeros(())
        for rows, other in SIDES:
            certainty, others = self._certainty(z, rows, other), self._others(z, rows, other)
            mean = torch.where(observed["used"], others.mean(), 1.0)
            residuals = residuals + (certainty - others * certainty.mean() / mean)[anchors].square().sum()
        uncertainty = torch.where(observed["used"], residuals, 0.0) / (2 * total)
        variance = sum((self._overlap(modality) for modality, _ in SIDES), scale.new_zeros(()))
        variance = (scale / config.prototypes).square() * variance * (anchors.stop - anchors.start) / total
        return {
            "contrastive": info_nce(z, scale, anchors),
            "uncertainty": config.uncertainty_weight * uncertainty,
            "variance": config.variance_weight * variance,
        }

    def _certainty(self, z: Tensors, rows: str, other: str) -> Tensor:
        """k [B] in (0, 1) of these rows, by prototypes of the other modality."""
        prototypes = unit(self.get_parameter(f"{other}_prototypes"))
        logits = self.scale() / self.config.certainty_temperature * similarities(z[rows], prototypes)
        certainty: Tensor = (logits.logsumexp(1) - math.log(self.config.prototypes)).sigmoid()
        return certainty

    def _others(self, z: Tensors, rows: str, other: str) -> Tensor:
        """o [B], sums of the cosines of these rows with all partners but their own."""
        anchors, partners = wide(z[rows]), wide(z[other])
        return (anchors * (partners.sum(0) - partners)).sum(1)

    def _overlap(self, modality: str) -> Tensor:
        """Sum of squared cosines of different prototypes, both orders counted."""
        prototypes = unit(self.get_parameter(f"{modality}_prototypes"))
        squares = similarities(prototypes, prototypes).square()
        return squares.sum() - squares.diagonal().sum()

    def monitor(self, z: Tensors, observed: Tensors) -> dict[str, float]:
        return {"mean_other": float(observed["mean_other"]), "uncertainty_used": float(observed["used"])}

    def diagnostics(self, z: Tensors, observed: Tensors) -> tuple[Diagnostic, ...]:
        series = {f"{rows}s": self._certainty(z, rows, other) for rows, other in SIDES}
        return (Diagnostic("certainty", "How certain are images and texts?", "certainty", series),)
