"""A loss with a number for each training pair: `bench check own_state.py`, `bench run SUITE --plugin own_state.py`."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from methods.base import Contrastive, check, spans
from methods.protocol import About, Batch, Facts, Tensors


@dataclass(frozen=True)
class TrustConfig:
    momentum: float = 0.7  #: share of a pair's trust that is kept when the pair is seen again

    def __post_init__(self) -> None:
        check(self, "momentum", 0 <= self.momentum < 1, "in [0, 1)")


class Trust(Contrastive):
    name = "trust"
    about = About(
        title="Trust",
        summary="CLIP that weights each pair by a running mean of how well its image and caption find each other.",
        paper="own",
        equations="own",
        fidelity="derived",
        state="trust of every pair",
        bibtex="",
    )
    Config = TrustConfig
    trust: Tensor  #: [N], one number per training pair; a buffer, so it is in checkpoints and survives a kill

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        self.register_buffer("trust", torch.ones(facts.rows))

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        """Move the trust of the batch's pairs; return it, [B], as a constant of the step. All ranks do the same."""
        shares = []
        for tile in spans(len(batch.ids)):
            found = [x.log_softmax(1).gather(1, own[:, None]).exp()[:, 0] for x, own in self.logits(z, tile)]
            shares.append((found[0] + found[1]) / 2)
        moved = torch.lerp(torch.cat(shares), self.trust[batch.ids].to(shares[0].dtype), self.config.momentum)
        self.trust[batch.ids] = moved.to(self.trust.dtype)
        return {"trust": moved}

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        weight, total = observed["trust"][anchors], self.scale().new_zeros(())
        for logits, own in self.logits(z, anchors):  # [n, B] of image, then of text anchors; own partner's column [n]
            total = total - (weight * logits.log_softmax(1).gather(1, own[:, None])[:, 0]).sum()
        return {"contrastive": total / (2 * len(z["image"]))}
