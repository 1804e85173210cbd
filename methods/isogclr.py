"""iSogCLR: SogCLR in which every image and every text learns a temperature of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from methods.base import Presets, check, spans, without_own
from methods.normaliser import DIRECTIONS, Normalised, differences, floored
from methods.protocol import About, Batch, Diagnostic, Facts, Identity, Log, Space, Tensors

# official: github.com/bokun-wang/NUCLR@ddaec8d models/losses.py (RGCL_Loss, grad_clip)
LARGEST_SLOPE = 5.0  #: a temperature's gradient is clamped to this size, as in the official code


@dataclass(frozen=True)
class IsogclrConfig:
    """Hyper-parameters of iSogCLR; defaults are those of NUCLR's repository, whose paper compares against it."""

    gamma: float = 0.8  #: weight of the new value in the moving average of each row's normaliser
    rho: float = 8.0  #: radius of the KL ball: a temperature rests where KL(weights, uniform) = rho
    temperature_init: float = 0.01  #: of every row's temperature
    eta: float = 1e-3  #: step size of the temperatures
    beta: float = 0.9  #: weight of the new gradient in a temperature's momentum
    temperature_min: float = 0.005
    temperature_max: float = 0.05
    #: kappa in the weights' denominator u + kappa e^b, see sogclr. 0 is the paper's formula, and then temperatures of
    #: batches of 512 can hardly rise: with kappa > 0 easy anchors have weights near 0, which raises theirs.
    floor: float = 1e-10
    start: Literal["touch", "epoch"] = "touch"  #: what u starts from, see sogclr

    def __post_init__(self) -> None:
        check(self, "gamma", 0 < self.gamma <= 1, "in (0, 1]")
        check(self, "rho", 0 <= self.rho < math.inf, "a finite number >= 0")
        check(self, "temperature_min", 0 < self.temperature_min < math.inf, "a finite number > 0")
        check(
            self,
            "temperature_max",
            self.temperature_min <= self.temperature_max < math.inf,
            "a finite number >= temperature_min",
        )
        inside = self.temperature_min <= self.temperature_init <= self.temperature_max
        check(self, "temperature_init", inside, "between temperature_min and temperature_max")
        check(self, "eta", 0 <= self.eta < math.inf, "a finite number >= 0")
        check(self, "beta", 0 < self.beta <= 1, "in (0, 1]")
        check(self, "floor", 0 <= self.floor < math.inf, "a finite number >= 0")
        check(self, "start", self.start in ("touch", "epoch"), '"touch" or "epoch"')


