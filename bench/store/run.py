"""A store holds plans of suites and one folder per run."""

from __future__ import annotations

import io
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bench.store import files, reading
from bench.store.claim import HEARTBEAT, STALE_AFTER, Claim, holder
from bench.store.format import mark, refuse_newer
from bench.store.reading import ASIDE, Damaged, Model

if TYPE_CHECKING:
    import numpy as np

TRIALS = "trials.json"  #: file beside a suite's plan with trial runs that the plan does not name yet
TRAIN_SECONDS = "train_seconds"
RENEW_PLAN = "delete it, and `bench run {} --dry-run` writes it again"  #: remedy, with the suite
_RENEW_TRIALS = "delete it, and `bench run` writes it again"
_ID = re.compile(r"[0-9a-f]{64}")
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

    Whatever reads a file raises Damaged if it is cut, unreadable or not of the type that it should have.
    """

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
        settings = self._read("settings.json", "settings")
        if settings.get("id", self.id) != self.id:
            raise Damaged(self.folder / "settings.json", f"belongs to another run, {settings['id'][:16]}")
        return settings

    def set_status(self, state: str, **details: Any) -> None:
        """Replace the status. Raises ValueError for a state that is not one of `STATES`."""
        if state not in STATES:
            raise ValueError(f"state must be one of {STATES}, not {state!r}")
        self.write_json("status.json", {"state": state, **details, "updated": time.time()})

    def status(self) -> dict[str, Any]:
        """Return the status as `read_status` does; `damaged`, with the reason as its error, if it cannot be read."""
        try:
            return self.read_status()
        except Damaged as error:
            return damaged_status(error)

    def read_status(self) -> dict[str, Any]:
        """Return the status as last set; `missing` if there is none, `interrupted` if its process died."""
        status = self._read("status.json", "status")
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
        return reading.read_lines(self.folder / "metrics.jsonl", "line")

    def truncate_metrics(self, step: int) -> None:
        """Drop the lines of `step` and later, and a last line that was cut short; a resumed run writes them again."""
        written = reading.complete_lines(self.folder / "metrics.jsonl")
        earlier = [text + b"\n" for text, line in zip(written, self.metrics(), strict=True) if line["step"] < step]
        self.write_bytes("metrics.jsonl", b"".join(earlier))

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
            seconds = float(reading.read_bytes(self.folder / TRAIN_SECONDS) or 0.0)
        except ValueError:
            return 0.0
        return seconds if 0 <= seconds < math.inf else 0.0

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

    def _read(self, name: str, model: Model) -> dict[str, Any]:
        return cast("dict[str, Any]", reading.read_json(self.folder / name, model) or {})

    def write_ledger(self, ledger: Mapping[str, Any]) -> None:
        """Write what the run spent. Times are stored here and nowhere else."""
        self.write_json("ledger.json", ledger)

    def ledger(self) -> dict[str, Any]:
        """Return the stored content, or {} if nothing was written."""
        return self._read("ledger.json", "ledger")

    def write_environment(self, environment: Mapping[str, Any]) -> None:
        """Write packages, commit and hardware; they are not part of the run's identity."""
        self.write_json("environment.json", environment)

    def environment(self) -> dict[str, Any]:
        """Return the stored content, or {} if nothing was written."""
        return self._read("environment.json", "environment")

    def write_diagnostics(self, entries: list[dict[str, Any]]) -> None:
        """Write histograms of what the method learned (bench/store/histograms.py)."""
        self.write_json("diagnostics.json", {"diagnostics": entries})

    def diagnostics(self) -> list[dict[str, Any]]:
        """Return the stored histograms; [] if there are none, as for runs older than diagnostics."""
        stored = self._read("diagnostics.json", "diagnostics")
        return cast("list[dict[str, Any]]", stored.get("diagnostics", []))

    def _evaluation(self, key: str) -> Path:
        if not key or key.startswith(".") or "/" in key:
            raise ValueError(f"an evaluation's key must be a plain file name, not {key!r}")
        return self.folder / "evaluations" / key

    def has_records(self, key: str) -> bool:
        """Return whether the records of this evaluation are there."""
        return os.path.isfile(self._evaluation(key) / "records.json")

    def write_records(self, key: str, records: list[Record], outcomes: Mapping[str, np.ndarray]) -> bool:
        """Publish an evaluation: its records and per-example outcomes appear together, as one folder.

        The bytes depend on the arguments only. Returns False, and changes nothing, if `key` is already published.
        Raises ValueError if a value is NaN or infinite.
        """
        import numpy as np

        buffer = io.BytesIO()
        np.savez_compressed(buffer, **{name: outcomes[name] for name in sorted(outcomes)})  # type: ignore[arg-type]
        parts = {
            "records.json": files.dump([_line(record) for record in records]),
            "outcomes.npz": buffer.getvalue(),
        }
        return files.publish_folder(self._evaluation(key), parts)

    def records(self) -> list[Record]:
        """Return all records of the run; evaluations come in the order of their keys."""
        return [record for key in self.evaluations() for record in self.records_of(key)]

    def records_of(self, key: str) -> list[Record]:
        """Return the records of one evaluation. Raises Damaged also if they are not there."""
        path = f"{self.folder}/evaluations/{key}/records.json"
        text = reading.read_bytes(path)
        if text is None:
            raise Damaged(path, "is missing")
        lines = reading.parsed(path, text)
        if not isinstance(lines, list) or (b"\\u" in text and reading.odd(lines, text)):
            raise Damaged(path, "is no list of records")
        try:
            return list(map(_record, lines))
        except (ValueError, OverflowError) as error:
            raise Damaged(path, str(error)) from error

    def outcomes(self, key: str) -> dict[str, np.ndarray]:
        """Return the per-example outcomes of one evaluation."""
        return reading.read_arrays(self._evaluation(key) / "outcomes.npz")

    def evaluations(self) -> list[str]:
        """Return the keys of all evaluations, sorted; other files, and what was set aside, are no evaluations."""
        folder = os.fspath(self.folder / "evaluations")
        try:
            with os.scandir(folder) as entries:
                names = [one.name for one in entries if one.is_dir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise Damaged(folder, f"cannot be read: {error.strerror}") from error
        return sorted(name for name in names if name[0] != "." and not (".damaged-" in name and ASIDE.search(name)))


def damaged_status(error: Damaged) -> dict[str, Any]:
    """Return the status of a run that has a damaged file, with the file as its error."""
    return {"state": "damaged", "error": {"type": "damaged", "message": str(error)}}


_FIELDS = frozenset(field.name for field in fields(Record))
_OLDER = _FIELDS - {"data"}
_FLOAT = (float, int)
_KINDS = {"str": (str,), "float": _FLOAT, "int": (int,), "bool": (bool,), "float | None": (*_FLOAT, type(None))}
_ALLOWED = {field.name: _KINDS[str(field.type)] for field in fields(Record)}  #: JSON may give a float as a whole number
#: the names of a line and the types of its values, as they are written; other orders are looked at one by one
_ORDERS = frozenset(tuple(_ALLOWED)[:end] for end in (len(_ALLOWED), -1))
_TYPES = frozenset(types[:end] for types in product(*_ALLOWED.values()) for end in (len(_ALLOWED), -1))
_HUGE = 1e300  #: no sum of a record's numbers is beyond; NaN and infinities are


def _line(record: Record) -> dict[str, Any]:
    """Return a record as JSON without an empty `data`, so that records from before that field keep their bytes."""
    return {name: value for name, value in asdict(record).items() if name in _OLDER or value}


def _record(line: Any) -> Record:
    """Return a line of records.json as a record. Raises ValueError or OverflowError if it is none."""
    if type(line) is not dict or tuple(line) not in _ORDERS or tuple(map(type, line.values())) not in _TYPES:
        _refuse_line(line)
    if not -_HUGE < line["at"] + line["value"] + line["n"] + (line["low"] or 0) + (line["high"] or 0) < _HUGE:
        raise ValueError("a number of a record is not finite")
    # A report reads tens of thousands of records, and the frozen class's own __init__ takes three times as long.
    record = object.__new__(Record)
    record.__dict__.update(line)
    return record


def _refuse_line(line: Any) -> None:
    """Raise ValueError unless a line has the fields of a record, in any order, each of its type."""
    if not isinstance(line, dict):
        raise ValueError("holds something else than records")
    if line.keys() != _FIELDS and line.keys() != _OLDER:
        raise ValueError(f"a record has other fields than this version's: {sorted(line.keys() ^ _FIELDS)}")
    for name, value in line.items():
        if type(value) not in _ALLOWED[name]:
            raise ValueError(f"{name} of a record is of the wrong type")


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
        """Iterate over the runs of which something is stored, in the order of their ids; other names are no runs."""
        folder = self.root / "runs"
        names = sorted(os.listdir(folder)) if folder.is_dir() else []
        return (RunStore(folder / name) for name in names if _ID.fullmatch(name))

    def suite(self, name: str) -> Path:
        """Return the folder of a suite's plan and report."""
        return self.root / name

    def write_plan(self, suite: str, plan: Mapping[str, Any]) -> None:
        """Write what a suite compares and the runs that it needs."""
        mark(self.root)
        files.write_json(self.suite(suite) / "plan.json", plan)

    def name_trials(self, suite: str, identities: Sequence[str]) -> None:
        """Note that a suite needs these trial runs, as long as its plan does not name them yet."""
        known = self.trials(suite)
        files.write_json(self.suite(suite) / TRIALS, sorted({*known, *identities}))

    def trials(self, suite: str) -> list[str]:
        """Return the ids that `name_trials` noted. Raises Damaged."""
        path = self.suite(suite) / TRIALS
        return cast("list[str]", reading.read_json(path, "trials", remedy=_RENEW_TRIALS) or [])

    def forget_trials(self, suite: str) -> None:
        """Remove the notes of `name_trials`, because the suite's plan names all of the trials now."""
        (self.suite(suite) / TRIALS).unlink(missing_ok=True)

    def plan(self, suite: str) -> dict[str, Any] | None:
        """Return the suite's plan, or None if it was never planned in this store. Raises Damaged."""
        path, remedy = self.suite(suite) / "plan.json", RENEW_PLAN.format(suite)
        return cast("dict[str, Any] | None", reading.read_json(path, "plan", reading.PLAN, remedy))

    def plans(self) -> list[str]:
        """Return the names of the suites that have a plan here, sorted."""
        return sorted(path.parent.name for path in self.root.glob("[!.]*/plan.json"))
