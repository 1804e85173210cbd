"""`bench import`: merge the results of another machine into a store, run by run; ids address the same content."""

from __future__ import annotations

import json
import lzma
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from bench.errors import UserError, one_line
from bench.store import files
from bench.store.claim import Claim, holder
from bench.store.fence import PREFIX, Busy
from bench.store.format import mark
from bench.store.reading import Damaged
from bench.store.run import RunStore, Store
from bench.store.writer import AGAIN, FEATURES

_ID = re.compile(r"[0-9a-f]{64}")
_OWN = "claim-"  #: prefix of files about processes of the other machine; they are not copied
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


def merge(source: Path, store: Store, dry_run: bool = False) -> Merged:
    """Merge a results folder, or a tar archive of one, into `store`; with `dry_run` only report what would be done.

    A run appears by rename. Complete runs of `store` are never overwritten. If the same evaluation has other numbers
    in the other store, ours stay and the conflict is reported. Raises UserError if `source` is no store.
    """
    merged = Merged()
    with _opened(source, store) as root:
        if not dry_run:
            mark(store.root)
        for theirs in Store(root).runs():
            try:
                _merge_run(theirs, store.run(theirs.id), merged, dry_run)
            except Busy:
                merged.busy.append(theirs.id)
            except (Damaged, ValueError, KeyError, TypeError) as error:
                merged.problems.append(f"run {theirs.id}: cannot be read: {error}")
        for path in sorted(root.glob("[!.]*/plan.json")):
            if not (store.suite(path.parent.name) / path.name).exists():
                merged.plans.append(path.parent.name)
                _publish_file(path, store.root, root, dry_run)
        for path in sorted(root.glob("calibrations/*.json")):
            ours = store.root / path.relative_to(root)
            if not ours.exists():
                merged.calibrations += 1
                _publish_file(path, store.root, root, dry_run)
            elif ours.read_bytes() != path.read_bytes():
                merged.problems.append(f"calibration {path.stem}: has other numbers there; ours are kept")
        for path in sorted(root.glob("[!.]*/evaluated/[!.]*")):
            if not (store.root / path.relative_to(root)).exists() and holder(path) is None:
                merged.evaluated += 1
                _publish(path, store.root / path.relative_to(root), dry_run)
    return merged


def _merge_run(theirs: RunStore, ours: RunStore, merged: Merged, dry_run: bool) -> None:
    if not _ID.fullmatch(theirs.id) or theirs.settings().get("id", theirs.id) != theirs.id:
        raise ValueError("its folder is not named by the id in its settings.json")
    if _progress(theirs) == _NOTHING:
        return
    if holder(theirs.folder) is not None or holder(ours.folder) is not None:
        merged.busy.append(theirs.id)
    elif not ours.folder.exists():
        merged.new.append(theirs.id)
        _publish(theirs.folder, ours.folder, dry_run)
    else:
        added, conflicts = _compare(theirs, ours)
        merged.problems += [f"run {theirs.id}: {conflict}; ours is kept" for conflict in conflicts]
        further = not _progress(ours)[0] and _progress(theirs) > _progress(ours) and not conflicts
        (merged.advanced if further else merged.known).append(theirs.id)
        merged.evaluations += 0 if further else len(added)
        if dry_run or not (further or added):
            return
        with ours.claim() as claim, claim.fence.guarded():
            if further:
                _replace(theirs, claim)
            else:
                for key in added:
                    fresh = claim.fence.new()
                    _copy(theirs.path(key), fresh)
                    claim.fence.publish(fresh, key)


_NOTHING = (False, -1)


def _progress(run: RunStore) -> tuple[bool, int]:
    """Return (done, steps in the checkpoint), or `_NOTHING` for a run without settings or status."""
    status = run.read_status()
    if status["state"] == "missing" or not run.settings():
        return _NOTHING
    return status["state"] == "done", int(status.get("step", 0))


def _compare(theirs: RunStore, ours: RunStore) -> tuple[list[str], list[str]]:
    """Return the evaluations that only they have, as paths below the run, and a sentence for each conflict with ours.

    Records are compared and outcomes are not: another zlib compresses the same numbers to other bytes.
    """
    own = {one.at: one.checkpoint for one in ours.records()}
    added, conflicts = [], []
    for path in sorted(theirs.path("evaluations").glob("[!.]*/records.json")):
        key, here = path.parent.name, ours.path(f"evaluations/{path.parent.name}/records.json")
        records: list[dict[str, Any]] = json.loads(path.read_bytes())
        if here.exists():
            if here.read_bytes() != path.read_bytes():
                conflicts.append(f"evaluation {key} has other records there")
        elif any(own.get(one["at"], one["checkpoint"]) != one["checkpoint"] for one in records):
            conflicts.append(f"evaluation {key} was measured on other weights there")
        else:
            added.append(f"evaluations/{key}")
    return added, conflicts


