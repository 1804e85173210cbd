"""Whether what is stored is whole: problems of a run and of a store, hashes of what was made, and their repair.

Two depths. The first looks at every file as far as its end or its types: it finds what is cut, empty, missing, of the
wrong type or unreadable, and is cheap enough for `bench status`. The second, `thorough`, compares checksums and hashes,
so it finds every changed byte of weights and records; it reads all of the files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.hashing import file_hash
from bench.store import files, reading
from bench.store.claim import STALE_AFTER, Claim, claims, holder
from bench.store.fence import Busy
from bench.store.jobs import read_note
from bench.store.reading import ASIDE, Damaged, set_aside
from bench.store.run import HASHES, METRICS, TRIALS, RunStore, Store
from bench.store.writer import AGAIN, KEPT, RunWriter

CHECKPOINT = "checkpoint.pt"
RENEW_SECONDS = "delete it, and the steps are timed again; runs with a budget in device seconds then get other ids"
_SWEEP = "`bench doctor --fix` and `bench gc --yes` remove it"
_WEIGHTS, _EVALUATIONS = "weights-", "evaluations"
_WRITTEN_AGAIN = ("settings.json", "status.json", "noise.parquet", HASHES)
Check = Callable[[], object]  #: raises Damaged


def problems(run: RunStore, thorough: bool = False) -> list[Damaged]:
    """Return everything that is damaged in a run; [] also if nothing of it is stored."""
    found = (error for check in _checks(run, thorough) if (error := _outcome(check)) is not None)
    return list({error.path: error for error in found}.values())


def refuse_damaged(run: RunStore) -> None:
    """Raise Damaged for the first problem of a run in what a report does not read: notes, weights, outcomes."""
    for check in (*_unshown(run), *_files(run)):
        check()


def _outcome(check: Check) -> Damaged | None:
    try:
        check()
    except Damaged as error:
        return error
    return None


def _checks(run: RunStore, thorough: bool) -> Iterator[Check]:
    if not run.folder.is_dir():
        if os.path.lexists(run.folder):
            yield partial(_refuse, run.folder, "is not a folder")
        return
    yield from _parts(run)
    try:
        yield from _files(run, thorough)
        for key in run.evaluations():
            yield partial(run.records_of, key)
        stored = run.hashes() if thorough else {}
    except Damaged as error:  # a folder that cannot be listed; damaged hashes are among the parts
        yield partial(_refuse, error.path, error.reason)
        return
    for name, known in stored.items():
        yield partial(_refuse_other, run.path(name), known)


def _refuse(path: Path, reason: str) -> None:
    raise Damaged(path, reason)


def _parts(run: RunStore) -> Iterator[Check]:
    """Yield the checks of the small files, which are read as a whole."""
    yield from (run.read_status, run.settings, run.ledger, run.environment)
    yield from _unshown(run)


def _unshown(run: RunStore) -> Iterator[Check]:
    """Yield the checks of the small files that a report does not read of every run."""
    yield from (run.diagnostics, partial(read_note, run), run.train_seconds, run.hashes)


def _files(run: RunStore, thorough: bool = False) -> Iterator[Check]:
    """Yield the checks of the large files."""
    try:
        names = sorted(os.listdir(run.folder))
    except OSError as error:
        raise Damaged(run.folder, f"cannot be read: {error.strerror}") from error
    for name in names:
        path = f"{run.folder}/{name}"
        if name.startswith(_WEIGHTS) and name.endswith(".safetensors"):
            yield partial(reading.refuse_bad_tensors, path)
        elif name == CHECKPOINT:
            yield partial(reading.refuse_bad_archive if thorough else _refuse_cut_archive, path)
        elif name in ("noise.parquet", KEPT):
            yield partial(reading.refuse_cut, path, reading.PARQUET_END)
        elif name == METRICS:
            yield run.metrics if thorough else partial(reading.refuse_cut_lines, path)
    folder = f"{run.folder}/{_EVALUATIONS}"
    for key in run.evaluations():
        outcomes = f"{folder}/{key}/outcomes.npz"
        yield partial(reading.read_arrays, outcomes) if thorough else partial(_refuse_cut_archive, outcomes)


def _refuse_cut_archive(path: str | Path) -> None:
    reading.refuse_cut(path, reading.ZIP_END)


def write_hashes(run: RunWriter, again: Iterable[str] = ()) -> None:
    """Store the sha256 of weights and records that have none yet, and of those that were made `again`, in their order.

    Called under the claim, before the run's status becomes `done`. Weights and records have theirs already, since they
    were made; see `RunWriter.note_hashes`.
    """
    stored, present = run.hashes(), hashed(run)
    fresh = {name: sha256(run.path(name)) for name in present if name not in stored or name in again}
    if not run.finished:
        fresh = {name: fresh.get(name) or stored[name] for name in present}
    if fresh and list(fresh.items()) != list(stored.items()):
        run.write_hashes(fresh)


def gone(run: RunStore) -> set[str]:
    """Return the paths of which a hash is stored, but no file: `bench gc`, a person or a kill removed it."""
    return {name for name in run.hashes() if not run.path(name).exists()}


def hashed(run: RunStore) -> list[str]:
    """Return the paths, below the run, of its weights and records, and of which captions were wrong."""
    weights = [path.name for path in sorted(run.folder.glob(f"{_WEIGHTS}*.safetensors"))]
    parts = [f"{_EVALUATIONS}/{key}/{name}" for key in run.evaluations() for name in ("records.json", "outcomes.npz")]
    return [*weights, *(name for name in ("noise.parquet", KEPT, *parts) if run.path(name).exists())]


def sha256(path: Path) -> str:
    """Return the sha256 of a file. Raises Damaged if it cannot be read."""
    try:
        return file_hash(path)
    except OSError as error:
        raise Damaged(path, f"cannot be read: {error.strerror}") from error


def refuse_changed(run: RunStore, name: str) -> None:
    """Raise Damaged if a file of a run has another sha256 than the stored one. A file that is gone is no problem."""
    known = run.hashes().get(name)
    if known is not None:
        _refuse_other(run.path(name), known)


def _refuse_other(path: Path, known: str) -> None:
    if path.exists() and sha256(path) != known:
        raise Damaged(path, "differs from the sha256 that was stored when it was made")


def verify(run: RunStore) -> list[Damaged]:
    """Return what keeps a run of another store from being trusted: `problems`, and records of another run."""
    wrong = problems(run, thorough=True)
    for key in run.evaluations() if not wrong else ():
        if any(record.run != run.id for record in run.records_of(key)):
            wrong.append(Damaged(run.path(f"{_EVALUATIONS}/{key}/records.json"), "holds records of another run"))
    return wrong


def repair(claim: Claim) -> list[str]:
    """Move aside what is damaged in a claimed run; return a line for each with what becomes of it.

    Lines of metrics that are whole are kept, and so is the status of a run that was finished. Raises ClaimLost.
    """
    run = RunStore(claim.folder)
    lines = [_moved(run, claim, error) for error in _by_target(run, _every_problem(run))]
    resolved = run.settings().get("resolved")
    if resolved and run.status()["state"] == "missing" and _measured_at_the_end(run):
        steps = sum(count for _, count in resolved["phases"])
        RunWriter(claim).set_status("done", step=steps, steps=steps)
    return lines


def _every_problem(run: RunStore) -> list[Damaged]:
    """Return everything that is damaged in a run, and in the folder in which its weights are trained once more."""
    return [*problems(run, thorough=True), *problems(RunStore(run.path(AGAIN)), thorough=True)]


def make_room(run: RunStore) -> list[str]:
    """Move aside what is in the place of a run's folder and is none; return a line for it."""
    if not os.path.lexists(run.folder) or run.folder.is_dir():
        return []
    return [str(Damaged(run.folder, "is not a folder", f"moved to {set_aside(run.folder).name}"))]


