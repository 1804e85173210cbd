"""Plans the runs of a suite: their ids, and the steps that each budget pays for."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bench.catalogue.budget_kinds import BUDGET_KINDS
from bench.console.progress import Progress
from bench.data.order import steps_per_epoch
from bench.data.source import data_source
from bench.errors import UserError
from bench.hashing import digest
from bench.planning.flops import StepPrices, pair_price, step_prices
from bench.planning.planned import Planned
from bench.planning.timing import calibrated_seconds
from bench.store import Damaged, Store
from bench.suite.keep_settings import ALL_PAIRS
from bench.suite.run import Run, run_address
from bench.suite.settings import SYNTHETIC
from bench.training.inputs import Inputs, InputsReader, InputsSummary
from bench.training.schedule import ResolvedSteps
from methods.protocol import Phase

MAX_STEPS = 10**12  #: most steps of a run; more would take centuries


@dataclass
class Planner:
    """Plans runs of a store; a run that was planned before costs nothing."""

    store: Store
    #: whether all data is on this machine; if not, runs have steps and FLOPs for the stated number of rows, but no ids
    here: bool = True
    dry: bool = False  #: whether nothing is stored, and a run without steps is omitted and noted in `refused`
    shown: Progress | None = None  #: shows which run is planned
    reader: InputsReader = field(default_factory=InputsReader)
    refused: dict[str, str] = field(default_factory=dict)  #: why the runs of an entry cannot be executed, by its label
    _known: dict[str, Planned] = field(default_factory=dict)  #: by `Run.key`

    def plan(self, runs: Sequence[Run]) -> list[Planned]:
        """Return every run with its id and steps; a reference comes before the runs that start from it.

        Steps of runs that the store knows are read from there; FLOPs are counted once for runs that differ in noise or
        seed. Raises UserError, with the entry's label, if a run's budget pays for no step, except in a dry run; and if
        data is missing whose number of rows the suite does not state.
        """
        for number, run in enumerate(runs, start=1):
            if run.key in self._known:
                continue
            if self.shown is not None:  # counting the FLOPs of large towers takes a while
                self.shown.preparing("planning", run.title, number, len(runs))
            try:
                self._known[run.key] = self._planned(run)
            except _NoSteps as error:
                if not self.dry:
                    raise UserError(f"{run.label}: {error}") from error
                self.refused[run.label] = str(error)
        return [dataclasses.replace(self._known[run.key], run=run) for run in runs if run.key in self._known]

    def _planned(self, run: Run) -> Planned:
        if run.reference and run.reference.key not in self._known:
            raise _NoSteps(f"{run.reference.label}, which it starts from, has no steps")
        reference = self._known[run.reference.key].id if run.reference else None
        costed = run if self.here else synthetic_of(run)
        inputs = self.reader.inputs(run) if self.here else self.reader.for_model(costed)
        summary = inputs.summary() if self.here else _expected(run, costed, inputs)
        seconds = calibrated_seconds(costed, inputs, self.store, keep=not self.dry) if run.budget.timed else None
        content: dict[str, Any] = {}
        identity, known = f"unknown-{digest(run.key)[:16]}", None
        if self.here:
            hashes = summary.data_hash, summary.manifest_hash
            content = run_address(run, *hashes, reference, digest(seconds) if seconds else None, summary.kept_hash)
            identity = digest(content)
            with contextlib.suppress(Damaged):  # steps that cannot be read are counted again
                known = self.store.run(identity).settings().get("resolved")
        if known is not None:
            resolved = ResolvedSteps.from_json(known)
        else:
            prices, scoring = step_prices(costed, inputs), 0
            if run.keep.entry.scored:  # all pairs are scored before the first step
                by = run.scorer.run if run.scorer else run.reference
                assert by is not None
                scoring = pair_price(by, inputs) * len(inputs.pairs)
            try:
                resolved = _resolve(run, summary, prices, seconds, scoring)
            except UserError as error:
                raise _NoSteps(str(error)) from error
        return Planned(run, identity, reference, resolved, summary, content, expected=not self.here)


def plan(runs: Sequence[Run], store: Store) -> list[Planned]:
    """Plan runs whose data is here; see `Planner.plan`."""
    return Planner(store).plan(runs)


class _NoSteps(Exception):
    """The budget of a run buys no steps, or one of its phases has none."""


def _expected(run: Run, stand_in: Run, inputs: Inputs) -> InputsSummary:
    """Return the summary of inputs that are not all on this machine, from those of the run that stands in for it."""
    rows = len(inputs.pairs)
    share = 1 - run.rate if run.keep.entry.truth_alone else run.keep.share or 1.0
    seen = run.keep.rows or math.ceil(share * rows - 1e-9)  # the number alone: to draw among millions takes seconds
    if stand_in.data == run.data:
        return InputsSummary(inputs.pairs.name, inputs.pairs.description, rows, seen, inputs.pairs.content_hash)
    message = "not here when this was planned; the number of pairs is the stated one"
    return InputsSummary(run.data.name, message, rows, seen)


def costed_run(planned: Planned) -> Run:
    """Return the run whose cost is counted and timed: the planned one, or its stand-in if the data is missing."""
    return synthetic_of(planned.run) if planned.expected else planned.run


def synthetic_of(run: Run) -> Run:
    """Return the same run on as many synthetic pairs as its data should have; its steps cost the same.

    If the suite states no number of rows, the run keeps its own pairs. Raises UserError if these are missing too.
    """
    settings = run.data
    plain = dataclasses.replace(run, noise=None, noise_file=None, keep=ALL_PAIRS)
    if settings.rows is None:
        if not data_source(run.data).missing():
            return plain
        raise UserError(f"data.rows: {settings.name} is not there and its number of rows is not stated; add data.rows")
    rows = round(settings.rows * settings.share)
    synthetic = settings.model_copy(update={"shards": f"{SYNTHETIC}{rows}", "index": None})
    return dataclasses.replace(plain, data=synthetic)


def counted_steps(run: Run, inputs: Inputs) -> ResolvedSteps:
    """Return the steps of a run whose rows no scorer chooses and whose budget is not timed, without looking at a store.

    inputs: those without noise suffice.
    """
    summary = InputsSummary(inputs.pairs.name, inputs.pairs.description, len(inputs.pairs), len(inputs.seen))
    return _resolve(run, summary, step_prices(run, inputs), None, 0)


def _resolve(
    run: Run, inputs: InputsSummary, prices: StepPrices, seconds: dict[str, float] | None, scoring: int
) -> ResolvedSteps:
    """Turn the run's budget into steps, less what it pays for `scoring` [FLOPs].

    Raises UserError if scoring alone costs as much as all steps.
    """
    if not run.steps:
        none = tuple((phase.name, 0) for phase in prices.phases)
        return ResolvedSteps(none, dict(prices.flops), run.train.batch, steps_per_epoch(inputs.seen, run.train.batch))
    rows, seen, value = inputs.rows, inputs.seen, run.budget.value
    if run.selects_data and run.keep_rule == "passes":  # as many passes over fewer rows, whatever the unit
        value, rows = (value if run.budget.kind == "epochs" else value * seen / rows), seen
    of_value = partial(
        resolve_budget,
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
            raise UserError(f"budget.{run.budget.kind}: {cost}; increase it")
        resolved = of_value(value * left)
    return dataclasses.replace(resolved, scoring_flops=scoring)


def resolve_budget(
    kind: str,
    value: float,
    *,
    rows: int,
    batch: int,
    seen: int | None = None,
    phases: Sequence[Phase],
    step_flops: Mapping[str, int],
    step_seconds: Mapping[str, float] | None = None,
) -> ResolvedSteps:
    """Turn `{kind: value}` into steps of each phase; a more expensive step means fewer of them if the budget is a cost.

    `rows` is N, `batch` is B; of the rows only `seen` may be trained on (None: all).
    `step_seconds` is the stored calibration that a timed kind needs.
    Raises UserError if a phase would get no step, the run too many, or a batch is larger than the data.
    """
    per_epoch, entry = steps_per_epoch(rows, batch), BUDGET_KINDS[kind]
    if entry.steps is not None:
        counts = _split(entry.steps(value, batch, per_epoch), [phase.share for phase in phases])
    else:
        price = step_seconds if entry.timed else step_flops
        assert price is not None
        counts = [int(value * phase.share / price[phase.name]) for phase in phases]
    for phase, steps in zip(phases, counts, strict=True):
        if steps < 1:
            raise UserError(f"budget.{kind}: {value:g} leaves no step for phase {phase.name!r}; increase it")
    if sum(counts) > MAX_STEPS:
        raise UserError(f"budget.{kind}: {value:g} is {sum(counts):.2g} steps; decrease it to at most {MAX_STEPS:.0e}")
    steps_of = tuple((phase.name, steps) for phase, steps in zip(phases, counts, strict=True))
    own = steps_per_epoch(rows if seen is None else seen, batch)
    return ResolvedSteps(steps_of, dict(step_flops), batch, own, per_epoch if own != per_epoch else 0)


def _split(total: int, shares: Sequence[float]) -> list[int]:
    """Return whole steps in proportion to `shares`, with sum `total` (largest remainder)."""
    exact = [total * share / sum(shares) for share in shares]
    counts = [int(x) for x in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: counts[i] - exact[i])
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts
