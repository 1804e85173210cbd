"""CLIP: symmetric InfoNCE, the baseline that everything is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from methods.base import Contrastive, Presets, check_scale, info_nce
from methods.protocol import TEMPERATURE, About, Space, Tensors


@dataclass(frozen=True)
class ClipConfig:
    """Hyper-parameters of CLIP."""

    temperature: float = 0.07  #: the logit scale starts at 1/temperature
    learnable_scale: bool = True  #: learn the scale (clamped to [1, 100]) or keep it

    def __post_init__(self) -> None:
        check_scale(self)


class Clip(Contrastive):
    """L = 1/2 [CE(l, id) + CE(l^T, id)], l_ij = e^rho <v_i, t_j>."""

    name = "clip"
    about = About(
        title="CLIP",
        summary="Classifies each image's caption among the batch and each caption's image, with softmax cross-entropy. "
        "It trusts every pair fully and is the baseline for robustness.",
        paper="Radford et al., ICML 2021",
        equations="Figure 3 (pseudo-code)",
        fidelity="official-checked",
        bibtex="""@inproceedings{radford2021clip,
  title = {Learning Transferable Visual Models From Natural Language Supervision},
  author = {Radford, Alec and Kim, Jong Wook and Hallacy, Chris and Ramesh, Aditya and Goh, Gabriel and Agarwal,
    Sandhini and Sastry, Girish and Askell, Amanda and Mishkin, Pamela and Clark, Jack and Krueger, Gretchen and
    Sutskever, Ilya},
  booktitle = {International Conference on Machine Learning},
  year = {2021}
}""",
        state="logit scale",
    )
    Config = ClipConfig
    presets: ClassVar[Presets] = {"paper": {}}
    space: ClassVar[Space] = TEMPERATURE

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        # Some papers print the sum of the two directions; every official code takes their mean.
        # official: github.com/mlfoundations/open_clip@89fb801 src/open_clip/loss.py (ClipLoss)
        return {"contrastive": info_nce(z, self.scale(), anchors)}
