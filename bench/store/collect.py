"""`bench store gc`: free what no suite needs. Records and ledgers of runs that a plan names are never touched."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import UserError
from bench.store import files
from bench.store.claim import STALE_AFTER, live_holder
from bench.store.fence import Busy
from bench.store.reading import Damaged
from bench.store.run import AGAIN_FOLDER, TRIALS, RunStore, Store, weights_name
from bench.store.verify import CHECKPOINT_FILE, run_problems
from bench.store.writer import FEATURES

UNNAMED_RUNS = "runs that no suite names"
OLD_CHECKPOINTS = "checkpoints of complete runs"
OLD_WEIGHTS = "intermediate weights of complete runs"
CACHED_FEATURES = "cached features"
LEFTOVERS = "leftovers of killed processes"

#: id of a run -> (share of the budget, protocol) at which some suite measures it
Needs = Mapping[str, set[tuple[float, str]]]


@dataclass(frozen=True)
class Item:
    """A file or folder that can be deleted."""

    kind: str
    path: Path
    bytes: int


def collect_garbage(store: Store, delete: bool = False) -> tuple[list[Item], list[Damaged]]:
    """Return the items that can be freed, and a problem of each damaged run; with `delete`, delete the items.

    A run is left alone if it is damaged, or a process works on it. Raises UserError if the store has no plan, because
    nothing says then what is needed.
    """
    needs = _needs(store)
    items: list[Item] = []
    damaged: list[Damaged] = []
    for run in store.runs():
        if not run.folder.is_dir() or live_holder(run.folder) is not None:
            continue
        try:
            with run.claim() if delete else nullcontext() as claim:
                found = list(_of_run(run, needs))
                if claim is not None and run.id not in needs:
                    claim.delete_folder()
                elif claim is not None:
                    for item in found:
                        claim.fence.discard(item.path.name)
            items += found
        except Damaged as error:
            damaged.append(error)
        except Busy:
            pass
    known = {item.path for item in items}
    stale = [Item(LEFTOVERS, path, _size(path)) for path in _leftovers(store) if known.isdisjoint(path.parents)]
    for item in stale if delete else ():
        files.remove(item.path)
    return items + stale, damaged


def _needs(store: Store) -> Needs:
    """Return every run that the plans name, with trials and reference runs, and where some suite measures each."""
    plans = {name: _read(store.plan, name) for name in store.plans()}
    if not plans:
        raise UserError(f"{store.root}: no suite has a plan here, so what is needed is unknown")
    searched = [path.parent.name for path in store.root.glob(f"[!.]*/{TRIALS}")]
    needs: dict[str, set[tuple[float, str]]] = {one: set() for name in searched for one in _read(store.trials, name)}
    for plan in plans.values():
        for identity in re.findall(r'"([0-9a-f]{64})"', json.dumps(plan)):
            needs.setdefault(identity, set())
        points = {(at, plan["protocol"]) for at in plan["settings"]["evaluate"]["curve"]}
        for cell in plan["cells"]:
            needs[cell["run"]].update(points)
    return needs


def _read(read: Callable[[str], Any], suite: str) -> Any:
    try:
        return read(suite)
    except Damaged as error:
        reason = error.reason.removeprefix("cannot be read: ")
        raise Damaged(error.path, f"cannot be read, so what it needs is unknown: {reason}", error.remedy) from error


def _of_run(run: RunStore, needs: Needs) -> Iterator[Item]:
    """Yield what can be deleted of one run: all of it if no suite names it, else what it does not need once done.

    Raises Damaged for the first problem of a run that a suite names.
    """
    if run.id not in needs:
        yield Item(UNNAMED_RUNS, run.folder, _size(run.folder))
        return
    for error in run_problems(run):
        raise error
    if run.status()["state"] != "done" or not run.ledger():
        return
    # Without its checkpoint a run whose weights are wanted again has to be trained from the start.
    paths = [(OLD_CHECKPOINTS, run.path(CHECKPOINT_FILE)), (OLD_CHECKPOINTS, run.path(AGAIN_FOLDER))]
    if needs[run.id] <= {(record.at, record.protocol) for record in run.records()}:
        paths += [
            (OLD_WEIGHTS, path) for path in sorted(run.folder.glob("weights-*")) if path.name != weights_name(1.0)
        ]
    paths.append((CACHED_FEATURES, run.path(FEATURES)))
    yield from (Item(kind, path, size) for kind, path in paths if (size := _size(path)))


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder; 0 if there is no such path."""
    return sum(inner.lstat().st_size for inner in (path, *path.rglob("*")) if inner.is_file())


def _leftovers(store: Store) -> list[Path]:
    """Return temporary files of killed processes: of this machine, or untouched for `STALE_AFTER` seconds.

    Those of runs at work are not among them.
    """
    now, found = files.file_system_time(store.root), []
    busy = {run.folder for run in store.runs() if live_holder(run.folder) is not None}
    for path in sorted(store.root.rglob(f"{files.TEMPORARY}*")):
        inside = any(parent.name.startswith(files.TEMPORARY) or parent in busy for parent in path.parents)
        times = [inner.lstat().st_mtime for inner in (path, *path.rglob("*")) if inner.exists()]
        if not inside and (files.left_behind(path.name) or now - max(times, default=time.time()) > STALE_AFTER):
            found.append(path)
    return found
