"""`bench import`: merge the results of another machine into a store, run by run; ids address the same content.

Everything is copied to a private place in this store, checked there (bench/store/incoming/trust.py), and then renamed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.errors import UserError
from bench.store import files
from bench.store.claim import Claim, holder
from bench.store.doctor import sha256, write_hashes
from bench.store.fence import PREFIX, Busy
from bench.store.format import NAME, mark
from bench.store.incoming import trust
from bench.store.incoming.archive import unpack, unpacked_limit
from bench.store.incoming.trust import Untrusted
from bench.store.reading import Damaged, read_bytes, read_json
from bench.store.run import RunStore, Store, weights_name
from bench.store.writer import RunWriter

MEMORY = Path("/dev/shm")  #: where Linux has a file system in memory
_LAST = ("checkpoint.pt", "ledger.json", "status.json")  #: files of a run that tell how far it is, in this order


@dataclass
class Merged:
    """The outcome of an import, by the ids of runs."""

    new: list[str] = field(default_factory=list)  #: were not in this store
    advanced: list[str] = field(default_factory=list)  #: had come further in the other store, and were replaced
    known: list[str] = field(default_factory=list)  #: are at least as far in this store, and stay as they are
    busy: list[str] = field(default_factory=list)  #: a process of either store works on them
    evaluations: int = 0  #: added to known runs
    calibrations: int = 0
    evaluated: int = 0  #: checkpoints measured by `bench eval`
    plans: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  #: one sentence for everything that was left out


def merge(source: Path, store: Store, dry_run: bool = False, unverifiable: bool = False) -> Merged:
    """Merge a results folder, or a tar archive of one, into `store`; with `dry_run` only report what would be done.

    A run appears by rename. Complete runs of `store` are never overwritten. If the same evaluation has other numbers
    in the other store, ours stay and the conflict is reported. What is damaged or forged is left out and reported, and
    so are runs of earlier versions, whose ids cannot be checked, unless `unverifiable` says that they are taken.
    Raises UserError if `source` is no store, or an archive that does not fit.
    """
    merged = Merged()
    with _opened(source, store, dry_run) as root:
        if not dry_run:
            mark(store.root)
        job = _Import(root, store, merged, dry_run, unverifiable)
        for theirs in Store(root).runs():
            with job.reporting(f"run {theirs.id}"):
                try:
                    job.run(theirs, store.run(theirs.id))
                except Busy:
                    merged.busy.append(theirs.id)
        for path in sorted(root.glob("calibrations/[!.]*.json")):
            with job.reporting(f"calibration {path.stem}"):
                job.calibration(path)
        for name in trust.suites(root):
            with job.reporting(f"plan {name}"):
                job.plan(name)
            for path in sorted((root / name).glob("evaluated/[!.]*")):
                with job.reporting(f"evaluated checkpoint {name}/{path.name}"):
                    job.evaluated(RunStore(path))
    return merged


@dataclass(frozen=True)
class _Import:
    """One import: from where, to where, and its outcome so far."""

    root: Path
    store: Store
    merged: Merged
    dry_run: bool
    unverifiable: bool

    @contextmanager
    def reporting(self, name: str) -> Iterator[None]:
        """Add a problem, with the name of the thing, for whatever cannot be taken or read."""
        try:
            yield
        except (Untrusted, Damaged) as error:
            self.merged.problems.append(f"{name}: {error}")

    def run(self, theirs: RunStore, ours: RunStore) -> None:
        """Take a run, its progress or its evaluations, if this store lacks them. Raises Busy, Untrusted, Damaged."""
        trust.refuse_links(self.root, theirs.folder)
        with trust.naming(theirs.folder):
            if _progress(theirs) == _NOTHING:
                return
        if holder(theirs.folder) is not None or holder(ours.folder) is not None:
            raise Busy("this or another host", 0)
        with trust.naming(theirs.folder):
            change = _compare(theirs, ours)
        refuse = partial(trust.refuse_run, trust=self.unverifiable)
        if change.further or change.added:
            with self._checked(theirs, ours.folder, refuse) as copy:
                change = self._take(copy, ours)
        name = theirs.id
        self.merged.problems += [f"run {name}: {conflict}; ours is kept" for conflict in change.conflicts]
        self._list(change).append(name)
        self.merged.evaluations += 0 if change.further else len(change.added)

    def _list(self, change: _Change) -> list[str]:
        if change.new:
            return self.merged.new
        return self.merged.advanced if change.further else self.merged.known

    def _take(self, copy: RunStore, ours: RunStore) -> _Change:
        """Take what ours lacks from a checked copy of theirs. Ours is compared again, under its claim."""
        if self.dry_run:
            return _compare(copy, ours)
        if not ours.folder.exists() and files.publish(copy.folder, ours.folder):
            return _Change(True, True, [], [])
        with ours.claim() as claim, claim.fence.guarded():
            change, own = _compare(copy, ours), ours.hashes()
            fresh = claim.fence.new()
            copy.folder.rename(fresh)
            if change.further:
                _replace(fresh, claim)
                stay = {name: known for name, known in own.items() if name.startswith("evaluations/")}
                RunWriter(claim).note_hashes(stay)
            again = [] if change.further else _add(fresh, change.added, claim)
            write_hashes(RunWriter(claim), again)
        return change

    def calibration(self, path: Path) -> None:
        """Take measured seconds of steps, unless this store has some for the same machine and model."""
        seconds, target = trust.calibration_of(self.root, path), self.store.root / path.relative_to(self.root)
        if not target.exists():
            self.merged.calibrations += 1
            if not self.dry_run:
                files.write_json(target, seconds)
        elif read_json(target, "seconds") != seconds:
            raise Untrusted("has other numbers there; ours are kept")

    def plan(self, name: str) -> None:
        """Take the plan of a suite, unless this store has one."""
        target = self.store.suite(name) / "plan.json"
        if os.path.lexists(target) or (plan := trust.plan_of(self.root, name)) is None:
            return
        self.merged.plans.append(name)
        if not self.dry_run:
            files.write_json(target, plan)

    def evaluated(self, theirs: RunStore) -> None:
        """Take a checkpoint that `bench eval` measured, unless this store has it."""
        target = self.store.root / theirs.folder.relative_to(self.root)
        trust.refuse_links(self.root, theirs.folder)
        if os.path.lexists(target) or holder(theirs.folder) is not None:
            return
        with self._checked(theirs, target, trust.refuse_evaluated) as copy:
            if not self.dry_run:
                files.publish(copy.folder, target)
        self.merged.evaluated += 1

    @contextmanager
    def _checked(self, theirs: RunStore, target: Path, refuse: Callable[[RunStore], None]) -> Iterator[RunStore]:
        """Yield a private copy of theirs, beside `target`, that passed the check; with `dry_run`, theirs itself."""
        if self.dry_run:
            refuse(theirs)
            yield theirs
            return
        with files.scratch(target) as beside:
            beside.mkdir(mode=0o700)
            copy = RunStore(beside / theirs.id)
            trust.copy(theirs.folder, copy.folder)
            refuse(copy)
            yield copy


_NOTHING = (False, -1)


def _progress(run: RunStore) -> tuple[bool, int]:
    """Return (done, steps in the checkpoint), or `_NOTHING` for a run without settings or status."""
    status = run.read_status()
    if status["state"] == "missing" or not run.settings():
        return _NOTHING
    return status["state"] == "done", int(status.get("step") or 0) if run.path("checkpoint.pt").exists() else 0


@dataclass(frozen=True)
class _Change:
    """What this store lacks of a run of the other one."""

    new: bool  #: nothing of the run is here
    further: bool  #: it is not finished here and has come further there
    added: list[str]  #: evaluations that only they have, as paths below the run
    conflicts: list[str]  #: a sentence for each evaluation that contradicts ours


def _compare(theirs: RunStore, ours: RunStore) -> _Change:
    """Return what ours lacks. A finished run lacks nothing but evaluations of the same weights."""
    if not ours.folder.exists():
        return _Change(True, True, [], [])
    own, stored = {one.at: one.checkpoint for one in ours.records()}, ours.hashes()
    added: list[str] = []
    conflicts: list[str] = []
    unknown: list[str] = []
    for key in theirs.evaluations():
        name = f"evaluations/{key}/records.json"
        here, there = ours.path(name), theirs.path(name)
        measured = {one.at: one.checkpoint for one in theirs.records_of(key)}
        known = {at: _weights_hash(ours, own, at) for at in measured}
        if here.exists():
            if read_bytes(here) != read_bytes(there):
                conflicts.append(f"evaluation {key} has other records there")
        elif name in stored and stored[name] != sha256(there):
            conflicts.append(f"evaluation {key} has other records there than were removed here")
        elif any(known[at] not in (None, checkpoint) for at, checkpoint in measured.items()):
            conflicts.append(f"evaluation {key} was measured on other weights there")
        elif None in known.values():
            unknown.append(f"evaluation {key} was measured on weights that are not here")
        else:
            added.append(f"evaluations/{key}")
    further = not _progress(ours)[0] and _progress(theirs) > _progress(ours) and not conflicts
    return _Change(False, further, added, conflicts if further else [*conflicts, *unknown])


def _weights_hash(run: RunStore, own: dict[float, str], at: float) -> str | None:
    """Return the hash of a run's weights after a share of the budget, from its records or the file; None without."""
    path = run.path(weights_name(at if 0 <= at <= 1 else 0.0))
    return own[at] if at in own else sha256(path) if path.exists() else None


