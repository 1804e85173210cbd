"""`bench store import`: merge the results of another machine into a store, run by run; ids address the same content.

Everything is checked in a private place in this store (bench/store/incoming.py), and then renamed.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.errors import UserError
from bench.store import files
from bench.store.claim import live_holder
from bench.store.fence import Busy
from bench.store.format import mark
from bench.store.incoming import Incoming, Untrusted, open_incoming, refuse_run
from bench.store.reading import Damaged, read_bytes, read_json
from bench.store.run import RunStore, Store
from bench.store.verify import CHECKPOINT_FILE


@dataclass
class ImportOutcome:
    """The outcome of an import, by the ids of runs."""

    new: list[str] = field(default_factory=list)  #: runs that were not in this store
    advanced: list[str] = field(default_factory=list)  #: had come further in the other store, and were replaced
    known: list[str] = field(default_factory=list)  #: are at least as far in this store, and stay as they are
    busy: list[str] = field(default_factory=list)  #: a process of either store works on them
    calibrations: int = 0
    plans: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  #: one sentence for everything that was left out


def merge_store(source: Path, store: Store, dry_run: bool = False) -> ImportOutcome:
    """Merge a results folder, or a tar archive of one, into `store`; with `dry_run` only report what would be done.

    A run appears by rename. Complete runs of `store` are never changed. A run with other numbers in the other store
    is refused in one line that names both machines: one id has one result. What is damaged or forged is left out and
    reported. Raises UserError if `source` is not a store, or an archive that does not fit.
    """
    if source.is_dir() and source.resolve() == store.root.resolve():
        raise UserError(f"{source}: is this store itself")
    merged = ImportOutcome()
    with _scratch(store, dry_run) as scratch, open_incoming(source, scratch) as theirs:
        if not dry_run:
            mark(store.root)
        for run in Store(theirs.root).runs():
            with _reporting(merged, f"run {run.id}"):
                _take_run(theirs, run, store.run(run.id), merged, scratch, dry_run)
        for path in sorted(theirs.root.glob("calibrations/[!.]*.json")):
            with _reporting(merged, f"calibration {path.stem}"):
                seconds, target = theirs.calibration(path), store.root / path.relative_to(theirs.root)
                merged.calibrations += _take_file(target, seconds, dry_run)
                if os.path.lexists(target) and read_json(target, "seconds") != seconds:
                    raise Untrusted("has other numbers in the source; ours are kept")
        for name in theirs.suites():
            with _reporting(merged, f"plan {name}"):
                target = store.suite(name) / "plan.json"
                if not os.path.lexists(target) and (plan := theirs.plan(name)) and _take_file(target, plan, dry_run):
                    merged.plans.append(name)
    return merged


@contextmanager
def _scratch(store: Store, dry_run: bool) -> Iterator[Path]:
    """Yield a private folder in the store, a temporary one for a dry run; a new store that stays empty is removed."""
    if dry_run:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            yield Path(folder)
        return
    made = not store.root.is_dir()
    try:
        with files.scratch(store.root / "import") as beside:
            beside.mkdir(mode=0o700)
            yield beside
    finally:
        if made:
            with contextlib.suppress(OSError):
                store.root.rmdir()


@contextmanager
def _reporting(merged: ImportOutcome, name: str) -> Iterator[None]:
    """Add a problem, with the name of the thing, for whatever cannot be taken or read."""
    try:
        yield
    except (Untrusted, Damaged) as error:
        merged.problems.append(f"{name}: {error}")


def _take_run(
    theirs: Incoming, run: RunStore, ours: RunStore, merged: ImportOutcome, scratch: Path, dry_run: bool
) -> None:
    """Take a run if this store lacks it or has less of it. Raises Untrusted, and Damaged for ours."""
    there, here = theirs.read(_progress, run), _progress(ours)
    if there is None:
        return
    if live_holder(ours.folder) is not None or (not theirs.private and live_holder(run.folder) is not None):
        merged.busy.append(run.id)
        return
    further = here is None or (there > here and not here[0])
    if (conflicts := theirs.read(lambda run: _conflicts(run, ours), run)) or not further:
        merged.known.append(run.id)
        if conflicts:
            machines = f"{_machine(ours.environment())} here, {_machine(theirs.read(RunStore.environment, run))} there"
            raise Untrusted(f"has other numbers there ({machines}) in {', '.join(conflicts)}; ours are kept")
        return
    taken = merged.new if here is None else merged.advanced
    if dry_run:
        theirs.read(lambda run: refuse_run(run, theirs.sealed), run)
        taken.append(run.id)
        return
    with theirs.checked(run, scratch) as copy:
        (taken if _placed(copy, ours) else merged.busy).append(run.id)


def _progress(run: RunStore) -> tuple[bool, int] | None:
    """Return (done, steps in the checkpoint), or None for a run without settings or status."""
    status = run.read_status()
    if status["state"] == "missing" or not run.settings():
        return None
    return status["state"] == "done", int(status.get("step") or 0) if run.path(CHECKPOINT_FILE).exists() else 0


def _conflicts(run: RunStore, ours: RunStore) -> list[str]:
    """Return the keys of the evaluations that both have with other records."""
    names = {key: f"evaluations/{key}/records.json" for key in run.evaluations() if ours.has_records(key)}
    return [key for key, name in names.items() if read_bytes(run.path(name)) != read_bytes(ours.path(name))]


def _machine(environment: Mapping[str, Any]) -> str:
    """Return the device that a run was trained on, as its environment says."""
    return str((environment.get("hardware") or {}).get("device") or "an unknown machine")


def _placed(copy: RunStore, ours: RunStore) -> bool:
    """Rename a checked run to its place, and delete what is there. Returns False if another process works on it."""
    if ours.folder.exists():
        try:
            with ours.claim() as claim:
                claim.delete_folder()
        except Busy:
            return False
    ours.folder.parent.mkdir(exist_ok=True)
    return files.publish(copy.folder, ours.folder)


def _take_file(target: Path, content: Any, dry_run: bool) -> bool:
    """Write a file unless there is one; return whether there was none."""
    if os.path.lexists(target):
        return False
    if not dry_run:
        files.write_json(target, content)
    return True
