"""TensorBoard's event files."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from bench.store import RunStore


class TensorBoard:
    """Writes event files to `folder`/<title>-<id>; `tensorboard --logdir` of `folder` shows all runs."""

    def __init__(self, folder: Path, run: RunStore, title: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        own = folder / f"{re.sub(r'[^0-9A-Za-z.-]+', '_', title)}-{run.id[:8]}"
        shutil.rmtree(own, ignore_errors=True)
        self._writer = SummaryWriter(str(own))

    def line(self, step: int, values: Mapping[str, float]) -> None:
        """See `bench.launch.trackers.Sink`."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def record(self, name: str, at: float, step: int, value: float) -> None:
        """See `bench.launch.trackers.Sink`."""
        self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """See `bench.launch.trackers.Sink`."""
        self._writer.close()
