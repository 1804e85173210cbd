"""What adapters share: defaults of the protocol, the logit scale, counter-based draws."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods.protocol import (
    About,
    Batch,
    Clock,
    Cost,
    Diagnostic,
    Facts,
    Identity,
    Need,
    Phase,
    Rows,
    Space,
    Tensors,
    Towers,
)

Presets = Mapping[str, Mapping[str, Any]]
BLOCK = 32  #: anchors that share one random stream; ranks and tiles hold whole blocks


class Adapter(nn.Module):
    """Defaults for everything but `loss`: plain normalised embeddings, no state, one phase, cosine score."""

    name: ClassVar[str]
    about: ClassVar[About]
    Config: ClassVar[type]
    presets: ClassVar[Presets] = {}
    space: ClassVar[Space] = {}
    reference: ClassVar[str | None] = None
    starts_from_reference: ClassVar[bool] = True
    side: ClassVar[Literal["none", "reference", "ema"]] = "none"
    needs: ClassVar[frozenset[Need]] = frozenset()
    whole_batch: ClassVar[bool] = False
    score: ClassVar[str] = "cosine"
    monitored: ClassVar[str] = "loss"
    identities: ClassVar[tuple[Identity, ...]] = ()
    known_failures: ClassVar[Mapping[str, str]] = {}

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__()
        self.config = config
        self.facts = facts
        self.extra_views = 0

    @classmethod
    def needs_under(cls, config: Any) -> frozenset[Need]:  # noqa: ARG003  for adapters whose options matter
        return cls.needs

    def prepare(self, towers: Towers) -> None:
        """Leave the towers as they are."""

    def phases(self) -> tuple[Phase, ...]:
        return (Phase(),)

    def cost(self, phase: str) -> Cost:
        return Cost()

    def options(self, name: str) -> Mapping[str, float]:
        return {}

    def encode(self, towers: Towers, rows: Rows) -> Tensors:
        return {
            "image": unit(towers.encode_image(rows.images)),
            "text": unit(towers.encode_text(rows.tokens)),
        }

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        return {}

    def draw(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        return observed

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        raise TypeError(f"{type(self).__name__} must define loss(z, observed, anchors)")

    def monitor(self, z: Tensors, observed: Tensors) -> Mapping[str, float]:
        return {}

    def diagnostics(self, z: Tensors, observed: Tensors) -> tuple[Diagnostic, ...]:
        return ()

    def side_decay(self, clock: Clock) -> float:
        raise TypeError(f'{type(self).__name__} has side = "ema" and must define side_decay(clock)')

    def after_step(self, clock: Clock) -> None:
        """Clamps and schedules of own scalars."""

    def end_epoch(self, epoch: int) -> None:
        """Called once after the last step of each pass over the training rows."""

    def image_features(self, towers: Towers, images: Tensor) -> Tensors:
        return {"embedding": unit(towers.encode_image(images).float())}

    def text_features(self, towers: Towers, tokens: Tensor) -> Tensors:
        return {"embedding": unit(towers.encode_text(tokens).float())}

    def confidence(self, image: Tensors, text: Tensors) -> Tensor:
        return (image["embedding"] * text["embedding"]).sum(-1)


class RowWise(Adapter):
    """A loss that is a sum over anchors given the step's constants; evaluated in tiles, memory linear in B."""


class WholeBatch(Adapter):
    """A loss that needs all B rows at once; `anchors` is always slice(0, B)."""

    whole_batch = True


class LogitScale(nn.Module):
    """a = e^rho: learnable (no decay, clamped to [0, ln 100] after every step) or fixed at 1/temperature.

    rho starts at ln(1/0.07) as in CLIP (Radford et al. 2021, Section 2.5).
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


class Contrastive(RowWise):
    """A row-wise loss on logits a <v_i, t_j>, with CLIP's scale a: read from the config, clamped after every step."""

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        self.scale = LogitScale(getattr(config, "temperature", 0.07), getattr(config, "learnable_scale", True))

    def logits(self, z: Tensors, anchors: slice) -> Iterator[tuple[Tensor, Tensor]]:
        """As `directions`, at this method's scale."""
        return directions(z, self.scale(), anchors)

    def after_step(self, clock: Clock) -> None:
        self.scale.clamp_()


class HyperparameterError(ValueError):
    """A value that a method's Config refuses: `field` of the Config, its `value`, and what is `allowed` in words."""

    def __init__(self, message: str, field: str, value: Any, allowed: str) -> None:
        super().__init__(message, field, value, allowed)
        self.field, self.value, self.allowed = field, value, allowed

    def __str__(self) -> str:
        return str(self.args[0])


