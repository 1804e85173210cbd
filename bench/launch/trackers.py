"""Stream training metrics and records to TensorBoard or Weights & Biases while they are stored.

The store is the source: when a run is resumed, the tracker is filled again from metrics.jsonl, so no point is doubled.
A process looks at its claim before it sends, so one that lost the claim sends at most what it had begun to send.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bench.errors import UserError, nearest
from bench.registry import Registry
from bench.store import Claim, ClaimLost, Record, RunStore, RunWriter

if TYPE_CHECKING:
    import numpy as np

PROJECT = "robust-cl-bench"  #: of W&B, unless its own variable names another project


class Sink(Protocol):
    """The receiver of points. Opening one deletes what an earlier process sent of the same run."""

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

    def line(self, step: int, values: Mapping[str, float]) -> None:
        """See `Sink`."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def record(self, name: str, at: float, step: int, value: float) -> None:
        """See `Sink`."""
        self.line(step, {name: value})

    def close(self) -> None:
        """See `Sink`."""
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
        project, own = os.environ.get("WANDB_PROJECT", PROJECT), run.id[:16]
        self._run = wandb.init(project=project, id=own, name=title, dir=folder, config=run.settings(), resume="allow")

    def line(self, step: int, values: Mapping[str, float]) -> None:
        """See `Sink`."""
        self._run.log(dict(values), step=step)

    def record(self, name: str, at: float, step: int, value: float) -> None:
        """See `Sink`."""
        self._run.summary[name if at == 1.0 else f"{name} at {at:.0%}"] = value

    def close(self) -> None:
        """See `Sink`."""
        self._run.finish()


def _refuse_without_login() -> None:
    import wandb

    if wandb.setup().settings.mode == "online" and not wandb.api.api_key:
        raise UserError("--track wandb: nobody is logged in; run 'wandb login', or set WANDB_MODE=offline")


@dataclass(frozen=True)
class Tracker:
    """One service that runs are streamed to. Its name is that of the package and of the extra that it needs."""

    name: str  #: the word of `--track NAME`
    open: Callable[[Path, RunStore, str], Sink]  #: (folder of the tracker in the results, run, title) -> an open sink
    refuse: Callable[[], None] = lambda: None  #: raises UserError if the package cannot send, as without a login


TRACKERS: Registry[Tracker] = Registry(
    "a tracker", (Tracker("tensorboard", TensorBoard), Tracker("wandb", WeightsAndBiases, _refuse_without_login))
)


def refuse_missing(name: str) -> None:
    """Raise UserError for a tracker that is unknown or not installed, or if nobody is logged in to it."""
    if name not in TRACKERS:
        names = TRACKERS.names()
        raise UserError(f"--track {name}: should be {' or '.join(names)}{nearest(name, names)}")
    if find_spec(name) is None:
        raise UserError(f"--track {name}: is not installed; pip install 'robust-cl-bench[{name}]'")
    TRACKERS[name].refuse()


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
        """Send everything that is buffered; without the claim nothing, so that the run of its holder is not ended."""
        if self._sink is not None and not self.lost:
            self._sink.close()

    def _filled(self) -> Sink:
        """Return the sink; open it first and send what earlier processes stored."""
        if self._sink is None:
            self._refuse_lost()
            self._sink = self._open_sink()
            for line in self.metrics():
                self._send(self._sink, line)
            for record in self.records():
                self._record(self._sink, record)
        return self._sink

    def _refuse_lost(self) -> None:
        if self.lost:
            raise ClaimLost

    def _send(self, sink: Sink, line: Mapping[str, Any]) -> None:
        self._refuse_lost()
        sink.line(line["step"], {name: value for name, value in _numbers(line) if name != "step"})

    def _record(self, sink: Sink, record: Record) -> None:
        self._refuse_lost()
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

    Files of a tracker lie in the results' folder of its name.
    """
    if name is None:
        yield run
        return
    folder = run.folder.parents[1] / name
    out = Tracked(run.own_claim, steps, lambda: TRACKERS[name].open(folder, run, title))
    try:
        yield out
    finally:
        out.close()
