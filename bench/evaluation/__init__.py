"""Evaluation: features are extracted once per checkpoint and data set; all tasks work on features."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.arrays import Ints
from bench.catalogue.families import FAMILIES
from bench.data.noise import NoiseManifest
from bench.evaluation.features import Features, PooledTowers, Ranks
from bench.evaluation.measures import Bench, Number
from bench.evaluation.tasks import PROTOCOL, EvaluationPlan, Task
from bench.store import Record
from methods.protocol import Method

__all__ = ["PROTOCOL", "EvaluationPlan", "Task", "evaluate"]


def evaluate(
    method: Method,
    towers: PooledTowers,
    plan: EvaluationPlan,
    *,
    at: float,
    run: str,
    checkpoint: str,
    manifest: NoiseManifest | None,
    kept: Ints | None = None,
    done: Callable[[str], bool],
    publish: Callable[[str, list[Record], dict[str, np.ndarray]], object],
    features_dir: Path | None,
    inside: Path | None = None,
    ranks: Ranks | None = None,
) -> None:
    """Measure one checkpoint (`checkpoint`: sha256 of its weights, taken after a share `at` of the budget).

    `kept`: rows that a scorer chose to train on. A task whose key is `done` is skipped; the result of every other is
    passed to `publish(key, records, outcomes)` as soon as it is measured, so a killed evaluation continues where it
    stopped. Features are stored in `features_dir` until all tasks are published, written through `inside`, the folder
    of a claim. `ranks` measure the same together; the
    first one alone publishes. Raises FloatingPointError if features or confidences are
    not finite, and UserError if data is missing or cannot be read.
    """
    features = Features(method, towers, checkpoint, plan.protocol.label, features_dir, plan.channels, inside, ranks)
    bench = Bench(plan, features, manifest, kept)
    for task in plan.tasks(at, manifest.summary if manifest else None):
        if done(task.key(at)):
            continue
        numbers, outcomes = FAMILIES[task.family].measures()(task, bench)
        content = plan.content(task)
        publish(task.key(at), [_record(task, number, run, at, checkpoint, content) for number in numbers], outcomes)
    features.discard()


def _record(task: Task, number: Number, run: str, at: float, checkpoint: str, content: str) -> Record:
    low, high = number.interval
    return Record(
        run=run,
        at=at,
        dataset=task.dataset,
        task=task.name,
        metric=number.metric,
        score=number.score,
        value=number.value,
        n=number.n,
        low=low,
        high=high,
        higher_is_better=number.higher_is_better,
        protocol=task.protocol,
        checkpoint=checkpoint,
        data=content,
    )
