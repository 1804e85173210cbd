"""ProLIP without masked versions: every image and text is a Gaussian that is read from its tower's output vector."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from methods.base import Presets
from methods.prolip import Prolip, ProlipConfig
from methods.protocol import About, Facts, Towers
from methods.vector_gaussian import VectorHead


@dataclass(frozen=True)
class ProlipFeaturesConfig:
    """Hyper-parameters of ProLIP that do not concern masking."""

    inclusion: float = 1e-7  #: weight of "an image lies within its text" (alpha_1)
    vib: float = 1e-4  #: weight of the variational information bottleneck (beta)
    vib_form: Literal["code", "textbook"] = "code"  #: lambda/2 in the KL's place of lambda = ln sigma^2, or the KL
    inclusion_scale: float = 10.0  #: c in -ln sigma(c H)
    inclusion_eps: float = -100.0  #: added to the exponent of 1/sigma^2; damps the part of H that moves the means
    inclusion_exact: bool = False  #: the normaliser that the integral has, instead of the paper's and the code's
    scale: float = 10.0  #: initial logit scale e^rho
    bias: float = -10.0  #: initial bias of the pairwise logits
    logvar: float = -10.0  #: initial bias of the log-variance heads

    def __post_init__(self) -> None:
        _whole(self)


def _whole(config: ProlipFeaturesConfig) -> ProlipConfig:
    """The same of ProLIP, with nothing masked."""
    return ProlipConfig(**asdict(config), masked_inclusion=0.0, masked_share=0.0)


class ProlipFeatures(Prolip):
    """L = PPCL + alpha_1 inc(v in t) + beta VIB."""

    name = "prolip_features"
    about = About(
        title="ProLIP on vectors",
        summary="ProLIP's loss where the towers read stored features: a linear head on each tower's output gives the "
        "variance. Nothing is masked, because a stored vector has no patches or words to leave out.",
        paper="Chun et al., ICLR 2025",
        equations="Equations 1-4; without alpha_2's terms",
        fidelity="derived",
        bibtex=Prolip.about.bibtex,
        state="logit scale, bias, log-variance heads",
        note="A variant of ours. Texts are read as in the official code, which takes the variance from the mean's own "
        "vector; images are read the same way.",
    )
    Config = ProlipFeaturesConfig  # type: ignore[assignment]  # fewer options than its base
    presets: ClassVar[Presets] = {
        "paper": {"vib_form": "textbook"},
        # official: github.com/naver-ai/prolip@59f6324 src/prolip/loss.py (ProLIPLoss), values of its arguments
        "official": {"inclusion_scale": 1000.0, "inclusion_eps": -20.0},
    }
    needs = frozenset()

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(_whole(config), facts)

    def prepare(self, towers: Towers) -> None:
        self.image_head = VectorHead("image", towers.dim, self.config.logvar)  # type: ignore[assignment]
        self.text_head = VectorHead("text", towers.dim, self.config.logvar)
