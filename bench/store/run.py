"""A store holds plans of suites and one folder per run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bench.errors import UserError
from bench.store import files
from bench.store.claim import HEARTBEAT, STALE_AFTER, Claim, holder
from bench.store.format import mark, refuse_newer

if TYPE_CHECKING:
    import numpy as np

TRIALS = "trials.json"  #: file beside a suite's plan with trial runs that the plan does not name yet
METRICS = "metrics.jsonl"
TRAIN_SECONDS = "train_seconds"
LATER = "later"  #: folder of a finished run with notes on evaluations that later suites added
_REPLAN = "delete it, and `bench run {} --dry-run` writes it again"
STATES = ("running", "interrupted", "failed", "done")


@dataclass(frozen=True)
class Record:
    """One measured number with its provenance."""

    run: str  #: id of the run
    at: float  #: share of the budget spent when the weights were taken; 1.0 = final
    dataset: str  #: "emoji/iid"
    task: str  #: "zero_shot/concept"
    metric: str  #: "top1"
    score: str  #: "cosine", "csd", or "" where no similarity is involved
    value: float  #: in the metric's own unit, shares in [0, 1]
    n: int  #: examples measured
    low: float | None  #: 95 % interval, bootstrapped over examples: this checkpoint, not the method
    high: float | None
    higher_is_better: bool
    protocol: str  #: version of the evaluation code's conventions
    checkpoint: str  #: sha256 of the weights
    data: str = ""  #: start of the hash of the pairs it was measured on; "" where the protocol's version fixes them


class RunStore:
    """One run's directory: settings, status, metrics, checkpoint, snapshots, evaluations, ledger, environment.

    It only reads. `bench.store.writer.RunWriter` writes, under the run's claim.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.id = folder.name

    def claim(self, stale_after: float = STALE_AFTER, heartbeat: float = HEARTBEAT) -> Claim:
        """Return the right to work on this run, as a context manager; entering raises `Busy` while another holds it."""
        return Claim(self.folder, stale_after, heartbeat)

    def settings(self) -> dict[str, Any]:
        """Return the stored content, or {} if nothing was written."""
        return self._read("settings.json")

    def status(self) -> dict[str, Any]:
        """Return the status as last set; `missing` if there is none, `interrupted` if its process died."""
        status = self._read("status.json")
        if not status:
            return {"state": "missing"}
        if status["state"] == "running" and holder(self.folder) is None:
            status["state"] = "interrupted"
        return status

    def metrics(self) -> list[dict[str, Any]]:
        """Return the complete lines of metrics.jsonl, without a last line that a kill cut short."""
        return [json.loads(line) for line in self._metric_lines()]

    def _metric_lines(self) -> list[str]:
        try:
            text = (self.folder / METRICS).read_text()
        except FileNotFoundError:
            return []
        return text.split("\n")[:-1]

    def train_seconds(self) -> float:
        """Return the seconds that were last noted; 0 if none were, or if a power cut lost them."""
        try:
            return float((self.folder / TRAIN_SECONDS).read_bytes())
        except (FileNotFoundError, ValueError):
            return 0.0

    def path(self, name: str) -> Path:
        """Return the path of a file of this run, whether it exists or not."""
        return self.folder / name

    def _read(self, name: str) -> dict[str, Any]:
        return cast("dict[str, Any]", files.read_json(self.folder / name) or {})

    def ledger(self) -> dict[str, Any]:
        """Return the stored content with the seconds of evaluations that were added later; {} if none was written."""
        ledger = self._read("ledger.json")
        for note in self._later("seconds") if ledger else ():
            ledger["evaluate_seconds"] += note["evaluate_seconds"]
        return ledger

    def environment(self) -> dict[str, Any]:
        """Return the stored content, or {} if nothing was written."""
        return self._read("environment.json")

    def diagnostics(self) -> list[dict[str, Any]]:
        """Return the stored histograms; [] if there are none, as for runs older than diagnostics."""
        entries: list[dict[str, Any]] = self._read("diagnostics.json").get("diagnostics", [])
        for note in self._later("diagnostics"):
            for source, protocol in {(one["source"], one.get("protocol", "")) for one in note["diagnostics"]}:
                entries = others(entries, source, protocol)
            entries = [*entries, *note["diagnostics"]]
        return entries

    def _later(self, kind: str) -> list[dict[str, Any]]:
        """Return the notes of one kind, "seconds" or "diagnostics", that later suites added to the finished run."""
        return [self._read(f"{LATER}/{path.name}") for path in sorted(self.path(LATER).glob(f"{kind}-*.json"))]

    def _evaluation(self, key: str) -> Path:
        if not key or key.startswith(".") or "/" in key:
            raise ValueError(f"an evaluation's key must be a plain file name, not {key!r}")
        return self.folder / "evaluations" / key

    def has_records(self, key: str) -> bool:
        """Return whether this evaluation was published."""
        return self._evaluation(key).is_dir()

    def records(self) -> list[Record]:
        """Return all records of the run; evaluations come in the order of their keys."""
        records: list[Record] = []
        for folder in self._evaluations():
            with open(f"{folder}/records.json", "rb") as file:
                records.extend(map(_record, json.loads(file.read())))
        return records

    def outcomes(self, key: str) -> dict[str, np.ndarray]:
        """Return the per-example outcomes of one evaluation."""
        import numpy as np

        with np.load(self._evaluation(key) / "outcomes.npz", allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}

    def _evaluations(self) -> list[str]:
        folder = os.fspath(self.folder / "evaluations")
        try:
            names = sorted(os.listdir(folder))
        except FileNotFoundError:
            return []
        return [f"{folder}/{name}" for name in names if not name.startswith(files.TEMPORARY)]


