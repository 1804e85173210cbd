"""SogCLR: every row remembers its own normaliser, so that a small batch imitates the whole training set."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from methods.base import Presets, RowWise, check, similarities, spans, wide
from methods.protocol import About, Batch, Facts, Tensors


@dataclass(frozen=True)
class SogclrConfig:
    """Hyper-parameters of SogCLR."""

    gamma: float = 0.8  #: weight of the new value in the moving average of each row's normaliser
    temperature: float = 0.01  #: fixed
    #: kappa in the weights' denominator u + kappa e^b. 0 is the paper's formula; the official code's 1e-10 silences
    #: anchors whose hardest negative lies more than about 23 temperatures below the positive.
    floor: float = 1e-10
    #: what u starts from: "touch" takes g at a row's first visit, "epoch" at every visit in the first pass, as the
    #: official code does. The two agree where a pass visits every row once; only "touch" survives other samplings.
    start: Literal["touch", "epoch"] = "touch"

    def __post_init__(self) -> None:
        check(self, "gamma", 0 < self.gamma <= 1, "in (0, 1]")
        check(self, "temperature", 0 < self.temperature < math.inf, "a finite number > 0")
        check(self, "floor", 0 <= self.floor < math.inf, "a finite number >= 0")
        check(self, "start", self.start in ("touch", "epoch"), '"touch" or "epoch"')


class Sogclr(RowWise):
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
        note="The value of the loss is a surrogate whose gradient counts; tau * mean log u is logged beside it.",
    )
    Config = SogclrConfig
    presets: ClassVar[Presets] = {"paper": {"floor": 0.0}, "official": {"floor": 1e-10, "start": "epoch"}}

    seen: Tensor
    log_u_image: Tensor
    log_u_text: Tensor
    peak_image: Tensor
    peak_text: Tensor

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        self.register_buffer("seen", torch.zeros(facts.rows, dtype=torch.bool))
        for direction in ("image", "text"):
            self.register_buffer(f"log_u_{direction}", torch.zeros(facts.rows))
            # The official code's running maximum starts at 0 because the diagonal is among its exponents.
            self.register_buffer(f"peak_{direction}", torch.zeros(facts.rows))

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        constants: Tensors = {}
        if self.config.start == "epoch" and batch.clock.epoch == 0:
            self.seen[batch.ids] = False
        for direction, other in (("image", "text"), ("text", "image")):
            tiles = spans(len(batch.ids))
            parts = [self._summary(self._exponents(z[direction], z[other], tile)) for tile in tiles]
            log_g, largest = torch.cat(parts).T
            constants |= self._remember(direction, batch.ids, log_g, largest)
        self.seen[batch.ids] = True
        return constants

    def draw(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        weights = {}
        for direction, other in (("image", "text"), ("text", "image")):
            exponents = self._exponents(z[direction], z[other], anchors)
            weights[direction] = (exponents - observed[f"log_denominator_{direction}"][anchors, None]).exp()
        return weights

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        total = z["image"].shape[0]
        by_image = (observed["image"] * self._differences(z["image"], z["text"], anchors)).sum()
        by_text = (observed["text"] * self._differences(z["text"], z["image"], anchors)).sum()
        return {"global_contrastive": (by_image + by_text) / total}

    def monitor(self, z: Tensors, observed: Tensors) -> dict[str, float]:
        mean = observed["log_u_image"].mean() + observed["log_u_text"].mean()
        return {"tau_log_u": self.config.temperature * float(mean)}

    def _differences(self, anchors: Tensor, candidates: Tensor, tile: slice) -> Tensor:
        """d = s_ij - s_ii of the tile's anchors, [n, B]."""
        own = (wide(anchors[tile]) * wide(candidates[tile])).sum(1, keepdim=True)
        return similarities(anchors[tile], candidates) - own

    def _exponents(self, anchors: Tensor, candidates: Tensor, tile: slice) -> Tensor:
        """d/tau with the positive left out (-inf), [n, B]."""
        exponents: Tensor = self._differences(anchors, candidates, tile) / self.config.temperature
        rows = torch.arange(exponents.shape[0], device=exponents.device)
        exponents[rows, rows + tile.start] = -math.inf
        return exponents

    @staticmethod
    def _summary(exponents: Tensor) -> Tensor:
        """[n, B] -> [n, 2]: log g and the largest exponent of each anchor."""
        return torch.stack((exponents.logsumexp(1), exponents.amax(1)), dim=1)

    def _remember(self, direction: str, ids: Tensor, log_g: Tensor, largest: Tensor) -> Tensors:
        """u <- (1 - gamma) u + gamma g in log domain; the first visit sets u = g. Returns the step's constants, [B]."""
        gamma, floor = self.config.gamma, self.config.floor
        log_u, peak = getattr(self, f"log_u_{direction}"), getattr(self, f"peak_{direction}")
        old = log_u[ids].to(log_g.dtype)
        moved = log_g if gamma == 1 else torch.logaddexp(math.log1p(-gamma) + old, math.log(gamma) + log_g)
        new = torch.where(self.seen[ids], moved, log_g)
        log_u[ids] = new.to(log_u.dtype)
        peak[ids] = torch.maximum(peak[ids], largest.to(peak.dtype))
        denominator = new
        if floor > 0:
            denominator = torch.logaddexp(new, math.log(floor) + peak[ids].to(new.dtype))
        return {f"log_u_{direction}": new, f"log_denominator_{direction}": denominator}
