"""`bench import`: another machine's results, merged run by run under their content addresses."""

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
from bench.store.claim import Busy, holder
from bench.store.format import mark
from bench.store.run import RunStore, Store

_ID = re.compile(r"[0-9a-f]{64}")
_OWN = "claim-"  #: files that speak of processes of the other machine


@dataclass
class Merged:
    """What came of an import."""

    new: list[str] = field(default_factory=list)  #: runs that were not here at all
    advanced: list[str] = field(default_factory=list)  #: runs that are further there than they were here
    known: list[str] = field(default_factory=list)  #: runs that are as far here; what is here stays
    busy: list[str] = field(default_factory=list)  #: runs that a process works on, here or there
    evaluations: int = 0  #: added to known runs
    calibrations: int = 0
    evaluated: int = 0  #: checkpoints measured by `bench eval`
    plans: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  #: what was left out, and why


def merge(source: Path, store: Store, dry_run: bool = False) -> Merged:
    """Merge a results folder, or a tar archive of one, into `store`; with `dry_run` only say what would be done.

    A run appears by rename. What is complete here is never overwritten; where the same evaluation has other numbers
    there, ours stay and the conflict is reported. Raises UserError where `source` is no store.
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
            except (ValueError, KeyError, TypeError) as error:
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
        further = _progress(theirs) > _progress(ours) and not conflicts
        (merged.advanced if further else merged.known).append(theirs.id)
        merged.evaluations += 0 if further else len(added)
        if dry_run or not (further or added):
            return
        with ours.claim() as claim:
            if further:
                claim.folder = _replace(theirs, ours)
            else:
                for key in added:
                    _publish(theirs.path(key), ours.path(key), dry_run)
                if ours.path("status.json").exists():
                    ours.path("status.json").touch()  # reports made before are no longer fresh
        if further:
            files.remove(claim.folder)


_NOTHING = (False, -1)


def _progress(run: RunStore) -> tuple[bool, int]:
    """How far a run is: done, then steps in its checkpoint. Where settings or status are missing there is nothing."""
    status = run.status()
    if status["state"] == "missing" or not run.settings():
        return _NOTHING
    return status["state"] == "done", int(status.get("step", 0))


def _compare(theirs: RunStore, ours: RunStore) -> tuple[list[str], list[str]]:
    """Evaluations that only they have (paths below the run), and in words those that contradict ours.

    Records are compared, not outcomes: the same numbers are compressed to other bytes by another zlib.
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


def _replace(theirs: RunStore, ours: RunStore) -> Path:
    """Put their run in the place of ours, with the evaluations that only we have; returns where ours is moved to."""
    with files.scratch(ours.folder) as fresh:
        _copy(theirs.folder, fresh)
        for path in ours.path("evaluations").glob("[!.]*"):
            if not (fresh / "evaluations" / path.name).exists():
                _copy(path, fresh / "evaluations" / path.name)
        old = fresh.with_name(f"{fresh.name}-old")
        ours.folder.rename(old)
        fresh.rename(ours.folder)
    return old


def _publish_file(path: Path, ours: Path, root: Path, dry_run: bool) -> None:
    if not dry_run:
        files.write_bytes(ours / path.relative_to(root), path.read_bytes())


def _publish(source: Path, target: Path, dry_run: bool) -> None:
    """Make a copy of a folder appear in one step; one that appeared meanwhile stays."""
    if dry_run:
        return
    with files.scratch(target) as fresh:
        _copy(source, fresh)
        try:
            fresh.rename(target)
        except OSError:
            if not target.is_dir():
                raise


def _copy(source: Path, target: Path) -> None:
    """Regular files in order of their names, without claims, features and what killed writers left.

    The order matters where the run goes on meanwhile: a checkpoint is copied before the metrics, which may lie further.
    """
    target.mkdir(parents=True)
    for path in sorted(source.rglob("*")):
        inner = path.relative_to(source)
        own = any(part.startswith((files.TEMPORARY, _OWN)) for part in inner.parts) or inner.parts[0] == "features"
        if own or path.is_symlink() or not path.is_file():
            continue
        copy = target / inner
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        files.sync(copy)


@contextmanager
def _opened(source: Path, store: Store) -> Iterator[Path]:
    """The root of the other store; an archive is unpacked for as long as it is needed."""
    if source.is_dir():
        if source.resolve() == store.root.resolve():
            raise UserError(f"{source}: is this store itself")
        if not (source / "runs").is_dir():
            raise UserError(f"{source}: is no store: it has no folder runs/")
        yield source
    elif source.is_file():
        beside = store.root if store.root.is_dir() else None
        with tempfile.TemporaryDirectory(prefix=files.TEMPORARY, dir=beside) as folder:
            yield _unpack(source, Path(folder))
    else:
        raise UserError(f"{source}: no such folder or archive")


def _unpack(archive: Path, folder: Path) -> Path:
    """Unpack a store whose runs/ lies at the top or one folder below it. UserError for anything that is not one."""
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