def others(entries: Sequence[dict[str, Any]], source: str, protocol: str) -> list[dict[str, Any]]:
    """Return the diagnostics that stay when new ones of this source and protocol are stored.

    Older entries of an evaluation have no protocol, so they are replaced.
    """
    return [one for one in entries if one["source"] != source or one.get("protocol", protocol) != protocol]


_FIELDS = frozenset(field.name for field in fields(Record))
_OLDER = _FIELDS - {"data"}


def record_line(record: Record) -> dict[str, Any]:
    """Return a record as JSON without an empty `data`, so that records from before that field keep their bytes."""
    return {name: value for name, value in asdict(record).items() if name in _OLDER or value}


def _record(line: dict[str, Any]) -> Record:
    if line.keys() != _FIELDS and line.keys() != _OLDER:
        raise UserError(f"a stored record has other fields than this version's: {sorted(line.keys() ^ _FIELDS)}")
    # A report reads tens of thousands of records, and the frozen class's own __init__ takes three times as long.
    record = object.__new__(Record)
    record.__dict__.update(line)
    return record


class Store:
    """All results under one root: `runs/<id>/` and `<suite>/plan.json` beside the suite's report.

    Raises UserError if a later version of this package wrote them.
    """

    def __init__(self, root: Path | str = "results") -> None:
        self.root = Path(root)
        refuse_newer(self.root)

    def run(self, identity: str) -> RunStore:
        """Return the run with this id, whether anything of it is stored or not."""
        return RunStore(self.root / "runs" / identity)

    def runs(self) -> Iterator[RunStore]:
        """Iterate over the runs of which something is stored, in the order of their ids."""
        folder = self.root / "runs"
        names = sorted(os.listdir(folder)) if folder.is_dir() else []
        return (RunStore(folder / name) for name in names if not name.startswith(files.TEMPORARY))

    def suite(self, name: str) -> Path:
        """Return the folder of a suite's plan and report."""
        return self.root / name

    def write_plan(self, suite: str, plan: Mapping[str, Any]) -> None:
        """Write what a suite compares and the runs that it needs."""
        mark(self.root)
        files.write_json(self.suite(suite) / "plan.json", plan)

    def name_trials(self, suite: str, identities: Sequence[str]) -> None:
        """Note that a suite needs these trial runs, as long as its plan does not name them yet."""
        path = self.suite(suite) / TRIALS
        known = cast("list[str] | None", files.read_json(path)) or []
        files.write_json(path, sorted({*known, *identities}))

    def forget_trials(self, suite: str) -> None:
        """Remove the notes of `name_trials`, because the suite's plan names all of the trials now."""
        (self.suite(suite) / TRIALS).unlink(missing_ok=True)

    def plan(self, suite: str) -> dict[str, Any] | None:
        """Return the suite's plan, or None if it was never planned in this store. UserError for a damaged file."""
        path = self.suite(suite) / "plan.json"
        try:
            plan = files.read_json(path)
        except ValueError as error:
            raise UserError(f"{path}: cannot be read: {error}; {_REPLAN.format(suite)}") from error
        if plan is not None and not (isinstance(plan, dict) and isinstance(plan.get("cells"), list)):
            raise UserError(f"{path}: is not a plan: it has no list of cells; {_REPLAN.format(suite)}")
        return plan
