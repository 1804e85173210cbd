"""Turns a budget into steps before training starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.catalogue.budget_kinds import BUDGET_KINDS, StepCosts
from bench.data.order import steps_per_epoch
from bench.errors import UserError
from bench.training.schedule import ResolvedSteps
from methods.protocol import Phase

MAX_STEPS = 10**12  #: of a run; more would take centuries


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
    """Turn `{kind: value}` into steps of each phase; a dearer step means fewer of them if the budget is a cost.

    `rows` is N, `batch` is B; of the rows only `seen` may be trained on (None: all).
    `step_seconds` is the stored calibration that a timed kind needs.
    Raises UserError if a phase would get no step, the run too many, or a batch is larger than the data.
    """
    per_epoch, entry = steps_per_epoch(rows, batch), BUDGET_KINDS[kind]
    costs = StepCosts(batch, per_epoch, step_flops, step_seconds or {})
    if entry.steps is not None:
        counts = _split(entry.steps(value, costs), [phase.share for phase in phases])
    else:
        assert entry.price is not None
        price = entry.price(costs)
        counts = [int(value * phase.share / price[phase.name]) for phase in phases]
    for phase, steps in zip(phases, counts, strict=True):
        if steps < 1:
            raise UserError(f"budget.{kind}: {value:g} leaves no step for phase {phase.name!r}; give more")
    if sum(counts) > MAX_STEPS:
        raise UserError(f"budget.{kind}: {value:g} is {sum(counts):.2g} steps; at most {MAX_STEPS:.0e}, give less")
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
