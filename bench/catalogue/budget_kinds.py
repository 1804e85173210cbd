"""Kinds of budget: how each becomes steps, and how what was spent is counted. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.registry import Registry


@dataclass(frozen=True)
class Spent:
    """Amounts that a run has spent so far."""

    samples: int  #: pairs
    flops: int
    seconds: float  #: of training, summed over devices
    epoch_samples: int  #: pairs of one epoch


@dataclass(frozen=True)
class BudgetKind:
    """One kind of budget."""

    name: str  #: as in a suite, `budget: {name: value}`
    unit: str  #: as printed behind a value
    spent: Callable[[Spent], float]  #: what was spent, in the budget's own unit
    #: (value, pairs a step, steps an epoch) -> steps of all phases together, then split by the phases' shares; None:
    #: each phase gets as many as its share of the value pays for, in FLOPs or, if `timed`, in seconds
    steps: Callable[[float, int, int], int] | None = None
    most: float = 1e15  #: larger values are refused
    tolerance: float = 0.01  #: a run that spent more than 1 + this times its budget is marked in every table
    timed: bool = False  #: whether steps are timed on the machine that trains, which needs the device alone


BUDGET_KINDS: Registry[BudgetKind] = Registry(
    "a kind of budget",
    (
        BudgetKind(  # passes over the training rows
            "epochs",
            unit="epochs",
            spent=lambda spent: spent.samples / spent.epoch_samples,
            steps=lambda value, _, epoch_steps: int(value * epoch_steps + 1e-9),
        ),
        BudgetKind(  # pairs seen
            "samples",
            unit="samples",
            spent=lambda spent: spent.samples,
            steps=lambda value, batch, _: int(value // batch),
        ),
        BudgetKind(  # algorithmic FLOPs of training: a more expensive step means fewer of them
            "flops",
            unit="FLOPs",
            spent=lambda spent: spent.flops,
            most=1e30,
        ),
        BudgetKind(  # seconds of training on this machine, by a stored calibration of its steps
            "device_seconds",
            unit="device seconds",
            spent=lambda spent: spent.seconds,
            tolerance=0.05,
            timed=True,
        ),
    ),
)
