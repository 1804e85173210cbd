"""A run whose inputs are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.data.noise.manifest import ManifestSummary
from bench.evaluation import EvaluationPlan
from bench.suite.run import Run
from bench.training.inputs import InputsSummary
from bench.training.schedule import ResolvedSteps


@dataclass(frozen=True)
class Planned:
    """A run with its id and the steps that its budget pays for.

    It travels to other processes, so it holds a summary of the inputs and never the inputs themselves.
    """

    run: Run
    id: str
    reference: str | None  #: id of the run that it starts from, or that scores its pairs
    resolved: ResolvedSteps
    inputs: InputsSummary  #: of the data that the id was made from
    address: dict[str, Any]  #: all that the id was made from; {} if the id is a placeholder
    lent: bool = False  #: whether a run that is still to be executed starts from its final weights
    expected: bool = False  #: whether data is missing on this machine, so that the id is a placeholder

    @property
    def manifest(self) -> ManifestSummary | None:
        """The corrupted rows that the run's records depend on. Returns None if there are none or they are unknown.

        Returns None as well if the run sees no corrupted row: its id leaves open whose captions those rows have.
        """
        return None if self.run.keep.entry.truth_alone else self.inputs.manifest

    @property
    def scorer(self) -> str | None:
        """The id of the run, or the sha256 of the external model's weights, that scores the run's pairs."""
        weights: str = self.address["keep"]["weights"] if self.run.scorer else ""
        return weights or self.reference

    @property
    def evaluation(self) -> EvaluationPlan:
        """The tasks that are measured on this run."""
        return EvaluationPlan(self.run.data, self.run.evaluate, noise_of=self.run.noise_of_held_out)

    def evaluation_keys(self) -> tuple[str, ...]:
        """The keys under which its records are stored when it is complete."""
        return self.evaluation.keys(self.run.points, self.manifest)