def _by_target(run: RunStore, wrong: list[Damaged]) -> list[Damaged]:
    """Return one problem for each thing to move; an evaluation is moved as a whole."""
    targets: dict[Path, Damaged] = {}
    for error in wrong:
        inner = error.path.relative_to(run.folder).parts
        target = run.folder.joinpath(*inner[:2]) if inner[:1] == (_EVALUATIONS,) else error.path
        targets.setdefault(target, Damaged(target, error.reason))
    return list(targets.values())


def _moved(run: RunStore, claim: Claim, error: Damaged) -> str:
    name, inner = error.path.name, os.fspath(error.path.relative_to(run.folder))
    whole = _whole_lines(error.path) if name == METRICS else []
    aside = claim.fence.set_aside(inner)
    if whole:
        claim.fence.renew(inner, b"".join(line + b"\n" for line in whole))
    return str(Damaged(error.path, error.reason, f"moved to {aside.name}: {_consequence(run, name, error.path)}"))


def _whole_lines(path: Path) -> list[bytes]:
    """Return the lines of metrics.jsonl that can be read."""
    try:
        lines = reading.complete_lines(path)
    except Damaged:
        return []
    numbered = enumerate(lines, start=1)
    return [line for at, line in numbered if not _outcome(partial(reading.value_of_line, path, at, line, "line"))]


