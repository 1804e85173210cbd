"""SoftCLIP with fallback guides: CLIP whose targets are softened by similarities within each modality."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from methods.base import Contrastive, Presets, check, check_scale, similarities
from methods.protocol import TEMPERATURE, About, Batch, Identity, Linear, Log, Space, Tensors


@dataclass(frozen=True)
class SoftclipFallbackConfig:
    """Hyper-parameters of SoftCLIP (fallback guides). The paper's values are unknown: all three are placeholders."""

    beta: float = 0.3  #: weight of the guides' softmax in the targets (unverified)
    lam: float = 0.1  #: lambda, weight of the divergence between the negatives alone (unverified)
    target_temperature: float | None = None  #: of the guides' softmax; null: the model's own (unverified)
    temperature: float = 0.07  #: the logit scale starts at 1/temperature
    learnable_scale: bool = True  #: learn the scale (clamped to [1, 100]) or keep it

    def __post_init__(self) -> None:
        check(self, "beta", 0 <= self.beta <= 1, "in [0, 1]")
        check(self, "lam", 0 <= self.lam < math.inf, "a finite number >= 0")
        given = self.target_temperature
        check(self, "target_temperature", given is None or 0 < given < math.inf, "null or a finite number > 0")
        check_scale(self)


class SoftclipFallback(Contrastive):
    """L = 1/2 mean_i [KL(p_i || q_i) + lambda KL(p_i^neg || q_i^neg)] in both directions.

    q_i = softmax_j(a s_ij), p_i = (1 - beta) e_i + beta softmax_j(<g_i, g_j>/tau_s) with the anchor's guides g; "neg"
    leaves the anchor's own partner out and renormalises.
    """

    name = "softclip_fallback"
    about = About(
        title="SoftCLIP (fallback guides)",
        summary="Softens CLIP's one-hot targets by how similar the batch's images are among themselves, and its "
        "captions among themselves. Near duplicates of a pair then count as partly right.",
        paper="Gao et al., AAAI 2024",
        equations="reconstructed; the paper's body could not be obtained",
        fidelity="reconstructed",
        bibtex="""@inproceedings{gao2024softclip,
  title = {{SoftCLIP}: Softer Cross-Modal Alignment Makes {CLIP} Stronger},
  author = {Gao, Yuting and Liu, Jinfeng and Xu, Zihan and Wu, Tong and Zhang, Enwei and Li, Ke and Yang, Jie and
    Liu, Wei and Sun, Xing},
  booktitle = {AAAI Conference on Artificial Intelligence},
  year = {2024}
}""",
        state="logit scale",
        note="Unverified reconstruction. The paper's guides are features of detected regions and tags from frozen "
        "extractors; here they are the model's own detached embeddings. beta, lambda and the target temperature are "
        "placeholders.",
    )
    Config = SoftclipFallbackConfig
    presets: ClassVar[Presets] = {"paper": {}}
    space: ClassVar[Space] = {**TEMPERATURE, "beta": Linear(0.0, 1.0), "lam": Log(0.01, 1.0)}
    identities = (Identity("with one-hot targets alone it is CLIP", equals="clip", config={"beta": 0.0, "lam": 0.0}),)

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        return {"image_guide": z["image"].detach(), "text_guide": z["text"].detach()}

    def draw(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        """[n, B] targets over all candidates and over the negatives, for image and for text anchors."""
        targets: Tensors = {}
        temperature = self.config.target_temperature
        scale = self.scale() if temperature is None else 1 / temperature
        for modality in ("image", "text"):
            guide = observed[f"{modality}_guide"]
            guided = scale * similarities(guide[anchors], guide)
            soft = self.config.beta * guided.softmax(1)
            soft.diagonal(anchors.start).add_(1 - self.config.beta)
            guided.diagonal(anchors.start).fill_(-math.inf)
            # (1 - beta) sits on the diagonal alone, so beta cancels among the negatives, even where it is 0.
            targets |= {modality: soft, f"{modality}_negatives": guided.softmax(1)}
        return targets

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        total = z["image"].shape[0]
        soft, relaxed = z["image"].new_zeros(()), z["image"].new_zeros(())
        for modality, (logits, _) in zip(("image", "text"), self.logits(z, anchors), strict=True):
            soft = soft + _divergence(observed[modality], logits)
            negatives = logits.clone()
            negatives.diagonal(anchors.start).fill_(-math.inf)
            relaxed = relaxed + _divergence(observed[f"{modality}_negatives"], negatives)
        return {"soft_targets": soft / (2 * total), "relaxed": self.config.lam * relaxed / (2 * total)}


def _divergence(targets: Tensor, logits: Tensor) -> Tensor:
    """Sum over rows of KL(target || softmax(logits)), 0 ln 0 = 0; a logit may be -inf where its target is 0."""
    log_q = logits.log_softmax(1).masked_fill(logits == -math.inf, 0.0)
    return F.kl_div(log_q, targets, reduction="sum")
