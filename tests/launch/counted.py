"""A plug-in for tests that count who encodes what, and that make a rank fail while it does."""

from __future__ import annotations

import os
import signal
import time

import torch.distributed as dist
from torch import Tensor

from methods.clip import Clip
from methods.protocol import Tensors, Towers


class Counted(Clip):
    """CLIP that appends "images RANK NUMBER" or "texts RANK NUMBER" to the file COUNTS for each batch of evaluation.

    With FAILS=raise or FAILS=die, the second rank does so at its first batch.
    """

    name = "counted"

    def image_features(self, towers: Towers, images: Tensor) -> Tensors:
        _note("images", len(images))
        return super().image_features(towers, images)

    def text_features(self, towers: Towers, tokens: Tensor) -> Tensors:
        _note("texts", len(tokens))
        return super().text_features(towers, tokens)


def _note(kind: str, number: int) -> None:
    rank = dist.get_rank() if dist.is_initialized() else 0
    if rank == 1 and "FAILS" in os.environ:
        if os.environ["FAILS"] == "raise":
            raise ValueError("the second rank has seen enough")
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 0 and os.environ.get("FIRST") == "waits":  # so that another rank is always faster
        time.sleep(0.05)
    with open(os.environ["COUNTS"], "a") as file:
        file.write(f"{kind} {rank} {number}\n")
