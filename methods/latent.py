"""LATENT: one of three regularisers on how the two modalities lie to each other in the joint space."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods.base import Contrastive, Presets, check, check_scale, similarities, spans, unit, wide
from methods.eda import Eda
from methods.protocol import TEMPERATURE, About, Batch, Cost, Facts, Identity, Log, Rows, Space, Tensors, Towers

INDEPENDENT = "_independent"  #: ends the names of features that one modality has for itself


@dataclass(frozen=True)
class LatentConfig:
    """Hyper-parameters of LATENT."""

    #: the regulariser: "sep" separates features that one modality has for itself, "br" bridges the pair by a
    #: Brownian bridge, "gc" keeps the geometry between modalities and views. Each is used alone.
    variant: Literal["sep", "br", "gc"] = "br"
    weight: float = 1.0  #: of the regulariser. Unverified: the paper's appendix, where it stands, was not obtained
    kappa: float = 0.25  #: place of the augmented image on the bridge from caption (0) to image (1)
    kernel_t: float = 2.0  #: exponent of the uniformity's Gaussian kernel
    eda_alpha: float = 0.1  #: share of a caption's words that its edit touches
    #: folder with WordNet's data files, for synonyms beyond the data's own; a run's id hashes the files' content
    wordnet: str | None = dataclasses.field(default=None, metadata={"path": True})
    temperature: float = 0.07  #: the logit scale starts at 1/temperature
    learnable_scale: bool = True  #: learn the scale (clamped to [1, 100]) or keep it

    def __post_init__(self) -> None:
        check(self, "variant", self.variant in ("sep", "br", "gc"), '"sep", "br" or "gc"')
        check(self, "weight", 0 <= self.weight < math.inf, "a finite number >= 0")
        check(self, "kappa", 0 <= self.kappa <= 1, "in [0, 1]")
        check(self, "kernel_t", 0 < self.kernel_t < math.inf, "a finite number > 0")
        check(self, "eda_alpha", 0 <= self.eda_alpha <= 1, "in [0, 1]")
        check_scale(self)


class Latent(Contrastive):
    """L = 1/4 (V2T + T2V + V2V + T2T) + weight R, R one of three; the last two terms match each row with its view."""

    name = "latent"
    about = About(
        title="LATENT (reconstructed)",
        summary="Adds to contrast between and within modalities one regulariser: features private to a modality, a "
        "Brownian bridge from caption to image, or equal geometry of both. Captions and images that share only part "
        "of their content are then not forced onto one point.",
        paper="Jiang et al., CVPR 2023",
        equations="Section 4",
        fidelity="reconstructed",
        bibtex="""@inproceedings{jiang2023latent,
  title = {Understanding and Constructing Latent Modality Structures in Multi-Modal Representation Learning},
  author = {Jiang, Qian and Chen, Changyou and Zhao, Han and Chen, Liqun and Ping, Qing and Tran, Son Dinh and Xu, Yi
    and Zeng, Belinda and Chilimbi, Trishul},
  booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  pages = {7661--7671},
  year = {2023}
}""",
        state="logit scale; for variant sep a linear layer a modality",
        note="Unverified: no code exists, and the regulariser's weight stands in an appendix that was not obtained. "
        "Printed V2V contrasts with plain views and printed V2V of the private features pairs a vector with itself: "
        "both are read as contrast with the other view. Private features are a linear layer on the embedding.",
    )
    Config = LatentConfig
    presets: ClassVar[Presets] = {"paper": {}}
    space: ClassVar[Space] = {**TEMPERATURE, "weight": Log(0.1, 10.0)}
    identities = (
        Identity(
            "without a regulariser: CyCLIP's in-modal contrast",
            "cyclip",
            {"weight": 0.0},
            {"in_modal": True, "lambda_in_modal": 0.0, "lambda_cross_modal": 0.0},
        ),
    )

    needs = frozenset({"tokens", "second_view"})

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        self.extra_views = 1
        self.eda = Eda.of(facts, "latent", config.eda_alpha, config.wordnet)
        if not self.eda.synonyms:
            note = f"{self.about.note} Captions are edited by swap and deletion only: no synonyms were given."
            self.__dict__["about"] = dataclasses.replace(self.about, note=note)

    def prepare(self, towers: Towers) -> None:
        if self.config.variant == "sep":
            self.image_head = nn.Linear(towers.dim, towers.dim, bias=False)
            self.text_head = nn.Linear(towers.dim, towers.dim, bias=False)

    def cost(self, phase: str) -> Cost:
        return Cost(image=2.0, text=2.0)

    def encode(self, towers: Towers, rows: Rows) -> Tensors:
        features = {
            "image": towers.encode_image(rows.images),
            "text": towers.encode_text(rows.tokens),
            "image_view": towers.encode_image(rows.views[0]),
            "text_view": towers.encode_text(towers.tokenize(self.eda.edited(rows))),
        }
        if self.config.variant == "sep":
            heads = {"image": self.image_head, "text": self.text_head}
            features |= {name + INDEPENDENT: heads[name.partition("_")[0]](x) for name, x in features.items()}
        return {name: unit(x) for name, x in features.items()}

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        if self.config.variant != "sep":
            return {}
        total = len(batch.ids)
        return {"kernel": torch.stack([self._kernel(z, tile) for tile in spans(total)]).sum() / total}

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        regulariser = {"sep": self._separation, "br": self._bridge, "gc": self._geometry}[self.config.variant]
        between = self._matching(z, ("image", "text"), anchors) + self._matching(z, ("text", "image"), anchors)
        within = self._matching(z, ("image", "image_view"), anchors) + self._matching(z, ("text", "text_view"), anchors)
        terms = {name: self.config.weight * term for name, term in regulariser(z, observed, anchors).items()}
        return {"contrastive": (between + within) / 4, **terms}

    def _matching(self, z: Tensors, pair: tuple[str, str], anchors: slice) -> Tensor:
        """These anchors' share of CE(a x yᵀ)."""
        logits = self.scale() * similarities(z[pair[0]][anchors], z[pair[1]])
        own = torch.arange(anchors.start, anchors.stop, device=logits.device)
        return torch.as_tensor(F.cross_entropy(logits, own, reduction="sum") / logits.shape[1])

    def _separation(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        """Sep: private features orthogonal to the shared ones, matched between views, and spread out."""
        total = z["image"].shape[0]
        overlap = contrast = self.scale().new_zeros(())
        for name in ("image", "text"):
            private = name + INDEPENDENT
            overlap = overlap + (wide(z[name][anchors]) * wide(z[private][anchors])).sum(1).square().sum() / total
            contrast = contrast + self._matching(z, (private, f"{name}_view{INDEPENDENT}"), anchors)
        # ln S of a sum S over all anchors, in tiles: with S held constant as K, ln K - 1 + S / K has its value and
        # its gradient, and is a sum over anchors.
        kernel, part = observed["kernel"], (anchors.stop - anchors.start) / total
        uniformity = part * (kernel.log() - 1) + self._kernel(z, anchors) / (total * kernel)
        return {"orthogonality": overlap, "independent_contrastive": contrast, "uniformity": uniformity}

    def _kernel(self, z: Tensors, anchors: slice) -> Tensor:
        """Sum of e^{-t |x_j - x_k|^2} over the tile's j and all k, of both modalities' private features."""
        total: Tensor = self.scale().new_zeros(())
        for name in ("image", "text"):
            x = wide(z[name + INDEPENDENT])
            length = x.square().sum(1)
            distance = length[anchors, None] + length - 2 * similarities(x[anchors], x)
            total = total + (-self.config.kernel_t * distance).exp().sum()
        return total

    def _bridge(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        """Br: the augmented image close to the point that lies kappa of the way from caption to image."""
        kappa = self.config.kappa
        image, text, view = (wide(z[name][anchors]) for name in ("image", "text", "image_view"))
        # Printed in expanded form without a constant and a square root; the norm is what it expands.
        middle = unit(kappa * image + (1 - kappa) * text)
        return {"bridge": (view - middle).square().sum() / z["image"].shape[0]}

    def _geometry(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        """GC: equal similarities within both modalities, across them in both orders, and within both views."""
        total = z["image"].shape[0]

        def gap(one: tuple[str, str], other: tuple[str, str]) -> Tensor:
            first, second = (similarities(z[a][anchors], z[b]) for a, b in (one, other))
            return torch.as_tensor((first - second).square().sum() / total)

        def own(one: str, other: str) -> Tensor:
            return (wide(z[one][anchors]) * wide(z[other][anchors])).sum(1)

        modalities = gap(("image", "image"), ("text", "text")) + gap(("image", "text"), ("text", "image"))
        views = gap(("image", "image"), ("image_view",) * 2) + gap(("text", "text"), ("text_view",) * 2)
        moved = (own("image", "text") - own("image_view", "text_view")).square().sum() / total
        return {"modality_geometry": modalities, "view_geometry": views + moved}
