"""`bench gc`: what no suite needs any more. Records and ledgers of a run that a plan names are never touched."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import UserError, nearest
from bench.store import files
from bench.store.claim import STALE_AFTER, Busy, holder
from bench.store.run import TRIALS, RunStore, Store

RUN = "runs that no suite names"
CHECKPOINT = "checkpoints of complete runs"
WEIGHTS = "intermediate weights of complete runs"
FEATURES = "cached features"
LEFTOVER = "leftovers of killed processes"

#: id of a run -> (share of the budget, protocol) at which some suite measures it
Needs = Mapping[str, set[tuple[float, str]]]


@dataclass(frozen=True)
class Item:
    """Something that can go."""

    kind: str
    path: Path
    bytes: int


def collect(store: Store, suites: Sequence[str] = (), delete: bool = False) -> list[Item]:
    """What can be freed, in order of kinds; with `delete` it is gone.

    `suites` keeps to the runs that these name; by default it is the whole store. A run is left alone while a process
    works on it. Raises UserError where the store has no plan, because then nothing says what is needed.
    """
    needs = _needs(store, suites)
    runs = [run for run in store.runs() if not suites or run.id in needs]
    found = [item for run in runs for item in _free(run, lambda run: list(_of_run(run, needs)), delete)]
    for folder in sorted(store.root.glob("[!.]*/evaluated/[!.]*")):
        if not suites or folder.parents[1].name in suites:
            found += _free(RunStore(folder), lambda run: list(_rest(run)), delete)
    if not suites:
        known = {item.path for item in found}
        stale = [item for item in _stale(store) if known.isdisjoint(item.path.parents)]
        found += stale
        for item in stale if delete else ():
            files.remove(item.path)
    return found


def _free(run: RunStore, items_of: Callable[[RunStore], list[Item]], delete: bool) -> list[Item]:
    """The items of one folder, removed under its claim; none where a process works there."""
    if holder(run.folder) is not None:
        return []
    items: list[Item] = items_of(run)
    if not delete or not items:
        return items
    try:
        with run.claim() as claim:
            items = items_of(run)
            if items and items[0].kind == RUN:
                claim.folder = _moved_away(run)
            else:
                for item in items:
                    files.remove(item.path)
        if claim.folder != run.folder:
            files.remove(claim.folder)
    except Busy:
        return []
    return items


def _moved_away(run: RunStore) -> Path:
    """Take a run off the store in one step: nobody ever sees a half of it."""
    with files.scratch(run.folder) as name:
        trash = name.with_name(f"{name.name}-old")
        run.folder.rename(trash)
    return trash


def _needs(store: Store, suites: Sequence[str]) -> Needs:
    """Every run that the plans of `suites` name (none: all), trials and reference runs included.

    With each the points of its curve and the protocol, of whatever suite: one run may be of several.
    """
    plans = {path.parent.name: _read(path) for path in sorted(store.root.glob("[!.]*/plan.json"))}
    if not plans:
        raise UserError(f"{store.root}: no suite has a plan here, so nothing says what is needed")
    for suite in suites:
        if suite not in plans:
            raise UserError(f"--suite {suite}: has no plan in {store.root}{nearest(suite, plans)}")
    needs: dict[str, set[tuple[float, str]]] = {}
    searched = [path for path in store.root.glob(f"[!.]*/{TRIALS}") if not suites or path.parent.name in suites]
    wanted = {identity for path in searched for identity in _read(path)}
    needs |= {identity: set() for identity in wanted}
    for suite, plan in plans.items():
        named = re.findall(r'"([0-9a-f]{64})"', json.dumps(plan))
        wanted.update(named if not suites or suite in suites else ())
        for identity in named:
            needs.setdefault(identity, set())
        points = {(at, plan.get("protocol", "")) for at in plan["settings"]["evaluate"]["curve"]}
        for cell in plan["cells"]:
            for identity in filter(None, (cell["run"], cell["reference_run"])):
                needs.setdefault(identity, set()).update(points)
    return {identity: own for identity, own in needs.items() if identity in wanted}


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path}: cannot be read, so nothing says what it needs: {error}") from error


def _of_run(run: RunStore, needs: Needs) -> Iterator[Item]:
    if run.id not in needs:
        yield Item(RUN, run.folder, _size(run.folder))
        return
    if run.status()["state"] == "done" and run.ledger():
        # The checkpoint goes first: if weights are wanted again, training has to begin at the start.
        if run.path("checkpoint.pt").exists():
            yield Item(CHECKPOINT, run.path("checkpoint.pt"), _size(run.path("checkpoint.pt")))
        if needs[run.id] <= {(record.at, record.protocol) for record in run.records()}:
            for path in sorted(run.folder.glob("weights-*.safetensors")):
                if path.name != "weights-100.safetensors":
                    yield Item(WEIGHTS, path, _size(path))
        yield from _rest(run)


def _rest(run: RunStore) -> Iterator[Item]:
    if size := _size(run.path("features")):
        yield Item(FEATURES, run.path("features"), size)


def _stale(store: Store) -> Iterator[Item]:
    """Temporary files and claims that later ones replaced, where nobody works and nothing moved for a claim's life."""
    now, busy = time.time(), {run.folder for run in store.runs() if holder(run.folder) is not None}
    superseded = []
    for folder in {path.parent for path in store.root.rglob("claim-*")}:
        # Numbers must only rise, so the last one stays.
        superseded += sorted(folder.glob("claim-*"), key=lambda path: int(path.name[6:]))[:-1]
    for path in sorted([*store.root.rglob(f"{files.TEMPORARY}*"), *superseded]):
        inside = any(parent.name.startswith(files.TEMPORARY) or parent in busy for parent in path.parents)
        if not inside and now - _changed(path) > STALE_AFTER:
            yield Item(LEFTOVER, path, _size(path))


def _changed(path: Path) -> float:
    """Time of the last change of a file, or of anything in a folder."""
    times = [found.lstat().st_mtime for found in (path, *path.rglob("*")) if found.exists()]
    return max(times, default=time.time())


def _size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; 0 where nothing is."""
    return sum(found.lstat().st_size for found in (path, *path.rglob("*")) if found.is_file())
