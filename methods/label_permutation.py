"""Label permutation: some rows of each batch swap their targets among themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from methods.base import Contrastive, Presets, check, check_scale, info_nce, portion, stream
from methods.protocol import TEMPERATURE, About, Batch, Identity, Log, Space, Tensors


@dataclass(frozen=True)
class LabelPermutationConfig:
    """Hyper-parameters of label permutation."""

    gamma: float = 0.1  #: share of the batch whose targets are permuted
    text_labels: Literal["same", "inverse"] = (
        "same"  #: "same": one label vector for both directions; "inverse": one consistent pairing
    )
    temperature: float = 0.07  #: the logit scale starts at 1/temperature
    learnable_scale: bool = True  #: learn the scale (clamped to [1, 100]) or keep it

    def __post_init__(self) -> None:
        check(self, "gamma", 0 <= self.gamma <= 1, "in [0, 1]")
        check(self, "text_labels", self.text_labels in ("same", "inverse"), '"same" or "inverse"')
        check_scale(self)


class LabelPermutation(Contrastive):
    """CLIP on labels y: y permutes a random floor(gamma B) of the rows and is the identity elsewhere."""

    name = "label_permutation"
    about = About(
        title="Label permutation",
        summary="Draws a share of the batch at every step and permutes its targets at random within the batch. "
        "In expectation this is label smoothing, so that no single pair is trusted fully.",
        paper="When Noises Help: Stochastic Label Augmentations (anonymous submission)",
        equations="Algorithm 2",
        fidelity="derived",
        bibtex="""@unpublished{noiseshelp,
  title = {When Noises Help: Improve Text-Image Multimodal Contrastive Learning with Stochastic Label Augmentations},
  author = {Anonymous},
  note = {Anonymous ACL submission}
}""",
        state="logit scale",
        note="The direction of the labels is not discussed in the paper: one label vector serves both directions.",
    )
    Config = LabelPermutationConfig
    presets: ClassVar[Presets] = {"paper": {"gamma": 0.1}}
    space: ClassVar[Space] = {**TEMPERATURE, "gamma": Log(0.01, 0.8)}
    identities = (Identity("with no row permuted it is CLIP", equals="clip", config={"gamma": 0.0}),)

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        total, device = z["image"].shape[0], z["image"].device
        draws = stream(self.facts.seed, "label_permutation", batch.clock.step)
        chosen = torch.randperm(total, generator=draws)[: portion(self.config.gamma, total)]
        labels = torch.arange(total)
        labels[chosen] = chosen[torch.randperm(len(chosen), generator=draws)]
        text_labels = labels.argsort() if self.config.text_labels == "inverse" else labels
        return {"image_labels": labels.to(device), "text_labels": text_labels.to(device)}

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        labels = observed["image_labels"], observed["text_labels"]
        return {"contrastive": info_nce(z, self.scale(), anchors, *labels)}
