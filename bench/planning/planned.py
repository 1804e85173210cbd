"""A run whose inputs are known."""

from __future__ import annotations

from dataclasses import dataclass

from bench.data.noise import NoiseManifest
from bench.evaluation import EvaluationPlan
from bench.suite.run import Run
from bench.training.inputs import noise_of
from bench.training.schedule import Resolved


@dataclass(frozen=True)
class Planned:
    """A run whose inputs are known: its address and the steps its budget comes to."""

    run: Run
    id: str
    reference: str | None  #: id of the run it starts from
    resolved: Resolved
    expected: bool = False  #: its data is not there: the id is a placeholder
    data_hash: str = ""  #: of the training pairs that the id was made from
    manifest_hash: str | None = None  #: of its noise; None where no rows are fixed to be corrupted
    kept_hash: str | None = None  #: of the keys of a treated run's rows

    @property
    def manifest(self) -> NoiseManifest | None:
        """Which rows are corrupted; None without such noise, or where that cannot be known yet.

        None as well where a run sees none of them: its id leaves open whose captions they have.
        """
        noise = None if self.expected or self.run.keep.entry.truth_alone else noise_of(self.run)
        return noise if isinstance(noise, NoiseManifest) else None

    @property
    def evaluation(self) -> EvaluationPlan:
        """What is measured of this run."""
        return EvaluationPlan(self.run.data, self.run.evaluate)

    def evaluation_keys(self) -> tuple[str, ...]:
        """Under which its records are stored when it is complete."""
        return self.evaluation.keys(self.run.evaluate.curve, self.manifest)
