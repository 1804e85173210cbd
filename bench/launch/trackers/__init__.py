"""Stream training metrics and records to TensorBoard, Weights & Biases or MLflow while they are stored.

The store is the source: when a run is resumed, the tracker is filled again from metrics.jsonl, so no point is doubled.

A process that slept through its claim sends nothing once it is awake. TensorBoard's files are behind the claim's fence.
A service knows no fence: the claim is looked at before anything is sent, so a process that sleeps between this look and
the sending still sends what it had begun to send.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bench.errors import UserError, nearest
from bench.registry import Registry, lazy
from bench.store import Claim, ClaimLost, Record, RunWriter

if TYPE_CHECKING:
    import numpy as np

PROJECT = "robust-cl-bench"  #: where a service puts the runs, unless its own variable names another project


class Sink(Protocol):
    """The receiver of points. Opening one deletes what an earlier process sent of the same run."""

    def line(self, step: int, values: Mapping[str, float]) -> None:
        """Send the metrics of one training step."""

    def record(self, name: str, at: float, step: int, value: float) -> None:
        """Send one number measured on the weights after a share `at` of the budget, which is after `step` steps."""

    def close(self) -> None:
        """Send everything that is buffered."""


@dataclass(frozen=True)
class Tracker:
    """One service that runs are streamed to. Its name is that of the package and of the extra that it needs."""

    name: str  #: the word of `--track NAME`
    #: (folder of the tracker in the results, run, title) -> an open sink
    open: Callable[[Path, RunWriter, str], Sink]
    fenced: bool = False  #: whether nobody sees what a process writes after it lost its claim
    refuse: Callable[[], None] = lambda: None  #: raises UserError if the package cannot send, as without a login


def _of(module: str) -> Callable[..., Any]:
    return lazy(f"{__name__}.{module}")


TRACKERS: Registry[Tracker] = Registry(
    "a tracker",
    (
        Tracker("tensorboard", _of("tensorboard:TensorBoard"), fenced=True),
        Tracker("wandb", _of("wandb:WeightsAndBiases"), refuse=_of("wandb:refuse")),
        Tracker("mlflow", _of("mlflow:MLflow")),
    ),
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

    def __init__(self, claim: Claim, steps: int, open_sink: Callable[[], Sink], fenced: bool = False) -> None:
        """fenced: as of `Tracker`."""
        super().__init__(claim)
        self.steps, self._fenced = steps, fenced
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
        if self._sink is not None and (self._fenced or not self.lost):
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
    tracker = TRACKERS[name]
    out = Tracked(run.own_claim, steps, lambda: tracker.open(folder, run, title), tracker.fenced)
    try:
        yield out
    finally:
        out.close()
