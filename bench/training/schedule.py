"""Steps of a run, by phase."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class ResolvedSteps:
    """The steps that a run's budget pays for, and their cost."""

    phases: tuple[tuple[str, int], ...]  #: (name, steps) in order
    step_flops: Mapping[str, int]  #: of one step of each phase
    batch: int  #: B
    epoch_steps: int  #: steps of one pass over the rows that the run sees
    budget_epoch_steps: int = 0  #: of one pass as a budget in epochs counts it; 0 = `epoch_steps`
    scoring_flops: int = 0  #: to score all pairs before the first step, where a scorer chooses the rows

    def to_json(self) -> dict[str, Any]:
        """For settings.json."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ResolvedSteps:
        """The inverse of `to_json`."""
        return cls(**{**value, "phases": tuple((name, steps) for name, steps in value["phases"])})

    @property
    def steps(self) -> int:
        """Number of steps of all phases."""
        return sum(steps for _, steps in self.phases)

    @property
    def flops(self) -> int:
        """FLOPs of all steps, scoring not included."""
        return sum(steps * self.step_flops[name] for name, steps in self.phases)

    def phase_of(self, step: int) -> tuple[str, int, int]:
        """Return name, first step and number of steps of a step's phase. Raises ValueError beyond the last."""
        start = 0
        for name, length in self.phases:
            if step < start + length:
                return name, start, length
            start += length
        raise ValueError(f"step {step} lies beyond the last phase, which ends at {start}")
