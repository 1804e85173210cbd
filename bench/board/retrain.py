"""`bench store retrain`: train a stored run once more in a store of its own and compare; write and rerun bundles.

On the same type of machine the weights must have the same bytes and the scores must be equal. On another type the
losses of all steps must agree within a tolerance.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bench.board.bundle import BundleCheck, check_folder
from bench.console.progress import Progress
from bench.errors import UserError
from bench.hashing import canonical, file_hash
from bench.launch.claimed import work_on_run
from bench.machine.environment import environment
from bench.planning.planner import Planner
from bench.store import RunStore, Store, files
from bench.store.incoming import unpack_incoming
from bench.store.pack import ARCHIVE_SUFFIX, RERUN_SUFFIX, PackOutcome, pack_runs
from bench.store.run import SHORT_ID, find_run, weights_name
from bench.suite.run import Run, run_of_settings
from bench.suite.scorers import with_scorer
from bench.training.job import available_device

LOSS_TOLERANCE = 0.02  #: largest difference of a loss, relative to the largest loss


@dataclass(frozen=True)
class Retrained:
    """Outcome of a retraining."""

    run: str
    title: str
    consistent: bool
    text: str  #: one sentence


def retrain_run(store: Store, prefix: str) -> Retrained:
    """Train the finished run whose id begins with `prefix` again and compare.

    Raises UserError if it is not finished, if a run that it starts from is not stored here, if code or data now give
    such a run another id, and if training fails.
    """
    stored = _finished(store, prefix)
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run = _trained(store, stored, Store(Path(folder)))
        return _compared(stored, Store(Path(folder)).run(stored.id), run.title)


def restore_weights(store: Store, prefix: str) -> Retrained:
    """Train a finished run again that lost its final weights, and those that it starts from, for their weights.

    They are put back into the store; an interrupted training resumes when this is called again. Raises UserError
    as `retrain_run` does.
    """
    stored = _finished(store, prefix)
    run, path = _trained(store, stored, store), stored.path(weights_name(1.0))
    same = file_hash(path) in {record.checkpoint for record in stored.records() if record.at == 1.0}
    text = "those that were measured" if same else "others than were measured, as another machine gives them"
    return Retrained(stored.id, run.title, same, f"{path}: the weights are {text}")


def _finished(store: Store, prefix: str) -> RunStore:
    stored = find_run(store, prefix)
    if (state := stored.read_status()["state"]) != "done":
        raise UserError(f"run {stored.id[:SHORT_ID]}: is {state}; only a finished run can be trained again")
    return stored


def _trained(store: Store, stored: RunStore, where: Store) -> Run:
    """Train a stored run and those that it starts from in another store, or in its own for weights that are gone."""
    run, planner = _restored(store, stored.settings(), stored), Planner(where)
    for planned in planner.plan([*_chain(run)]):
        if planned.run is run and planned.id != stored.id:
            known = stored.settings().get("address") or {}
            names = sorted({*known, *planned.address})
            other = [name for name in names if canonical(known.get(name)) != canonical(planned.address.get(name))]
            words = f"this checkout gives it the id {planned.id[:SHORT_ID]}: {', '.join(other)} differ"
            commit = stored.environment().get("commit")
            raise UserError(
                f"run {stored.id[:SHORT_ID]}: cannot be retrained identically; {words} (made at commit {commit})"
            )
        state, message = work_on_run(
            replace(planned, lent=True), where, Progress(), lambda: False, reader=planner.reader
        )
        if state != "done":
            raise UserError(f"run {stored.id[:SHORT_ID]}: the retraining ended as {state}: {message}")
    return run


def _chain(run: Run) -> list[Run]:
    return [*(_chain(run.reference) if run.reference else ()), run]


def _restored(store: Store, settings: Mapping[str, Any], stored: RunStore) -> Run:
    """Return a stored run with the run that it starts from, and the external model that scores its pairs."""
    run = replace(run_of_settings(dict(settings), stored.path("settings.json")), start=settings.get("start"))
    run = with_scorer(run)
    identity = (settings.get("address") or {}).get("reference")
    if identity is None:
        return run
    reference = store.run(identity)
    if not reference.settings():
        raise UserError(
            f"run {stored.id[:SHORT_ID]}: starts from run {identity[:SHORT_ID]}, which is not in {store.root}"
        )
    return replace(run, reference=_restored(store, reference.settings(), reference))


def _compared(stored: RunStore, again: RunStore, title: str) -> Retrained:
    weights = [{record.checkpoint for record in run.records() if record.at == 1.0} for run in (stored, again)]
    if weights[0] == weights[1]:
        known, new = _finals(stored), _finals(again)
        differing = sum(value != new.get(key) for key, value in known.items())
        scores = f"{differing} of {len(known)} scores differ" if differing else f"all {len(known)} scores are equal"
        return Retrained(stored.id, title, not differing, f"the weights have the same bytes, and {scores}")
    if _machine(stored) == _machine(again):
        return Retrained(stored.id, title, False, "the weights differ on the same type of machine")
    losses = [np.array([line["loss"] for line in run.metrics()]) for run in (stored, again)]
    if len(losses[0]) != len(losses[1]):
        return Retrained(stored.id, title, False, f"{len(losses[0])} losses are stored, and there are {len(losses[1])}")
    difference = float(np.abs(losses[0] - losses[1]).max() / (np.abs(losses[0]).max() or 1.0))
    text = f"losses differ by at most {difference:.2g} on another type of machine; {LOSS_TOLERANCE:g} is allowed"
    return Retrained(stored.id, title, difference <= LOSS_TOLERANCE, text)


def _machine(run: RunStore) -> tuple[Any, ...]:
    """Return all that bytes may depend on: device, threads, processes, versions of torch."""
    environment = run.environment()
    hardware, packages = environment.get("hardware") or {}, environment.get("packages") or {}
    world = (environment.get("ranks") or {}).get("world", 1)
    return hardware.get("device"), hardware.get("threads"), world, packages.get("torch")


def _finals(run: RunStore) -> dict[tuple[str, ...], float]:
    final = (record for record in run.records() if record.at == 1.0)
    return {(one.dataset, one.task, one.metric, one.score, one.protocol): one.value for one in final}


CHEAPEST = "cheapest"


def write_submission(suite: str, store: Store, target: Path) -> tuple[PackOutcome, BundleCheck]:
    """Write the bundle of a suite and check it next to the bundles that lie there; the file is removed if it fails.

    Raises the errors of `pack_runs`; UserError if the file already exists, or a run of the suite is damaged.
    """
    if target.exists():
        raise UserError(f"{target}: already exists; --out FILE gives the bundle another name")
    packed = pack_runs(suite, store, target, bundle=True)
    if packed.damaged:
        target.unlink()
        raise UserError(*packed.damaged)
    (check,) = check_folder([target])
    if check.problems:
        target.unlink()
    return packed, check


def rerun_bundle(path: Path, run: str) -> Retrained:
    """Train a run of a bundle again, `CHEAPEST` or by the beginning of its id, and note the outcome next to the bundle.

    Raises UserError as `retrain_run` does.
    """
    with unpack_incoming(path) as store:
        verified = retrain_run(store, _cheapest(store) if run == CHEAPEST else run)
    where = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "environment": environment(available_device())}
    files.write_json(
        path.with_name(path.name.removesuffix(ARCHIVE_SUFFIX) + RERUN_SUFFIX), {**asdict(verified), **where}
    )
    return verified


def _cheapest(store: Store) -> str:
    """Return the finished run that took least time and starts from no other run."""
    alone = [run for run in store.runs() if run.settings()["address"]["reference"] is None]
    done = [run for run in alone if run.read_status()["state"] == "done"]
    if not done:
        raise UserError(f"{CHEAPEST}: every run of the bundle starts from another run, which it does not hold")
    return min(done, key=lambda run: (run.ledger()["train_seconds"], run.id)).id
