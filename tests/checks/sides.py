"""Adapters that hold a second pair of towers, as plug-ins: CLIP pulled towards what the side sees."""

PLUGINS = {
    "beside_reference": """
    name = "beside_reference"
    side = "reference"
    reference = "clip"
    starts_from_reference = False
""",
    "from_reference": """
    name = "from_reference"
    side = "reference"
    reference = "clip"
""",
    "beside_average": """
    name = "beside_average"
    side = "ema"

    def side_decay(self, clock):
        return self.config.decay
""",
    "beside_itself": """
    name = "beside_itself"

    def look(self, towers):
        return copy.deepcopy(towers).eval().requires_grad_(False)
""",
}
SOURCE = '''"""CLIP and a pull of every similarity towards that of a second pair of towers."""

import copy
import math
from dataclasses import dataclass, replace

import torch

from methods.base import check, similarities, unit
from methods.clip import Clip, ClipConfig
from methods.protocol import Cost


@dataclass(frozen=True)
class PulledConfig(ClipConfig):
    """CLIP's hyper-parameters."""

    decay: float = 0.5  #: of the average
    pull: float = 1.0  #: weight of the pull

    def __post_init__(self):
        super().__post_init__()
        for name in ("decay", "pull"):
            check(self, name, 0 <= getattr(self, name) < math.inf, "a finite number >= 0")


class Pulled(Clip):
    Config = PulledConfig
    presets = {}
    about = replace(Clip.about, fidelity="derived")
BODY
    def look(self, towers):
        return towers.side

    def cost(self, phase):
        return Cost(side_image=1.0, side_text=1.0)

    def encode(self, towers, rows):
        with torch.no_grad():
            side = self.look(towers)
            seen = {"side_image": side.encode_image(rows.images), "side_text": side.encode_text(rows.tokens)}
        return {**super().encode(towers, rows), **{name: unit(x) for name, x in seen.items()}}

    def loss(self, z, observed, anchors):
        own = similarities(z["image"][anchors], z["text"])
        theirs = similarities(z["side_image"][anchors], z["side_text"])
        gap = (own - theirs).square().sum() / len(z["image"]) ** 2
        return {**super().loss(z, observed, anchors), "pull": self.config.pull * gap}
'''


def source(name: str) -> str:
    """The file of one of them; a `look` of its own comes after the common one."""
    body = PLUGINS[name]
    head, _, look = body.partition("    def look")
    text = SOURCE.replace("BODY", head)
    return text + ("\n    def look" + look if look else "")
