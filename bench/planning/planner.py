"""Plans the runs of a suite: their ids, and the steps that each budget pays for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np

from bench.arrays import Ints
from bench.catalogue.keep import Keep, kept_of
from bench.console.progress import Progress
from bench.errors import UserError
from bench.hashing import digest
from bench.planning import requirements
from bench.planning.budget import no_steps, resolve
from bench.planning.flops import StepPrices, pair_price, step_prices
from bench.planning.planned import Planned
from bench.planning.timing import stored_calibration
from bench.store import Damaged, RunStore, Store
from bench.suite.keep_settings import KeepSettings
from bench.suite.run import Run, address
from bench.suite.settings import SYNTHETIC
from bench.training.inputs import Inputs, InputsReader, InputsSummary
from bench.training.schedule import Resolved


def plan(
    runs: list[Run], store: Store, reader: InputsReader | None = None, shown: Progress | None = None
) -> list[Planned]:
    """Return every run with its id and steps; a reference comes before the runs that start from it.

    Steps of runs that the store knows are read from there; FLOPs are counted once for runs that differ in noise or
    seed. `reader` makes the runs' inputs; a caller that plans several times passes the same one. `shown` is told
    which run is planned.
    """
    reader = reader or InputsReader()
    ids: dict[str, str] = {}
    planned = []
    for run in _noted(runs, shown):
        reference = ids[run.reference.key] if run.reference else None
        inputs = reader.inputs(run)
        summary = inputs.summary()
        seconds = stored_calibration(run, inputs, store) if run.budget.timed else None
        calibration = digest(seconds) if seconds else None
        content = address(run, summary.data_hash, summary.manifest_hash, reference, calibration, summary.kept_hash)
        identity = digest(content)
        ids[run.key] = identity
        known = _stored_steps(store.run(identity))
        if known is None:
            resolved = _resolve(run, summary, step_prices(run, inputs), seconds, _scoring_price(run, inputs))
        else:
            resolved = Resolved.from_json(known)
        planned.append(Planned(run, identity, reference, resolved, summary, content))
    return planned


def _noted(runs: list[Run], shown: Progress | None) -> Iterator[Run]:
    """The runs, each noted before it is planned: counting the FLOPs of large towers takes a while."""
    for number, run in enumerate(runs, start=1):
        if shown is not None:
            shown.preparing("planning", run.title, number, len(runs))
        yield run


def _stored_steps(run: RunStore) -> dict[str, Any] | None:
    """Return the steps in a run's settings, or None if it has none that can be read: they are counted again."""
    try:
        return run.settings().get("resolved")
    except Damaged:
        return None


def forecast(runs: list[Run], store: Store, shown: Progress | None = None) -> list[Planned]:
    """Plan without the training data: steps and FLOPs for the stated number of rows, and placeholders for ids.

    Raises UserError if the suite does not state `data.rows`.
    """
    reader = InputsReader()
    names = {run.key: f"unknown-{digest(run.key)[:16]}" for run in runs}
    planned = []
    for run in _noted(runs, shown):
        stand_in = synthetic_of(run)
        inputs = reader.for_model(stand_in)
        summary = _expected(run, stand_in, inputs)
        seconds = stored_calibration(stand_in, inputs, store) if run.budget.timed else None
        reference = names[run.reference.key] if run.reference else None
        prices, scoring = step_prices(stand_in, inputs), _scoring_price(run, inputs)
        resolved = _resolve(run, summary, prices, seconds, scoring)
        planned.append(Planned(run, names[run.key], reference, resolved, summary, {}, expected=True))
    return planned


def _expected(run: Run, stand_in: Run, inputs: Inputs) -> InputsSummary:
    """Return the summary of inputs that are not all on this machine, from those of the run that stands in for it."""
    pairs, seen = inputs.pairs, len(inputs.seen)
    if stand_in.data == run.data:
        return InputsSummary(pairs.name, pairs.description, len(pairs), seen, inputs.pairs.content_hash)
    message = "not here when this was planned; the number of pairs is the stated one"
    return InputsSummary(run.data.name, message, len(pairs), seen)


