"""CleanCLIP: fine-tune a trained CLIP by its own loss and by contrasts within each modality, which forget triggers."""

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
from methods.protocol import About, Cost, Facts, Identity, Log, Phase, Rows, Space, Tensors, Towers


# official: github.com/nishadsinghi/CleanCLIP@d6e2f1d src/train.py (get_loss), README.md (fine-tuning command)
@dataclass(frozen=True)
class CleanclipConfig:
    """Hyper-parameters of CleanCLIP; defaults are those of the official command."""

    clip_weight: float = 1.0  #: weight of CLIP's loss on the plain pairs
    inmodal_weight: float = 1.0  #: weight of the contrasts of images with their views and of captions with their edits
    lr_scale: float = 0.02  #: times the suite's learning rate, for towers (1e-5 of 5e-4)
    eda_alpha: float = 0.1  #: share of a caption's words that its edit touches
    #: folder with WordNet's data files, for synonyms beyond the data's own; a run's id hashes the files' content
    wordnet: str | None = dataclasses.field(default=None, metadata={"path": True})
    temperature: float = 0.07  #: the logit scale starts at 1/temperature; the reference run's takes its place
    learnable_scale: bool = True  #: learn the scale (clamped to [1, 100]) or keep it

    def __post_init__(self) -> None:
        for name in ("clip_weight", "inmodal_weight"):
            check(self, name, 0 <= getattr(self, name) < math.inf, "a finite number >= 0")
        check(self, "lr_scale", 0 < self.lr_scale < math.inf, "a finite number > 0")
        check(self, "eda_alpha", 0 <= self.eda_alpha <= 1, "in [0, 1]")
        check_scale(self)


class Cleanclip(Contrastive):
    """L = w_c CLIP + w_i/2 [CE(a v v'^T) + CE(a t t'^T)]: plain rows are the anchors, second views the candidates."""

    name = "cleanclip"
    about = About(
        title="CleanCLIP",
        summary="Fine-tunes a trained CLIP on its own loss and on contrasts of images with augmented views and of "
        "captions with edited ones. What ties an image to a text only by a planted trigger is thereby forgotten.",
        paper="Bansal et al., ICCV 2023",
        equations="as in the authors' code and README",
        fidelity="official-checked",
        bibtex="""@inproceedings{bansal2023cleanclip,
  title = {{CleanCLIP}: Mitigating Data Poisoning Attacks in Multimodal Contrastive Learning},
  author = {Bansal, Hritik and Singhi, Nishad and Yang, Yu and Yin, Fan and Grover, Aditya and Chang, Kai-Wei},
  booktitle = {International Conference on Computer Vision},
  year = {2023}
}""",
        state="logit scale",
        note="The authors fine-tune on 100 thousand pairs that are known to be clean, 0.5 % of the samples of "
        "pre-training. Without data.keep = trusted it fine-tunes on the noisy pairs, for the suite's share of the "
        "budget; that is another setting, and the two belong in different columns. Images are augmented as the suite "
        "says instead of by AutoAugment.",
    )
    Config = CleanclipConfig
    presets: ClassVar[Presets] = {"paper": {}, "official": {}}
    space: ClassVar[Space] = {"inmodal_weight": Log(0.1, 10.0), "lr_scale": Log(0.004, 1.0)}
    reference = "clip"
    needs = frozenset({"tokens", "second_view"})
    identities = (Identity("without contrasts within modalities it is CLIP", "clip", {"inmodal_weight": 0.0}),)

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        self.extra_views = 1
        self.eda = Eda.of(facts, "cleanclip", config.eda_alpha, config.wordnet)

    def phases(self) -> tuple[Phase, ...]:
        return (Phase(lr_scale=self.config.lr_scale),)

    def cost(self, phase: str) -> Cost:
        return Cost(image=2.0, text=2.0)

    def encode(self, towers: Towers, rows: Rows) -> Tensors:
        return {
            **super().encode(towers, rows),
            "image_view": unit(towers.encode_image(rows.views[0])),
            "text_view": unit(towers.encode_text(towers.tokenize(self.eda.edited(rows)))),
        }

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        clip = info_nce(z, self.scale(), anchors)
        within = self._views(z, "image", anchors) + self._views(z, "text", anchors)
        return {"contrastive": self.config.clip_weight * clip, "in_modal": self.config.inmodal_weight * within / 2}

    def _views(self, z: Tensors, modality: str, anchors: slice) -> Tensor:
        """These anchors' share of the cross-entropy of plain rows against second views; views are no anchors."""
        logits: Tensor = self.scale() * similarities(z[modality][anchors], z[f"{modality}_view"])
        own = torch.arange(anchors.start, anchors.stop, device=logits.device)
        return F.cross_entropy(logits, own, reduction="sum") / logits.shape[1]
