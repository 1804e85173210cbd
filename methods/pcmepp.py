"""PCME++: images and texts are Gaussians, matched by logistic regression on a distance between Gaussians."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods.base import Presets, check, similarities, spans, stream, wide
from methods.freezing import besides_image_backbone
from methods.gaussian_towers import (
    ForkedImageHead,
    ForkedTextHead,
    PooledImageHead,
    Probabilistic,
    has_tokens,
    uncertainty,
    uncertainty_diagnostic,
)
from methods.protocol import About, Batch, Clock, Diagnostic, Facts, Log, Phase, Rows, Space, Tensors, Towers

DIRECTIONS = (("image", "text"), ("text", "image"))


# official: github.com/naver-ai/pcmepp@8829c0d configs/pcmepp.yaml
# official: github.com/naver-ai/pcmepp@8829c0d pcmepp/criterions/pcmepp.py (ClosedFormSampledDistanceLoss)
@dataclass(frozen=True)
class PcmeppConfig:
    """Hyper-parameters of PCME++; defaults are those of the official configuration file, but for `logvar`."""

    alpha: float = 0.1  #: weight of the pseudo-positive terms; the official constructor's default is 0
    beta: float = 1e-4  #: weight of the variational information bottleneck; the official constructor's default is 0
    smoothing: float = 1e-4  #: label of a non-match; a match has 1 minus this
    negative_scale: float = 5.0  #: initial a_0 in the logit -a_0 CSD + b_0
    shift: float = 5.0  #: initial b_0
    own_lr: float = 5e-4  #: learning rate of a_0, b_0 and the log-variance heads
    #: times the suite's learning rate, towers. The authors scale text towers by 0.1 and image towers by 0.01 with a
    #: further decay of 0.7 a layer; a phase has one scale.
    lr_scale: float = 0.1
    frozen_share: float = 0.08  #: of the run, at its start: the image backbone is frozen (2 of 25 epochs)
    mixed_share: float = 0.25  #: share of images mixed with another one; 0 mixes none and allows odd micro-batches
    mix_beta: float = 2.0  #: an image keeps a share lambda ~ Beta(mix_beta, mix_beta) of itself
    cutmix_share: float = 0.5  #: of the mixed images, mixed by a pasted box (CutMix); the others are blended (mixup)
    n_unc_layers: int = 1  #: last transformer blocks that exist a second time for the variance
    logvar: float = -10.0  #: initial log-variance; ProLIP's, where the official configuration starts at 0
    logvar_norm: float | None = None  #: initial weight of a LayerNorm behind the log-variance heads; null: none

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            check(self, name, 0 <= getattr(self, name) < math.inf, "a finite number >= 0")
        for name in ("negative_scale", "own_lr", "lr_scale", "mix_beta"):
            check(self, name, 0 < getattr(self, name) < math.inf, "a finite number > 0")
        for name in ("shift", "logvar"):
            check(self, name, math.isfinite(getattr(self, name)), "a finite number")
        check(self, "smoothing", 0 <= self.smoothing < 0.5, "in [0, 0.5)")
        check(self, "frozen_share", 0 <= self.frozen_share < 1, "in [0, 1)")
        for name in ("mixed_share", "cutmix_share"):
            check(self, name, 0 <= getattr(self, name) <= 1, "in [0, 1]")
        layers = self.n_unc_layers
        check(self, "n_unc_layers", isinstance(layers, int) and layers > 0, "a whole number > 0")
        norm = self.logvar_norm
        check(self, "logvar_norm", norm is None or 0 < norm < math.inf, "null or a finite number > 0")


def pseudo_labels(logits: Tensor, labels: Tensor) -> Tensor:
    """[n, B] labels -> the same with every candidate at least as near as the match labelled like the match.

    The match is the candidate of largest label. No gradient belongs to this choice: pass detached logits.
    """
    best, match = labels.max(1, keepdim=True)
    least = logits.gather(1, match)
    # Equal captions tie with the match. Rounding, which differs between tiles and ranks, must not decide such ties.
    slack = 8 * torch.finfo(logits.dtype).eps * (1 + least.abs())
    return torch.where(logits >= least - slack, best, labels)


class Pcmepp(Probabilistic):
    """L = 2 BCE(z, Y) + alpha [BCE(z, Y') + BCE(z^T, Y'')] + beta VIB, z_ij = -a_0 CSD_ij + b_0, means over B^2."""

    name = "pcmepp"
    about = About(
        title="PCME++",
        summary="Gives every image and text a mean and a variance and decides for every combination whether it is a "
        "pair, by logistic regression on a distance between Gaussians. Candidates nearer than the given match count as "
        "matches too, so that a missing or wrong correspondence costs less.",
        paper="Chun, ICLR 2024",
        equations="Equations 1-2; pseudo-positives and mixed images in Section 3",
        fidelity="official-checked",
        bibtex="""@inproceedings{chun2024pcmepp,
  title = {Improved Probabilistic Image-Text Representations},
  author = {Chun, Sanghyuk},
  booktitle = {International Conference on Learning Representations},
  year = {2024}
}""",
        state="a_0, b_0, log-variance heads and their transformer blocks",
        note="The loss equals the official one on a single process; towers and training are the suite's. Variances "
        "start small, as in ProLIP; the official configuration leaves them around one (preset official). Means and "
        "variances are pooled and projected as the tower does it, not by GPO; a tower without tokens has a head on "
        "pooled features. Weights are not averaged (SWA) and one learning-rate scale stands for the authors' per-tower "
        "and per-layer ones. Images mix with their neighbour in the shuffled batch, the same in law as the authors' "
        "mirrored partner, and CutMix boxes have exact fractional borders. Two captions of one image never meet in a "
        "batch here, so labels for that case are not needed.",
    )
    Config = PcmeppConfig
    # The official configuration file sets neither the heads' bias nor a LayerNorm: variances start around one.
    # official: github.com/naver-ai/pcmepp@8829c0d configs/pcmepp.yaml
    presets: ClassVar[Presets] = {"paper": {}, "official": {"logvar": 0.0}}
    space: ClassVar[Space] = {
        "negative_scale": Log(1.0, 25.0),
        "alpha": Log(0.01, 1.0),
        "beta": Log(1e-6, 1e-2),
        "lr_scale": Log(0.01, 1.0),
    }
    reference = "clip"
    needs = frozenset({"pixels", "tokens", "text_transformer"})

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        self.negative_scale = nn.Parameter(torch.tensor(float(config.negative_scale)))
        self.shift = nn.Parameter(torch.tensor(float(config.shift)))

    def prepare(self, towers: Towers) -> None:
        # The copied blocks are the method's own: FLOPs count them, `cost` counts forwards of towers.
        copies, *start = self.config.n_unc_layers, self.config.logvar, self.config.logvar_norm
        on_tokens = has_tokens(towers, "pcmepp")
        self.image_head = ForkedImageHead(towers, copies, *start) if on_tokens else PooledImageHead(towers, *start)
        self.text_head = ForkedTextHead(towers, "pcmepp", copies, *start)

    def phases(self) -> tuple[Phase, ...]:
        share, lr_scale = self.config.frozen_share, self.config.lr_scale
        everything = Phase("all", 1 - share, lr_scale)
        return (Phase("frozen_image", share, lr_scale, besides_image_backbone), everything) if share else (everything,)

    def options(self, name: str) -> Mapping[str, float]:
        if name in ("method.negative_scale", "method.shift"):
            return {"lr": self.config.own_lr, "weight_decay": 0.0}
        return (
            {"lr": self.config.own_lr} if name.startswith(("method.image_head.head", "method.text_head.head")) else {}
        )

    def encode(self, towers: Towers, rows: Rows) -> Tensors:
        image, image_logvar = self.image_head(towers, self._mixed(rows))
        text, text_logvar = self.text_head(towers, rows.tokens)
        return {"image": image, "image_logvar": image_logvar, "text": text, "text_logvar": text_logvar}

    def _mixed(self, rows: Rows) -> Tensor:
        """The images, some mixed with their neighbour (rows 2k and 2k + 1), [b, 3, H, W]."""
        if self.config.mixed_share == 0:
            return rows.images
        here, images = rows.positions, rows.images
        if here.start % 2 or len(here) % 2:
            raise ValueError(
                f"rows {here.start} to {here.stop - 1} of the batch cut a pair of neighbours that pcmepp mixes: use "
                "even batches and micro-batches, or mixed_share = 0"
            )
        own = slice(here.start, here.stop)
        kept, boxes, is_box = (x[own].to(images.device) for x in self._mixture(rows.clock, self.facts.batch))
        boxes = boxes.to(images.dtype)
        inside = _coverage(boxes[:, 0], images.shape[2])[:, :, None] * _coverage(boxes[:, 1], images.shape[3])[:, None]
        given = torch.where(is_box[:, None, None], inside, (1 - kept)[:, None, None])[:, None].to(images)
        partners = images.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)
        return torch.lerp(images, partners, given)

    def _mixture(self, clock: Clock, total: int) -> tuple[Tensor, Tensor, Tensor]:
        """For each row: lambda, the share of its own image that is kept; a box [2, 2] of (low, high), in shares of
        height and of width; whether the box is pasted. On the CPU, in double precision.
        """
        config, draws = self.config, stream(self.facts.seed, "pcmepp/mixed", clock.step)
        is_mixed, is_box = torch.rand(2, total, generator=draws, dtype=torch.float64)
        gammas = torch.full((2, total), float(config.mix_beta), dtype=torch.float64)
        one, other = torch._standard_gamma(gammas, generator=draws)  # G / (G + G') is Beta(mix_beta, mix_beta)
        blended = one / (one + other)
        centre = torch.rand(total, 2, 1, generator=draws, dtype=torch.float64)
        half = (1 - blended).sqrt()[:, None, None] / 2
        boxes = torch.cat([centre - half, centre + half], dim=2).clamp(0, 1)
        is_box = is_box < config.cutmix_share
        kept = torch.where(is_box, 1 - (boxes[..., 1] - boxes[..., 0]).prod(1), blended)
        untouched = is_mixed >= config.mixed_share
        kept = kept.masked_fill(untouched, 1.0)
        return kept, boxes, is_box & ~untouched

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        total = z["image"].shape[0]
        places = torch.arange(total, device=z["image"].device)
        kept = wide(z["image"]).new_ones(total)
        if self.config.mixed_share:
            kept = self._mixture(batch.clock, total)[0].to(kept)
        everyone = slice(0, total)
        # The official code leaves a modality's term out for a step in which it explodes.
        # official: github.com/naver-ai/pcmepp@8829c0d pcmepp/criterions/pcmepp.py (kl_divergence)
        exploded = {f"no_vib_{name}": self._vib(z, name, everyone) > 1e4 for name in ("image", "text")}
        return {"kept": kept, "partner": (places ^ 1).clamp(max=total - 1), **exploded}

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        entries = z["image"].shape[0] ** 2
        match = pseudo = self.shift.new_zeros(())
        for one, other in DIRECTIONS:
            logits, labels = self._logits(z, one, other, anchors), self._labels(observed, one, anchors)
            match = match + F.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
            if self.config.alpha:
                labels = pseudo_labels(logits.detach(), labels)
                pseudo = pseudo + F.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
        vib = [self._vib(z, name, anchors).masked_fill(observed[f"no_vib_{name}"], 0.0) for name in ("image", "text")]
        # Both directions of the plain term are the same matrix: their sum is the code's factor of two.
        return {
            "match": match / entries,
            "pseudo_match": self.config.alpha * pseudo / entries,
            "vib": self.config.beta * (vib[0] + vib[1]),
        }

    def _logits(self, z: Tensors, one: str, other: str, anchors: slice) -> Tensor:
        """-a_0 CSD + b_0 of these anchors and all candidates, [n, B]."""
        # |m - m'|^2 in full, also for unit means: the gradient along a mean is part of the official one.
        # official: github.com/naver-ai/pcmepp@8829c0d pcmepp/criterions/pcmepp.py (_compute_closed_form_loss)
        lengths = {name: wide(z[name]).square().sum(1) + uncertainty(z[f"{name}_logvar"]) for name in (one, other)}
        products = similarities(z[one][anchors], z[other])
        return self.shift - self.negative_scale * (lengths[one][anchors, None] + lengths[other] - 2 * products)

    def _labels(self, observed: Tensors, anchor: str, anchors: slice) -> Tensor:
        """Y of image anchors or its columns of text anchors, [n, B]: lambda of an image is its own text's."""
        kept, partner = observed["kept"], observed["partner"][anchors, None]
        own = torch.arange(anchors.start, anchors.stop, device=kept.device)[:, None]
        given = 1 - kept[own if anchor == "image" else partner]
        hard = kept.new_zeros(len(own), len(kept)).scatter_(1, partner, given).scatter_(1, own, kept[own])
        labels: Tensor = self.config.smoothing + (1 - 2 * self.config.smoothing) * hard
        return labels

    def _vib(self, z: Tensors, name: str, anchors: slice) -> Tensor:
        """These rows' share of the mean KL to the standard normal."""
        mean, logvar = wide(z[name][anchors]), wide(z[f"{name}_logvar"][anchors])
        return -0.5 * (1 + logvar - mean.square() - logvar.exp()).sum() / z[name].numel()

    def monitor(self, z: Tensors, observed: Tensors) -> dict[str, float]:
        """a_0, b_0 and how many candidates an anchor takes for matches beyond its own, on average."""
        total, taken = z["image"].shape[0], 0
        for one, other in DIRECTIONS:
            for tile in spans(total):
                labels = self._labels(observed, one, tile)
                taken += int((pseudo_labels(self._logits(z, one, other, tile), labels) > labels).sum())
        scalars = {"negative_scale": self.negative_scale.item(), "shift": self.shift.item()}
        return {**scalars, "pseudo_positives": taken / (2 * total)}

    def diagnostics(self, z: Tensors, observed: Tensors) -> tuple[Diagnostic, ...]:
        images, mixed = uncertainty(z["image_logvar"]), observed["kept"] < 1
        series = {"images": images[~mixed], "mixed images": images[mixed], "texts": uncertainty(z["text_logvar"])}
        return (uncertainty_diagnostic({legend: x for legend, x in series.items() if len(x)}),)


def _coverage(edges: Tensor, pixels: int) -> Tensor:
    """[b, 2] low and high in [0, 1] -> [b, pixels] share of each pixel between them; their mean is high - low."""
    places = torch.arange(pixels, dtype=edges.dtype, device=edges.device)
    low, high = (edges * pixels)[:, :1], (edges * pixels)[:, 1:]
    return (torch.minimum(high, places + 1) - torch.maximum(low, places)).clamp(min=0)
