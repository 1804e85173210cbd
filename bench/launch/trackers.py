"""Stream training metrics and records to TensorBoard or Weights & Biases while they are stored.

The store is the source: when a run is resumed, the tracker is filled again from metrics.jsonl, so no point is doubled.
A process checks its claim before it sends, so one that lost the claim at most finishes the message it had begun.
"""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bench.errors import UserError, nearest
from bench.hashing import flattened
from bench.store import Claim, ClaimLost, Record, RunStore, RunWriter


class Sink(Protocol):
    """The receiver of points. Opening one makes sure that nothing an earlier process sent of this run appears twice."""

    def line(self, step: int, values: Mapping[str, float]) -> None:
        """Send the metrics of one training step."""

    def record(self, name: str, at: float, step: int, value: float) -> None:
        """Send one number measured on the weights after a share `at` of the budget, which is after `step` steps."""

    def close(self) -> None:
        """Send everything that is buffered."""


class TensorBoard:
    """Writes to `folder`/<title>-<id>; `tensorboard --logdir` of `folder` shows all runs."""

    def __init__(self, folder: Path, run: RunStore, title: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        own = folder / f"{re.sub(r'[^0-9A-Za-z.-]+', '_', title)}-{run.id[:8]}"
        shutil.rmtree(own, ignore_errors=True)
        self._writer: Any = SummaryWriter(str(own))
        self.close = self._writer.close

    def line(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def record(self, name: str, at: float, step: int, value: float) -> None:
        self.line(step, {name: value})


class WeightsAndBiases:
    """Sends to a run of Weights & Biases with the run's own id; records go to its summary.

    The service drops steps that it has already, so a resumed run repeats nothing.
    """

    def __init__(self, folder: Path, run: RunStore, title: str) -> None:
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        own, project = run.id[:16], os.environ.get("WANDB_PROJECT", "robust-cl-bench")
        for old in folder.glob(f"wandb/offline-run-*-{own}"):
            shutil.rmtree(old)
        self._run = wandb.init(project=project, id=own, name=title, dir=folder, config=run.settings(), resume="allow")
        self.close = self._run.finish

    def line(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def record(self, name: str, at: float, step: int, value: float) -> None:
        self._run.summary[name if at == 1.0 else f"{name} at {at:.0%}"] = value


#: word of `--track`, which is the name of the package and of the extra that it needs -> what opens a sink, given the
#: tracker's folder in the results, the run and its title
TRACKERS: dict[str, Callable[[Path, RunStore, str], Sink]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def refuse_missing_tracker(name: str) -> None:
    """Raise UserError for a tracker that is unknown or not installed, or if nobody is logged in to it."""
    if name not in TRACKERS:
        raise UserError(f"--track {name}: should be {' or '.join(TRACKERS)}{nearest(name, TRACKERS)}")
    if find_spec(name) is None:
        raise UserError(f"--track {name}: is not installed; pip install 'robust-cl-bench[{name}]'")
    if name == "wandb":
        import wandb

        if wandb.setup().settings.mode == "online" and not wandb.api.api_key:
            raise UserError("--track wandb: nobody is logged in; run 'wandb login', or set WANDB_MODE=offline")


class Tracked(RunWriter):
    """A run's writer that also sends metrics and records to a sink, opened when there is something to send.

    Its methods raise ClaimLost, and send nothing, once the claim is lost.
    """

    def __init__(self, claim: Claim, steps: int, open_sink: Callable[[], Sink]) -> None:
        super().__init__(claim)
        self.steps = steps
        self._open_sink = open_sink
        self._sink: Sink | None = None

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        self._fill()
        super().append_metrics(line)
        self._send(line)

    def write_records(self, key: str, records: list[Record], outcomes: Mapping[str, np.ndarray]) -> bool:
        self._fill()
        written = super().write_records(key, records, outcomes)
        for record in records if written else ():
            self._send(record)
        return written

    def close(self) -> None:
        """Send everything that is buffered; without the claim nothing, so that the run of its holder is not ended."""
        if self._sink is not None and not self.fence.lost:
            self._sink.close()

    def _fill(self) -> None:
        """Open the sink, unless it is open, and send what earlier processes stored."""
        if self._sink is None:
            if self.fence.lost:
                raise ClaimLost
            self._sink = self._open_sink()
            stored: list[dict[str, Any] | Record] = [*self.metrics(), *self.records()]
            for sent in stored:
                self._send(sent)

    def _send(self, sent: Mapping[str, Any] | Record) -> None:
        if self.fence.lost:
            raise ClaimLost
        assert self._sink is not None
        if isinstance(sent, Record):
            protocol = sent.protocol if "-" in sent.protocol else ""  # the name of the common protocol is left out
            parts = (protocol, sent.dataset, sent.task, sent.metric, sent.score)
            self._sink.record("/".join(filter(None, parts)), sent.at, math.ceil(sent.at * self.steps), sent.value)
        else:
            numbers = {name: value for name, value in flattened(sent, "/") if isinstance(value, int | float)}
            del numbers["step"]
            self._sink.line(sent["step"], numbers)


@contextmanager
def tracked_writer(run: RunWriter, name: str | None, title: str, steps: int) -> Iterator[RunWriter]:
    """Yield the run's writer, which sends to the tracker `name` until the context ends; None means no tracker.

    Files of a tracker lie in the results' folder of its name.
    """
    if name is None:
        yield run
        return
    folder = run.folder.parents[1] / name
    out = Tracked(run.own_claim, steps, lambda: TRACKERS[name](folder, run, title))
    try:
        yield out
    finally:
        out.close()
