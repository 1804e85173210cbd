"""A plug-in for tests that catch a run in its midst."""

from __future__ import annotations

import os
import time
from pathlib import Path

from methods.clip import Clip
from methods.protocol import Clock


class Slow(Clip):
    """CLIP whose steps take a second more, until the file that the variable SLOW_UNTIL names is there."""

    name = "slow"

    def after_step(self, clock: Clock) -> None:
        super().after_step(clock)
        if not Path(os.environ["SLOW_UNTIL"]).exists():
            time.sleep(1.0)
