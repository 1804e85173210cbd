"""RCL: complementary contrastive learning, which says of negatives alone that they do not belong to their anchor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from methods.base import Contrastive, Presets, check, check_scale
from methods.protocol import TEMPERATURE, About, Choice, Identity, Space, Tensors

FORMS = ("log", "tan", "abs", "exp", "gce")


@dataclass(frozen=True)
class RclConfig:
    """Hyper-parameters of RCL."""

    #: phi, what a negative of probability p costs: -ln(1 - p), tan p, p, e^{-(1 - p)} or (1 - (1 - p)^q) / q
    form: Literal["log", "tan", "abs", "exp", "gce"] = "log"
    q: float = 0.2  #: of the form "gce" alone: 1 is the form "abs", towards 0 it becomes "log"
    #: epsilon, added to every normaliser and to 1 - p. 0 is the formula; the official code's 1e-10 lets no single
    #: negative cost more than 23.
    floor: float = 0.0
    temperature: float = 0.05  #: the logit scale is, or starts at, 1/temperature
    learnable_scale: bool = False  #: learn the scale (clamped to [1, 100]) or keep it

    def __post_init__(self) -> None:
        check(self, "form", self.form in FORMS, f"one of {', '.join(FORMS)}")
        check(self, "q", 0 < self.q <= 1, "in (0, 1]")
        check(self, "floor", 0 <= self.floor < 1, "in [0, 1)")
        check_scale(self)


class Rcl(Contrastive):
    """L = (1/B) sum_i sum_{j != i} [phi(p_ij) + phi(p'_ij)], p and p' the softmaxes of image and of text anchors."""

    name = "rcl"
    about = About(
        title="RCL",
        summary="Lowers the probability of every caption that is not the image's own, and never raises that of the own "
        "one directly. A wrong pair then misleads only through the normaliser.",
        paper="Hu et al., TPAMI 2023",
        equations="complementary contrastive learning; read from the authors' code, the paper could not be obtained",
        fidelity="official-checked",
        bibtex="""@article{hu2023rcl,
  title = {Cross-Modal Retrieval with Partially Mismatched Pairs},
  author = {Hu, Peng and Huang, Zhenyu and Peng, Dezhong and Wang, Xu and Peng, Xi},
  journal = {IEEE Transactions on Pattern Analysis and Machine Intelligence},
  volume = {45},
  number = {8},
  pages = {9595--9610},
  year = {2023}
}""",
        note="The authors score a pair by a region-word network in (0, 1); here it is the cosine, at the same "
        "temperature. The form is that of their scripts. Their option of a random subset of the negatives, unused in "
        "the scripts, is left out.",
    )
    Config = RclConfig
    # official: github.com/penghu-cs/RCL@1096a24 RCL-SGRAF/model.py (CCL)
    # RCL-GSMN/model.py has the same class. No script ramps the temperature or q, and the option for warm-up steps with
    # cross-entropy is never read.
    presets: ClassVar[Presets] = {"official": {"floor": 1e-10}}
    space: ClassVar[Space] = {**TEMPERATURE, "form": Choice(FORMS)}
    identities = (
        Identity("gce at q = 1 is abs", equals="rcl", config={"form": "gce", "q": 1.0}, other={"form": "abs"}),
        Identity("as q goes to 0, gce becomes log", "rcl", {"form": "gce", "q": 1e-9}, {"form": "log"}, rtol=1e-6),
    )

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        total = self.scale().new_zeros(())
        for logits, own in self.logits(z, anchors):
            total = total + self._costs(logits).scatter(1, own[:, None], 0.0).sum()
        return {"complementary": total / z["image"].shape[0]}

    def _costs(self, logits: Tensor) -> Tensor:
        """phi(p_ij) of every candidate, [n, B] -> [n, B]."""
        form, q = self.config.form, self.config.q
        log_floor = logits.new_tensor(self.config.floor).log()  # -inf if there is none
        if form == "log":
            return -_log_rest(logits, log_floor)
        if form == "gce":
            return torch.expm1(q * _log_rest(logits, log_floor)).div(-q)
        p = (logits - _log_normaliser(logits, log_floor)).exp()
        if form == "exp":
            return (p - 1).exp()
        return p.tan() if form == "tan" else p


def _log_normaliser(logits: Tensor, log_floor: Tensor) -> Tensor:
    """ln(sum_k e^{l_ik} + epsilon), [n, 1]."""
    return torch.logaddexp(logits.logsumexp(1, keepdim=True), log_floor)


def _log_rest(logits: Tensor, log_floor: Tensor) -> Tensor:
    """ln(1 - p_ij + epsilon), [n, B], exact also where p rounds to 1.

    Only an anchor's largest probability can do so; there 1 - p is the share of all others.
    """
    log_z, top = _log_normaliser(logits, log_floor), logits.argmax(1, keepdim=True)
    others = torch.logaddexp(logits.scatter(1, top, -math.inf).logsumexp(1, keepdim=True), log_floor)
    log_p = (logits - log_z).scatter(1, top, -math.inf)
    log_rest = torch.log1p(-log_p.exp()).scatter(1, top, others - log_z)
    return torch.logaddexp(log_rest, log_floor)
