"""Whether the trigger of a poisoned run gives test images the target class."""

from __future__ import annotations

import numpy as np

from bench.arrays import Ints
from bench.data.noise import Poison
from bench.errors import UserError, nearest
from bench.evaluation.bootstrap import mean_interval
from bench.evaluation.measures import Bench, Measured, Number, named_classes, scores_of
from bench.evaluation.tasks import Task
from bench.evaluation.zero_shot import predictions


def rates(labels: Ints, clean: Ints, triggered: Ints, target: int, score: str = "") -> list[Number]:
    """Return the success of the attack, the same without the trigger, and the clean accuracy.

    labels, clean, triggered: classes [n], the last two as predicted without and with the trigger. Images of the target
    class do not count for the success, because they should get that class.
    """
    others = labels != target
    shares = {
        "attack_success": (triggered[others] == target, False),
        "without_trigger": (clean[others] == target, False),
        "clean_accuracy": (clean == labels, True),
    }
    return [
        Number(name, score, float(hits.mean()), len(hits), mean_interval(hits.astype(np.float64)), higher)
        for name, (hits, higher) in shares.items()
    ]


def class_number(name: str, classes: tuple[str, ...], dataset: str) -> int:
    """Return the number of the class of that name. Raises UserError, with the nearest name, if there is none."""
    if name not in classes:
        raise UserError(f"noise.options.target: {name!r} is no class of {dataset}{nearest(name, classes)}")
    return classes.index(name)


def attack_success(task: Task, bench: Bench) -> Measured:
    """Measure `rates` by zero-shot classification with the prompts of the data set."""
    assert isinstance(bench.manifest, Poison)
    pairs = bench.plan.load(task.dataset)
    labels, names = pairs.labels[task.label], pairs.classes[task.label]
    target = class_number(bench.manifest.target, names, task.dataset)
    classes = named_classes(pairs, task, bench)
    clean, triggered = (bench.features.images(one) for one in (pairs, bench.manifest.triggered(pairs)))
    numbers: list[Number] = []
    outcomes: dict[str, np.ndarray] = {"label": labels}
    for score in scores_of(clean, classes):
        without, with_trigger = (predictions(images, classes, score) for images in (clean, triggered))
        numbers += rates(labels, without, with_trigger, target, score)
        outcomes |= {f"{score}_clean": without, f"{score}_triggered": with_trigger}
    return numbers, outcomes
