"""The task `prompts`: zero-shot accuracy by which prompts speak for a class (ProLIP's Table 3).

Any method has all prompts alike and a single one; choosing or weighting prompts by their variances needs variances.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from bench import data
from bench.evaluation.measures import Bench, Measured, Number, scores_of
from bench.evaluation.probabilistic.bprw import SHOTS, reweighting
from bench.evaluation.probabilistic.prompt_filter import Filter, filtered_class_vectors, top1, total_variance
from bench.evaluation.tasks import Task
from bench.evaluation.zero_shot import class_vectors, prompts

SINGLE = "a photo of"  #: the single prompt is the first that begins so, or else the first


def prompt_choices(task: Task, bench: Bench) -> Measured:
    """Measure top-1 accuracy under each choice of prompts; "all" and "single" by every score, the others by CSD.

    "filtered" keeps prompts up to the mean variance of their class, "half" the surer half of each class; "bprw_K"
    weights prompts by how well they explain images of the training split, K labelled ones a class (0: the nearest).
    """
    pairs = bench.plan.load(task.dataset)
    templates, names = data.templates(pairs), pairs.classes[task.label]
    images, texts = bench.features.images(pairs), bench.features.texts(prompts(names, templates))
    labels = torch.from_numpy(pairs.labels[task.label])
    single = next((one for one in templates if one.startswith(SINGLE)), templates[0])
    classes = {
        "all": class_vectors(texts, len(templates)),
        "single": class_vectors(bench.features.texts(prompts(names, [single])), 1),
    }
    scores = scores_of(images, texts)
    numbers = [one for name, vectors in classes.items() for one in _top1(name, images, vectors, labels, scores)]
    if "csd" in scores:
        u = total_variance(texts).reshape(-1, len(templates))
        half = Filter("by_ranking", math.ceil(len(templates) / 2))
        filters = {"filtered": Filter("std_per_class", 0.0), "half": half}
        for name, one in filters.items():
            numbers += _top1(name, images, filtered_class_vectors(texts, one.kept(u)), labels, ["csd"])
        weighted = reweighting(bench.features, pairs, bench.plan.load(task.train), task.label)
        fitted = [number for _, number in weighted[1:] if number.metric == "top1"]
        numbers += [replace(one, metric=f"bprw_{shots}") for shots, one in zip(SHOTS, fitted, strict=True)]
    return numbers, {}


def _top1(
    name: str, images: Mapping[str, Tensor], classes: Mapping[str, Tensor], labels: Tensor, scores: list[str]
) -> list[Number]:
    return [replace(number, metric=name) for _, number in top1(name, images, classes, labels, scores)]
