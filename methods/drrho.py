"""DRRho-CLIP: a global contrastive loss that weights a negative by how much closer it is than to a reference model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from methods.base import Presets, spans, unit, without_own
from methods.global_loss import GlobalConfig, GlobalLoss, with_floor
from methods.normaliser import DIRECTIONS, differences
from methods.protocol import TEMPERATURE, About, Cost, Linear, Log, Rows, Space, Tensors, Towers


# official: github.com/Optimization-AI/DRRho-CLIP@33d7364 README.md (DFN-192M with ViT-B/16)
@dataclass(frozen=True)
class DrrhoConfig(GlobalConfig):
    """Hyper-parameters of DRRho-CLIP; defaults are the README's, with FastCLIP's memory of normalisers."""

    temperature: float = 0.01  #: at the start
    learnable_scale: bool = False  #: learn the temperature by an Adam of its own (kept in [0.01, 1]) or keep it
    rho: float = 11.0  #: radius of the KL ball; without effect at a fixed temperature
    #: added to every normaliser: anchors whose differences all lie below its logarithm get vanishing weights
    epsilon: float = 1e-4


class Drrho(GlobalLoss):
    """d_ij = [(s_ij - s_ii) - (r_ij - r_ii)]/tau, r of the reference; g_i = epsilon + 1/B sum_{j != i} e^{d_ij}."""

    name = "drrho"
    about = About(
        title="DRRho-CLIP",
        summary="A contrastive loss over all training pairs whose weights compare the model with a frozen reference: a "
        "negative counts by how much less the model separates it than the reference does. Pairs that the reference "
        "finds hard, mismatched ones among them, then pull less.",
        paper="Wei et al., ICML 2025",
        equations="as in the authors' code and README",
        fidelity="official-checked",
        bibtex="""@inproceedings{wei2025drrho,
  title = {Model Steering: Learning with a Reference Model Improves Generalization Bounds and Scaling Laws},
  author = {Wei, Xiyuan and Lin, Ming and Ye, Fanjiang and Song, Fengguang and Cao, Liangliang and Thai, My T. and
    Yang, Tianbao},
  booktitle = {International Conference on Machine Learning},
  year = {2025}
}""",
        state="log normaliser of every row, in both directions; temperature and the moments of its Adam",
        note="The reference is a CLIP run of the same suite, so it saw the same noise; the authors take OpenAI's "
        "weights. The official run keeps no memory of normalisers (gamma_min 1, preset official). This follows the "
        "code's path without accumulation of gradients; the other one computes other normalisers by mistake. epsilon "
        "drops pairs: the share of anchors that it outweighs is logged, and the contrast without the reference.",
    )
    Config = DrrhoConfig
    presets: ClassVar[Presets] = {
        "paper": {},
        # official: github.com/Optimization-AI/DRRho-CLIP@33d7364 README.md, src/fast_clip/loss.py (SogCLRLoss)
        "official": {
            "temperature": 0.01,
            "learnable_scale": False,
            "epsilon": 1e-4,
            "gamma_min": 1.0,
            "temperature_rule": "official",
        },
    }
    space: ClassVar[Space] = {**TEMPERATURE, "epsilon": Log(1e-8, 1e-2), "gamma_min": Linear(0.05, 1.0, limit="high")}
    reference = "clip"
    starts_from_reference = False
    side = "reference"
    factor = 1.0
    monitored = "contrast"  # the objective starts at 0 where the reference stands at the model's own start

    def cost(self, phase: str) -> Cost:
        return Cost(side_image=1.0, side_text=1.0)

    def encode(self, towers: Towers, rows: Rows) -> Tensors:
        with torch.no_grad():
            image, text = towers.side.encode_image(rows.images), towers.side.encode_text(rows.tokens)
        return {**super().encode(towers, rows), "side_image": unit(image), "side_text": unit(text)}

    def exponents(self, z: Tensors, direction: str, other: str, tile: slice, tau: Tensor) -> Tensor:
        beside = {name.removeprefix("side_"): x for name, x in z.items() if name.startswith("side_")}
        excess = differences(z, direction, other, tile) - differences(beside, direction, other, tile)
        return without_own(excess / tau, tile)

    def log_mean(self, log_sum: Tensor) -> Tensor:
        return with_floor(log_sum - math.log(len(log_sum)), self.config.epsilon)

    def monitor(self, z: Tensors, observed: Tensors) -> dict[str, float]:
        total = len(z["image"])
        sums = torch.cat([observed[f"log_sum_{direction}"] for direction, _ in DIRECTIONS])
        dropped = (sums - math.log(total)).exp() < self.config.epsilon
        log_means = [
            super(Drrho, self).exponents(z, one, other, tile, observed["tau"]).logsumexp(1) - math.log(total - 1)
            for one, other in DIRECTIONS
            for tile in spans(total)
        ]
        return {
            **super().monitor(z, observed),
            "contrast": float(observed["tau"] * torch.cat(log_means).mean()),
            "dropped": float(dropped.double().mean()),
        }
