"""What workers leave of a run in object storage: an archive of its folder after each checkpoint, and one of its result.

An archive is one object, so a reader has all of it or none of it. Those of checkpoints are `state/N-K.tar`: the Kth
that the owner of number N left. That of a result is `result/N.tar`; the history holds its sha256.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from bench.errors import UserError
from bench.store import files
from bench.store.doctor import sha256
from bench.store.incoming.archive import unpack
from bench.store.incoming.trust import ID, carried
from bench.store.merge import Merged, merge
from bench.store.remote.history import Held, History
from bench.store.remote.objects import Objects
from bench.store.run import RunStore, Store

_STATE = re.compile(r"([1-9][0-9]*)-([1-9][0-9]*)\.tar")
ATTEMPTS = 5  #: to read an archive that its owner replaces at the same time


def _write(folder: Path, target: Path) -> None:
    """Write the files of a run to a tar archive, which is a store of this run.

    The run may go on meanwhile: a checkpoint comes before the metrics, so these are not behind.
    """
    with tarfile.open(target, "w") as tar:
        for path in sorted(folder.rglob("*")):
            parts = path.relative_to(folder).parts
            if not carried(parts) or path.is_dir():
                continue
            with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
                member = tarfile.TarInfo("/".join(("runs", folder.name, *parts)))
                member.size = os.fstat(file.fileno()).st_size
                tar.addfile(member, file)


@contextlib.contextmanager
def _archived(folder: Path) -> Iterator[Path]:
    with files.scratch(folder.parent.parent / "archive") as path:
        _write(folder, path)
        yield path


def keep_state(held: Held, folder: Path, count: int) -> None:
    """Leave the `count`th archive of a run that is not finished, and remove the one before."""
    history = held.history
    with _archived(folder) as path:
        history.objects.upload(path, history.name(f"state/{held.number}-{count}.tar"))
    history.objects.remove(history.name(f"state/{held.number}-{count - 1}.tar"))


def publish(held: Held, folder: Path, done: bool, **details: Any) -> bool:
    """Make the folder of a run its result, if it is `done`, or else what shows why it failed. The claim ends with it.

    Returns False, and nothing is published, if the run was taken over.
    """
    history, name = held.history, held.history.name(f"result/{held.number}.tar")
    with _archived(folder) as path:
        history.objects.upload(path, name)
        result = {"number": held.number, "sha256": sha256(path), **details}
    if not (held.end("done", result=result) if done else held.end("failed", shown=result)):
        history.objects.remove(name)
        return False
    for state in history.objects.names(history.name("state")) if done else ():
        history.objects.remove(history.name(f"state/{state}"))
    return True


def fetch(history: History, entry: dict[str, Any], store: Store, finished: bool = False) -> None:
    """Put the newest that is left of a run into a store, in the place of what is there; nothing if nothing is left.

    entry: the newest of the history. finished: the result, whatever came later.
    """
    for _ in range(ATTEMPTS):
        files.remove(store.run(history.id).folder)
        result = entry.get("result")
        found = filter(None, map(_STATE.fullmatch, history.objects.names(history.name("state"))))
        states = sorted((int(match[1]), int(match[2])) for match in found)
        later = [one for one in states if result is None or one[0] > result["number"]]
        try:
            if later and not finished:
                number, count = later[-1]
                _take(history, f"state/{number}-{count}.tar", None, store)
            elif result is not None:
                _take(history, f"result/{result['number']}.tar", result["sha256"], store)
            return
        except FileNotFoundError:  # replaced meanwhile
            continue
    raise UserError(f"{history.objects.url}/{history.name('state')}: changes while it is read; start again")


def _take(history: History, part: str, digest: str | None, store: Store) -> None:
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=_made(store.root)) as folder:
        archive = Path(folder, "archive.tar")
        _download(history, part, digest, archive)
        fresh = RunStore(unpack(archive, Path(folder)) / "runs" / history.id).folder
        (target := store.run(history.id).folder).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(fresh, target)


def _download(history: History, part: str, digest: str | None, target: Path) -> None:
    history.objects.download(history.name(part), target)
    if digest is not None and sha256(target) != digest:
        raise UserError(f"{history.objects.url}/{history.name(part)}: has another sha256 than the run's history says")


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def merge_from(url: str, store: Store, dry_run: bool = False, unverifiable: bool = False) -> Merged:
    """Merge the results in object storage into a store, as `bench.store.merge.merge` does, one after the other.

    Runs that are done in `store` with the same evaluations are not read. Runs without a result are left out.
    """
    objects, merged = Objects(url), Merged()
    identities = [name for name in objects.names("runs") if ID.fullmatch(name)]
    if not identities and not objects.names("queue"):
        raise UserError(f"{url}: holds no runs; `bench push RESULTS URL` queues suites there")
    for identity in identities:
        history = History(objects, identity)
        _, entry = history.last()
        result = entry.get("result") or entry.get("shown")
        own = store.run(identity)
        if result is None:
            merged.busy.append(identity)
        elif own.status()["state"] == "done" and {*result.get("evaluations", ())} <= {*own.evaluations()}:
            merged.known.append(identity)
        else:
            _add(merged, _merge_one(history, result, store, dry_run, unverifiable))
    return merged


def _merge_one(history: History, result: dict[str, Any], store: Store, dry_run: bool, unverifiable: bool) -> Merged:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        archive = Path(folder, f"{history.id}.tar")
        try:
            _download(history, f"result/{result['number']}.tar", result["sha256"], archive)
            return merge(archive, store, dry_run, unverifiable)
        except (UserError, FileNotFoundError) as error:
            return Merged(problems=[f"run {history.id}: {error}"])


def _add(total: Merged, more: Merged) -> None:
    for field in fields(Merged):
        setattr(total, field.name, getattr(total, field.name) + getattr(more, field.name))