def _consequence(run: RunStore, name: str, path: Path) -> str:
    if path.parent.name == _EVALUATIONS:
        return "`bench run` measures it again"
    if name in _WRITTEN_AGAIN:
        return "`bench run` writes it again"
    if name == METRICS:
        return "its whole lines are kept"
    if run.status()["state"] != "done" or AGAIN in (name, path.parent.name):
        start = " from the start of the training, because no other checkpoint is kept"
        return f"`bench run` makes it again{start if name == CHECKPOINT else ''}"
    return "the run keeps its records; only training it again would make this file again"


def _measured_at_the_end(run: RunStore) -> bool:
    """Whether a run was finished: its final weights were measured, after which only the status is written."""
    return any(record.at == 1.0 for record in run.records())


@dataclass
class Examined:
    """What `examine` found, a line each."""

    wrong: list[str] = field(default_factory=list)  #: problems that remain
    repaired: list[str] = field(default_factory=list)
    aside: list[Path] = field(default_factory=list)  #: what was moved aside, now or earlier


def examine(store: Store, fix: bool = False) -> Examined:
    """Look at everything that a store holds, to the last byte; with `fix`, move aside or remove what is wrong.

    Runs that a process works on are left alone.
    """
    found = Examined()
    for check in _of_suites(store):
        if (error := _outcome(check)) is not None:
            if fix:
                aside = set_aside(error.path)
                found.repaired.append(str(Damaged(error.path, error.reason, f"moved to {aside.name}")))
            else:
                found.wrong.append(str(error))
    for run in (*store.runs(), *map(RunStore, sorted(store.root.glob("[!.]*/evaluated/[!.]*/")))):
        if holder(run.folder) is None and (errors := _every_problem(run)):
            _examined(run, errors, fix, found)
    for path in leftovers(store):
        (found.repaired if fix else found.wrong).append(f"{path}: was left by a process that is gone; {_SWEEP}")
        if fix:
            files.remove(path)
    found.aside = sorted(path for path in store.root.rglob("*.damaged-*") if ASIDE.search(path.name))
    return found


def leftovers(store: Store) -> list[Path]:
    """Return temporary files and superseded claims that nothing touched for `STALE_AFTER` seconds.

    Folders of runs that a process works on are left out.
    """
    now, busy = files.clock(store.root), {run.folder for run in store.runs() if holder(run.folder) is not None}
    superseded: list[Path] = []
    for folder in {path.parent for path in store.root.rglob("claim-*")}:
        # The highest number stays: claim numbers must only rise.
        superseded += list(claims(folder).values())[:-1]
    found = []
    for path in sorted([*store.root.rglob(f"{files.TEMPORARY}*"), *superseded]):
        inside = any(parent.name.startswith(files.TEMPORARY) or parent in busy for parent in path.parents)
        if not inside and now - _changed(path) > STALE_AFTER:
            found.append(path)
    return found


def _changed(path: Path) -> float:
    """Return the time of the last change of a file, or of anything in a folder."""
    times = [inner.lstat().st_mtime for inner in (path, *path.rglob("*")) if inner.exists()]
    return max(times, default=time.time())


def _of_suites(store: Store) -> Iterator[Check]:
    """Yield the checks of the files beside the runs."""
    for name in store.plans():
        yield partial(store.plan, name)
    for path in sorted(store.root.glob(f"[!.]*/{TRIALS}")):
        yield partial(store.trials, path.parent.name)
    for name in store.queues():
        yield partial(store.queued, name)
    for path in sorted(store.root.glob("calibrations/[!.]*.json")):
        yield partial(reading.read_json, path, "seconds", remedy=RENEW_SECONDS)


def _examined(run: RunStore, errors: list[Damaged], fix: bool, found: Examined) -> None:
    """Note the problems of a run, or repair it under its claim."""
    if not fix:
        found.wrong += map(str, errors)
        return
    try:
        if run.folder.is_dir():
            with run.claim() as claim:
                found.repaired += repair(claim)
        else:
            found.repaired += make_room(run)
    except Busy as busy:
        found.wrong += [f"{error.path}: {error.reason}; left alone, {busy}" for error in errors]
