"""Runs of Weights & Biases."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from bench.errors import UserError
from bench.launch.trackers import PROJECT
from bench.store import RunStore


class WeightsAndBiases:
    """Sends to a run of Weights & Biases with the run's own id; records go to its summary.

    WANDB_MODE=offline is honoured. The service drops steps that it has already, so a resumed run repeats nothing.
    """

    def __init__(self, folder: Path, run: RunStore, title: str) -> None:
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"wandb/offline-run-*-{run.id[:16]}"):
            shutil.rmtree(old)
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        self._run = wandb.init(
            project=project, id=run.id[:16], name=title, dir=folder, config=run.settings(), resume="allow"
        )

    def line(self, step: int, values: Mapping[str, float]) -> None:
        """See `bench.launch.trackers.Sink`."""
        self._run.log(dict(values), step=step)

    def record(self, name: str, at: float, step: int, value: float) -> None:
        """See `bench.launch.trackers.Sink`."""
        self._run.summary[name if at == 1.0 else f"{name} at {at:.0%}"] = value

    def close(self) -> None:
        """See `bench.launch.trackers.Sink`."""
        self._run.finish()


def refuse() -> None:
    """Raise UserError if nobody is logged in."""
    import wandb

    if wandb.setup().settings.mode == "online" and not wandb.api.api_key:
        raise UserError("--track wandb: nobody is logged in; run 'wandb login', or set WANDB_MODE=offline")
