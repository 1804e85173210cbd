"""Writer of a run's folder. It exists only under a claim, and every write goes through the claim's fence."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.hashing import file_hash
from bench.store import files, reading
from bench.store.claim import Claim
from bench.store.content import STATES
from bench.store.run import AGAIN_FOLDER, HASHES, METRICS, TRAIN_SECONDS, Record, RunStore, record_line

if TYPE_CHECKING:
    import numpy as np

KEPT_FILE = "kept.parquet"  #: file of a run whose pairs a reference run scores: those that it trains on
#: files of a run that follow from its plan, its scorer and its files
RENEWED_FILES = ("settings.json", "noise.parquet", KEPT_FILE)
FEATURES = "features"  #: folder of a run with features that evaluation can extract again


def is_hashed(name: str) -> bool:
    """Return whether the sha256 of a file, by its path below a run, is stored: of weights, records and noise."""
    return name.startswith(("weights-", "evaluations/")) or name in ("noise.parquet", KEPT_FILE)


class Finished(Exception):
    """A finished run does not change: its status is `done`."""


class RunWriter(RunStore):
    """A run's folder for the holder of its claim. Every write raises ClaimLost once the claim is lost.

    A run whose status is `done` is finished. Later suites may add evaluations to it, each a new folder, with their
    hashes, seconds and diagnostics. Every other write to it raises Finished.
    """

    def __init__(self, claim: Claim, below: str = "") -> None:
        """`below` is a folder in the run's folder that is written as if it were a run of its own."""
        super().__init__(claim.folder / below, claim.folder.name)
        self.own_claim, self.fence = claim, claim.fence
        self._below = f"{below}/" if below else ""
        self.finished = self.status()["state"] == "done"
        for name in () if self.finished else (METRICS, TRAIN_SECONDS):
            if self.path(name).exists():  # the holder before may be asleep with it open
                self.fence.own(self._below + name)

    def progress(self) -> dict[str, Any]:
        """Return the step that the run has reached, for its next status."""
        return {key: value for key, value in self.status().items() if key == "step"}

    def _open(self, name: str) -> str:
        """Return the path of a file below the claim's folder. Raises Finished for a file of a finished run.

        A finished run may get back a file of `RENEWED_FILES` that it lacks, because it was damaged and moved aside.
        """
        lacking = name in RENEWED_FILES and not self.path(name).exists()
        if self.finished and not lacking and name.split("/")[0] != FEATURES:
            raise Finished(f"run {self.id}: is finished; {name} is not written")
        return self._below + name

    def write_path(self, name: str, writer: Callable[[Path], object]) -> None:
        """Let `writer` write to a temporary path, then publish it under `name` in one step; note its hash before."""

        def write(path: Path) -> None:
            writer(path)
            if is_hashed(name):
                self.note_hashes({name: file_hash(path)})

        self.fence.write_path(self._open(name), write)

    def write_bytes(self, name: str, content: bytes) -> None:
        """Publish bytes under `name` in one step."""
        self.write_path(name, lambda path: path.write_bytes(content))

    def write_json(self, name: str, value: Any) -> None:
        """Publish JSON under `name` in one step. Raises ValueError on NaN or infinity."""
        self.write_bytes(name, files.dump(value))

    def write_settings(self, settings: Mapping[str, Any]) -> None:
        """Write settings.json unless it exists: the id addresses the content, so it could only be the same."""
        if not self.path("settings.json").exists():
            self.write_json("settings.json", settings)

    def set_status(self, state: str, **details: Any) -> None:
        """Replace the status. Raises ValueError for a state that is not one of `STATES`. `done` finishes the run."""
        if state not in STATES:
            raise ValueError(f"state must be one of {STATES}, not {state!r}")
        self.write_json("status.json", {"state": state, **details, "updated": time.time()})
        self.finished = state == "done"

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        """Add one line to metrics.jsonl in one write; a loss may be NaN here. `line` should carry `step`."""
        self.fence.append(self._open(METRICS), (json.dumps(line) + "\n").encode())

    def truncate_metrics(self, step: int) -> None:
        """Drop the lines of `step` and later, and a last line that was cut short; a resumed run writes them again."""
        written = reading.complete_lines(self.path(METRICS))
        earlier = [text + b"\n" for text, line in zip(written, self.metrics(), strict=True) if line["step"] < step]
        self.fence.renew(self._open(METRICS), b"".join(earlier))

    def note_train_seconds(self, seconds: float) -> None:
        """Store the seconds that all finished steps took, including steps that a kill undid.

        This is one write of a fixed length into the page cache, cheap enough for every step. It outlives its process,
        though not a power cut.
        """
        self.fence.overwrite(self._open(TRAIN_SECONDS), f"{seconds:<24.17g}\n".encode())

    def charge_evaluation(self, seconds: float) -> None:
        """Add the seconds of a measured evaluation to the ledger, of a finished run too, unless it lost its ledger."""
        if ledger := self.ledger():
            self._add("ledger.json", {**ledger, "evaluate_seconds": ledger.get("evaluate_seconds", 0.0) + seconds})

    def write_diagnostics(self, staying: list[dict[str, Any]], entries: list[dict[str, Any]]) -> None:
        """Write histograms of what the method learned (bench/store/histograms.py) next to the stored ones that stay."""
        self._add("diagnostics.json", {"diagnostics": [*staying, *entries]})

    def note_hashes(self, fresh: Mapping[str, str]) -> None:
        """Store the sha256 of files that are about to appear, so that a kill leaves no file without one."""
        stored = self.hashes()
        if any(stored.get(name) != digest for name, digest in fresh.items()):
            self._add(HASHES, dict(sorted({**stored, **fresh}.items())))

    def _add(self, name: str, value: Any) -> None:
        """Replace a file that grows with the evaluations of a run, finished or not."""
        content = files.dump(value)
        self.fence.write_path(self._below + name, lambda path: path.write_bytes(content))

    def write_records(self, key: str, records: list[Record], outcomes: Mapping[str, np.ndarray]) -> bool:
        """Publish an evaluation: its records and per-example results appear together, as one folder.

        The bytes depend on the arguments only. Returns False, and changes nothing, if `key` is already published.
        Raises ValueError if a value is NaN or infinite.
        """
        import numpy as np

        buffer = io.BytesIO()
        np.savez_compressed(buffer, **{name: outcomes[name] for name in sorted(outcomes)})  # type: ignore[arg-type]
        content = {
            "records.json": files.dump([record_line(record) for record in records]),
            "outcomes.npz": buffer.getvalue(),
        }
        name = self._evaluation(key).relative_to(self.folder)
        if self.path(str(name)).is_dir():
            return False
        self.note_hashes({f"{name}/{file}": sha256(part).hexdigest() for file, part in content.items()})
        return self.fence.publish_folder(f"{self._below}{name}", content)

    def set_aside(self, name: str) -> Path:
        """Rename a damaged file to the first free name `NAME.damaged-N` next to it; return the new path."""
        return self.fence.set_aside(self._below + name)

    def discard(self, name: str) -> None:
        """Remove a file of a run that is not finished."""
        self.fence.discard(self._open(name))

    def again(self) -> RunWriter:
        """Return a writer of the folder in which this finished run is trained once more, for weights that it lost."""
        return RunWriter(self.own_claim, AGAIN_FOLDER)

    def restore(self, names: Iterable[str]) -> None:
        """Add these files of `again` to the finished run unless it has them, then remove `again`."""
        known = RunStore.again(self).hashes()
        for name in names:
            if not self.path(name).exists():
                self.note_hashes({name: known[name]})
                self.fence.link(f"{AGAIN_FOLDER}/{name}", name)
        self.fence.discard(AGAIN_FOLDER)


@contextmanager
def writing(run: RunStore) -> Iterator[RunWriter]:
    """Claim a run for the time of the context and yield its writer. Raises `Busy` while another process holds it."""
    with run.claim() as claim:
        yield RunWriter(claim)
