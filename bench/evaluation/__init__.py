"""Evaluation: features are extracted once per checkpoint and data set; all tasks work on features."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bench.arrays import Ints
from bench.catalogue.families import FAMILIES
from bench.data.noise.manifest import NoiseManifest
from bench.evaluation.features import Features
from bench.evaluation.measures import MeasureInputs
from bench.evaluation.tasks import PROTOCOL, EvaluationPlan, Task
from bench.store import Record

__all__ = ["PROTOCOL", "EvaluationPlan", "Task", "evaluate_features"]


def evaluate_features(
    features: Features,
    plan: EvaluationPlan,
    *,
    at: float,
    run: str,
    manifest: NoiseManifest | None,
    kept: Ints | None = None,
    done: Callable[[str], bool],
    publish: Callable[[str, list[Record], dict[str, np.ndarray]], object],
) -> None:
    """Measure the checkpoint of `features`, taken after a share `at` of the budget.

    `kept`: rows that a scorer chose to train on. A task whose key is `done` is skipped; the result of every other is
    passed to `publish(key, records, outcomes)` as soon as it is measured, so a killed evaluation continues where it
    stopped. Features are stored until all tasks are published. The ranks of the features' group measure the same
    together; the first one alone publishes. Raises FloatingPointError if features or confidences are not finite, and
    UserError if data is missing or cannot be read.
    """
    bench = MeasureInputs(plan, features, manifest, kept)
    for task in plan.tasks(at, manifest.summary if manifest else None):
        if done(task.key(at)):
            continue
        numbers, outcomes = FAMILIES[task.family].measures()(task, bench)
        content = plan.content(task)
        records = [
            Record(
                run=run,
                at=at,
                dataset=task.dataset,
                task=task.name,
                metric=number.metric,
                score=number.score,
                value=number.value,
                n=number.n,
                low=number.interval[0],
                high=number.interval[1],
                higher_is_better=number.higher_is_better,
                protocol=task.protocol,
                checkpoint=features.checkpoint,
                data=content,
            )
            for number in numbers
        ]
        publish(task.key(at), records, outcomes)
    features.discard()
