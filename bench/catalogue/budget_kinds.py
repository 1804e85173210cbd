"""Kinds of budget: how each becomes steps, and how what was spent is counted. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench.registry import Registry


@dataclass(frozen=True)
class StepCosts:
    """Cost of a run's steps, known before the first one."""

    batch: int  #: B, pairs a step
    epoch_steps: int  #: steps of one pass over the training rows
    flops: Mapping[str, int]  #: of one step of each phase
    seconds: Mapping[str, float]  #: of one step of each phase; {} unless the budget kind is `timed`


@dataclass(frozen=True)
class Spent:
    """Amounts that a run has spent so far."""

    samples: int  #: pairs
    flops: int
    seconds: float  #: of training, summed over devices
    epoch_samples: int  #: pairs of one epoch


@dataclass(frozen=True)
class BudgetKind:
    """One kind of budget. Exactly one of `steps` and `price` is given."""

    name: str  #: as in a suite, `budget: {name: value}`
    unit: str  #: as printed behind a value
    spent: Callable[[Spent], float]  #: what was spent, in the budget's own unit
    #: (value, costs) -> steps of all phases together, which are then split by the phases' shares
    steps: Callable[[float, StepCosts], int] | None = None
    #: costs -> price of one step of each phase; each phase then gets as many as its share of the value pays for
    price: Callable[[StepCosts], Mapping[str, float]] | None = None
    most: float = 1e15  #: a larger value is refused
    tolerance: float = 0.01  #: a run that spent more than 1 + this times its budget is marked in every table
    timed: bool = False  #: whether steps are timed on the machine that trains, which needs the device alone


BUDGET_KINDS: Registry[BudgetKind] = Registry(
    "a kind of budget",
    (
        BudgetKind(  # passes over the training rows
            "epochs",
            unit="epochs",
            spent=lambda spent: spent.samples / spent.epoch_samples,
            steps=lambda value, costs: int(value * costs.epoch_steps + 1e-9),
        ),
        BudgetKind(  # pairs seen
            "samples",
            unit="samples",
            spent=lambda spent: spent.samples,
            steps=lambda value, costs: int(value // costs.batch),
        ),
        BudgetKind(  # algorithmic FLOPs of training: a dearer step means fewer of them
            "flops",
            unit="FLOPs",
            spent=lambda spent: spent.flops,
            most=1e30,
            price=lambda costs: costs.flops,
        ),
        BudgetKind(  # seconds of training on this machine, by a stored calibration of its steps
            "device_seconds",
            unit="device seconds",
            spent=lambda spent: spent.seconds,
            price=lambda costs: costs.seconds,
            tolerance=0.05,
            timed=True,
        ),
    ),
)
