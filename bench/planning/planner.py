"""From a suite's runs to planned ones: ids, and how many steps each budget buys."""

from __future__ import annotations

import dataclasses

from bench.errors import UserError
from bench.hashing import digest
from bench.planning import requirements
from bench.planning.budget import resolve
from bench.planning.flops import _cost_key, _price
from bench.planning.planned import Planned
from bench.planning.timing import _calibration
from bench.store import Store
from bench.suite.keep_settings import KeepSettings
from bench.suite.run import Run
from bench.suite.settings import SYNTHETIC
from bench.training.inputs import hashes, rows_seen, training_pairs
from bench.training.schedule import Resolved
from methods.protocol import Phase


def plan(runs: list[Run], store: Store) -> list[Planned]:
    """Address and steps of every run, a reference before what starts from it.

    Steps of runs the store knows are read from there; FLOPs are counted once for runs that differ in noise or seed.
    """
    ids: dict[str, str] = {}
    prices: dict[str, tuple[tuple[Phase, ...], dict[str, int]]] = {}
    planned = []
    for run in runs:
        reference = ids[run.reference.key] if run.reference else None
        seconds = _calibration(run, store) if run.budget.timed else None
        calibration = digest(seconds) if seconds else None
        data_hash, manifest_hash, kept_hash = hashes(run)
        identity = run.id(data_hash, manifest_hash, reference, calibration, kept_hash)
        ids[run.key] = identity
        known = store.run(identity).settings().get("resolved")
        if known is None:
            key = _cost_key(run)
            if key not in prices:
                prices[key] = _price(run)
            resolved = _resolve(run, *prices[key], seconds)
        else:
            resolved = Resolved.from_json(known)
        planned.append(Planned(run, identity, reference, resolved, False, data_hash, manifest_hash, kept_hash))
    return planned


def forecast(runs: list[Run], store: Store) -> list[Planned]:
    """As `plan`, where the training data is not there: steps and FLOPs for the stated number of rows, no ids.

    Raises UserError where the suite does not state `data.rows`.
    """
    names = {run.key: f"unknown-{digest(run.key)[:16]}" for run in runs}
    prices: dict[str, tuple[tuple[Phase, ...], dict[str, int]]] = {}
    planned = []
    for run in runs:
        stand_in = synthetic_of(run)
        key = _cost_key(stand_in)
        if key not in prices:
            prices[key] = _price(stand_in)
        seconds = _calibration(stand_in, store) if run.budget.timed else None
        reference = names[run.reference.key] if run.reference else None
        planned.append(
            Planned(run, names[run.key], reference, _resolve(stand_in, *prices[key], seconds), expected=True)
        )
    return planned


def costed(planned: Planned) -> Run:
    """The run that a planned one's cost is counted and timed on: itself, or what stands in while its data is away."""
    return synthetic_of(planned.run) if planned.expected else planned.run


def synthetic_of(run: Run) -> Run:
    """The same run on as many synthetic pairs as its data should have; its steps cost the same.

    Without a stated number of rows its own pairs, where they are there.
    """
    settings = run.data
    if settings.rows is None:
        if not requirements.training(run):
            return dataclasses.replace(run, noise=None, noise_file=None, keep=_as_many(run))
        raise UserError(f"data.rows: {settings.name} is not there and its number of rows is not stated; add data.rows")
    rows = round(settings.rows * settings.share)
    found = settings.model_copy(update={"shards": f"{SYNTHETIC}{rows}", "index": None})
    return dataclasses.replace(run, data=found, noise=None, noise_file=None, keep=_as_many(run))


def _as_many(run: Run) -> KeepSettings:
    """What keeps about as many rows as the run does where nothing is known of noise."""
    return KeepSettings(kind="random", share=1 - run.rate) if run.keep.entry.truth_alone else run.keep


def _resolve(run: Run, phases: tuple[Phase, ...], flops: dict[str, int], seconds: dict[str, float] | None) -> Resolved:
    rows, seen, value = len(training_pairs(run)), rows_seen(run), run.budget.value
    if run.treated and run.keep_rule == "passes":  # as many passes over fewer rows, whatever the unit
        value, rows = (value if run.budget.kind == "epochs" else value * seen / rows), seen
    return resolve(
        run.budget.kind,
        value,
        rows=rows,
        seen=seen,
        batch=run.train.batch,
        phases=phases,
        step_flops=flops,
        step_seconds=seconds,
    )
