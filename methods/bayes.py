"""Bayesian weighted contrastive learning: every pair's weight is sampled from its posterior at every step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from methods.base import BLOCK, Contrastive, Presets, blocks, check, check_scale, similarities, spans, stream
from methods.gamma import log_gamma_draws
from methods.protocol import TEMPERATURE, About, Batch, Diagnostic, Facts, Identity, Log, Space, Tensors

DIRECTIONS = (("image", "text"), ("text", "image"))
_SHOWN = 256  #: anchors whose weights the report shows
_MOST = 10_000  #: about as many of their negatives, evenly spaced


@dataclass(frozen=True)
class BayesConfig:
    """Hyper-parameters of Bayesian weighted contrastive learning; priors are Gamma(shape a, rate b)."""

    variant: Literal["b=a", "b=0"] = (
        "b=a"  #: rates of the weights' priors: "b=a" (mean 1, our reading) or "b=0" (as published)
    )
    a_positive: float = 5.0  #: shape of the positive's prior
    a_negative: float = 10.0  #: shape of the negatives' prior
    a_u: float = 1.0  #: shape of the auxiliary variable's prior
    b_u: float = 0.0  #: rate of the auxiliary variable's prior
    sweeps: int = 2  #: Gibbs sweeps a step, from weights of one
    ema_u: float | None = None  #: keep u between a row's visits, with this weight on the old value; None: do not
    temperature: float = 0.07  #: the logit scale starts at 1/temperature; 1 and a fixed scale is e^cosine
    learnable_scale: bool = True  #: learn the scale (clamped to [1, 100]) or keep it

    def __post_init__(self) -> None:
        check(self, "variant", self.variant in ("b=a", "b=0"), '"b=a" or "b=0"')
        for name in ("a_positive", "a_negative", "a_u"):
            check(self, name, 0 < getattr(self, name) < math.inf, "a finite number > 0")
        check(self, "b_u", 0 <= self.b_u < math.inf, "a finite number >= 0")
        check(self, "sweeps", isinstance(self.sweeps, int) and self.sweeps >= 0, "a whole number >= 0")
        check(self, "ema_u", self.ema_u is None or 0 < self.ema_u < 1, "null or in (0, 1)")
        check_scale(self)


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


class Bayes(Contrastive):
    """L = 1/2 mean_i [LSE_j(ln w_ij + l_ij) - ln w_ii - l_ii] in both directions, w sampled and detached."""

    name = "bayes"
    about = About(
        title="Bayesian weighted CL",
        summary="Weighs every positive and negative by a draw from its posterior under a Gamma prior, sampled by "
        "Gibbs sweeps at every step. Likely negatives thereby count a little less, unlikely positives a little more.",
        paper="When Contrastive Learning Meets Bayesian Modeling (anonymous submission)",
        equations="Equations 3-7, Algorithm 1",
        fidelity="derived",
        bibtex="""@unpublished{bayesiancl,
  title = {When Contrastive Learning Meets Bayesian Modeling: Learning Multi-Modal Representation Alignments from
    Noisy Data Pairs},
  author = {Anonymous},
  note = {Anonymous ACL submission}
}""",
        state="logit scale; with ema_u the log auxiliary variable of every row in both directions",
        note="The published prior rates of 0 make the weighted similarities independent of the embeddings (variant "
        '"b=0"); the default "b=a" gives the weights a prior mean of 1, which matches the paper\'s Figure 3.',
    )
    Config = BayesConfig
    presets: ClassVar[Presets] = {"paper": {"variant": "b=0"}}
    space: ClassVar[Space] = {**TEMPERATURE, "a_positive": Log(1.0, 25.0), "a_negative": Log(2.0, 50000.0)}
    identities = (Identity("without a sweep all weights are one: CLIP", "clip", {"sweeps": 0}),)

    seen: Tensor
    log_u_image: Tensor
    log_u_text: Tensor

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        if config.ema_u is not None:
            self.register_buffer("seen", torch.zeros(facts.rows, dtype=torch.bool))
            self.register_buffer("log_u_image", torch.zeros(facts.rows))
            self.register_buffer("log_u_text", torch.zeros(facts.rows))

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        observed = {"step": torch.tensor(batch.clock.step)}
        if self.config.ema_u is None:
            return observed
        seen, dtype = self.seen[batch.ids], self.scale().dtype
        alpha = torch.tensor(self.config.ema_u, dtype=dtype, device=seen.device)
        observed["log_new"] = torch.where(seen, torch.log1p(-alpha), 0.0)
        for direction, other in DIRECTIONS:
            log_u = getattr(self, f"log_u_{direction}")
            observed[f"log_kept_{direction}"] = torch.where(seen, alpha.log() + log_u[batch.ids], -math.inf)
            tiles = spans(len(batch.ids))
            drawn = [self._gibbs(z, direction, other, observed, tile)[1] for tile in tiles]
            log_u[batch.ids] = torch.cat(drawn).to(log_u.dtype)
        self.seen[batch.ids] = True
        return observed

    def draw(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        return {direction: self._gibbs(z, direction, other, observed, anchors)[0] for direction, other in DIRECTIONS}

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        total = z["image"].shape[0]
        by_image = self._direction(z["image"][anchors], z["text"], observed["image"], anchors)
        by_text = self._direction(z["text"][anchors], z["image"], observed["text"], anchors)
        return {"weighted_contrastive": (by_image + by_text) / (2 * total)}

    def diagnostics(self, z: Tensors, observed: Tensors) -> tuple[Diagnostic, ...]:
        """Sampled weights of the first anchors' pairs, both directions (Figure 3)."""
        total = z["image"].shape[0]
        drawn = torch.stack(list(self.draw(z, observed, slice(0, min(total, _SHOWN))).values())).double().exp()
        own = torch.eye(drawn.shape[1], total, dtype=torch.bool, device=drawn.device)
        positives, negatives = drawn[:, own].flatten(), drawn[:, ~own].flatten()
        kept = negatives[:: max(1, len(negatives) // _MOST)]
        series = {"positive pairs": positives, "negative pairs": kept}
        return (Diagnostic("weights", "Sampled weights of pairs", "weight w", series, log=True),)

    def _direction(self, anchors: Tensor, candidates: Tensor, log_w: Tensor, tile: slice) -> Tensor:
        weighted: Tensor = log_w + self.scale() * similarities(anchors, candidates)
        return (weighted.logsumexp(1) - weighted.diagonal(tile.start)).sum()

    @torch.no_grad()
    def _gibbs(self, z: Tensors, direction: str, other: str, observed: Tensors, tile: slice) -> tuple[Tensor, Tensor]:
        """Log weights [n, B] and log auxiliary variables [n] of the tile's anchors after all sweeps."""
        config = self.config
        # With b = 0 a row's maximum could be subtracted; with b > 0 that changes the law, so it never is.
        logits: Tensor = self.scale() * similarities(z[direction][tile], z[other])
        proper = config.variant == "b=a"
        log_rate = torch.full_like(logits, _log(config.a_negative if proper else 0.0))
        log_rate.diagonal(tile.start).fill_(_log(config.a_positive if proper else 0.0))
        log_b_u = logits.new_tensor(_log(config.b_u))
        log_w, log_u = torch.zeros_like(logits), torch.zeros_like(logits[:, 0])
        for sweep in range(config.sweeps):
            key = (int(observed["step"]), sweep)
            log_e, log_g = self._draws(direction, key, tile, logits)
            log_u = log_e - torch.logaddexp((log_w + logits).logsumexp(1), log_b_u)
            if config.ema_u is not None:
                log_u = torch.logaddexp(observed[f"log_kept_{direction}"][tile], observed["log_new"][tile] + log_u)
            log_w = log_g - torch.logaddexp(log_rate, log_u[:, None] + logits)
        return log_w, log_u

    def _draws(self, direction: str, key: tuple[int, int], tile: slice, like: Tensor) -> tuple[Tensor, Tensor]:
        """ln Gamma draws of the tile, [n] for u and [n, B] for w, keyed by block so that tiles and ranks agree."""
        config, total = self.config, like.shape[1]
        log_e, log_g = [], []
        for block, part in blocks(tile):
            draws = stream(self.facts.seed, f"bayes/{direction}", *key, block, device=like.device)
            first = block * BLOCK
            shape = like.new_full((BLOCK, total), config.a_negative)
            shape.diagonal(first).fill_(1 + config.a_positive)
            inside = slice(part.start - first, part.stop - first)
            u_shape = like.new_full((BLOCK,), config.a_u)
            log_e.append(log_gamma_draws(u_shape, draws, config.a_u < 1)[inside])
            log_g.append(log_gamma_draws(shape, draws, config.a_negative < 1)[inside])
        return torch.cat(log_e), torch.cat(log_g)
