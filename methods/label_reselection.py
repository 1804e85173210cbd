"""Label re-selection: some rows of each batch get a uniformly drawn target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from methods.base import Contrastive, Presets, check, check_scale, info_nce, portion, stream
from methods.protocol import TEMPERATURE, About, Batch, Identity, Log, Space, Tensors


@dataclass(frozen=True)
class LabelReselectionConfig:
    """Hyper-parameters of label re-selection."""

    gamma: float = 0.1  #: share of the batch whose targets are drawn anew
    temperature: float = 0.07  #: the logit scale starts at 1/temperature
    learnable_scale: bool = True  #: learn the scale (clamped to [1, 100]) or keep it

    def __post_init__(self) -> None:
        check(self, "gamma", 0 <= self.gamma <= 1, "in [0, 1]")
        check_scale(self)


class LabelReselection(Contrastive):
    """CLIP on labels y: y_i ~ Uniform{0..B-1} on a random floor(gamma B) of the rows, the identity elsewhere."""

    name = "label_reselection"
    about = About(
        title="Label re-selection",
        summary="Draws a share of the batch at every step and gives each of its rows a target drawn uniformly from "
        "the batch. In expectation this is label smoothing, so that no single pair is trusted fully.",
        paper="When Noises Help: Stochastic Label Augmentations (anonymous submission)",
        equations="Algorithm 1",
        fidelity="derived",
        bibtex="""@unpublished{noiseshelp,
  title = {When Noises Help: Improve Text-Image Multimodal Contrastive Learning with Stochastic Label Augmentations},
  author = {Anonymous},
  note = {Anonymous ACL submission}
}""",
        state="logit scale",
        note="The direction of the labels is not discussed in the paper: one label vector serves both directions.",
    )
    Config = LabelReselectionConfig
    presets: ClassVar[Presets] = {"paper": {"gamma": 0.1}}
    space: ClassVar[Space] = {**TEMPERATURE, "gamma": Log(0.01, 0.8)}
    identities = (Identity("with no row redrawn it is CLIP", equals="clip", config={"gamma": 0.0}),)

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        total = z["image"].shape[0]
        draws = stream(self.facts.seed, "label_reselection", batch.clock.step)
        chosen = torch.randperm(total, generator=draws)[: portion(self.config.gamma, total)]
        labels = torch.arange(total)
        # Independent draws: several rows may share a target, and a row may draw its own.
        labels[chosen] = torch.randint(total, (len(chosen),), generator=draws)
        return {"labels": labels.to(z["image"].device)}

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        return {"contrastive": info_nce(z, self.scale(), anchors, observed["labels"], observed["labels"])}
