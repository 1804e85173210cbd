"""What FastCLIP and DRRho share: normalisers of all rows under a scheduled average, and a temperature learned apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from methods.base import RowWise, check, spans, without_own
from methods.normaliser import DIRECTIONS, differences
from methods.protocol import Batch, Clock, Facts, Tensors

SHARP = 0.03  #: at this temperature and below, its steps are a third as long


@dataclass(frozen=True)
class GlobalConfig:
    """Hyper-parameters of a global contrastive loss with one learned temperature."""

    temperature: float = 0.07  #: at the start
    learnable_scale: bool = True  #: learn the temperature by an Adam of its own (kept in [0.01, 1]) or keep it
    eta: float = 2e-4  #: learning rate of -ln temperature; the scripts take 0.2 to 0.25 of the towers' rate
    # official: github.com/Optimization-AI/fast_clip@efd89d5 README.md, src/training/main.py: as the towers' AdamW
    beta1: float = 0.9  #: of the temperature's Adam
    beta2: float = 0.999  #: of the temperature's Adam; the scripts take 0.999 for ResNet-50 and 0.98 for ViT
    adam_epsilon: float = 1e-8  #: of the temperature's Adam; the scripts take 1e-8 for ResNet-50 and 1e-6 for ViT
    rho: float = 6.5  #: radius of the KL ball: the temperature rests where the weights' KL from uniform is rho
    #: slope of the temperature: the objective's, or the official code's, which counts the softmax term twice
    temperature_rule: Literal["objective", "official"] = "objective"
    gamma_min: float = 0.2  #: last weight of the new value in the moving average of a row's normaliser; the first is 1
    gamma_share: float = 0.5  #: share of the run after which that weight is reached, along half a cosine
    epsilon: float = 1e-14  #: added to every normaliser

    def __post_init__(self) -> None:
        check(self, "temperature", 0 < self.temperature < math.inf, "a finite number > 0")
        check(self, "learnable_scale", isinstance(self.learnable_scale, bool), "true or false")
        check(self, "eta", 0 <= self.eta < math.inf, "a finite number >= 0")
        check(self, "beta1", 0 <= self.beta1 < 1, "in [0, 1)")
        check(self, "beta2", 0 <= self.beta2 < 1, "in [0, 1)")
        check(self, "adam_epsilon", 0 < self.adam_epsilon < math.inf, "a finite number > 0")
        check(self, "rho", 0 <= self.rho < math.inf, "a finite number >= 0")
        rules = ("objective", "official")
        check(self, "temperature_rule", self.temperature_rule in rules, '"objective" or "official"')
        check(self, "gamma_min", 0 < self.gamma_min <= 1, "in (0, 1]")
        check(self, "gamma_share", 0 < self.gamma_share <= 1, "in (0, 1]")
        check(self, "epsilon", 0 <= self.epsilon < math.inf, "a finite number >= 0")


def with_floor(log_value: Tensor, floor: float) -> Tensor:
    """ln(value + floor); the value itself if the floor is 0."""
    return torch.logaddexp(log_value, torch.full_like(log_value, math.log(floor))) if floor > 0 else log_value


class GlobalLoss(RowWise):
    """L = c/B sum_i sum_j w_ij (s_ij - s_ii) for each direction, w_ij = e^{d_ij} / (B - 1) u_i detached.

    u_i is a moving average of row i's mean e^{d_ij} over its negatives. The temperature tau = e^-rho follows the slope
    of F = tau (mean ln u + rho_dro), its mean over both directions, by an Adam step after each step of the towers.
    """

    factor: ClassVar[float]  #: c
    monitored = "objective"

    seen: Tensor
    rho: Tensor
    slope: Tensor
    mean_slope: Tensor
    mean_square: Tensor
    moves: Tensor
    pass_epoch: Tensor
    pass_progress: Tensor

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        self.register_buffer("seen", torch.zeros(facts.rows, dtype=torch.bool))
        for direction, _ in DIRECTIONS:
            self.register_buffer(f"log_u_{direction}", torch.zeros(facts.rows))
        self.register_buffer("rho", torch.tensor(-math.log(config.temperature)))
        for name in ("slope", "mean_slope", "mean_square", "pass_progress"):
            self.register_buffer(name, torch.zeros(()))
        self.register_buffer("moves", torch.tensor(0))  # Adam's steps
        self.register_buffer("pass_epoch", torch.tensor(-1))  # the pass that gamma is of

    def exponents(self, z: Tensors, direction: str, other: str, tile: slice, tau: Tensor) -> Tensor:
        """d_ij of the tile's anchors, [n, B], with -inf for their partners."""
        return without_own(differences(z, direction, other, tile) / tau, tile)

    def log_mean(self, log_sum: Tensor) -> Tensor:
        """[B] ln g, what u averages, from ln sum_j e^{d_ij}."""
        raise TypeError(f"{type(self).__name__} must define log_mean(log_sum)")

    def log_floored(self, log_u: Tensor) -> Tensor:
        """[B] ln of what weights are divided by, B - 1 apart: u, or u + epsilon."""
        return log_u

    def gamma(self, clock: Clock) -> float:
        """Weight of the new value during this pass, by how far the run was when the pass began; 1 in the first one."""
        if int(self.pass_epoch) != clock.epoch:
            self.pass_epoch.fill_(clock.epoch)
            self.pass_progress.fill_(clock.progress)
        way = min(float(self.pass_progress) / self.config.gamma_share, 1.0)
        least: float = self.config.gamma_min
        return least + (1 - least) * (1 + math.cos(math.pi * way)) / 2

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        total, gamma, tau = len(batch.ids), self.gamma(batch.clock), (-self.rho).exp()
        constants: Tensors = {"tau": tau}
        softmax_term, log_u_term = tau.new_zeros(()), tau.new_zeros(())
        for direction, other in DIRECTIONS:
            parts = [self._summary(self.exponents(z, direction, other, tile, tau)) for tile in spans(total)]
            log_sum, mean = torch.cat(parts).T
            log_u = self._average(direction, batch.ids, self.log_mean(log_sum), gamma)
            log_denominator = self.log_floored(log_u) + math.log(total - 1)
            constants |= {f"log_sum_{direction}": log_sum, f"log_u_{direction}": log_u}
            constants[f"log_denominator_{direction}"] = log_denominator
            # `mean` is over weights that sum to 1; the method's own sum to e^log_sum / denominator.
            softmax_term = softmax_term + (mean * (log_sum - log_denominator).exp()).mean()
            log_u_term = log_u_term + log_u.mean() / 2  # without epsilon, as in the code
        self.seen[batch.ids] = True
        share = 1.0 if self.config.temperature_rule == "official" else 0.5
        self.slope.copy_(-tau * (self.config.rho + log_u_term - share * softmax_term))
        return constants

    def draw(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        weights = {}
        for direction, other in DIRECTIONS:
            exponents = self.exponents(z, direction, other, anchors, observed["tau"])
            weights[direction] = (exponents - observed[f"log_denominator_{direction}"][anchors, None]).exp()
        return weights

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        sums = [(observed[one] * differences(z, one, other, anchors)).sum() for one, other in DIRECTIONS]
        return {"global_contrastive": self.factor * (sums[0] + sums[1]) / z["image"].shape[0]}

    def monitor(self, z: Tensors, observed: Tensors) -> dict[str, float]:
        log_u = [self.log_floored(observed[f"log_u_{direction}"]).mean() for direction, _ in DIRECTIONS]
        tau = observed["tau"]
        return {"objective": float(tau * ((log_u[0] + log_u[1]) / 2 + self.config.rho)), "temperature": float(tau)}

    def step_size(self) -> float:
        """Learning rate of rho at the temperature as it is now: constant, without warm-up."""
        eta: float = self.config.eta
        return eta / 3 if math.exp(-float(self.rho)) <= SHARP else eta

    @torch.no_grad()
    def after_step(self, clock: Clock) -> None:
        config = self.config
        if not config.learnable_scale:
            return
        self.moves += 1
        self.mean_slope.lerp_(self.slope, 1 - config.beta1)
        self.mean_square.lerp_(self.slope.square(), 1 - config.beta2)
        first, second = (1 - beta ** int(self.moves) for beta in (config.beta1, config.beta2))
        direction = self.mean_slope / first / ((self.mean_square / second).sqrt() + config.adam_epsilon)
        self.rho.sub_(self.step_size() * direction).clamp_(0.0, math.log(100.0))

    @staticmethod
    def _summary(exponents: Tensor) -> Tensor:
        """[n, B] -> [n, 2]: ln sum_j e^{d_ij}, and the mean d_ij under e^{d_ij} over that sum."""
        shares = exponents.softmax(1)
        mean = torch.where(shares > 0, shares * exponents, 0.0).sum(1)
        return torch.stack((exponents.logsumexp(1), mean), dim=1)

    def _average(self, direction: str, ids: Tensor, log_g: Tensor, gamma: float) -> Tensor:
        """u <- (1 - gamma) u + gamma g in logarithms, [B]; u <- g at a row's first visit."""
        log_u = getattr(self, f"log_u_{direction}")
        old = log_u[ids].to(log_g.dtype)
        moved = log_g if gamma == 1 else torch.logaddexp(math.log1p(-gamma) + old, math.log(gamma) + log_g)
        new = torch.where(self.seen[ids], moved, log_g)
        log_u[ids] = new.to(log_u.dtype)
        return new