def check(config: object, name: str, ok: bool, allowed: str) -> None:
    """Refuse a hyper-parameter that is not `ok`: HyperparameterError."""
    if not ok:
        value = getattr(config, name)
        message = f"{type(config).__name__}.{name} = {value!r}, but it must be {allowed}"
        raise HyperparameterError(message, name, value, allowed)


def check_scale(config: Any) -> None:
    """The two fields of every method whose logit scale starts at 1/temperature."""
    check(config, "temperature", 0 < config.temperature < math.inf, "a finite number > 0")
    check(config, "learnable_scale", isinstance(config.learnable_scale, bool), "true or false")


def wide(x: Tensor) -> Tensor:
    """`x` in at least single precision; fp64 stays fp64."""
    return x if x.dtype == torch.float64 else x.float()


def unit(x: Tensor) -> Tensor:
    """Rows [..., D] divided by their lengths, in at least single precision; a row of zeros stays one.

    Autocast hands over half precision, in which lengths would be off by up to 2^-8, and leaves fp32 as it is.
    """
    return F.normalize(wide(x), dim=-1)


def similarities(anchors: Tensor, candidates: Tensor) -> Tensor:
    """[n, D] and [B, D] -> [n, B] inner products in at least fp32."""
    return wide(anchors) @ wide(candidates).T


def without_own(logits: Tensor, tile: slice) -> Tensor:
    """The same [n, B] tensor, with -inf written where an anchor meets its own partner."""
    rows = torch.arange(logits.shape[0], device=logits.device)
    logits[rows, rows + tile.start] = -math.inf
    return logits


def directions(z: Tensors, scale: Tensor, anchors: slice) -> Iterator[tuple[Tensor, Tensor]]:
    """For these rows as image anchors, then as text anchors: logits scale * s [n, B], own partner's column [n]."""
    own = torch.arange(anchors.start, anchors.stop, device=z["image"].device)
    for anchor, candidate in (("image", "text"), ("text", "image")):
        yield scale * similarities(z[anchor][anchors], z[candidate]), own


def info_nce(
    z: Tensors, scale: Tensor, anchors: slice, image_labels: Tensor | None = None, text_labels: Tensor | None = None
) -> Tensor:
    """These anchors' share of 1/2 [CE(l, y) + CE(l^T, y')], l = scale * <v_i, t_j> (Radford et al. 2021, Figure 3).

    Labels are [B] positions in the global batch, one for each image and each text; default: its own partner.
    """
    losses = scale.new_zeros(())
    for (logits, own), labels in zip(directions(z, scale, anchors), (image_labels, text_labels), strict=True):
        targets = own if labels is None else labels[anchors]
        losses = losses + F.cross_entropy(logits, targets, reduction="sum")
    return losses / (2 * z["image"].shape[0])


def pair_decisions(logits: Tensor, anchors: slice) -> Tensor:
    """Sum of -ln sigma(y_ij z_ij) over [n, B] logits z; y = +1 where a row of the tile meets its partner, else -1."""
    rows = torch.arange(anchors.start, anchors.stop, device=logits.device)
    own = rows[:, None] == torch.arange(logits.shape[1], device=logits.device)
    return -F.logsigmoid(torch.where(own, logits, -logits)).sum()


def portion(share: float, total: int) -> int:
    """floor(share * total) as in exact arithmetic: 0.29 of 100 is 29 although the product of the floats is less."""
    return math.floor(share * total + 1e-9)


def stream_key(seed: int, purpose: str, *key: int) -> int:
    """63 bits keyed by (seed, purpose, key): what any counter-based draw is seeded with."""
    text = repr((seed, purpose, key)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def stream(seed: int, purpose: str, *key: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator keyed by (seed, purpose, key): the same numbers on any rank, in any order of calls."""
    return torch.Generator(device=device).manual_seed(stream_key(seed, purpose, *key))


def spans(total: int, size: int = 1024) -> list[slice]:
    """Consecutive slices of at most `size` rows, so that a pass over all B anchors takes memory linear in B."""
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


def blocks(anchors: slice) -> list[tuple[int, slice]]:
    """Blocks of `BLOCK` anchors that meet `anchors`, each with its part of them: (block index, global slice)."""
    first, last = anchors.start // BLOCK, -(-anchors.stop // BLOCK)
    return [
        (block, slice(max(anchors.start, block * BLOCK), min(anchors.stop, (block + 1) * BLOCK)))
        for block in range(first, last)
    ]
