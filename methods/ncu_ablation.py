"""NCU with one part replaced, as its paper's ablation has it: variants V1 and V2 of Table 5.

V3 and V4 need no adapter: they are `ncu` with `forget: 0` (no pair is unlearned as a false positive) and with
`gamma: 0` (no transport plan looks for false negatives).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from methods.base import check, unit
from methods.ncu import Ncu, NcuConfig
from methods.protocol import Rows, Tensors, Towers

PREFIXES = ("the image has no", "this picture lacks")  #: the paper's two examples; its whole list is not printed


@dataclass(frozen=True)
class NcuAblationConfig(NcuConfig):
    """NCU's hyper-parameters, and which part is replaced."""

    variant: Literal["prefixes", "distance"] = "prefixes"  #: V1: fixed words for prompts; V2: distance for the relation

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "variant", self.variant in ("prefixes", "distance"), '"prefixes" or "distance"')


class NcuAblation(Ncu):
    """As NCU. V1: a negative is the caption behind a fixed prefix. V2: phase 1 maximises |t_i - n_i|."""

    name = "ncu_ablation"
    about = dataclasses.replace(
        Ncu.about,
        title="NCU, ablated (reconstructed)",
        summary="NCU with one of its parts replaced. In variant prefixes a caption's negative is the caption behind "
        "fixed words, not behind learned prompts; in variant distance captions and their negatives are only driven "
        "apart, without a relation between captions to oppose.",
        equations="Table 5, V1 and V2",
        fidelity="reconstructed",
        note="Unverified: one sentence of the paper a variant, no code. Of the prefixes two are printed, chosen by the "
        "caption's length; the distance is that of unit vectors and has the relation's weight.",
    )
    Config = NcuAblationConfig

    def prepare(self, towers: Towers) -> None:
        super().prepare(towers)
        if self.config.variant == "prefixes":
            del self.prompts

    def encode(self, towers: Towers, rows: Rows) -> Tensors:
        if self.config.variant == "distance":
            return super().encode(towers, rows)
        captions = [f"{PREFIXES[len(caption) % len(PREFIXES)]} {caption}" for caption in rows.captions]
        negative = towers.encode_text(towers.tokenize(captions))
        return {**super(Ncu, self).encode(towers, rows), "negative": unit(negative)}

    def _learn(self, z: Tensors) -> Tensors:
        terms = super()._learn(z)
        if self.config.variant == "distance":
            gap = (z["text"] - z["negative"]).norm(dim=1)
            terms["relation"] = -self.config.negative_weight * gap.mean()
        return terms
