"""AmorLIP: small networks, fitted to the softmax's normalisers, remember them from one pass to the next."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from methods.base import Contrastive, Presets, check, check_scale, similarities, spans, stream_key, wide
from methods.normaliser import DIRECTIONS
from methods.protocol import TEMPERATURE, About, Batch, Choice, Clock, Facts, Identity, Linear, Space, Tensors


# official: github.com/haotiansun14/AmorLIP@88760ee README.md (script of the log-l2 objective)
# official: github.com/haotiansun14/AmorLIP@88760ee src/open_clip/loss.py (ConditionalExpLoss, LambdaLoss)
@dataclass(frozen=True)
class AmorlipConfig:
    """Hyper-parameters of AmorLIP; defaults are those of the official script, whose 33 passes are shares of the run."""

    own_weight: float = 1e-3  #: c, weight of a row's own partner in its normaliser
    memory: float = 0.8  #: beta, last share of the normaliser that the network of the last pass gives; the first is 0
    memory_from: float = 16 / 33  #: share of the run after which beta is reached, along half a cosine
    radius_first: float = 8.5  #: rho in the first third of the run, where it sharpens the softmax
    radius: float = -8.5  #: rho after that
    restart: bool = True  #: networks begin afresh after every pass
    network_lr: float = 1e-3  #: learning rate of the networks
    average: float = 0.92  #: of the networks' weights, updated after every other step, which the next pass remembers
    temperature: float = 0.07  #: the logit scale starts at 1/temperature
    learnable_scale: bool = True  #: learn the scale (clamped to [1, 100]) or keep it

    def __post_init__(self) -> None:
        check(self, "own_weight", 0 < self.own_weight < math.inf, "a finite number > 0")
        check(self, "memory", 0 <= self.memory < 1, "in [0, 1)")
        check(self, "memory_from", 0 < self.memory_from <= 1, "in (0, 1]")
        for name in ("radius_first", "radius"):
            check(self, name, math.isfinite(getattr(self, name)), "a finite number")
        check(self, "restart", isinstance(self.restart, bool), "true or false")
        check(self, "network_lr", 0 < self.network_lr < math.inf, "a finite number > 0")
        check(self, "average", 0 <= self.average < 1, "in [0, 1)")
        check_scale(self)


class NormaliserNetwork(nn.Module):
    """[n, D] -> [n]: two layers, each rectified and then normalised, beside a path past both."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first, self.first_norm = nn.Linear(dim, dim), nn.LayerNorm(dim)
        self.second, self.second_norm = nn.Linear(dim, dim), nn.LayerNorm(dim)
        self.out = nn.Linear(dim, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first_norm(self.first(x).relu())
        hidden = self.second_norm(self.second(hidden).relu())
        value: Tensor = self.out((hidden + x).relu())[:, 0]
        return value


class Amorlip(Contrastive):
    """L = (1/aB) sum_dir sum_i [sum_j c_ij e^{a s_ij} / Z_i - a s_ii] + rho/a + (1/B) sum_dir sum_i (g_i - ln Z_i)^2.

    c_ii = c, the others 1. Z_i = beta e^{h_i} + (1 - beta) sum_j c_ij e^{a s_ij} and the first a are detached. g_i is
    what a network makes of row i's embedding, detached, h_i what its average at the end of the last pass does.
    """

    name = "amorlip"
    about = About(
        title="AmorLIP",
        summary="Divides each row's negatives by a normaliser that is in part predicted: a small network learns from "
        "the embedding what the batch's normalisers were, and its predictions of the last pass are mixed in. Small "
        "batches then see more negatives than they hold, without a number for every pair.",
        paper="Sun et al., 2025",
        equations="read from the authors' code, the paper could not be obtained",
        fidelity="derived",
        bibtex="""@misc{sun2025amorlip,
  title = {{AmorLIP}: Efficient Language-Image Pretraining via Amortization},
  author = {Sun, Haotian and Li, Yitong and Zhuang, Yuchen and He, Niao and Dai, Hanjun and Dai, Bo},
  year = {2025}
}""",
        state="logit scale; two networks, their average and its copy at the end of the last pass",
        note="Losses, normalisers and networks equal executed official code; how they are trained is ours: one step of "
        "the suite's AdamW for each of the towers, where the script makes three of an Adam of its own at a "
        "constant rate; the scale takes the suite's rate, not a quarter of it. Of the objectives for the networks "
        "the script's is here, squared errors of logarithms; KL and JS divergences are left out. New networks "
        "need hundreds of steps a pass, at a rate that has not fallen yet, or what is remembered is untrained: "
        "restart: false keeps them. In a run of one pass nothing is remembered, and the towers' gradient is that "
        "of CLIP, twice, over a, but for the own partner's weight. The value of the loss is a surrogate; CLIP's "
        "with these normalisers is logged beside it.",
    )
    Config = AmorlipConfig
    presets: ClassVar[Presets] = {"official": {"own_weight": 1e-3, "memory": 0.8, "restart": True}}
    space: ClassVar[Space] = {
        "temperature": TEMPERATURE["temperature"],
        "radius": Linear(-20.0, 0.0),
        "memory": Linear(0.0, 0.95),
        "restart": Choice((True, False)),
    }
    identities = (
        Identity(
            "with nothing remembered and all of the own partner its gradient is CLIP's, twice, by the scale",
            equals="clip",
            config={"own_weight": 1.0, "learnable_scale": False},
            other={"temperature": 0.07, "learnable_scale": False},
            factor=2 * 0.07,
            gradient_only=True,
        ),
    )
    monitored = "objective"

    averaged: Tensor
    remembered: Tensor
    remembers: Tensor

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        self.networks = nn.ModuleDict({one: NormaliserNetwork(facts.dim) for one, _ in DIRECTIONS})
        weights = nn.utils.parameters_to_vector(self.networks.parameters()).detach()
        self.register_buffer("averaged", weights.clone())
        self.register_buffer("remembered", weights.clone())
        self.register_buffer("remembers", torch.tensor(False))

    def options(self, name: str) -> Mapping[str, float]:
        return {"lr": self.config.network_lr, "weight_decay": 0.0} if name.startswith("method.networks.") else {}

    def share(self, clock: Clock) -> float:
        """beta at this step, 0 during the first pass."""
        way = min(clock.progress / self.config.memory_from, 1.0)
        return self.config.memory * (1 - math.cos(math.pi * way)) / 2 if bool(self.remembers) else 0.0

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        """`log_image` and `log_text`, ln Z [B], what the networks read of either, `radius` and `scale`, scalars."""
        beta, scale = self.share(batch.clock), self.scale()
        radius = self.config.radius_first if batch.clock.progress < 1 / 3 else self.config.radius
        constants = {"radius": scale.new_tensor(radius), "scale": scale.detach()}
        for one, other in DIRECTIONS:
            constants[f"read_{one}"] = wide(z[one]).detach().clone()
            parts = [
                self._weighted(scale * similarities(z[one][tile], z[other]), tile) for tile in spans(len(batch.ids))
            ]
            constants[f"log_{one}"] = torch.cat([part.logsumexp(1) for part in parts])
        if beta > 0:
            networks = copy.deepcopy(self.networks)
            nn.utils.vector_to_parameters(self.remembered, networks.parameters())
            for one, _ in DIRECTIONS:
                predicted = math.log(beta) + networks[one](constants[f"read_{one}"])
                constants[f"log_{one}"] = torch.logaddexp(predicted, math.log1p(-beta) + constants[f"log_{one}"])
        return constants

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        total, scale = len(z["image"]), self.scale()
        surrogate = fit = scale.new_zeros(())
        for one, other in DIRECTIONS:
            log_normaliser = observed[f"log_{one}"][anchors]
            logits = scale * similarities(z[one][anchors], z[other])
            surrogate = surrogate - logits.diagonal(anchors.start).sum()
            surrogate = surrogate + (self._weighted(logits, anchors) - log_normaliser[:, None]).exp().sum()
            fit = fit + (self.networks[one](observed[f"read_{one}"][anchors]) - log_normaliser).square().sum()
        return {
            "contrastive": surrogate / (total * observed["scale"]),
            "radius": observed["radius"] / scale * (anchors.stop - anchors.start) / total,
            "networks": fit / total,
        }

    def _weighted(self, logits: Tensor, tile: slice) -> Tensor:
        """ln(c_ij e^{logits}), [n, B]."""
        weights = torch.zeros_like(logits)
        weights.diagonal(tile.start).fill_(math.log(self.config.own_weight))
        return logits + weights

    def monitor(self, z: Tensors, observed: Tensors) -> dict[str, float]:
        normalisers = (observed["log_image"].mean() + observed["log_text"].mean()) / 2
        own = (wide(z["image"]) * wide(z["text"])).sum(1).mean()
        return {"objective": float(normalisers - self.scale() * own)}

    @torch.no_grad()
    def after_step(self, clock: Clock) -> None:
        super().after_step(clock)
        if clock.step % 2 == 0:
            weights = nn.utils.parameters_to_vector(self.networks.parameters())
            self.averaged.lerp_(weights, 1 - self.config.average)

    @torch.no_grad()
    def end_epoch(self, epoch: int) -> None:
        """Remember the networks' average, and begin them afresh."""
        self.remembered.copy_(self.averaged)
        self.remembers.fill_(True)
        if not self.config.restart:
            return
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream_key(self.facts.seed, "amorlip", epoch))
            fresh = nn.ModuleDict({one: NormaliserNetwork(self.facts.dim) for one, _ in DIRECTIONS})
        self.networks.load_state_dict(fresh.state_dict())
        self.averaged.copy_(nn.utils.parameters_to_vector(self.networks.parameters()))
