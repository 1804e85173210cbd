"""The ledger of what a run spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from bench.catalogue.budget_kinds import BUDGET_KINDS, Spent
from bench.training.schedule import ResolvedSteps
from methods.protocol import Method


@dataclass
class Ledger:
    """What a run spent. Counts are algorithmic: micro-batches encoded twice count once; seconds are measured.

    On several ranks, counts are of the global batch, seconds are summed over ranks (device seconds), and memory is the
    largest of any rank. Ranks share the extraction of features; while the first one measures, the others wait.

    Steps after the last checkpoint are trained again when a killed run resumes: `repeated_seconds` counts them. After
    every step the run's store notes `train_seconds + repeated_seconds`; on resume, the noted seconds beyond the
    checkpoint's `train_seconds` are repeated ones. This is exact for finished steps after any number of kills; the
    step in which a process died is in neither number.
    """

    samples: int = 0
    image_forwards: float = 0.0
    image_backwards: float = 0.0
    text_forwards: float = 0.0
    text_backwards: float = 0.0
    flops: int = 0
    train_seconds: float = 0.0
    data_seconds: float = 0.0  #: of train_seconds, waiting for data, on every rank
    evaluate_seconds: float = 0.0
    repeated_seconds: float = 0.0  #: lost to kills: of finished steps that had to be done again
    peak_memory_bytes: int = 0

    def charge(self, method: Method, towers: nn.Module, phase: str, batch: int, step_flops: int) -> None:
        """Add the cost of one optimiser step on the global batch."""
        cost = method.cost(phase)
        self.samples += batch
        self.flops += step_flops
        self.image_forwards += (cost.image + cost.side_image) * batch
        self.text_forwards += (cost.text + cost.side_text) * batch
        if _trains(towers.visual):
            self.image_backwards += cost.image * batch
        if _trains(towers.text):
            self.text_backwards += cost.text * batch

    def statement(
        self,
        kind: str,
        value: float,
        resolved: ResolvedSteps,
        reference: Mapping[str, Any] | None,
        scoring: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The ledger as stored: spent and planned amounts, and whether the run exceeded its budget.

        reference: ledger of the run that it starts from, or that scores its pairs. scoring: costs of scoring them.
        """
        spent = self.spent(kind, resolved)
        return {
            **asdict(self),
            "budget": {"kind": kind, "value": value},
            "planned": {"steps": resolved.steps, "flops": resolved.flops},
            "spent_share": spent / value,
            "over_budget": spent > value * (1 + BUDGET_KINDS[kind].tolerance),
            "reference": reference,
            **({"scoring": scoring} if scoring else {}),
        }

    def spent(self, kind: str, resolved: ResolvedSteps) -> float:
        """The amount spent, in the budget's own unit."""
        epoch_samples = (resolved.budget_epoch_steps or resolved.epoch_steps) * resolved.batch
        return BUDGET_KINDS[kind].spent(Spent(self.samples, self.flops, self.train_seconds, epoch_samples))


def _trains(module: object) -> bool:
    assert isinstance(module, nn.Module)
    return any(parameter.requires_grad for parameter in module.parameters())
