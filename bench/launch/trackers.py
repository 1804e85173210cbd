"""Stream training metrics and records to TensorBoard or Weights & Biases while they are stored.

The store is the source: when a run is resumed, the tracker is filled again from metrics.jsonl, so no point is doubled.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bench.errors import UserError, nearest
from bench.store import Claim, Record, RunStore, RunWriter

if TYPE_CHECKING:
    import numpy as np

PROJECT = "robust-cl-bench"


class Sink(Protocol):
    """The receiver of points. Opening one deletes what an earlier process sent of the same run."""

    def line(self, step: int, values: Mapping[str, float]) -> None:
        """Send the metrics of one training step."""

    def record(self, name: str, at: float, step: int, value: float) -> None:
        """Send one number measured on the weights after a share `at` of the budget, which is after `step` steps."""

    def close(self) -> None:
        """Send everything that is buffered."""


class TensorBoard:
    """Writes event files to `folder`; `tensorboard --logdir` of its parent folder shows all runs."""

    def __init__(self, folder: Path, run: RunStore, title: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        shutil.rmtree(folder, ignore_errors=True)
        self._writer = SummaryWriter(str(folder))

    def line(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def record(self, name: str, at: float, step: int, value: float) -> None:
        self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


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
        self._run.log(dict(values), step=step)

    def record(self, name: str, at: float, step: int, value: float) -> None:
        self._run.summary[name if at == 1.0 else f"{name} at {at:.0%}"] = value

    def close(self) -> None:
        self._run.finish()


SINKS: dict[str, Callable[[Path, RunStore, str], Sink]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def refuse_missing(name: str) -> None:
    """Raise UserError for a tracker that is unknown or not installed, or if nobody is logged in to it."""
    if name not in SINKS:
        raise UserError(f"--track {name}: should be {' or '.join(SINKS)}{nearest(name, SINKS)}")
    if find_spec(name) is None:
        raise UserError(f"--track {name}: is not installed; pip install 'robust-cl-bench[{name}]'")
    if name == "wandb":
        import wandb

        if wandb.setup().settings.mode == "online" and not wandb.api.api_key:
            raise UserError("--track wandb: nobody is logged in; run 'wandb login', or set WANDB_MODE=offline")


class Tracked(RunWriter):
    """A run's writer that also sends metrics and records to a sink, opened when there is something to send."""

    def __init__(self, claim: Claim, steps: int, open_sink: Callable[[], Sink]) -> None:
        super().__init__(claim)
        self.steps = steps
        self._open_sink = open_sink
        self._sink: Sink | None = None

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        sink = self._filled()
        super().append_metrics(line)
        self._send(sink, line)

    def write_records(self, key: str, records: list[Record], outcomes: Mapping[str, np.ndarray]) -> bool:
        sink = self._filled()
        written = super().write_records(key, records, outcomes)
        for record in records if written else ():
            self._record(sink, record)
        return written

    def close(self) -> None:
        """Send everything that is buffered."""
        if self._sink is not None:
            self._sink.close()

    def _filled(self) -> Sink:
        """Return the sink; open it first and send what earlier processes stored."""
        if self._sink is None:
            self._sink = self._open_sink()
            for line in self.metrics():
                self._send(self._sink, line)
            for record in self.records():
                self._record(self._sink, record)
        return self._sink

    def _send(self, sink: Sink, line: Mapping[str, Any]) -> None:
        sink.line(line["step"], {name: value for name, value in _numbers(line) if name != "step"})

    def _record(self, sink: Sink, record: Record) -> None:
        protocol = record.protocol if "-" in record.protocol else ""  # the name of the common protocol is left out
        parts = (protocol, record.dataset, record.task, record.metric, record.score)
        sink.record("/".join(filter(None, parts)), record.at, round(record.at * self.steps), record.value)


def _numbers(line: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of nested mappings under names joined by slashes; other values are left out."""
    for name, value in line.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float):
            yield prefix + name, value


@contextmanager
def tracked(run: RunWriter, name: str | None, title: str, steps: int) -> Iterator[RunWriter]:
    """Yield the run's writer, which sends to the tracker `name` until the context ends; None means no tracker.

    TensorBoard's files lie in the results' tensorboard/<title>-<id>/, those of Weights & Biases in wandb/.
    """
    if name is None:
        yield run
        return
    folder = run.folder.parents[1] / name
    if name == "tensorboard":
        folder /= f"{re.sub(r'[^0-9A-Za-z.-]+', '_', title)}-{run.id[:8]}"
    out = Tracked(run.own_claim, steps, lambda: SINKS[name](folder, run, title))
    try:
        yield out
    finally:
        out.close()
