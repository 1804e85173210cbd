"""Secondary random labels: every row has a second, random target of small weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from methods.base import Contrastive, Presets, check, check_scale, info_nce, stream
from methods.protocol import TEMPERATURE, About, Batch, Identity, Log, Space, Tensors


@dataclass(frozen=True)
class LabelSecondaryConfig:
    """Hyper-parameters of secondary random labels."""

    gamma: float = 0.1  #: weight of the random target
    mixture: Literal["convex", "additive"] = (
        "convex"  #: "convex": (1 - gamma) true + gamma random; "additive": true + gamma random
    )
    draw: Literal["permutation", "uniform"] = (
        "permutation"  #: "permutation" of the batch (section 2.3), or "uniform" for each row (Algorithm 3)
    )
    temperature: float = 0.07  #: the logit scale starts at 1/temperature
    learnable_scale: bool = True  #: learn the scale (clamped to [1, 100]) or keep it

    def __post_init__(self) -> None:
        check(self, "gamma", 0 <= self.gamma <= 1, "in [0, 1]")
        check(self, "mixture", self.mixture in ("convex", "additive"), '"convex" or "additive"')
        check(self, "draw", self.draw in ("permutation", "uniform"), '"permutation" or "uniform"')
        check_scale(self)


class LabelSecondary(Contrastive):
    """L = (1 - gamma) CLIP(id) + gamma CLIP(y), y drawn anew at every step."""

    name = "label_secondary"
    about = About(
        title="Secondary random label",
        summary="Gives every row a second target drawn at random from the batch, mixed into the loss with a small "
        "weight. In expectation this is label smoothing, so that no single pair is trusted fully.",
        paper="When Noises Help: Stochastic Label Augmentations (anonymous submission)",
        equations="Algorithm 3, Section 2.3",
        fidelity="derived",
        bibtex="""@unpublished{noiseshelp,
  title = {When Noises Help: Improve Text-Image Multimodal Contrastive Learning with Stochastic Label Augmentations},
  author = {Anonymous},
  note = {Anonymous ACL submission}
}""",
        state="logit scale",
        note="Algorithm 3 and Section 2.3 disagree on the draw and on the mixture; the convex mixture is the one that "
        "fits the paper's numbers at gamma 0.9.",
    )
    Config = LabelSecondaryConfig
    presets: ClassVar[Presets] = {"paper": {"gamma": 0.1}}
    space: ClassVar[Space] = {**TEMPERATURE, "gamma": Log(0.01, 0.8)}
    identities = (
        Identity("without weight on the random target it is CLIP", equals="clip", config={"gamma": 0.0}),
        Identity(
            "additive is convex with gamma/(1 + gamma), times 1 + gamma",
            equals="label_secondary",
            config={"gamma": 0.3, "mixture": "additive"},
            other={"gamma": 0.3 / 1.3},
            factor=1.3,
        ),
    )

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        total = z["image"].shape[0]
        draws = stream(self.facts.seed, "label_secondary", batch.clock.step)
        if self.config.draw == "permutation":
            labels = torch.randperm(total, generator=draws)
        else:
            labels = torch.randint(total, (total,), generator=draws)
        return {"labels": labels.to(z["image"].device)}

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        gamma, labels = self.config.gamma, observed["labels"]
        # Algorithm 3 mixes integer labels, which means nothing: what is mixed here is the losses, i.e. one-hot targets.
        kept = 1.0 - gamma if self.config.mixture == "convex" else 1.0
        return {
            "contrastive": kept * info_nce(z, self.scale(), anchors),
            "secondary": gamma * info_nce(z, self.scale(), anchors, labels, labels),
        }
