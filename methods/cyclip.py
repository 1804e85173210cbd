"""CyCLIP: CLIP whose similarities must agree between and within the modalities."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from methods.base import Contrastive, Presets, check, check_scale, info_nce, similarities, unit
from methods.eda import Eda
from methods.protocol import TEMPERATURE, About, Cost, Facts, Identity, Log, Need, Rows, Space, Tensors, Towers


@dataclass(frozen=True)
class CyclipConfig:
    """Hyper-parameters of CyCLIP."""

    lambda_in_modal: float = 0.25  #: weight of the in-modal consistency: <v_i,v_j> against <t_i,t_j>
    lambda_cross_modal: float = 0.25  #: weight of the cross-modal consistency: <v_i,t_j> against <v_j,t_i>
    in_modal: bool = False  #: also contrast images with a second view of them, and captions with an edited one
    eda_alpha: float = 0.1  #: share of a caption's words that its edit touches (in_modal)
    #: folder with WordNet's data files, for synonyms beyond the data's own; a run's id hashes the files' content
    wordnet: str | None = dataclasses.field(default=None, metadata={"path": True})
    temperature: float = 0.07  #: the logit scale starts at 1/temperature
    learnable_scale: bool = True  #: learn the scale (clamped to [1, 100]) or keep it

    def __post_init__(self) -> None:
        for name in ("lambda_in_modal", "lambda_cross_modal"):
            check(self, name, 0 <= getattr(self, name) < math.inf, "a finite number >= 0")
        check(self, "in_modal", isinstance(self.in_modal, bool), "true or false")
        check(self, "eda_alpha", 0 <= self.eda_alpha <= 1, "in [0, 1]")
        check_scale(self)


class Cyclip(Contrastive):
    """L = CLIP + lambda_1/B sum_ij (<v_i,v_j> - <t_i,t_j>)^2 + lambda_2/B sum_ij (<v_i,t_j> - <v_j,t_i>)^2."""

    name = "cyclip"
    about = About(
        title="CyCLIP",
        summary="Adds to CLIP that two images must be as similar as their captions, and image i to caption j as image "
        "j to caption i. Consistent geometry lets classification within and across modalities agree.",
        paper="Goel et al., NeurIPS 2022",
        equations="Equations 2-4",
        fidelity="official-checked",
        bibtex="""@inproceedings{goel2022cyclip,
  title = {{CyCLIP}: Cyclic Contrastive Language-Image Pretraining},
  author = {Goel, Shashank and Bansal, Hritik and Bhatia, Sumit and Rossi, Ryan A. and Vinay, Vishwa and
    Grover, Aditya},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2022}
}""",
        state="logit scale",
        note="Divided by B and not by its square, both consistency terms grow with the batch, as in the authors' code. "
        "With in_modal, images and captions go through the towers twice; where no synonyms are known, captions are "
        "edited by swap and deletion only. The official preset is NUCLR's script, behind that paper's CyCLIP row.",
    )
    Config = CyclipConfig
    presets: ClassVar[Presets] = {
        "paper": {"lambda_in_modal": 0.25, "lambda_cross_modal": 0.25},
        # official: github.com/bokun-wang/NUCLR@ddaec8d models/losses.py (CyCLIP_Loss), with the values of its script
        "official": {
            "lambda_in_modal": 0.1,
            "lambda_cross_modal": 0.1,
            "temperature": 0.01,
            "learnable_scale": False,
        },
    }
    space: ClassVar[Space] = {**TEMPERATURE, "lambda_in_modal": Log(0.025, 2.5), "lambda_cross_modal": Log(0.025, 2.5)}
    identities = (
        Identity(
            "without consistency terms it is CLIP",
            equals="clip",
            config={"lambda_in_modal": 0.0, "lambda_cross_modal": 0.0},
        ),
    )

    needs = frozenset({"tokens", "second_view"})

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        if config.in_modal:
            self.extra_views = 1
            self.eda = Eda.of(facts, "cyclip", config.eda_alpha, config.wordnet)

    @classmethod
    def needs_under(cls, config: Any) -> frozenset[Need]:
        return cls.needs if config.in_modal else frozenset()

    def cost(self, phase: str) -> Cost:
        return Cost(image=2.0, text=2.0) if self.config.in_modal else Cost()

    def encode(self, towers: Towers, rows: Rows) -> Tensors:
        z = super().encode(towers, rows)
        if not self.config.in_modal:
            return z
        return {
            **z,
            "image_view": unit(towers.encode_image(rows.views[0])),
            "text_view": unit(towers.encode_text(towers.tokenize(self.eda.edited(rows)))),
        }

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        image, text = z["image"], z["text"]
        # Cosines, not logits: the official code divides the scale out again, so it gets no gradient from here.
        # official: github.com/goel-shashank/CyCLIP@707e7c7 src/train.py (get_loss)
        within = similarities(image[anchors], image) - similarities(text[anchors], text)
        across = similarities(image[anchors], text) - similarities(text[anchors], image)
        return {
            **self._contrastive(z, anchors),
            "in_modal_cyclic": self.config.lambda_in_modal * within.square().sum() / len(image),
            "cross_modal_cyclic": self.config.lambda_cross_modal * across.square().sum() / len(image),
        }

    def _contrastive(self, z: Tensors, anchors: slice) -> Tensors:
        """CLIP; with in_modal the mean of it and of each modality's cross-entropies against its second view."""
        clip = info_nce(z, self.scale(), anchors)
        if not self.config.in_modal:
            return {"contrastive": clip}
        return {
            "contrastive": clip / 2,
            "in_modal_contrastive": (self._views(z, "image", anchors) + self._views(z, "text", anchors)) / 4,
        }

    def _views(self, z: Tensors, modality: str, anchors: slice) -> Tensor:
        """These anchors' share of the cross-entropy of originals against second views; views are no anchors."""
        logits: Tensor = self.scale() * similarities(z[modality][anchors], z[f"{modality}_view"])
        own = torch.arange(anchors.start, anchors.stop, device=logits.device)
        return F.cross_entropy(logits, own, reduction="sum") / logits.shape[1]
