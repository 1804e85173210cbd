"""A store holds plans of suites and one folder per run."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
TRAIN_SECONDS = "train_seconds"
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
    """One run's directory: settings, status, metrics, checkpoint, snapshots, evaluations, ledger, environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.id = folder.name

    def claim(self, stale_after: float = STALE_AFTER, heartbeat: float = HEARTBEAT) -> Claim:
        """The right to work on this run, as a context manager. Entering raises `Busy` while another holds it."""
        return Claim(self.folder, stale_after, heartbeat)

    def write_settings(self, settings: Mapping[str, Any]) -> None:
        """Write settings.json unless it exists: the id addresses the content, so it could only be the same."""
        if not (self.folder / "settings.json").exists():
            self.write_json("settings.json", settings)

    def settings(self) -> dict[str, Any]:
        """Return the stored content, or {} if nothing was written."""
        return self._read("settings.json")

    def set_status(self, state: str, **details: Any) -> None:
        """Replace the status. Raises ValueError for a state that is not one of `STATES`."""
        if state not in STATES:
            raise ValueError(f"state must be one of {STATES}, not {state!r}")
        self.write_json("status.json", {"state": state, **details, "updated": time.time()})

    def status(self) -> dict[str, Any]:
        """Return the status as last set; `missing` if there is none, `interrupted` if its process died."""
        status = self._read("status.json")
        if not status:
            return {"state": "missing"}
        if status["state"] == "running" and holder(self.folder) is None:
            status["state"] = "interrupted"
        return status

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        """Add one line to metrics.jsonl in one write; a loss may be NaN here. `line` should carry `step`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.folder / "metrics.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, (json.dumps(line) + "\n").encode())
        finally:
            os.close(descriptor)

    def metrics(self) -> list[dict[str, Any]]:
        """Return the complete lines of metrics.jsonl, without a last line that a kill cut short."""
        return [json.loads(line) for line in self._metric_lines()]

    def truncate_metrics(self, step: int) -> None:
        """Drop the lines of `step` and later, and a last line that was cut short; a resumed run writes them again."""
        earlier = [line for line in self._metric_lines() if json.loads(line)["step"] < step]
        self.write_bytes("metrics.jsonl", "".join(line + "\n" for line in earlier).encode())

    def _metric_lines(self) -> list[str]:
        try:
            text = (self.folder / "metrics.jsonl").read_text()
        except FileNotFoundError:
            return []
        return text.split("\n")[:-1]

    def note_train_seconds(self, seconds: float) -> None:
        """Store the seconds that all finished steps took, including steps that a kill undid.

        This is one write of a fixed length into the page cache, cheap enough for every step. It outlives its process,
        though not a power cut.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.folder / TRAIN_SECONDS, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(descriptor, f"{seconds:<24.17g}\n".encode(), 0)
        finally:
            os.close(descriptor)

    def train_seconds(self) -> float:
        """Return the seconds that were last noted; 0 if none were, or if a power cut lost them."""
        try:
            return float((self.folder / TRAIN_SECONDS).read_bytes())
        except (FileNotFoundError, ValueError):
            return 0.0

    def path(self, name: str) -> Path:
        """Return the path of a file of this run, whether it exists or not."""
        return self.folder / name

    def write_path(self, name: str, writer: Callable[[Path], object]) -> None:
        """Let `writer` write to a temporary path, then publish it under `name` in one step."""
        files.write_path(self.folder / name, writer)

    def write_bytes(self, name: str, content: bytes) -> None:
        """Publish bytes under `name` in one step."""
        files.write_bytes(self.folder / name, content)

    def write_json(self, name: str, value: Any) -> None:
        """Publish JSON under `name` in one step. Raises ValueError on NaN or infinity."""
        files.write_json(self.folder / name, value)

    def _read(self, name: str) -> dict[str, Any]:
        return cast("dict[str, Any]", files.read_json(self.folder / name) or {})

    def write_ledger(self, ledger: Mapping[str, Any]) -> None:
        """Write what the run spent. Times are stored here and nowhere else."""
        self.write_json("ledger.json", ledger)

    def ledger(self) -> dict[str, Any]:
        """Return the stored content, or {} if nothing was written."""
        return self._read("ledger.json")

    def write_environment(self, environment: Mapping[str, Any]) -> None:
        """Write packages, commit and hardware; they are not part of the run's identity."""
        self.write_json("environment.json", environment)

    def environment(self) -> dict[str, Any]:
        """Return the stored content, or {} if nothing was written."""
        return self._read("environment.json")

    def write_diagnostics(self, entries: list[dict[str, Any]]) -> None:
        """Write histograms of what the method learned (bench/store/histograms.py)."""
        self.write_json("diagnostics.json", {"diagnostics": entries})

    def diagnostics(self) -> list[dict[str, Any]]:
        """Return the stored histograms; [] if there are none, as for runs older than diagnostics."""
        return cast("list[dict[str, Any]]", self._read("diagnostics.json").get("diagnostics", []))

    def _evaluation(self, key: str) -> Path:
        if not key or key.startswith(".") or "/" in key:
            raise ValueError(f"an evaluation's key must be a plain file name, not {key!r}")
        return self.folder / "evaluations" / key

    def has_records(self, key: str) -> bool:
        """Return whether this evaluation was published."""
        return self._evaluation(key).is_dir()

    def write_records(self, key: str, records: list[Record], outcomes: Mapping[str, np.ndarray]) -> bool:
        """Publish an evaluation: its records and per-example outcomes appear together, as one folder.

        The bytes depend on the arguments only. Returns False, and changes nothing, if `key` is already published.
        Raises ValueError if a value is NaN or infinite.
        """
        import numpy as np

        buffer = io.BytesIO()
        np.savez_compressed(buffer, **{name: outcomes[name] for name in sorted(outcomes)})  # type: ignore[arg-type]
        content = {
            "records.json": files.dump([_line(record) for record in records]),
            "outcomes.npz": buffer.getvalue(),
        }
        return files.publish_folder(self._evaluation(key), content)

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


_FIELDS = frozenset(field.name for field in fields(Record))
_OLDER = _FIELDS - {"data"}


def _line(record: Record) -> dict[str, Any]:
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
