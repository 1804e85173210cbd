"""ProLIP: every image and text is a Gaussian, learned with a probabilistic pairwise loss and inclusion losses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods.base import LogitScale, Presets, check, pair_decisions, portion, similarities, stream, wide
from methods.gaussian_towers import (
    ImageHead,
    PooledImageHead,
    Probabilistic,
    TextHead,
    TokenImageHead,
    has_tokens,
    uncertainty,
    uncertainty_diagnostic,
)
from methods.protocol import About, Batch, Clock, Cost, Diagnostic, Facts, Linear, Log, Rows, Space, Tensors, Towers


@dataclass(frozen=True)
class ProlipConfig:
    """Hyper-parameters of ProLIP."""

    inclusion: float = 1e-7  #: weight of "an image lies within its text" (alpha_1)
    masked_inclusion: float = 1e-3  #: weight of "an input lies within its masked version" (alpha_2)
    vib: float = 1e-4  #: weight of the variational information bottleneck (beta)
    vib_form: Literal["code", "textbook"] = "code"  #: lambda/2 in the KL's place of lambda = ln sigma^2, or the KL
    inclusion_scale: float = 10.0  #: c in -ln sigma(c H)
    inclusion_eps: float = -100.0  #: added to the exponent of 1/sigma^2; damps the part of H that moves the means
    inclusion_exact: bool = False  #: the normaliser that the integral has, instead of the paper's and the code's
    masked_share: float = 0.125  #: share of the batch that is also encoded masked
    mask_ratio: float = 0.75  #: share of patches dropped and of tokens replaced in the masked version
    # official: github.com/naver-ai/prolip@59f6324 src/prolip/transformer.py, src/prolip/model.py
    keep_patches: bool = False  #: read the ratio as the share of patches KEPT, as the official code does
    text_unc: Literal["official", "paper"] = "official"  #: text variance from the mean's vector, or from its own token
    scale: float = 10.0  #: initial logit scale e^rho
    bias: float = -10.0  #: initial bias of the pairwise logits
    logvar: float = -10.0  #: initial bias of the log-variance heads

    def __post_init__(self) -> None:
        for name in ("inclusion", "masked_inclusion", "vib"):
            check(self, name, 0 <= getattr(self, name) < math.inf, "a finite number >= 0")
        for name in ("scale", "inclusion_scale"):
            check(self, name, 0 < getattr(self, name) < math.inf, "a finite number > 0")
        check(self, "vib_form", self.vib_form in ("code", "textbook"), '"code" or "textbook"')
        check(self, "inclusion_eps", -math.inf < self.inclusion_eps <= 0, "a finite number <= 0")
        for name in ("inclusion_exact", "keep_patches"):
            check(self, name, isinstance(getattr(self, name), bool), "true or false")
        check(self, "masked_share", 0 <= self.masked_share <= 1, "in [0, 1]")
        check(self, "mask_ratio", 0 < self.mask_ratio < 1, "in (0, 1)")
        check(self, "text_unc", self.text_unc in ("official", "paper"), '"official" or "paper"')
        for name in ("bias", "logvar"):
            check(self, name, math.isfinite(getattr(self, name)), "a finite number")


def log_overlap(
    mean_1: Tensor, logvar_1: Tensor, mean_2: Tensor, logvar_2: Tensor, eps: float = 0.0, exact: bool = False
) -> Tensor:
    """I(1, 2) of each dimension: log of the integral of p_1^2 p_2, large where Gaussian 1 lies within Gaussian 2.

    Equation 3 in a stable form: e^eps / sigma^2 is never formed; at eps = -100 it is 0 in single precision and the
    quotient NaN. `exact` has the normaliser of that integral; the paper and its code double the log-variances in it and
    leave out the constant.
    """
    log_a = eps + torch.logaddexp(-logvar_1, -logvar_2 - math.log(2))
    distance = (mean_1 - mean_2).square() * (eps - torch.logaddexp(logvar_1, logvar_2 + math.log(2))).exp()
    if exact:
        # The Gaussian integral over x contributes sqrt(pi / A), the three densities (2 pi)^(-3/2).
        normaliser = -logvar_1 - logvar_2 / 2 - 1.5 * math.log(2 * math.pi) + math.log(math.pi) / 2
    else:
        normaliser = -2 * logvar_1 - logvar_2
    return normaliser - log_a / 2 - distance


def inclusion(
    mean_1: Tensor, logvar_1: Tensor, mean_2: Tensor, logvar_2: Tensor, eps: float = 0.0, exact: bool = False
) -> Tensor:
    """H(1, 2) = I(1, 2) - I(2, 1) of each dimension, > 0 where Gaussian 1 lies within Gaussian 2 (Equation 4)."""
    forth = log_overlap(mean_1, logvar_1, mean_2, logvar_2, eps, exact)
    return forth - log_overlap(mean_2, logvar_2, mean_1, logvar_1, eps, exact)


class Prolip(Probabilistic):
    """L = PPCL + alpha_2 [inc(v in v^m) + inc(t in t^m)] + alpha_1 inc(v in t) + beta VIB."""

    name = "prolip"
    about = About(
        title="ProLIP",
        summary="Gives every image and text a mean and a variance and compares pairs by a distance between Gaussians. "
        "An ambiguous or wrong pair can then be explained by a large variance instead of moving the means.",
        paper="Chun et al., ICLR 2025",
        equations="Equations 1-6",
        fidelity="official-checked",
        bibtex="""@inproceedings{chun2025prolip,
  title = {Probabilistic Language-Image Pre-Training},
  author = {Chun, Sanghyuk and Kim, Wonjae and Park, Song and Yun, Sangdoo},
  booktitle = {International Conference on Learning Representations},
  year = {2025}
}""",
        state="logit scale, bias, log-variance heads and tokens, mask embedding",
        note="The suite's towers instead of the authors': an uncertainty token on a vision transformer, a head on "
        "pooled features elsewhere. The class token passes the last norm once; the official code applies it twice. "
        "Masking spares the token that a text is read out at.",
    )
    Config = ProlipConfig
    presets: ClassVar[Presets] = {
        "paper": {"text_unc": "paper", "vib_form": "textbook"},
        # official: github.com/naver-ai/prolip@59f6324 src/prolip/loss.py (ProLIPLoss), values of its arguments
        "official": {"text_unc": "official", "keep_patches": True, "inclusion_scale": 1000.0, "inclusion_eps": -20.0},
    }
    space: ClassVar[Space] = {
        "scale": Log(2.0, 200.0),
        "bias": Linear(-15.0, 0.0),
        "vib": Log(1e-6, 1e-2),
        "inclusion": Log(1e-9, 1e-5),
    }

    needs = frozenset({"pixels", "tokens", "text_transformer"})

    image_head: ImageHead

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        self.scale = LogitScale(1.0 / config.scale)
        self.bias = nn.Parameter(torch.tensor(float(config.bias)))

    def prepare(self, towers: Towers) -> None:
        kind = TokenImageHead if has_tokens(towers, "prolip") else PooledImageHead
        self.image_head = kind(towers, self.config.logvar)
        self.text_head = TextHead(towers, self.config.logvar, own_token=self.config.text_unc == "paper")

    def cost(self, phase: str) -> Cost:
        share = portion(self.config.masked_share, self.facts.batch) / self.facts.batch
        shortened = hasattr(self, "image_head") and self.image_head.drops_patches
        kept = self._kept_cells() / self.image_head.cells if shortened else 1.0
        return Cost(image=1.0 + share * kept, text=1.0 + share)

    def _kept_cells(self) -> int:
        kept = self.config.mask_ratio if self.config.keep_patches else 1 - self.config.mask_ratio
        return max(1, portion(kept, self.image_head.cells))

    def _masked_places(self, total: int) -> list[int]:
        """The floor(share * B) places of the batch, evenly spaced, whose rows are also encoded masked."""
        count = portion(self.config.masked_share, total)
        return [index * total // count for index in range(count)]

    def encode(self, towers: Towers, rows: Rows) -> Tensors:
        image, image_logvar = self.image_head(towers, rows.images)
        text, text_logvar = self.text_head(towers, rows.tokens)
        z = {"image": image, "image_logvar": image_logvar, "text": text, "text_logvar": text_logvar}
        masked = {f"masked_{name}": torch.zeros_like(x) for name, x in z.items()}
        first, count = rows.positions.start, len(rows.captions)
        places = self._masked_places(self.facts.batch)
        here = [index for index, place in enumerate(places) if first <= place < first + count]
        if here:
            inside = torch.tensor([places[index] - first for index in here], device=image.device)
            chosen = self._encode_masked(towers, rows, inside, here)
            masked = {name: x.index_copy(0, inside, chosen[name]) for name, x in masked.items()}
        return z | masked

    def _encode_masked(self, towers: Towers, rows: Rows, inside: Tensor, here: list[int]) -> Tensors:
        """Masked versions of the rows at `inside`, which are the batch's `here`-th masked ones."""
        seed, step = self.facts.seed, rows.clock.step
        # One subset of patches for the whole sub-batch, so that dropping them shortens every sequence alike.
        cells = torch.randperm(self.image_head.cells, generator=stream(seed, "prolip/patches", step))
        image, image_logvar = self.image_head(towers, rows.images[inside], cells[: self._kept_cells()].sort().values)
        shape = (portion(self.config.masked_share, self.facts.batch), rows.tokens.shape[1])
        replaced = torch.rand(shape, generator=stream(seed, "prolip/tokens", step))[here] < self.config.mask_ratio
        text, text_logvar = self.text_head(towers, rows.tokens[inside], replaced.to(inside.device))
        parts = {"image": image, "image_logvar": image_logvar, "text": text, "text_logvar": text_logvar}
        return {f"masked_{name}": x for name, x in parts.items()}

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        # The official code drops a term for a step in which it explodes; that depends on all rows, hence not in loss.
        # official: github.com/naver-ai/prolip@59f6324 src/prolip/loss.py (ProLIPLoss.kl_divergence, inclusion_loss)
        limits = {"vib": 1e4, "inclusion": 1e5, "masked_inclusion": 1e5}
        terms = self._regularisers(z, slice(0, z["image"].shape[0]))
        return {name: terms[name] > limit for name, limit in limits.items()}

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        total = z["image"].shape[0]
        variances = uncertainty(z["image_logvar"][anchors])[:, None] + uncertainty(z["text_logvar"])
        # -1/2 of the closed-form sampled distance, up to a constant. The paper's Equation 2 has the bias' sign wrong.
        closeness = similarities(z["image"][anchors], z["text"]) - variances / 2
        terms = {"ppcl": pair_decisions(self.scale() * closeness + self.bias, anchors) / total}
        for name, value in self._regularisers(z, anchors).items():
            terms[name] = getattr(self.config, name) * value.masked_fill(observed[name], 0.0)
        return terms

    def _regularisers(self, z: Tensors, anchors: slice) -> Tensors:
        """These anchors' shares of the unweighted VIB and inclusion terms."""
        total, dim = z["image"].shape
        rows = {name: wide(x[anchors]) for name, x in z.items()}
        places = self._masked_places(total)
        inside = [place - anchors.start for place in places if anchors.start <= place < anchors.stop]
        picked = {name: x[inside] for name, x in rows.items()}
        masked = self._included(picked, "image", "masked_image") + self._included(picked, "text", "masked_text")
        return {
            "vib": (self._vib(rows, "image") + self._vib(rows, "text")) / (total * dim),
            "inclusion": self._included(rows, "image", "text") / (total * dim),
            "masked_inclusion": masked / max(1, len(places) * dim),
        }

    def _included(self, z: Tensors, inner: str, outer: str) -> Tensor:
        """Sum over rows and dimensions of -ln sigma(c H(inner, outer))."""
        config = self.config
        pair = (z[inner], z[f"{inner}_logvar"], z[outer], z[f"{outer}_logvar"])
        return -F.logsigmoid(
            config.inclusion_scale * inclusion(*pair, config.inclusion_eps, config.inclusion_exact)
        ).sum()

    def _vib(self, z: Tensors, name: str) -> Tensor:
        """KL to the standard normal (Appendix A.7); the code has lambda / 2 in the log-variance's place."""
        logvar = z[f"{name}_logvar"] / (2 if self.config.vib_form == "code" else 1)
        return -0.5 * (1 + logvar - z[name].square() - logvar.exp()).sum()

    def monitor(self, z: Tensors, observed: Tensors) -> dict[str, float]:
        """Share of masked rows whose original lies within the masked version, sum of H over dimensions > 0."""
        return {f"{name}s_within_masked": float((h > 0).float().mean()) for name, h in self._within_masked(z).items()}

    def _within_masked(self, z: Tensors) -> Tensors:
        """H(original in masked) of the masked rows, [m] images and [m] texts, measured with eps = 0."""
        rows = {name: wide(x[self._masked_places(len(x))]) for name, x in z.items()}
        found = {}
        for name in ("image", "text") if rows["image"].shape[0] else ():
            masked = (rows[f"masked_{name}"], rows[f"masked_{name}_logvar"])
            h = inclusion(rows[name], rows[f"{name}_logvar"], *masked, exact=self.config.inclusion_exact)
            found[name] = h.sum(1)
        return found

    def diagnostics(self, z: Tensors, observed: Tensors) -> tuple[Diagnostic, ...]:
        places = self._masked_places(z["image"].shape[0])
        series = {f"{name}s": uncertainty(z[f"{name}_logvar"]) for name in ("image", "text")}
        within = self._within_masked(z)
        series |= {f"masked {name}s": uncertainty(z[f"masked_{name}_logvar"][places]) for name in within}
        shown = (uncertainty_diagnostic(series),)
        if not within:
            return shown
        title = "Does an input lie within its masked version? (paper, Figure 8)"
        included = {f"{name}s": h for name, h in within.items()}
        return (*shown, Diagnostic("inclusion", title, "H(original in masked), sum over dimensions", included))

    def after_step(self, clock: Clock) -> None:
        self.scale.clamp_()
