"""NUCLR: SogCLR with a learned popularity of every image and text, which corrects for being an unfair negative."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from methods.base import Presets, check, portion, spans, without_own
from methods.normaliser import DIRECTIONS, Normalised, differences
from methods.protocol import TEMPERATURE, About, Batch, Clock, Diagnostic, Facts, Identity, Linear, Log, Space, Tensors


# official: github.com/bokun-wang/NUCLR@ddaec8d models/losses.py (DGCL_Loss), with the values of its CC3M script
@dataclass(frozen=True)
class NuclrConfig:
    """Hyper-parameters of NUCLR; defaults are those of the official CC3M script."""

    gamma: float = 0.8  #: weight of the new value in the moving average of each row's normaliser
    temperature: float = 0.01  #: fixed
    zeta_init: float = -0.05  #: log-popularity of every row at the start; -0.05 for CC3M
    xi_init: float = 0.0  #: least popularity of the positive in its own denominator; infinity leaves the positive out
    theta: float = 0.9  #: weight of the new gradient in a popularity's momentum
    eta: float = 5e-6  #: first step size of the texts' popularities; 0 freezes both
    image_ratio: float = 0.1  #: step size of the images' popularities, as a share of the texts'
    epochs: int = 30  #: the paper's number of epochs, into which a run is divided for the next field and for eta
    start_epochs: int = 5  #: popularities stand still for so many of them
    vanilla: bool = False  #: give the positive its own popularity instead of the largest
    #: least share of a row's largest similarity ever in its denominator, as in the official code; 0 is the formula
    floor: float = 1e-16
    #: how an old normaliser is carried over when a row's largest similarity grows by x: "official" multiplies it by
    #: e^{x (1/tau - 1)} by mistake
    rescale: Literal["corrected", "official"] = "corrected"

    def __post_init__(self) -> None:
        check(self, "gamma", 0 < self.gamma <= 1, "in (0, 1]")
        check(self, "temperature", 0 < self.temperature < math.inf, "a finite number > 0")
        check(self, "zeta_init", math.isfinite(self.zeta_init), "a finite number")
        check(self, "xi_init", -math.inf < self.xi_init, "a number or infinity")
        check(self, "theta", 0 < self.theta <= 1, "in (0, 1]")
        check(self, "eta", 0 <= self.eta < math.inf, "a finite number >= 0")
        check(self, "image_ratio", 0 <= self.image_ratio < math.inf, "a finite number >= 0")
        check(self, "epochs", isinstance(self.epochs, int) and self.epochs >= 2, "a whole number >= 2")
        # The schedule ends at 0 in the last epoch: popularities that start there never move.
        started = isinstance(self.start_epochs, int) and 0 <= self.start_epochs < self.epochs - 1
        check(self, "start_epochs", started, "a whole number >= 0 and < epochs - 1, or popularities never move")
        check(self, "vanilla", isinstance(self.vanilla, bool), "true or false")
        check(self, "floor", 0 <= self.floor < math.inf, "a finite number >= 0")
        check(self, "rescale", self.rescale in ("corrected", "official"), '"corrected" or "official"')


class Nuclr(Normalised):
    """SogCLR's L with weights e^{(d_ij - zeta_j)/tau} over u_i and the anchor's own positive, taken as most popular.

    u and peak of `Normalised` are the paper's s and the largest d_ij.
    """

    name = "nuclr"
    about = About(
        title="NUCLR",
        summary="SogCLR that also learns how popular every image and every text is as a negative, and discounts it by "
        "that. Captions that fit many images then push their anchors away less.",
        paper="Wang et al., ICLR 2025",
        equations="Algorithm 1, equations 10-15",
        fidelity="official-checked",
        bibtex="""@inproceedings{wang2025nuclr,
  title = {On Discriminative Probabilistic Modeling for Self-Supervised Representation Learning},
  author = {Wang, Bokun and Lei, Yunwen and Ying, Yiming and Yang, Tianbao},
  booktitle = {International Conference on Learning Representations},
  year = {2025}
}""",
        state="log normaliser, largest similarity, popularity and its momentum of every row, in both directions; the "
        "largest popularity of images and of texts",
        note="The official code carries old normalisers over by a wrong factor when a row's largest similarity grows; "
        "the default is corrected, the preset official is not. zeta_init = -0.05 is for CC3M; that CC12M takes 0 is "
        "inferred, unverified. The value of the loss is a surrogate; the paper's objective is logged beside it.",
    )
    Config = NuclrConfig
    presets: ClassVar[Presets] = {"paper": {"floor": 0.0}, "official": {"rescale": "official"}}
    space: ClassVar[Space] = {
        "temperature": TEMPERATURE["temperature"],
        "gamma": Linear(0.2, 1.0, limit="high"),
        "eta": Log(5e-7, 5e-4),
    }
    monitored = "objective"
    identities = (
        Identity(
            "equal popularities and no positive in the denominator give SogCLR",
            equals="sogclr",
            config={"eta": 0.0, "zeta_init": 0.0, "xi_init": math.inf, "floor": 0.0},
            other={"floor": 0.0},
        ),
        Identity(
            "popularities that are all equal to the positive's cancel",
            equals="nuclr",
            config={"eta": 0.0, "zeta_init": 0.07, "xi_init": 0.07, "floor": 0.0},
            other={"eta": 0.0, "zeta_init": 0.0, "xi_init": 0.0, "floor": 0.0},
        ),
        Identity(
            "the positive's own popularity is the largest where all are equal",
            equals="nuclr",
            config={"eta": 0.0, "zeta_init": 0.07, "vanilla": True},
            other={"eta": 0.0, "zeta_init": 0.07, "xi_init": 0.07},
        ),
    )

    moved: Tensor
    zeta_image: Tensor
    zeta_text: Tensor

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        self.register_buffer("moved", torch.zeros(facts.rows, dtype=torch.bool))
        for direction, _ in DIRECTIONS:
            self.register_buffer(f"zeta_{direction}", torch.full((facts.rows,), config.zeta_init))
            self.register_buffer(f"momentum_{direction}", torch.zeros(facts.rows))
            self.register_buffer(f"xi_{direction}", torch.tensor(float(config.xi_init)))

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        tau, ids = self.config.temperature, batch.ids
        constants: Tensors = {}
        for direction, other in DIRECTIONS:
            zeta, parts = getattr(self, f"zeta_{other}")[ids], []
            for tile in spans(len(ids)):
                d = differences(z, direction, other, tile)
                log_g = without_own((d - zeta) / tau, tile).logsumexp(1)
                parts.append(torch.stack((log_g, d.amax(1)), dim=1))
            log_g, largest = torch.cat(parts).T
            before, peak = self.raise_peak(direction, ids, largest)
            # official: github.com/bokun-wang/NUCLR@ddaec8d models/losses.py (DGCL_Loss.forward)
            shift = (1 / tau - 1) * (peak - before) if self.config.rescale == "official" else 0.0
            log_u = self.average(direction, ids, log_g, ~self.seen[ids], shift)
            constants |= {f"zeta_{other}": zeta, f"log_u_{direction}": log_u, f"peak_{direction}": peak}
            xi = zeta if self.config.vanilla else getattr(self, f"xi_{other}")
            weight = math.log(len(ids) - 1) - math.log(self.facts.rows - 1)
            constants[f"log_denominator_{direction}"] = self._clamped(torch.logaddexp(log_u, weight - xi / tau), peak)
        self.seen[ids] = True
        eta = self._step_size(batch.clock)
        if eta is not None:
            for direction, other in DIRECTIONS:
                ratio = self.config.image_ratio if other == "image" else 1.0
                self._move(other, ids, self._slope(z, direction, other, constants), ratio * eta)
            self.moved[ids] = True
        return constants

    def draw(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        weights = {}
        for direction, other in DIRECTIONS:
            exponents = without_own(self._exponents(z, direction, other, anchors, observed[f"zeta_{other}"]), anchors)
            weights[direction] = (exponents - observed[f"log_denominator_{direction}"][anchors, None]).exp()
        return weights

    def monitor(self, z: Tensors, observed: Tensors) -> dict[str, float]:
        total = 0.0
        for direction, other in DIRECTIONS:
            log_mean = self._log_partition(observed, direction, other).mean()
            total += float(self.config.temperature * log_mean + observed[f"zeta_{other}"].mean())
        return {"objective": total}

    def diagnostics(self, z: Tensors, observed: Tensors) -> tuple[Diagnostic, ...]:
        series = {"images": self.zeta_image[self.seen], "texts": self.zeta_text[self.seen]}
        return (Diagnostic("popularity", "Learned popularity", "log-popularity", series),)

    def end_epoch(self, epoch: int) -> None:
        for direction, _ in DIRECTIONS:
            zeta, xi = getattr(self, f"zeta_{direction}"), getattr(self, f"xi_{direction}")
            xi.copy_(zeta.max().clamp(min=self.config.xi_init))

    def _exponents(self, z: Tensors, direction: str, other: str, tile: slice, zeta: Tensor) -> Tensor:
        """(d_ij - zeta_j) / tau, [n, B], the positive included; zeta [B] is that of the candidates."""
        exponents: Tensor = (differences(z, direction, other, tile) - zeta) / self.config.temperature
        return exponents

    def _clamped(self, log_value: Tensor, peak: Tensor) -> Tensor:
        """log max(value, floor e^{peak/tau}), [B]."""
        floor = self.config.floor
        if floor == 0:
            return log_value
        return torch.maximum(log_value, math.log(floor) + peak / self.config.temperature)

    def _log_partition(self, constants: Tensors, direction: str, other: str) -> Tensor:
        """log(u_i/(B-1) + e^{-zeta_i/tau}/(N-1)), the anchors' estimated partition functions over N, [B]."""
        log_u, zeta = constants[f"log_u_{direction}"], constants[f"zeta_{other}"]
        own = -zeta / self.config.temperature - math.log(self.facts.rows - 1)
        return torch.logaddexp(log_u - math.log(len(log_u) - 1), own)

    def _slope(self, z: Tensors, direction: str, other: str, constants: Tensors) -> Tensor:
        """h_j = 1 - N/(N-1) mean_i q_ij / partition_i of the candidates, [B]; the anchor's own positive counts here."""
        zeta = constants[f"zeta_{other}"]
        partition = self._log_partition(constants, direction, other)
        log_partition = self._clamped(partition, constants[f"peak_{direction}"])
        log_sum = torch.full_like(log_partition, -math.inf)
        for tile in spans(len(zeta)):
            exponents = self._exponents(z, direction, other, tile, zeta) - log_partition[tile, None]
            log_sum = torch.logaddexp(log_sum, exponents.logsumexp(0))
        rows = self.facts.rows
        return 1 - rows / (rows - 1) / len(zeta) * log_sum.exp()

    def _move(self, direction: str, ids: Tensor, slope: Tensor, eta: float) -> None:
        """m <- (1 - theta) m + theta h, at the first step m <- h; zeta <- zeta - eta m."""
        momentum, zeta = getattr(self, f"momentum_{direction}"), getattr(self, f"zeta_{direction}")
        slope = slope.to(momentum.dtype)
        new = torch.where(self.moved[ids], torch.lerp(momentum[ids], slope, self.config.theta), slope)
        momentum[ids] = new
        zeta[ids] -= eta * new

    def _step_size(self, clock: Clock) -> float | None:
        """eta of this epoch of the schedule, None while popularities stand still.

        The paper says a cosine; the drops to a tenth at half and three quarters are in the code alone.
        """
        config: NuclrConfig = self.config
        epoch, first = portion(clock.progress, config.epochs), config.start_epochs
        if epoch < first:
            return None
        drop = 1.0 if epoch < config.epochs // 2 else 0.1 if epoch < 3 * config.epochs // 4 else 0.01
        return drop * config.eta / 2 * (1 + math.cos(math.pi * (epoch - first) / (config.epochs - 1 - first)))
