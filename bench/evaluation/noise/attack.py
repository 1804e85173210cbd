"""Success of poison: a trigger gives images the target class, or chosen images get wrong classes."""

from __future__ import annotations

import numpy as np
from scipy.special import betaincinv

from bench.arrays import Ints
from bench.data.noise.poison import Poison
from bench.data.noise.targeted import Targeted
from bench.errors import UserError, nearest
from bench.evaluation.measures import Measured, MeasureInputs, Number, available_scores, class_features
from bench.evaluation.tasks import Task
from bench.evaluation.zero_shot import predictions


def attack_rates(labels: Ints, clean: Ints, triggered: Ints, target: int, score: str = "") -> list[Number]:
    """Return the success of the attack, the same without the trigger, and the clean accuracy.

    labels, clean, triggered: classes [n], the last two as predicted without and with the trigger. Images of the target
    class do not count for the success, because they should get that class.
    """
    others = labels != target
    return [
        Number.mean("attack_success", score, triggered[others] == target, higher_is_better=False),
        Number.mean("without_trigger", score, clean[others] == target, higher_is_better=False),
        Number.mean("clean_accuracy", score, clean == labels),
    ]


def targeted_rates(labels: Ints, predicted: Ints, targets: Ints, classes: Ints, score: str = "") -> list[Number]:
    """Return the share of the `targets` [q] that get their wrong `classes` [q], and the accuracy on other images.

    labels, predicted: classes [n]. The interval of the first is Clopper and Pearson's, because the targets are few.
    """
    hits = predicted[targets] == classes
    q, k = len(hits), int(hits.sum())
    low = float(betaincinv(k, q - k + 1, 0.025)) if k else 0.0
    high = float(betaincinv(k + 1, q - k, 0.975)) if k < q else 1.0
    return [
        Number("attack_success", score, k / q, q, (low, high), False),
        Number.mean("clean_accuracy", score, np.delete(predicted == labels, targets)),
    ]


def class_number(name: str, classes: tuple[str, ...], dataset: str) -> int:
    """Return the number of the class of that name. Raises UserError, with the nearest name, if there is none."""
    if name not in classes:
        raise UserError(f"noise.options.target: {name!r} is not a class of {dataset}{nearest(name, classes)}")
    return classes.index(name)


def attack_success(task: Task, bench: MeasureInputs) -> Measured:
    """Measure `attack_rates` or `targeted_rates` by zero-shot classification with the prompts of the data set.

    Raises UserError if the targets are images of another data set.
    """
    manifest = bench.manifest
    pairs = bench.plan.load(task.dataset)
    labels, names = pairs.labels[task.label], pairs.classes[task.label]
    classes = class_features(pairs, task, bench)
    clean = bench.features.images(pairs)
    numbers: list[Number] = []
    outcomes: dict[str, np.ndarray] = {"label": labels}
    if isinstance(manifest, Targeted):
        same_set(manifest.dataset, task.dataset)
        for score in available_scores(clean, classes):
            predicted = outcomes[f"{score}_clean"] = predictions(clean, classes, score)
            numbers += targeted_rates(labels, predicted, manifest.targets, manifest.classes, score)
        return numbers, {**outcomes, "target": manifest.targets, "wrong_class": manifest.classes}
    assert isinstance(manifest, Poison)
    target = class_number(manifest.target, names, task.dataset)
    triggered = bench.features.images(manifest.triggered(pairs))
    for score in available_scores(clean, classes):
        without, with_trigger = (predictions(images, classes, score) for images in (clean, triggered))
        numbers += attack_rates(labels, without, with_trigger, target, score)
        outcomes |= {f"{score}_clean": without, f"{score}_triggered": with_trigger}
    return numbers, outcomes


def same_set(attacked: str, scored: str) -> None:
    """Raise UserError unless the images that are attacked are of the data set that is scored."""
    if attacked != scored:
        raise UserError(f"noise.options.images: attacks images of {attacked}, but attack_success scores {scored}")
