"""Which pairs of a batch an unlearning method gives up: those its current model trusts least."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from methods.base import directions, portion, spans, without_own
from methods.protocol import Tensors

Confidence = Literal["two_sided", "image_to_text"]


def log_odds(z: Tensors, scale: Tensor) -> Tensor:
    """[2, B]: ln(p / (1 - p)), p the softmax share of its own text for each image, and of its own image for each text.

    The share of a well-aligned pair rounds to 1. Its odds against all other candidates do not, and keep the order of
    such pairs in single precision.
    """
    parts = []
    for tile in spans(z["image"].shape[0]):
        odds = []
        for logits, _ in directions(z, scale, tile):
            own = logits.diagonal(tile.start).clone()
            odds.append(own - without_own(logits, tile).logsumexp(1))
        parts.append(torch.stack(odds))
    return torch.cat(parts, dim=1)


# official: github.com/hhc1997/NCU@cd338a5 src/ul_clip.py (Invert_Loss.infoNCE_preds)
def confidence_odds(odds: Tensor, kind: Confidence) -> Tensor:
    """[2, B] log-odds of both shares -> [B] those of omega (NCU, Equation 2).

    omega is the mean of both shares, or the official code's first one alone.
    """
    if kind == "image_to_text":
        return odds[0]
    return F.logsigmoid(odds).logsumexp(0) - F.logsigmoid(-odds).logsumexp(0)


def forget_set(confidence: Tensor, share: float) -> Tensor:
    """bool [B]: the floor(share * B) rows of lowest confidence; of equal ones the first."""
    order = confidence.argsort(stable=True)
    count = portion(share, len(order))
    return torch.zeros_like(order, dtype=torch.bool).index_fill(0, order[:count], True)
