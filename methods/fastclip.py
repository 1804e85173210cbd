"""FastCLIP v3: the contrastive loss over all rows, whose one temperature is learned from the robust objective."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from methods.base import Presets
from methods.global_loss import GlobalConfig, GlobalLoss, with_floor
from methods.protocol import TEMPERATURE, About, Identity, Linear, Log, Space


# official: github.com/Optimization-AI/fast_clip@efd89d5 README.md (CC3M with ResNet-50)
@dataclass(frozen=True)
class FastclipConfig(GlobalConfig):
    """Hyper-parameters of FastCLIP v3; defaults are those of the official CC3M script."""


class Fastclip(GlobalLoss):
    """g_i = mean_{j != i} e^{d_ij}, d_ij = (s_ij - s_ii)/tau; F = tau (1/2 mean ln(eps + u) of both directions + rho).

    Towers get half of SogCLR's gradient.
    """

    name = "fastclip"
    about = About(
        title="FastCLIP",
        summary="Minimises the contrastive loss over all training pairs by a moving average of each row's normaliser, "
        "and learns one temperature as the dual variable of a robust loss. Small batches then neither bias the "
        "gradient nor need a tuned temperature.",
        paper="Wei et al., 2024 (version v3)",
        equations="robust global contrastive loss with a global temperature; as in the authors' code and README",
        fidelity="official-checked",
        bibtex="""@article{wei2024fastclip,
  title = {{FastCLIP}: A Suite of Optimization Techniques to Accelerate {CLIP} Training with Limited Resources},
  author = {Wei, Xiyuan and Ye, Fanjiang and Yonay, Ori and Chen, Xingyu and Sun, Baixi and Tao, Dingwen and
    Yang, Tianbao},
  journal = {arXiv preprint arXiv:2407.01445},
  year = {2024}
}""",
        state="log normaliser of every row, in both directions; temperature and the moments of its Adam",
        note="The temperature follows the slope of the objective; the official code counts the softmax term twice "
        "(preset official), so a radius rho tuned for one does not fit the other. Its learning rate eta is absolute: "
        "the scripts take 0.2 to 0.25 of the towers' rate. In runs of one pass or less no row is visited twice, and "
        "the loss is that of the batch. The value of the loss is a surrogate; the objective is logged beside it.",
    )
    Config = FastclipConfig
    presets: ClassVar[Presets] = {
        "paper": {},
        # official: github.com/Optimization-AI/fast_clip@efd89d5 src/fast_clip/loss.py (FastCLIPLoss)
        "official": {"temperature_rule": "official"},
    }
    space: ClassVar[Space] = {**TEMPERATURE, "rho": Log(2.0, 20.0), "gamma_min": Linear(0.05, 1.0, limit="high")}
    identities = (
        Identity(
            "at a fixed temperature a first visit's gradient is half of SogCLR's",
            equals="sogclr",
            config={"temperature": 0.05, "learnable_scale": False, "epsilon": 0.0},
            other={"temperature": 0.05, "floor": 0.0},
            factor=0.5,
            gradient_only=True,
        ),
    )
    factor = 0.5

    def log_mean(self, log_sum: Tensor) -> Tensor:
        return log_sum - math.log(len(log_sum) - 1)

    def log_floored(self, log_u: Tensor) -> Tensor:
        return with_floor(log_u, self.config.epsilon)
