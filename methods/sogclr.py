"""SogCLR: every row remembers its own normaliser, so that a small batch imitates the whole training set."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from methods.base import Presets, check, spans, without_own
from methods.normaliser import DIRECTIONS, Normalised, differences, floored
from methods.protocol import TEMPERATURE, About, Batch, Linear, Space, Tensors


@dataclass(frozen=True)
class SogclrConfig:
    """Hyper-parameters of SogCLR."""

    gamma: float = 0.8  #: weight of the new value in the moving average of each row's normaliser
    temperature: float = 0.01  #: fixed
    # official: github.com/bokun-wang/NUCLR@ddaec8d models/losses.py (GCL_Loss)
    #: kappa in the weights' denominator u + kappa e^b. 0 is the paper's formula; the official code's 1e-10 silences
    #: anchors whose hardest negative lies more than about 23 temperatures below the positive.
    floor: float = 1e-10
    #: what u starts from: "touch" takes g at a row's first visit; "epoch", as the official code, takes g at every visit
    #: in the first pass and starts from 0 after it, where a row's first visit gives gamma g. The two agree where every
    #: pass visits every row once.
    start: Literal["touch", "epoch"] = "touch"

    def __post_init__(self) -> None:
        check(self, "gamma", 0 < self.gamma <= 1, "in (0, 1]")
        check(self, "temperature", 0 < self.temperature < math.inf, "a finite number > 0")
        check(self, "floor", 0 <= self.floor < math.inf, "a finite number >= 0")
        check(self, "start", self.start in ("touch", "epoch"), '"touch" or "epoch"')


class Sogclr(Normalised):
    """L = (1/B) sum_i sum_j p_ij d_ij for each direction, d_ij = s_ij - s_ii, p_ij = e^{d_ij/tau} / u_i detached."""

    name = "sogclr"
    about = About(
        title="SogCLR",
        summary="Minimises the contrastive loss over all training pairs instead of the batch, with a moving average "
        "of each row's normaliser. Small batches then stop biasing the gradient.",
        paper="Yuan et al., ICML 2022",
        equations="Algorithm 1, bimodal as in Qiu et al. 2023",
        fidelity="official-checked",
        bibtex="""@inproceedings{yuan2022sogclr,
  title = {Provable Stochastic Optimization for Global Contrastive Learning: Small Batch Does Not Harm Performance},
  author = {Yuan, Zhuoning and Wu, Yuexin and Qiu, Zi-Hao and Du, Xianzhi and Zhang, Lijun and Zhou, Denny and
    Yang, Tianbao},
  booktitle = {International Conference on Machine Learning},
  year = {2022}
}""",
        state="log normaliser and largest exponent of every row, in both directions",
        note="The default floor is the official code's, not the formula's (0, preset paper): at small temperatures it "
        "silences easy anchors. The value of the loss is a surrogate whose gradient counts; tau * mean log u is logged "
        "beside it.",
    )
    Config = SogclrConfig
    presets: ClassVar[Presets] = {"paper": {"floor": 0.0}, "official": {"floor": 1e-10, "start": "epoch"}}
    space: ClassVar[Space] = {"temperature": TEMPERATURE["temperature"], "gamma": Linear(0.1, 1.0, limit="high")}
    monitored = "tau_log_u"

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        constants: Tensors = {}
        replaced = self.replaced(batch)
        for direction, other in DIRECTIONS:
            parts = []
            for tile in spans(len(batch.ids)):
                exponents = self._exponents(z, direction, other, tile)
                parts.append(torch.stack((exponents.logsumexp(1), exponents.amax(1)), dim=1))
            log_g, largest = torch.cat(parts).T
            log_u = self.average(direction, batch.ids, log_g, replaced)
            _, peak = self.raise_peak(direction, batch.ids, largest)
            constants[f"log_u_{direction}"] = log_u
            constants[f"log_denominator_{direction}"] = floored(log_u, peak, self.config.floor)
        self.seen[batch.ids] = True
        return constants

    def draw(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        weights = {}
        for direction, other in DIRECTIONS:
            exponents = self._exponents(z, direction, other, anchors)
            weights[direction] = (exponents - observed[f"log_denominator_{direction}"][anchors, None]).exp()
        return weights

    def monitor(self, z: Tensors, observed: Tensors) -> dict[str, float]:
        mean = observed["log_u_image"].mean() + observed["log_u_text"].mean()
        return {"tau_log_u": self.config.temperature * float(mean)}

    def _exponents(self, z: Tensors, direction: str, other: str, tile: slice) -> Tensor:
        """d/tau with the positive left out, [n, B]."""
        return without_own(differences(z, direction, other, tile) / self.config.temperature, tile)
