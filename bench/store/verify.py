"""Verification of a store: damaged files are found and moved aside, so that `bench run` computes them again.

There are two levels. The first reads the small files and the records, and is cheap enough for `bench status`. The
second, `thorough`, also compares everything with the sha256 that was stored when it was made, to the last byte.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.hashing import file_hash
from bench.store import reading
from bench.store.claim import Claim, live_holder
from bench.store.fence import Busy
from bench.store.files import set_aside
from bench.store.jobs import read_job_note
from bench.store.reading import Damaged
from bench.store.run import AGAIN_FOLDER, METRICS, TRIALS, RunStore, Store
from bench.store.writer import RunWriter

CHECKPOINT_FILE = "checkpoint.pt"
RENEW_SECONDS = "delete it, and the steps are timed again; runs with a budget in device seconds then get other ids"
_EVALUATIONS = "evaluations"


def run_problems(run: RunStore, thorough: bool = False, compared: bool = False) -> list[Damaged]:
    """Return everything that is damaged in a run, one line per file; [] also if nothing of it is stored.

    compared: whether the files are known to have the stored hashes, so that `thorough` need not read them for it.
    """
    if not run.folder.is_dir():
        return [Damaged(run.folder, "is not a folder")] if os.path.lexists(run.folder) else []
    found = _Found()
    for read in (run.read_status, run.settings, run.ledger, run.environment, run.diagnostics, run.train_seconds):
        found.by(read)
    stored = found.by(run.hashes) or {}
    found.by(read_job_note, run)
    for key in found.by(run.evaluations) or ():
        found.by(run.records_of, key)
    if thorough:
        found.by(run.metrics)
        found.by(reading.refuse_bad_archive, run.path(CHECKPOINT_FILE))
        for name, known in () if compared else stored.items():
            found.by(_refuse_other, run.path(name), known)
    return list(found.values())


class _Found(dict[Path, Damaged]):
    """Damaged files by their paths."""

    def by(self, read: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a call returns; None, and its error is noted, if it finds damage."""
        try:
            return read(*arguments)
        except Damaged as error:
            self[error.path] = error
            return None


def sha256(path: Path) -> str:
    """Return the sha256 of a file. Raises Damaged if it cannot be read."""
    if not path.is_file():
        raise Damaged(path, "is not a file")
    try:
        return file_hash(path)
    except OSError as error:
        raise Damaged(path, f"cannot be read: {error.strerror}") from error


def refuse_changed_in_run(run: RunStore, name: str) -> None:
    """Raise Damaged if a file of a run has another sha256 than the stored one. A file that is gone is not a problem."""
    known = run.hashes().get(name)
    if known is not None:
        _refuse_other(run.path(name), known)


def _refuse_other(path: Path, known: str) -> None:
    if os.path.lexists(path) and sha256(path) != known:
        raise Damaged(path, "differs from the sha256 that was stored when it was made")


def repair_run(claim: Claim) -> list[str]:
    """Move aside what is damaged in a claimed run; return a line for each.

    A run that was finished gets its status back. One that is not finished begins again if its metrics were damaged.
    Raises ClaimLost.
    """
    run = RunStore(claim.folder)
    lines, moved = [], set[str]()
    parts = 1 if run.path(_EVALUATIONS).is_symlink() else 2  # what a link leads to is not the run's
    for error in run_problems(run, thorough=True):
        name = error.path.relative_to(run.folder)
        if name.parts[0] == _EVALUATIONS:  # moved as a whole
            name = Path(*name.parts[:parts])
        if str(name) not in moved:
            moved.add(str(name))
            aside = claim.fence.set_aside(str(name))
            lines.append(str(Damaged(error.path, error.reason, f"moved to {aside.name}")))
    if run.status()["state"] == "missing" and run.settings() and any(record.at == 1.0 for record in run.records()):
        steps = sum(count for _, count in run.settings()["resolved"]["phases"])
        RunWriter(claim).set_status("done", step=steps, steps=steps)
    if METRICS in moved and run.status()["state"] != "done":
        claim.fence.discard(CHECKPOINT_FILE)
    for error in run_problems(run.again(), thorough=True):
        claim.fence.discard(AGAIN_FOLDER)
        lines.append(str(Damaged(error.path, error.reason, "removed")))
    return lines


def verify_store(store: Store, fix: bool = False) -> tuple[list[str], list[str]]:
    """Check every byte of a store. Returns what is wrong, and what was repaired, in lines.

    With `fix`, what is damaged is moved aside. Runs that a process works on are left alone.
    """
    beside = _Found()
    for name in store.plans():
        beside.by(store.plan, name)
    for path in sorted(store.root.glob(f"[!.]*/{TRIALS}")):
        beside.by(store.trials, path.parent.name)
    for name in store.queues():
        beside.by(store.queued, name)
    for path in sorted(store.root.glob("calibrations/[!.]*.json")):
        beside.by(reading.read_json, path, "seconds", reading.MAX_SMALL_JSON, RENEW_SECONDS)
    wrong, mended = ([], list(map(_moved, beside.values()))) if fix else (list(map(str, beside.values())), [])
    for run in (*store.runs(), *map(RunStore, sorted(store.root.glob("[!.]*/evaluated/[!.]*/")))):
        errors = [] if live_holder(run.folder) else run_problems(run, thorough=True) + run_problems(run.again(), True)
        if not fix or not errors:
            wrong += map(str, errors)
        elif not run.folder.is_dir():
            mended += map(_moved, errors)
        else:
            try:
                with run.claim() as claim:
                    mended += repair_run(claim)
            except Busy as busy:
                wrong += [f"{error.path}: {error.reason}; left alone, {busy}" for error in errors]
    return wrong, mended


def _moved(error: Damaged) -> str:
    return str(Damaged(error.path, error.reason, f"moved to {set_aside(error.path).name}"))
