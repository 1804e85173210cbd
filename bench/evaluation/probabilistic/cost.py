"""What the parts that give an image its variance cost: parameters, and time beside the tower alone.

Chun et al., ProLIP, ICLR 2025, Appendix C.3 (Table C.6): an uncertainty token beside a block of attention and no head.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from bench.data import Pairs
from bench.evaluation.features import IMAGE_BATCH, Features, evaluation_mode
from bench.evaluation.measures import Number
from bench.evaluation.probabilistic.manipulated import Line, mean_line
from bench.towers.build import normalise

ROUNDS = 7  #: each measures both ways, in turn, so that a busy machine slows both


def head_costs(features: Features, pairs: Pairs, rounds: int = ROUNDS) -> list[Line]:
    """Count parameters of the image tower and of its heads, and time images with and without heads.

    Times are seconds for 1,000 images of up to `IMAGE_BATCH` of `pairs`, over rounds; the share is of each round.
    """
    method, towers = features.method, features.towers
    own = cast("nn.Module", method).get_submodule("image_head")
    pixels = pairs.images(np.arange(min(IMAGE_BATCH, len(pairs))))
    parameter = next(towers.visual.parameters())
    images = normalise(pixels, parameter.device, towers.channels).to(parameter.dtype)
    ways: tuple[Callable[[], object], ...] = (
        lambda: method.image_features(towers, images),
        lambda: towers.encode_image(images),
    )
    with evaluation_mode(method, towers):
        for way in ways:
            way()  # the first call of a shape allocates and chooses kernels
        spent = np.array([[_seconds(way, images) for way in ways] for _ in range(rounds)])
    spent *= 1000 / len(images)
    return [
        _count("image tower", towers.visual),
        _count("its heads for means and variances", own),
        *(
            mean_line(what, times, "seconds / 1,000")
            for what, times in zip(("with heads", "tower alone"), spent.T, strict=True)
        ),
        mean_line("with heads", spent[:, 0] / spent[:, 1], "times the tower"),
    ]


def _seconds(way: Callable[[], object], images: Tensor) -> float:
    _wait(images.device)
    began = time.perf_counter()
    way()
    _wait(images.device)
    return time.perf_counter() - began


def _wait(device: torch.device) -> None:
    """Wait for a GPU, which works on after a call has returned."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _count(what: str, module: nn.Module) -> Line:
    number = float(sum(parameter.numel() for parameter in module.parameters()))
    return what, Number("parameters", "", number, 1, (number, number))
