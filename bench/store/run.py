"""A store holds plans of suites and one folder per run."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bench.errors import UserError
from bench.store import files, reading
from bench.store.claim import Claim, live_holder
from bench.store.format import mark, refuse_newer
from bench.store.reading import SET_ASIDE, Damaged

if TYPE_CHECKING:
    import numpy as np

TRIALS = "trials.json"  #: file next to a suite's plan with trial runs that the plan does not name yet
QUEUE = "queue.json"  #: file next to a suite's plan with the suite, for workers to make its runs
METRICS = "metrics.jsonl"
TRAIN_SECONDS = "train_seconds"
HASHES = "hashes.json"
AGAIN_FOLDER = "again"  #: folder of a finished run in which weights that `bench store gc` removed are trained once more
RENEW_PLAN = "delete it, and `bench run {} --plan-only` writes it again"  #: remedy, with the suite
_RENEW_TRIALS = "delete it, and `bench run` writes it again"
RUN_ID = re.compile(r"[0-9a-f]{64}")


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

    It only reads. `bench.store.writer.RunWriter` writes, under the run's claim. Whatever reads a file raises Damaged
    if it is cut, unreadable or not of the type that it should have.
    """

    def __init__(self, folder: Path, identity: str = "") -> None:
        """identity: of the run; "" = the folder's name."""
        self.folder = folder
        self.id = identity or folder.name

    def again(self) -> RunStore:
        """Return the folder in which this finished run is trained once more, for weights that it lost."""
        return RunStore(self.folder / AGAIN_FOLDER, self.id)

    def claim(self) -> Claim:
        """Return the right to work on this run, as a context manager; entering raises `Busy` while another holds it."""
        return Claim(self.folder)

    def settings(self) -> dict[str, Any]:
        """Return the stored content, or {} if nothing was written."""
        settings = self._read("settings.json", "settings")
        if settings.get("id", self.id) != self.id:
            raise Damaged(self.folder / "settings.json", f"belongs to another run, {settings['id'][:16]}")
        return settings

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
        if status["state"] == "running" and live_holder(self.folder) is None:
            status["state"] = "interrupted"
        return status

    def metrics(self) -> list[dict[str, Any]]:
        """Return the complete lines of metrics.jsonl, without a last line that a kill cut short."""
        return reading.read_lines(self.folder / METRICS)

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

    def _read(self, name: str, model: str) -> dict[str, Any]:
        return cast("dict[str, Any]", reading.read_json(f"{self.folder}/{name}", model) or {})

    def ledger(self) -> dict[str, Any]:
        """Return the stored content, or {} if nothing was written."""
        return self._read("ledger.json", "ledger")

    def environment(self) -> dict[str, Any]:
        """Return the stored content, or {} if nothing was written."""
        return self._read("environment.json", "environment")

    def diagnostics(self) -> list[dict[str, Any]]:
        """Return the stored histograms; [] if there are none."""
        entries: list[dict[str, Any]] = self._read("diagnostics.json", "diagnostics").get("diagnostics", [])
        return entries

    def hashes(self) -> dict[str, str]:
        """Return the sha256 of weights, records and noise by their paths below the run, stored as they were made."""
        return cast("dict[str, str]", self._read(HASHES, "hashes"))

    def _evaluation(self, key: str) -> Path:
        if not key or key.startswith(".") or "/" in key:
            raise ValueError(f"an evaluation's key must be a plain file name, not {key!r}")
        return self.folder / "evaluations" / key

    def has_records(self, key: str) -> bool:
        """Return whether the records of this evaluation are there."""
        return os.path.isfile(self._evaluation(key) / "records.json")

    def records(self) -> list[Record]:
        """Return all records of the run; evaluations come in the order of their keys."""
        return [record for key in self.evaluations() for record in self.records_of(key)]

    def records_of(self, key: str) -> list[Record]:
        """Return the records of one evaluation. Raises Damaged also if they are not there."""
        path = f"{self.folder}/evaluations/{key}/records.json"
        text = reading.read_bytes(path)
        if text is None:
            raise Damaged(path, "is missing")
        lines = reading.parse_stored_json(path, text)
        if not isinstance(lines, list) or (b"\\u" in text and reading.unstorable(lines, text)):
            raise Damaged(path, "is not a list of records")
        try:
            return list(map(_record, lines))
        except (ValueError, OverflowError) as error:
            raise Damaged(path, str(error)) from error

    def outcomes(self, key: str, most: int = reading.MAX_ARRAYS) -> dict[str, np.ndarray]:
        """Return the per-example results of one evaluation, of at most `most` bytes."""
        return reading.read_arrays(self._evaluation(key) / "outcomes.npz", most)

    def evaluations(self) -> list[str]:
        """Return the keys of all evaluations, sorted; other files, and what was set aside, are not evaluations."""
        folder = os.fspath(self.folder / "evaluations")
        try:
            with os.scandir(folder) as entries:
                names = [one.name for one in entries if one.is_dir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise Damaged(folder, f"cannot be read: {error.strerror}") from error
        return sorted(name for name in names if name[0] != "." and not (".damaged-" in name and SET_ASIDE.search(name)))


def damaged_status(error: Damaged) -> dict[str, Any]:
    """Return the status of a run that has a damaged file, with the file as its error."""
    return {"state": "damaged", "error": {"type": "damaged", "message": str(error)}}


_FIELDS = frozenset(field.name for field in fields(Record))
_OLDER_FIELDS = _FIELDS - {"data"}
_FLOAT = (float, int)
_KINDS = {"str": (str,), "float": _FLOAT, "int": (int,), "bool": (bool,), "float | None": (*_FLOAT, type(None))}
_ALLOWED = {field.name: _KINDS[str(field.type)] for field in fields(Record)}  #: JSON may give a float as a whole number
_HUGE = 1e300  #: no sum of a record's numbers is beyond; NaN and infinities are


def record_line(record: Record) -> dict[str, Any]:
    """Return a record as JSON without an empty `data`, so that records from before that field keep their bytes."""
    return {name: value for name, value in asdict(record).items() if name in _OLDER_FIELDS or value}


def _record(line: Any) -> Record:
    """Return a line of records.json as a record. Raises ValueError or OverflowError if it is none."""
    if type(line) is not dict:
        raise ValueError("holds something else than records")
    if not _OLDER_FIELDS <= line.keys() <= _FIELDS:
        raise ValueError(f"a record has other fields than this version's: {sorted(line.keys() ^ _FIELDS)}")
    for name, value in line.items():
        if type(value) not in _ALLOWED[name]:
            raise ValueError(f"{name} of a record is of the wrong type")
    if not -_HUGE < line["at"] + line["value"] + line["n"] + (line["low"] or 0) + (line["high"] or 0) < _HUGE:
        raise ValueError("a number of a record is not finite")
    # A report reads tens of thousands of records, and the frozen class's own __init__ takes three times as long.
    record = object.__new__(Record)
    record.__dict__.update(line)
    return record


def weights_name(at: float) -> str:
    """File of the weights after the share `at` of the budget: weights-025.safetensors ... weights-100.safetensors."""
    return f"weights-{round(at * 100):03d}.safetensors"


class Store:
    """All results under one root: `runs/<id>/` and `<suite>/plan.json` next to the suite's report.

    Raises UserError if a later version of this package wrote them.
    """

    def __init__(self, root: Path | str = "results") -> None:
        self.root = Path(root)
        refuse_newer(self.root)

    def run(self, identity: str) -> RunStore:
        """Return the run with this id, whether anything of it is stored or not."""
        return RunStore(self.root / "runs" / identity)

    def runs(self) -> Iterator[RunStore]:
        """Iterate over the runs of which something is stored, in the order of their ids; other names are not runs."""
        folder = self.root / "runs"
        names = sorted(os.listdir(folder)) if folder.is_dir() else []
        return (RunStore(folder / name) for name in names if RUN_ID.fullmatch(name))

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

    def queue(self, suite: str, content: Mapping[str, Any]) -> None:
        """Offer the runs of a suite to workers: its settings as `suite`, and the labels and seeds that are chosen."""
        mark(self.root)
        files.write_json(self.suite(suite) / QUEUE, content)

    def queued(self, suite: str) -> tuple[dict[str, Any], int] | None:
        """Return what `queue` stored and when, or None if it stored nothing. Raises Damaged.

        The time is in nanoseconds, by the clock of the file system.
        """
        path = self.suite(suite) / QUEUE
        content = reading.read_json(path, "queue", remedy=RENEW_PLAN.format(suite))
        return None if content is None else (content, path.stat().st_mtime_ns)

    def queues(self) -> list[str]:
        """Return the names of the suites that are queued here, sorted."""
        return sorted(path.parent.name for path in self.root.glob(f"[!.]*/{QUEUE}"))

    def plan(self, suite: str) -> dict[str, Any] | None:
        """Return the suite's plan, or None if it was never planned in this store. Raises Damaged."""
        path, remedy = self.suite(suite) / "plan.json", RENEW_PLAN.format(suite)
        return cast("dict[str, Any] | None", reading.read_json(path, "plan", reading.MAX_PLAN, remedy))

    def plans(self) -> list[str]:
        """Return the names of the suites that have a plan here, sorted."""
        return sorted(path.parent.name for path in self.root.glob("[!.]*/plan.json"))


SHORT_ID = 16  #: characters of an id that are printed


def find_run(store: Store, prefix: str) -> RunStore:
    """Return the one stored run whose id starts with `prefix`. Raises UserError if there are none or several."""
    ids = [run.id for run in store.runs()]
    matches = [identity for identity in ids if identity.startswith(prefix)] if prefix else []
    if not matches:
        raise UserError(f"{prefix!r}: no run in {store.root} has an id that starts like this ({len(ids)} are stored)")
    if len(matches) > 1:
        some = ", ".join(identity[:SHORT_ID] for identity in matches[:4])
        raise UserError(f"{prefix!r}: {len(matches)} runs start like this: {some}{', ...' if len(matches) > 4 else ''}")
    return store.run(matches[0])