def _add(fresh: Path, added: list[str], claim: Claim) -> list[str]:
    """Add evaluations to a claimed run; return the files of them that have another hash than is stored here."""
    stored = RunStore(claim.folder).hashes()
    for key in added:
        claim.fence.publish(fresh / key, key)
    names = [f"{key}/{name}" for key in added for name in ("records.json", "outcomes.npz")]
    return [name for name in names if name in stored and stored[name] != sha256(claim.folder / name)]


def _replace(fresh: Path, claim: Claim) -> None:
    """Put their run in the place of ours, under the claim of ours; evaluations stay, and those that we lack are added.

    Ours goes first, its status before all else, and theirs comes in an order in which a run is made. So a kill leaves
    a run that the next import brings, or that trains from its start or goes on, to the same bytes.
    """
    names = {path.name for path in claim.folder.iterdir()} - {claim.path.name, "evaluations"}
    for name in sorted(names, key=lambda name: (name != "status.json", name)):
        if not name.startswith(PREFIX):
            claim.fence.discard(name)
    evaluations = [f"evaluations/{path.name}" for path in sorted(fresh.glob("evaluations/*"))]
    others = {path.name for path in fresh.iterdir()} - {*_LAST, "evaluations"}
    for name in [*evaluations, *sorted(others), *_LAST]:
        if (fresh / name).exists():
            claim.fence.publish(fresh / name, name)