class Isogclr(Normalised):
    """SogCLR's L with tau_i for tau, and tau_i <- tau_i - eta m_i along the robust objective's slope."""

    name = "isogclr"
    about = About(
        title="iSogCLR",
        summary="SogCLR whose temperatures are learned for each image and each text, as dual variables of a "
        "distributionally robust loss. Rows with many similar captions get softer weights than rare ones.",
        paper="Qiu et al., ICML 2023",
        equations="Algorithm 1, robust global contrastive loss",
        fidelity="official-checked",
        bibtex="""@inproceedings{qiu2023isogclr,
  title = {Not All Semantics are Created Equal: Contrastive Self-supervised Learning with Automatic Temperature
    Individualization},
  author = {Qiu, Zi-Hao and Hu, Quanqi and Yuan, Zhuoning and Zhou, Denny and Zhang, Lijun and Yang, Tianbao},
  booktitle = {International Conference on Machine Learning},
  year = {2023}
}""",
        state="log normaliser, largest exponent, temperature and its momentum of every row, in both directions",
        note="Follows the code of NUCLR's repository; those of iSogCLR's own repository and of LibAUC compute other "
        "normalisers. The official floor, not the formula, raises most temperatures. The value of the loss is a "
        "surrogate whose gradient counts; mean tau (ln(u/(B-1)) + rho) is logged beside it.",
    )
    Config = IsogclrConfig
    presets: ClassVar[Presets] = {
        # Numbers of iSogCLR's own README, in the paper's formula.
        "paper": {"rho": 6.0, "eta": 0.03, "temperature_max": 1.0, "floor": 0.0},
        # official: github.com/bokun-wang/NUCLR@ddaec8d models/losses.py (RGCL_Loss)
        "official": {"start": "epoch"},
        "official_class": {"start": "epoch", "eta": 1e-5, "beta": 0.5},  # defaults of the class, not of its scripts
    }
    space: ClassVar[Space] = {
        "temperature_init": Log(0.005, 0.03),
        "temperature_max": Log(0.03, 1.2),
        "rho": Log(2.0, 20.0),
        "eta": Log(1e-5, 0.1),
    }  # no start lies above a cap
    monitored = "robust_objective"
    identities = (Identity("temperatures that stand still give SogCLR", equals="sogclr", config={"eta": 0.0}),)

    tau_image: Tensor
    tau_text: Tensor

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        for direction, _ in DIRECTIONS:
            self.register_buffer(f"tau_{direction}", torch.full((facts.rows,), config.temperature_init))
            self.register_buffer(f"momentum_{direction}", torch.zeros(facts.rows))

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        constants: Tensors = {}
        ids, floor = batch.ids, self.config.floor
        replaced = self.replaced(batch)
        for direction, other in DIRECTIONS:
            tau = getattr(self, f"tau_{direction}")[ids]
            parts = [self._summary(self._exponents(z, direction, other, tile, tau)) for tile in spans(len(ids))]
            log_g, largest, mean = torch.cat(parts).T
            log_u = self.average(direction, ids, log_g, replaced)
            _, peak = self.raise_peak(direction, ids, largest)
            log_denominator = floored(log_u, peak, floor)
            # mean is over weights that sum to 1; the method's own sum to g / denominator.
            weighted = mean * (log_g - log_denominator).exp()
            self._move_temperatures(direction, ids, log_u - math.log(len(ids) - 1) + self.config.rho - weighted)
            constants |= {f"tau_{direction}": tau, f"log_u_{direction}": log_u}
            constants[f"log_denominator_{direction}"] = log_denominator
        self.seen[ids] = True
        return constants

    def draw(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        weights = {}
        for direction, other in DIRECTIONS:
            exponents = self._exponents(z, direction, other, anchors, observed[f"tau_{direction}"])
            weights[direction] = (exponents - observed[f"log_denominator_{direction}"][anchors, None]).exp()
        return weights

    def monitor(self, z: Tensors, observed: Tensors) -> dict[str, float]:
        total = 0.0
        for direction, _ in DIRECTIONS:
            tau, log_u = observed[f"tau_{direction}"], observed[f"log_u_{direction}"]
            total += float((tau * (log_u - math.log(len(log_u) - 1) + self.config.rho)).mean())
        return {"robust_objective": total}

    def diagnostics(self, z: Tensors, observed: Tensors) -> tuple[Diagnostic, ...]:
        series = {"images": self.tau_image[self.seen], "texts": self.tau_text[self.seen]}
        return (Diagnostic("temperatures", "Learned temperatures", "temperature", series),)

    def _exponents(self, z: Tensors, direction: str, other: str, tile: slice, tau: Tensor) -> Tensor:
        """d_ij / tau_i with the positive left out, [n, B]; tau is that of the whole batch, [B]."""
        return without_own(differences(z, direction, other, tile) / tau[tile, None], tile)

    @staticmethod
    def _summary(exponents: Tensor) -> Tensor:
        """[n, B] -> [n, 3]: log g, the largest exponent, and the mean exponent under e^exponent / g."""
        shares = exponents.softmax(1)
        mean = torch.where(shares > 0, shares * exponents, 0.0).sum(1)
        return torch.stack((exponents.logsumexp(1), exponents.amax(1), mean), dim=1)

    def _move_temperatures(self, direction: str, ids: Tensor, slope: Tensor) -> None:
        """m <- (1 - beta) m + beta G; tau <- clip(tau - eta m), for the rows of this step."""
        config = self.config
        momentum, tau = getattr(self, f"momentum_{direction}"), getattr(self, f"tau_{direction}")
        new = torch.lerp(momentum[ids], slope.clamp(-LARGEST_SLOPE, LARGEST_SLOPE).to(momentum.dtype), config.beta)
        momentum[ids] = new
        tau[ids] = (tau[ids] - config.eta * new).clamp(config.temperature_min, config.temperature_max)
