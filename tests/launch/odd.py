"""A plug-in for tests in which one of several ranks fails."""

from __future__ import annotations

import time

import torch.distributed as dist

from methods.clip import Clip
from methods.protocol import Rows, Tensors, Towers


class Odd(Clip):
    """CLIP whose second rank is slow, and raises at its third step."""

    name = "odd"

    def encode(self, towers: Towers, rows: Rows) -> Tensors:
        if dist.is_initialized() and dist.get_rank() == 1:
            time.sleep(0.3)
            if rows.clock.step == 2:
                raise ValueError("the second rank has had enough")
        return super().encode(towers, rows)
