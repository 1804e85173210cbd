"""Which pairs of a batch an unlearning method gives up: those its current model trusts least."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from methods.base import directions, portion, spans
from methods.protocol import Tensors

Confidence = Literal["two_sided", "image_to_text"]


def log_matches(z: Tensors, scale: Tensor) -> Tensor:
    """[2, B]: ln of the softmax share of its own text for each image, and of its own image for each text."""
    parts = [
        torch.stack([logits.diagonal(tile.start) - logits.logsumexp(1) for logits, _ in directions(z, scale, tile)])
        for tile in spans(z["image"].shape[0])
    ]
    return torch.cat(parts, dim=1)


# official: github.com/hhc1997/NCU@cd338a5 src/ul_clip.py (Invert_Loss.infoNCE_preds)
def log_confidence(matches: Tensor, kind: Confidence) -> Tensor:
    """[2, B] log shares -> [B] ln omega (NCU, Equation 2): their mean, or the official code's first one alone.

    In logarithms, so that the order survives underflow.
    """
    by_image, by_text = matches.unbind()
    if kind == "image_to_text":
        return by_image
    return torch.logaddexp(by_image, by_text) - math.log(2)


def forget_set(confidence: Tensor, share: float) -> Tensor:
    """bool [B]: the floor(share * B) rows of lowest confidence; of equal ones the first."""
    order = confidence.argsort(stable=True)
    count = portion(share, len(order))
    return torch.zeros_like(order, dtype=torch.bool).index_fill(0, order[:count], True)
