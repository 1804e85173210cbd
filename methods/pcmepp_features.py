"""PCME++ without mixed images: every image and text is a Gaussian that is read from its tower's output vector."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from methods.base import Presets
from methods.pcmepp import Pcmepp, PcmeppConfig
from methods.protocol import About, Facts, Linear, Log, Space, Towers
from methods.vector_gaussian import VectorHead


# official: github.com/naver-ai/pcmepp@8829c0d configs/pcmepp.yaml
@dataclass(frozen=True)
class PcmeppFeaturesConfig:
    """Hyper-parameters of PCME++ that concern its loss."""

    alpha: float = 0.1  #: weight of the pseudo-positive terms
    beta: float = 1e-4  #: weight of the variational information bottleneck
    smoothing: float = 1e-4  #: label of a non-match; a match has 1 minus this
    negative_scale: float = 5.0  #: initial a_0 in the logit -a_0 CSD + b_0
    shift: float = 5.0  #: initial b_0
    own_lr: float = 5e-4  #: learning rate of a_0, b_0 and the log-variance heads
    logvar: float = -10.0  #: initial log-variance; ProLIP's, where the official configuration starts at 0

    def __post_init__(self) -> None:
        _whole(self)


def _whole(config: PcmeppFeaturesConfig) -> PcmeppConfig:
    """The same of PCME++, with all towers trained alike from the first step and no image mixed."""
    return PcmeppConfig(**asdict(config), lr_scale=1.0, frozen_share=0.0, mixed_share=0.0)


class PcmeppFeatures(Pcmepp):
    """L = 2 BCE(z, Y) + alpha [BCE(z, Y') + BCE(z^T, Y'')] + beta VIB, z_ij = -a_0 CSD_ij + b_0, means over B^2."""

    name = "pcmepp_features"
    about = About(
        title="PCME++ on vectors",
        summary="PCME++'s loss where the towers read stored features: a linear head on each tower's output gives the "
        "variance. Candidates nearer than the given match count as matches too.",
        paper="Chun, ICLR 2024",
        equations="Equations 1-2; pseudo-positives in Section 3",
        fidelity="derived",
        bibtex=Pcmepp.about.bibtex,
        state="a_0, b_0, log-variance heads",
        note="A variant of ours. The frozen encoders that made the features stand for the pretrained towers, so it "
        "starts from no reference run and freezes nothing. No images are mixed, and no blocks exist twice.",
    )
    Config = PcmeppFeaturesConfig  # type: ignore[assignment]  # fewer options than its base
    presets: ClassVar[Presets] = {"paper": {}, "official": {"logvar": 0.0}}
    space: ClassVar[Space] = {
        "negative_scale": Log(1.0, 25.0),
        "shift": Linear(0.0, 10.0),
        "alpha": Log(0.01, 1.0),
        "beta": Log(1e-6, 1e-2),
    }
    reference = None  # type: ignore[assignment]
    needs = frozenset()

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(_whole(config), facts)

    def prepare(self, towers: Towers) -> None:
        self.image_head = VectorHead("image", towers.dim, self.config.logvar)
        self.text_head = VectorHead("text", towers.dim, self.config.logvar)
