"""`bench gc`: free what no suite needs any more. Records and ledgers of runs that a plan names are never touched."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import UserError, nearest
from bench.store import files
from bench.store.claim import holder
from bench.store.doctor import leftovers, problems
from bench.store.fence import Busy
from bench.store.reading import Damaged
from bench.store.run import RENEW_PLAN, TRIALS, RunStore, Store
from bench.store.writer import AGAIN

RUN = "runs that no suite names"
CHECKPOINT = "checkpoints of complete runs"
WEIGHTS = "intermediate weights of complete runs"
FEATURES = "cached features"
LEFTOVER = "leftovers of killed processes"

#: id of a run -> (share of the budget, protocol) at which some suite measures it
Needs = Mapping[str, set[tuple[float, str]]]


@dataclass(frozen=True)
class Item:
    """A file or folder that can be deleted."""

    kind: str
    path: Path
    bytes: int


class Collected(list[Item]):
    """The items that can be freed, and what is damaged in the runs that are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.damaged: list[Damaged] = []  #: each file once


def collect(store: Store, suites: Sequence[str] = (), delete: bool = False) -> Collected:
    """Return the items that can be freed, in order of kinds; with `delete`, delete them. Each run is looked at once.

    `suites` restricts this to the runs that these suites name; the default is the whole store. A run is left alone
    while a process works on it. Raises UserError if the store has no plan, because nothing says then what is needed.
    """
    needs = _needs(store, suites)
    runs = [run for run in store.runs() if not suites or run.id in needs]
    items, damaged = Collected(), dict[Path, Damaged]()
    for run in runs:
        if _left_alone(run):
            damaged.update((error.path, error) for error in problems(run))
        else:
            items += _free(run, lambda run: list(_of_run(run, needs, damaged)), delete)
    items.damaged = list(damaged.values())
    for folder in sorted(store.root.glob("[!.]*/evaluated/[!.]*")):
        if (not suites or folder.parents[1].name in suites) and not _left_alone(run := RunStore(folder)):
            items += _free(run, lambda run: list(_rest(run)), delete)
    if not suites:
        known = {item.path for item in items}
        paths = [path for path in leftovers(store) if known.isdisjoint(path.parents)]
        stale = [Item(LEFTOVER, path, _size(path)) for path in paths]
        items += stale
        for item in stale if delete else ():
            files.remove(item.path)
    return items


def _left_alone(run: RunStore) -> bool:
    """Whether a process works on a run, or its folder is none."""
    return not run.folder.is_dir() or holder(run.folder) is not None


def _free(run: RunStore, items_of: Callable[[RunStore], list[Item]], delete: bool) -> list[Item]:
    """Return the items of one folder, deleted under its claim if `delete`; none if a process begins to work there."""
    items: list[Item] = items_of(run)
    if not delete or not items:
        return items
    try:
        with run.claim() as claim:
            items = items_of(run)
            if items and items[0].kind == RUN:
                claim.delete_folder()
            else:
                for item in items:
                    claim.fence.discard(item.path.name)
    except Busy:
        return []
    return items


def _needs(store: Store, suites: Sequence[str]) -> Needs:
    """Return every run that the plans of `suites` name, with trials and reference runs; no suites means all.

    Each run comes with the (share, protocol) at which any suite of the store measures it: suites share runs.
    """
    plans = {name: _read(store.plan, name) for name in store.plans()}
    if not plans:
        raise UserError(f"{store.root}: no suite has a plan here, so nothing says what is needed")
    for suite in suites:
        if suite not in plans:
            raise UserError(f"--suite {suite}: has no plan in {store.root}{nearest(suite, plans)}")
    needs: dict[str, set[tuple[float, str]]] = {}
    searched = [path.parent.name for path in store.root.glob(f"[!.]*/{TRIALS}")]
    wanted = {one for name in searched if not suites or name in suites for one in _read(store.trials, name)}
    needs |= {identity: set() for identity in wanted}
    for suite, plan in plans.items():
        named = re.findall(r'"([0-9a-f]{64})"', json.dumps(plan))
        wanted.update(named if not suites or suite in suites else ())
        for identity in named:
            needs.setdefault(identity, set())
        points = {(at, plan.get("protocol", "")) for at in _curve(plan, store.suite(suite) / "plan.json")}
        for cell in plan["cells"]:
            for identity in filter(None, (cell["run"], cell["reference_run"])):
                needs.setdefault(identity, set()).update(points)
    return {identity: own for identity, own in needs.items() if identity in wanted}


def _read(read: Callable[[str], Any], suite: str) -> Any:
    try:
        return read(suite)
    except Damaged as error:
        reason = error.reason.removeprefix("cannot be read: ")
        raise Damaged(error.path, f"cannot be read, so nothing says what it needs: {reason}", error.remedy) from error


def _curve(plan: Mapping[str, Any], path: Path) -> list[float]:
    """Return the points of the curve that a plan measures."""
    try:
        curve: list[float] = plan["settings"]["evaluate"]["curve"]
    except (KeyError, TypeError) as error:
        remedy = RENEW_PLAN.format(path.parent.name)
        raise Damaged(path, "settings.evaluate is missing, so nothing says what it needs", remedy) from error
    return curve


def _of_run(run: RunStore, needs: Needs, damaged: dict[Path, Damaged]) -> Iterator[Item]:
    """Yield what can go of one run: all of it if no suite names it, else what it does not need once it is done.

    Nothing goes of a damaged run; its problems are added to `damaged`.
    """
    if run.id not in needs:
        yield Item(RUN, run.folder, _size(run.folder))
        return
    if wrong := problems(run):
        damaged.update((error.path, error) for error in wrong)
        return
    if run.status()["state"] == "done" and run.ledger():
        # Without its checkpoint a run whose weights are wanted again has to be trained from the start.
        for path in (run.path("checkpoint.pt"), run.path(AGAIN)):
            if path.exists():
                yield Item(CHECKPOINT, path, _size(path))
        if needs[run.id] <= {(record.at, record.protocol) for record in run.records()}:
            for path in sorted(run.folder.glob("weights-*.safetensors")):
                if path.name != "weights-100.safetensors":
                    yield Item(WEIGHTS, path, _size(path))
        yield from _rest(run)


def _rest(run: RunStore) -> Iterator[Item]:
    """Yield the cached features of a run."""
    if size := _size(run.path("features")):
        yield Item(FEATURES, run.path("features"), size)


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder; 0 if there is no such path."""
    return sum(inner.lstat().st_size for inner in (path, *path.rglob("*")) if inner.is_file())