@contextmanager
def _opened(source: Path, store: Store, dry_run: bool) -> Iterator[Path]:
    """Yield the root of the other store; an archive is unpacked to a private folder for the time of the context."""
    if source.is_dir():
        if source.resolve() == store.root.resolve():
            raise UserError(f"{source}: is this store itself")
        _refuse_no_store(source, source)
        yield source
    elif source.is_file():
        with _private(store, dry_run) as folder:
            root = unpack(source, folder)
            _refuse_no_store(root, source)
            yield root
    else:
        raise UserError(f"{source}: no such folder or archive")


@contextmanager
def unpacked(archive: Path) -> Iterator[Store]:
    """Yield the store in an archive, unpacked to a private folder for the time of the context, to be read only.

    Raises UserError with everything that an import would leave out, and for what is no archive of a store.
    """
    with tempfile.TemporaryDirectory(prefix="bench-", dir=_scratch(archive)) as folder:
        theirs, none = Path(folder, "theirs"), Path(folder, "none")
        theirs.mkdir()
        root = unpack(archive, theirs)
        _refuse_no_store(root, archive)
        merged = merge(root, Store(none), dry_run=True)
        wrong = merged.problems or [
            f"run {run.id}: is not complete" for run in Store(root).runs() if run.id not in merged.new
        ]
        if wrong:
            raise UserError(*(f"{archive}: {problem}" for problem in wrong))
        yield Store(root)


def _scratch(archive: Path) -> Path | None:
    """Return the file system in memory if it has ample room; None is the temporary folder, or what TMPDIR says.

    A store is tens of thousands of small files. On a disk, to remove them can take longer than to read them.
    """
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK | os.X_OK):
        return None
    return MEMORY if shutil.disk_usage(MEMORY).free > 4 * unpacked_limit(archive) else None


def _refuse_no_store(root: Path, source: Path) -> None:
    for name in ("runs", "calibrations", NAME):
        if (root / name).is_symlink():
            raise UserError(f"{source}: {name} is a link; links are not followed")
    if not (root / "runs").is_dir():
        raise UserError(f"{source}: is no store: it has no folder runs/")


@contextmanager
def _private(store: Store, dry_run: bool) -> Iterator[Path]:
    """Yield a folder of this process inside the store; after a kill the next import removes it.

    A store that is not there yet is made, and removed if nothing came into it; a dry run makes none.
    """
    if dry_run and not store.root.is_dir():
        with tempfile.TemporaryDirectory() as folder:
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
