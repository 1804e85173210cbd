"""m2-Mix: points on the arc between an image and its text are harder negatives than other pairs' texts and images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from methods.base import Contrastive, Presets, check, check_scale, info_nce, portion, similarities, stream, wide
from methods.gamma import log_gamma_draws
from methods.protocol import TEMPERATURE, About, Batch, Identity, Log, Space, Tensors

NEAREST = 1e-6  #: a cosine is kept this far from 1 and -1, where the angle has no gradient


# official: github.com/changdaeoh/multimodal-mixup@f8e05fc main.py L108-215, loss.py L45-88, README.md
@dataclass(frozen=True)
class M2mixConfig:
    """Hyper-parameters of m2-Mix; defaults are the official script's, whose sweep of the weight has four values."""

    weight: float = 0.01  #: kappa, weight of the loss against mixed negatives
    #: equal parts of the run, in the first of which the weight counts whole, in the second a half, then a third, ...;
    #: nine, as the official run has passes; 1 keeps the weight
    stages: int = 9
    beta: float = 0.5  #: a step's lambda, the share of the images, is drawn from Beta(beta, beta)
    mix_temperature: float | None = 0.07  #: of the loss against mixed negatives; null: at the other loss's scale
    #: "script": the sum of both directions, all logits at the mixed loss's temperature. "readme": their mean, the
    #: positive's logit at the other loss's scale; README.md multiplies by what is a temperature elsewhere, 0.01, which
    #: is mix_temperature 100
    form: Literal["script", "readme"] = "script"
    temperature: float = 0.01  #: the logit scale is, or starts at, 1/temperature
    learnable_scale: bool = False  #: learn the scale (clamped to [1, 100]) or keep it

    def __post_init__(self) -> None:
        check(self, "weight", 0 <= self.weight < math.inf, "a finite number >= 0")
        check(self, "stages", isinstance(self.stages, int) and self.stages >= 1, "a whole number >= 1")
        check(self, "beta", 0 < self.beta < math.inf, "a finite number > 0")
        own = self.mix_temperature is None or 0 < self.mix_temperature < math.inf
        check(self, "mix_temperature", own, "null or a finite number > 0")
        check(self, "form", self.form in ("script", "readme"), '"script" or "readme"')
        check_scale(self)


class M2mix(Contrastive):
    """L = CLIP + kappa (1/B) sum_i [LSE_j u_ij - u_ii + LSE_j u'_ij - u'_ii].

    u_ij = <v_i, m_j> / tau_2 for j != i, u_ii = s_ii / tau_2, and u' has t_i in v_i's place. The point
    m_j = [sin(lambda theta_j) v_j + sin((1 - lambda) theta_j) t_j] / sin theta_j lies on the unit sphere between pair
    j's image and text, theta_j apart.
    """

    name = "m2mix"
    about = About(
        title="m2-Mix",
        summary="Besides CLIP, contrasts each pair with points between the image and the text of other pairs. They lie "
        "where neither modality is, and pushing them away spreads both over the sphere.",
        paper="Oh et al., NeurIPS 2023",
        equations="as in the official script",
        fidelity="official-checked",
        bibtex="""@inproceedings{oh2023geodesic,
  title = {Geodesic Multi-Modal Mixup for Robust Fine-Tuning},
  author = {Oh, Changdae and So, Junhyuk and Byun, Hoyoon and Lim, YongTaek and Shin, Minchul and Jeon, Jong-June and
    Song, Kyungwoo},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2023}
}""",
        state="logit scale, if it is learned",
        note="Read from the authors' code, not from the paper. They fine-tune OpenAI's CLIP; here it trains from "
        "what the suite starts with. Script and README differ: form readme is the latter, which multiplies cosines by "
        "0.01 where a division looks meant (preset official_readme); with mix_temperature 0.07 it divides. Their "
        "angles are in half precision and undefined for a pair that coincides; here they are kept off 0. The weight "
        "falls by ninths of the run instead of by passes.",
    )
    Config = M2mixConfig
    presets: ClassVar[Presets] = {
        "official": {"weight": 0.01, "stages": 9, "beta": 0.5, "mix_temperature": 0.07, "temperature": 0.01},
        "official_readme": {"form": "readme", "stages": 1, "mix_temperature": 100.0},
    }
    space: ClassVar[Space] = {**TEMPERATURE, "weight": Log(0.001, 1.0), "mix_temperature": Log(0.01, 0.5)}
    identities = (
        Identity(
            "without mixed negatives it is CLIP at a fixed temperature",
            equals="clip",
            config={"weight": 0.0},
            other={"temperature": 0.01, "learnable_scale": False},
        ),
    )

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        """`image_share`, the step's lambda, and `mix_weight`, kappa at this moment; numbers."""
        draws = stream(self.facts.seed, "m2mix", batch.clock.step)
        gammas = torch.full((2,), float(self.config.beta), dtype=torch.float64)
        one, other = log_gamma_draws(gammas, draws, below_one=True)
        weight = self.config.weight / (1 + portion(batch.clock.progress, self.config.stages))
        constants = {"image_share": (one - other).sigmoid(), "mix_weight": torch.tensor(weight, dtype=torch.float64)}
        return {name: x.to(z["image"]) for name, x in constants.items()}

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        scale, config = self.scale(), self.config
        negative = scale if config.mix_temperature is None else scale.new_tensor(1 / config.mix_temperature)
        positive, share = (negative, 1.0) if config.form == "script" else (scale, 0.5)
        cosines = (wide(z["image"]) * wide(z["text"])).sum(1)
        mixed = between(z["image"], z["text"], cosines, observed["image_share"])
        own = torch.arange(anchors.start, anchors.stop, device=mixed.device)
        total = scale.new_zeros(())
        for modality in ("image", "text"):
            logits = negative * similarities(z[modality][anchors], mixed)
            logits = logits.scatter(1, own[:, None], positive * cosines[anchors, None])
            total = total + F.cross_entropy(logits, own, reduction="sum")
        weight = share * observed["mix_weight"] / len(mixed)
        return {"contrastive": info_nce(z, scale, anchors), "mixed": weight * total}

    def monitor(self, z: Tensors, observed: Tensors) -> dict[str, float]:
        return {"mix_weight": float(observed["mix_weight"])}


def between(image: Tensor, text: Tensor, cosines: Tensor, image_share: Tensor) -> Tensor:
    """Points m [B, D] of the arcs from each text (image_share 0) to its image (1), given the pairs' cosines [B]."""
    angle = cosines.double().clamp(NEAREST - 1, 1 - NEAREST).arccos()  # small angles cancel in single precision
    towards_image = (image_share * angle).sin() / angle.sin()
    towards_text = ((1 - image_share) * angle).sin() / angle.sin()
    return towards_image[:, None].to(cosines) * wide(image) + towards_text[:, None].to(cosines) * wide(text)
