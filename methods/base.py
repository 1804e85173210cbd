"""What adapters share: defaults of the protocol, the logit scale, counter-based draws."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods.protocol import About, Batch, Clock, Cost, Facts, Phase, Rows, Tensors, Towers

BLOCK = 32  #: anchors that share one random stream; ranks and tiles hold whole blocks


class Adapter(nn.Module):
    """Defaults for everything but `loss`: plain normalised embeddings, no state, one phase, cosine score."""

    name: ClassVar[str]
    about: ClassVar[About]
    Config: ClassVar[type]
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    reference: ClassVar[str | None] = None
    whole_batch: ClassVar[bool] = False
    score: ClassVar[str] = "cosine"

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__()
        self.config = config
        self.facts = facts
        self.extra_views = 0

    def prepare(self, towers: Towers) -> None:
        """Leave the towers as they are."""

    def phases(self) -> tuple[Phase, ...]:
        return (Phase(),)

    def cost(self, phase: str) -> Cost:
        return Cost()

    def encode(self, towers: Towers, rows: Rows) -> Tensors:
        return {
            "image": F.normalize(towers.encode_image(rows.images), dim=-1),
            "text": F.normalize(towers.encode_text(rows.tokens), dim=-1),
        }

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        return {}

    def draw(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        return observed

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        raise TypeError(f"{type(self).__name__} must define loss(z, observed, anchors)")

    def monitor(self, z: Tensors, observed: Tensors) -> Mapping[str, float]:
        return {}

    def after_step(self, clock: Clock) -> None:
        """Clamps and schedules of own scalars."""

    def end_epoch(self, epoch: int) -> None:
        """Called once after the last step of each pass over the training rows."""

    def image_features(self, towers: Towers, images: Tensor) -> Tensors:
        return {"embedding": F.normalize(towers.encode_image(images).float(), dim=-1)}

    def text_features(self, towers: Towers, tokens: Tensor) -> Tensors:
        return {"embedding": F.normalize(towers.encode_text(tokens).float(), dim=-1)}

    def confidence(self, image: Tensors, text: Tensors) -> Tensor:
        return (image["embedding"] * text["embedding"]).sum(-1)


class RowWise(Adapter):
    """A loss that is a sum over anchors given the step's constants; evaluated in tiles, memory linear in B."""


class WholeBatch(Adapter):
    """A loss that needs all B rows at once; `anchors` is always slice(0, B)."""

    whole_batch = True


class LogitScale(nn.Module):
    """a = e^rho: learnable (no decay, clamped to [0, ln 100] after every step) or fixed at 1/temperature.

    SPEC 0.5: rho starts at ln(1/0.07) as in CLIP (Radford et al. 2021, 2.5).
    """

    def __init__(self, temperature: float = 0.07, learnable: bool = True) -> None:
        super().__init__()
        rho = torch.tensor(-math.log(temperature))
        self.learnable = learnable
        if learnable:
            self.rho = nn.Parameter(rho)
        else:
            self.register_buffer("rho", rho)

    def forward(self) -> Tensor:
        """Scalar a."""
        return self.rho.exp()

    @torch.no_grad()
    def clamp_(self) -> None:
        if self.learnable:
            self.rho.clamp_(0.0, math.log(100.0))


def stream(seed: int, purpose: str, *key: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator keyed by (seed, purpose, key): the same numbers on any rank, in any order of calls."""
    text = repr((seed, purpose, key)).encode()
    value = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1
    return torch.Generator(device=device).manual_seed(value)


def blocks(anchors: slice) -> list[tuple[int, slice]]:
    """Blocks of `BLOCK` anchors that meet `anchors`, each with its part of them: (block index, global slice)."""
    first, last = anchors.start // BLOCK, -(-anchors.stop // BLOCK)
    return [
        (block, slice(max(anchors.start, block * BLOCK), min(anchors.stop, (block + 1) * BLOCK)))
        for block in range(first, last)
    ]
