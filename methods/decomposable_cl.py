"""Decomposable CL (DeCL): an auxiliary rate for every anchor turns the softmax's normaliser into a sum over pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from methods.base import BLOCK, Contrastive, Presets, blocks, check, check_scale, directions, spans, stream, wide
from methods.gamma import log_gamma_draws
from methods.protocol import TEMPERATURE, About, Batch, Facts, Identity, Linear, Log, Space, Tensors


@dataclass(frozen=True)
class DecomposableClConfig:
    """Hyper-parameters of decomposable CL; the prior of the auxiliary rates is Gamma(shape a_u, rate b_u)."""

    a_u: float = 1.0  #: shape of the auxiliary rate's prior
    b_u: float = 0.0  #: rate of the auxiliary rate's prior
    alpha: float = 0.2  #: weight of a row's old rate in its moving average; 0 keeps none. Unverified
    u: Literal["sampled", "mean"] = "sampled"  #: the new rate: a draw from its posterior, or the posterior's mean
    temperature: float = 0.07  #: the logit scale starts at 1/temperature
    learnable_scale: bool = True  #: learn the scale (clamped to [1, 100]) or keep it

    def __post_init__(self) -> None:
        check(self, "a_u", 0 < self.a_u < math.inf, "a finite number > 0")
        check(self, "b_u", 0 <= self.b_u < math.inf, "a finite number >= 0")
        check(self, "alpha", 0 <= self.alpha < 1, "in [0, 1)")
        check(self, "u", self.u in ("sampled", "mean"), '"sampled" or "mean"')
        check_scale(self)


class DecomposableCl(Contrastive):
    """L = 1/2 sum_dir (1/B) sum_i [-l_ii + u_i sum_j e^{l_ij}], u ~ Gamma(a_u, rate b_u + sum_j e^{l_ij}) detached."""

    name = "decomposable_cl"
    about = About(
        title="Decomposable CL (reconstructed)",
        summary="Writes one over the softmax's normaliser as an integral over an auxiliary rate of each anchor, and "
        "samples the rate. Given the rates the loss is a sum over pairs, which no batch size biases.",
        paper="Chen et al., NeurIPS 2022",
        equations="as in When Contrastive Learning Meets Bayesian Modeling, Equations 4-5, with all weights 1",
        fidelity="reconstructed",
        bibtex="""@inproceedings{chen2022decl,
  title = {Why Do We Need Large Batchsizes in Contrastive Learning? {A} Gradient-Bias Perspective},
  author = {Chen, Changyou and Zhang, Jianyi and Xu, Yi and Chen, Liqun and Duan, Jiali and Chen, Yiran and
    Tran, Son and Zeng, Belinda and Chilimbi, Trishul},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {35},
  year = {2022}
}""",
        state="logit scale, log auxiliary rate of every row in both directions",
        note="Unverified: no code exists and the paper could not be obtained. The moving average's weight, the "
        "temperature and whether rates are sampled are guesses; an old rate under a scale that has grown since can let "
        "the loss spike (alpha = 0 cannot). Its authors call it DeCL. DECL of Qin et al. 2022 (noisy correspondence) "
        "is another method.",
    )
    Config = DecomposableClConfig
    presets: ClassVar[Presets] = {"paper": {}}
    space: ClassVar[Space] = {**TEMPERATURE, "a_u": Log(0.1, 10.0), "alpha": Linear(0.0, 0.9)}
    monitored = "marginal"
    identities = (
        Identity(
            "u at its posterior mean, without memory: CLIP's gradient",
            "clip",
            {"u": "mean", "alpha": 0.0},
            gradient_only=True,
        ),
    )

    seen: Tensor
    log_u_image: Tensor
    log_u_text: Tensor

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        self.register_buffer("seen", torch.zeros(facts.rows, dtype=torch.bool))
        self.register_buffer("log_u_image", torch.zeros(facts.rows))
        self.register_buffer("log_u_text", torch.zeros(facts.rows))

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        scale, tiles = self.scale(), spans(len(batch.ids))
        parts = [torch.stack([logits.logsumexp(1) for logits, _ in directions(z, scale, tile)]) for tile in tiles]
        log_z = torch.cat(parts, dim=1)  # ln of the normalisers, [2, B]
        own = scale * (wide(z["image"]) * wide(z["text"])).sum(1)
        fresh = self._log_fresh(log_z, batch.clock.step)
        constants = {"marginal": (log_z - own).mean()}
        for direction, log_u in zip(("image", "text"), fresh, strict=True):
            constants[f"log_u_{direction}"] = self._remember(direction, batch.ids, log_u)
        self.seen[batch.ids] = True
        return constants

    def _log_fresh(self, log_z: Tensor, step: int) -> Tensor:
        """ln of the new rates, [2, B], given the log normalisers [2, B]."""
        log_rate = log_z if self.config.b_u == 0 else torch.logaddexp(log_z, log_z.new_tensor(self.config.b_u).log())
        if self.config.u == "mean":
            return math.log(self.config.a_u) - log_rate
        draws = [self._log_draws(direction, step, log_z.shape[1]) for direction in ("image", "text")]
        return torch.stack(draws).to(log_rate) - log_rate

    def _log_draws(self, direction: str, step: int, total: int) -> Tensor:
        """[B] ln of Gamma(a_u, 1) draws, keyed by block as all draws for anchors are.

        The key keeps the method's first name, so that a seed draws what it drew in results stored under that name.
        """
        shape = torch.full((BLOCK,), self.config.a_u)
        drawn = [
            log_gamma_draws(shape, stream(self.facts.seed, f"decl/{direction}", step, block), self.config.a_u < 1)
            for block, _ in blocks(slice(0, total))
        ]
        return torch.cat(drawn)[:total]

    def _remember(self, direction: str, ids: Tensor, fresh: Tensor) -> Tensor:
        """u <- alpha u + (1 - alpha) fresh in log domain; the first visit takes `fresh`. Returns ln u, [B]."""
        log_u, alpha = getattr(self, f"log_u_{direction}"), self.config.alpha
        new = fresh
        if alpha > 0:
            mixed = torch.logaddexp(math.log(alpha) + log_u[ids].to(fresh.dtype), math.log1p(-alpha) + fresh)
            new = torch.where(self.seen[ids], mixed, fresh)
        log_u[ids] = new.to(log_u.dtype)
        return new

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        losses = self.scale().new_zeros(())
        for direction, (logits, _) in zip(("image", "text"), self.logits(z, anchors), strict=True):
            repelled = (logits + observed[f"log_u_{direction}"][anchors, None]).exp().sum(1)
            losses = losses + (repelled - logits.diagonal(anchors.start)).sum()
        return {"decomposed_contrastive": losses / (2 * z["image"].shape[0])}

    def monitor(self, z: Tensors, observed: Tensors) -> dict[str, float]:
        return {"marginal": float(observed["marginal"])}  # with u integrated out: CLIP's loss for a_u = 1, b_u = 0
