"""`bench verify`: a stored run is trained and measured once more in a store of its own, and compared.

On the same type of machine the weights must have the same bytes and the scores must be equal. On another type the
losses of all steps, or without them the final scores, must agree within a tolerance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.console.progress import Progress
from bench.errors import UserError
from bench.hashing import canonical
from bench.launch.claimed import work
from bench.machine.private_folder import ScratchFolder
from bench.planning.planner import plan
from bench.store import RunStore, Store
from bench.store.lookup import SHORT, find_run
from bench.suite.run import Run, run_of_settings
from bench.suite.scorers import with_scorer
from bench.training.inputs import InputsReader

TOLERANCE = 0.02  #: largest difference of a loss, relative to the largest loss, and of a score


@dataclass(frozen=True)
class Verified:
    """What a retraining showed."""

    run: str
    title: str
    consistent: bool
    compared: str  #: "bytes", "losses" or "scores"
    text: str  #: one sentence


def retrain(store: Store, prefix: str, tolerance: float = TOLERANCE) -> Verified:
    """Train the finished run whose id begins with `prefix` again and compare.

    Raises UserError if it is not finished, if a run that it starts from is not stored here, if code or data now give
    such a run another id, and if training fails.
    """
    stored = find_run(store, prefix)
    state = stored.read_status()["state"]
    if state != "done":
        raise UserError(f"run {stored.id[:SHORT]}: is {state}; only a finished run can be verified")
    run = _restored(store, stored.settings(), stored)
    with ScratchFolder("verify") as folder:
        again = Store(folder)
        reader = InputsReader()
        for planned in plan([*_chain(run)], again, reader):
            if planned.run is run and planned.id != stored.id:
                raise UserError(_other_id(stored, planned.id, planned.address))
            state, message = work(planned, again, Progress(), lambda: False, reader=reader)
            if state != "done":
                raise UserError(f"run {stored.id[:SHORT]}: the retraining ended as {state}: {message}")
        return _compared(stored, again.run(stored.id), run.title, tolerance)


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
        raise UserError(f"run {stored.id[:SHORT]}: starts from run {identity[:SHORT]}, which is not in {store.root}")
    return replace(run, reference=_restored(store, reference.settings(), reference))


def _other_id(stored: RunStore, identity: str, address: Mapping[str, Any]) -> str:
    known = stored.settings().get("address") or {}
    names = sorted({*known, *address})
    other = [name for name in names if canonical(known.get(name)) != canonical(address.get(name))]
    words = f"this checkout gives it the id {identity[:SHORT]}: {', '.join(other)} differ"
    commit = stored.environment().get("commit")
    return f"run {stored.id[:SHORT]}: cannot be trained again as it was; {words} (it was made at commit {commit})"


def _compared(stored: RunStore, again: RunStore, title: str, tolerance: float) -> Verified:
    same_type = _machine(stored) == _machine(again)
    known, new = _finals(stored), _finals(again)
    weights = [{record.checkpoint for record in run.records() if record.at == 1.0} for run in (stored, again)]
    if same_type or weights[0] == weights[1]:
        differing = [key for key in known if known[key] != new.get(key)]
        if weights[0] != weights[1]:
            text = "the weights have other bytes on the same type of machine"
        elif differing:
            text = f"the weights have the same bytes, and {len(differing)} of {len(known)} scores are others"
        else:
            text = f"the weights have the same bytes, and all {len(known)} scores are equal"
        return Verified(stored.id, title, weights[0] == weights[1] and not differing, "bytes", text)
    losses = [[float(line["loss"]) for line in run.metrics()] for run in (stored, again)]
    if losses[0]:
        difference, what = _loss_difference(*losses), "losses"
    else:
        difference, what = _score_difference(known, new), "scores"
    text = f"{what} differ by at most {difference:.2g} on another type of machine; {tolerance:g} is allowed"
    return Verified(stored.id, title, difference <= tolerance, what, text)


def _machine(run: RunStore) -> tuple[Any, ...]:
    """Return all that bytes may depend on: device, threads, processes, versions of torch."""
    environment = run.environment()
    hardware, packages = environment.get("hardware") or {}, environment.get("packages") or {}
    world = (environment.get("ranks") or {}).get("world", 1)
    return hardware.get("device"), hardware.get("threads"), world, packages.get("torch")


def _finals(run: RunStore) -> dict[tuple[str, ...], float]:
    final = (record for record in run.records() if record.at == 1.0)
    return {(one.dataset, one.task, one.metric, one.score, one.protocol): one.value for one in final}


def _loss_difference(known: Sequence[float], new: Sequence[float]) -> float:
    """Return the largest difference over the largest loss; infinite if the numbers of steps differ."""
    if len(known) != len(new):
        return float("inf")
    scale = max(map(abs, known)) or 1.0
    return max(abs(one - other) for one, other in zip(known, new, strict=True)) / scale


def _score_difference(known: Mapping[Any, float], new: Mapping[Any, float]) -> float:
    shared = known.keys() & new.keys()
    return max((abs(known[key] - new[key]) for key in shared), default=float("inf"))