def costed(planned: Planned) -> Run:
    """Return the run whose cost is counted and timed: the planned one, or its stand-in if the data is missing."""
    return synthetic_of(planned.run) if planned.expected else planned.run


def synthetic_of(run: Run) -> Run:
    """Return the same run on as many synthetic pairs as its data should have; its steps cost the same.

    If the suite states no number of rows, the run keeps its own pairs. Raises UserError if these are missing too.
    """
    settings = run.data
    if settings.rows is None:
        if not requirements.training(run):
            return dataclasses.replace(run, noise=None, noise_file=None, keep=_as_many(run))
        raise UserError(f"data.rows: {settings.name} is not there and its number of rows is not stated; add data.rows")
    rows = round(settings.rows * settings.share)
    synthetic = settings.model_copy(update={"shards": f"{SYNTHETIC}{rows}", "index": None})
    return dataclasses.replace(run, data=synthetic, noise=None, noise_file=None, keep=_as_many(run))


class _First(KeepSettings):
    """A share of the rows, the first ones: costs follow from their number, and to draw among millions takes seconds."""

    @property
    def entry(self) -> Keep:
        return Keep("first", "the first pairs", lambda asked: _rows(kept_of(asked)), ("share",))


@lru_cache(maxsize=8)
def _rows(count: int) -> Ints:
    """Return the first rows, int64 [count]; the same array again, because each of a suite's stand-ins asks for it."""
    return np.arange(count, dtype=np.int64)


def _as_many(run: Run) -> KeepSettings:
    """Return a treatment that keeps about as many rows as the run's own, without knowing noise or scores."""
    if run.keep.entry.truth_alone:
        return _First(kind="random", share=1 - run.rate)
    return _First(kind="random", share=run.keep.share) if run.keep.entry.takes == ("share",) else run.keep


def counted(run: Run, inputs: Inputs) -> Resolved:
    """Return the steps of a run whose rows no scorer chooses and whose budget is not timed, without looking at a store.

    inputs: those without noise suffice.
    """
    summary = InputsSummary(inputs.pairs.name, inputs.pairs.description, len(inputs.pairs), len(inputs.seen))
    return _resolve(run, summary, step_prices(run, inputs), None, 0)


def _scoring_price(run: Run, inputs: Inputs) -> int:
    """Return the FLOPs of scoring all pairs before the first step; 0 for a run whose rows no scorer chooses."""
    if not run.keep.entry.scored:
        return 0
    by = run.scorer.run if run.scorer else run.reference
    assert by is not None
    return pair_price(by, inputs) * len(inputs.pairs)


def _resolve(
    run: Run,
    inputs: InputsSummary,
    prices: StepPrices,
    seconds: dict[str, float] | None,
    scoring: int,
) -> Resolved:
    """Turn the run's budget into steps, less what it pays for `scoring` [FLOPs].

    Raises UserError if scoring alone costs as much as all steps.
    """
    if run.untrained:
        return no_steps(prices.phases, prices.flops, inputs.seen, run.train.batch)
    rows, seen, value = inputs.rows, inputs.seen, run.budget.value
    if run.treated and run.keep_rule == "passes":  # as many passes over fewer rows, whatever the unit
        value, rows = (value if run.budget.kind == "epochs" else value * seen / rows), seen
    of_value = partial(
        resolve,
        run.budget.kind,
        rows=rows,
        seen=seen,
        batch=run.train.batch,
        phases=prices.phases,
        step_flops=prices.flops,
        step_seconds=seconds,
    )
    resolved = of_value(value)
    if scoring and run.pays_scorer:
        left = 1 - scoring / resolved.flops
        if left <= 0:
            cost = f"scoring {rows:,} pairs takes {scoring:.2g} FLOPs, and the budget is {resolved.flops:.2g}"
            raise UserError(f"budget.{run.budget.kind}: {cost}; give more")
        resolved = of_value(value * left)
    return dataclasses.replace(resolved, scoring_flops=scoring)
