"""PSD: a growing share of each batch is trained on what the model itself says of the other modality."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F

from methods.base import Contrastive, Presets, check, check_scale, portion, stream
from methods.protocol import TEMPERATURE, About, Batch, Identity, Linear, Log, Space, Tensors


@dataclass(frozen=True)
class PsdConfig:
    """Hyper-parameters of progressive self-distillation. The paper's values are unknown: all but CLIP's are guesses."""

    soft: float = 0.5  #: phi_max, share of the batch with soft targets at the end of the run (unverified)
    sharpen: float = 1.0  #: kappa, factor of the teacher's logits (unverified)
    #: an image takes the distribution of its text and the reverse; otherwise each takes its own, which at kappa = 1
    #: gives no gradient (unverified)
    swap: bool = True
    temperature: float = 0.07  #: the logit scale starts at 1/temperature
    learnable_scale: bool = True  #: learn the scale (clamped to [1, 100]) or keep it

    def __post_init__(self) -> None:
        check(self, "soft", 0 <= self.soft <= 1, "in [0, 1]")
        check(self, "sharpen", 0 <= self.sharpen < math.inf, "a finite number >= 0")
        check(self, "swap", isinstance(self.swap, bool), "true or false")
        check_scale(self)


class Psd(Contrastive):
    """L = 1/2 [CE(l, Y) + CE(l^T, Y')]; a random floor(phi B) of the rows has soft targets, the others are one-hot.

    phi = phi_max (1 - cos(pi progress)) / 2. With the teacher's logits k l, detached, a soft image takes its text's
    distribution over images, Y_i = softmax_j(k l_ji), and a soft text takes its image's, Y'_i = softmax_j(k l_ij).
    """

    name = "psd"
    about = About(
        title="PSD (reconstructed)",
        summary="Replaces the one-hot targets of a growing share of the batch by the model's own detached predictions. "
        "Captions that describe several images, or none, then need not be learned as if they were exact.",
        paper="Andonian et al., CVPR 2022",
        equations="reconstructed from the abstract; the paper's body could not be obtained",
        fidelity="reconstructed",
        bibtex="""@inproceedings{andonian2022psd,
  title = {Robust Cross-Modal Representation Learning with Progressive Self-Distillation},
  author = {Andonian, Alex and Chen, Shixing and Hamid, Raffay},
  booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2022}
}""",
        state="logit scale",
        note="Unverified: no code was found. Certain are only that a subset of each batch has soft targets, that it "
        "grows, and that the teacher costs no further forward. The share, its schedule, the swap and the sharpness are "
        "guesses.",
    )
    Config = PsdConfig
    presets: ClassVar[Presets] = {"paper": {}}
    space: ClassVar[Space] = {**TEMPERATURE, "soft": Linear(0.0, 1.0, limit="high"), "sharpen": Log(0.25, 4.0)}
    identities = (Identity("with no soft row it is CLIP", equals="clip", config={"soft": 0.0}),)

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        total = z["image"].shape[0]
        share = self.config.soft * (1 - math.cos(math.pi * batch.clock.progress)) / 2
        order = torch.randperm(total, generator=stream(self.facts.seed, "psd", batch.clock.step))
        soft = torch.zeros(total, dtype=torch.bool)
        soft[order[: portion(share, total)]] = True
        return {"soft": soft.to(z["image"].device)}

    def draw(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        """[n, B] targets of image and of text anchors."""
        hard = torch.arange(anchors.start, anchors.stop, device=z["image"].device)
        image, text = ((self.config.sharpen * logits).softmax(1) for logits, _ in self.logits(z, anchors))
        teachers = {"image": text, "text": image} if self.config.swap else {"image": image, "text": text}
        one_hot = F.one_hot(hard, z["image"].shape[0]).to(image.dtype)
        soft = observed["soft"][anchors, None]
        return {f"{modality}_targets": torch.where(soft, teacher, one_hot) for modality, teacher in teachers.items()}

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        losses = self.scale().new_zeros(())
        for modality, (logits, _) in zip(("image", "text"), self.logits(z, anchors), strict=True):
            losses = losses + F.cross_entropy(logits, observed[f"{modality}_targets"], reduction="sum")
        return {"contrastive": losses / (2 * z["image"].shape[0])}

    def monitor(self, z: Tensors, observed: Tensors) -> dict[str, float]:
        return {"soft_share": float(observed["soft"].double().mean())}