def _replace(theirs: RunStore, claim: Claim) -> None:
    """Put their run in the place of ours, under the claim of ours; evaluations stay, and those that we lack are added.

    Ours goes first, its status before all else, and theirs comes in an order in which a run is made. So a kill leaves
    a run that the next import brings, or that trains from its start or goes on, to the same bytes.
    """
    fresh = claim.fence.new()
    _copy(theirs.folder, fresh)
    names = {path.name for path in claim.folder.iterdir()} - {claim.path.name, "evaluations"}
    for name in sorted(names, key=lambda name: (name != "status.json", name)):
        if not name.startswith(PREFIX):
            claim.fence.discard(name)
    evaluations = [f"evaluations/{path.name}" for path in sorted(fresh.glob("evaluations/*"))]
    others = {path.name for path in fresh.iterdir()} - {*_LAST, "evaluations"}
    for name in [*evaluations, *sorted(others), *_LAST]:
        if (fresh / name).exists():
            claim.fence.publish(fresh / name, name)


def _publish_file(path: Path, ours: Path, root: Path, dry_run: bool) -> None:
    if not dry_run:
        files.write_bytes(ours / path.relative_to(root), path.read_bytes())


def _publish(source: Path, target: Path, dry_run: bool) -> None:
    """Publish a copy of a folder in one step. If another process published it meanwhile, that one stays."""
    if dry_run:
        return
    with files.scratch(target) as fresh:
        _copy(source, fresh)
        files.publish(fresh, target)


def _copy(source: Path, target: Path) -> None:
    """Copy regular files in the order of their names; leave out claims, what can be made anew, and leftovers of kills.

    The order matters if the run goes on meanwhile: a checkpoint is copied before the metrics, so these are not behind.
    """
    target.mkdir()
    for path in sorted(source.rglob("*")):
        inner = path.relative_to(source)
        own = any(part.startswith((files.TEMPORARY, _OWN)) for part in inner.parts)
        if own or inner.parts[0] in (FEATURES, AGAIN) or path.is_symlink() or not path.is_file():
            continue
        copy = target / inner
        for parent in reversed(inner.parents):  # never those of `target`, which may be the folder of a claim
            (target / parent).mkdir(exist_ok=True)
        shutil.copyfile(path, copy)
        files.sync(copy)


@contextmanager
def _opened(source: Path, store: Store) -> Iterator[Path]:
    """Yield the root of the other store; an archive is unpacked to a temporary folder for the time of the context."""
    if source.is_dir():
        if source.resolve() == store.root.resolve():
            raise UserError(f"{source}: is this store itself")
        if not (source / "runs").is_dir():
            raise UserError(f"{source}: is no store: it has no folder runs/")
        yield source
    elif source.is_file():
        if store.root.is_dir():  # on the same disk; and after a kill the next import removes it
            with files.scratch(store.root / "import") as beside:
                beside.mkdir()
                yield _unpack(source, beside)
        else:
            with tempfile.TemporaryDirectory() as folder:
                yield _unpack(source, Path(folder))
    else:
        raise UserError(f"{source}: no such folder or archive")


def _unpack(archive: Path, folder: Path) -> Path:
    """Unpack an archive and return the root of its store: the top, or a folder at the top. UserError without one."""
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                place = PurePosixPath(member.name)
                if place.is_absolute() or ".." in place.parts or not (member.isfile() or member.isdir()):
                    raise UserError(f"{archive}: {member.name}: only files and folders below it belong into a store")
            tar.extractall(folder, filter="data")
    except (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError) as error:
        reason = one_line(error)
        raise UserError(f"{archive}: cannot be unpacked as a tar archive: {reason}") from error
    roots = [path.parent for path in [folder / "runs", *sorted(folder.glob("*/runs"))] if path.is_dir()]
    if not roots:
        raise UserError(f"{archive}: holds no store: there is no folder runs/ in it")
    return roots[0]
