"""The task `prompts`: zero-shot accuracy by which prompts represent a class (Chun et al., ProLIP, ICLR 2025, Table 3).

Any method has all prompts alike and a single one; choosing or weighting prompts by their variances needs variances.

official: github.com/naver-ai/prolip@59f6324 src/analysis/unc_zeroshot_prompts.py
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from bench import data
from bench.evaluation.measures import Measured, MeasureInputs, Number, available_scores
from bench.evaluation.probabilistic.bprw import SHOTS, reweighted
from bench.evaluation.tasks import Task
from bench.evaluation.zero_shot import class_prompts, class_vectors, classify

SINGLE_PROMPT = "a photo of"  #: the single prompt is the first that begins so, or else the first


def prompt_choices(task: Task, bench: MeasureInputs) -> Measured:
    """Measure top-1 accuracy under each choice of prompts; "all" and "single" by every score, the others by CSD.

    "filtered" keeps prompts up to the mean variance of their class, "half" the more certain half of each class;
    "bprw_K" weights prompts by how well they explain images of the training split, K labelled ones a class (0: the
    nearest).
    """
    pairs = bench.plan.load(task.dataset)
    templates, names = data.prompt_templates(pairs), pairs.classes[task.label]
    images, texts = bench.features.images(pairs), bench.features.texts(class_prompts(names, templates))
    labels = torch.from_numpy(pairs.labels[task.label])
    single = next((one for one in templates if one.startswith(SINGLE_PROMPT)), templates[0])
    classes: dict[str, Mapping[str, Tensor]] = {
        "all": class_vectors(texts, len(templates)),
        "single": class_vectors(bench.features.texts(class_prompts(names, [single])), 1),
    }
    scores = available_scores(images, texts)
    numbers = [top1(name, images, one, labels, score) for name, one in classes.items() for score in scores]
    if "csd" in scores:
        u = total_variance(texts).reshape(-1, len(templates))
        limits = {"filtered": u.mean(1, keepdim=True), "half": u.kthvalue(math.ceil(u.shape[1] / 2), 1, True).values}
        source = bench.plan.load(task.train)
        by_variance = {
            **{name: filtered_class_vectors(texts, most_certain(u, limit)) for name, limit in limits.items()},
            **{f"bprw_{shots}": reweighted(bench.features, pairs, source, task.label, shots) for shots in SHOTS},
        }
        numbers += [top1(name, images, one, labels, "csd") for name, one in by_variance.items()]
    return numbers, {}


def most_certain(u: Tensor, limit: Tensor) -> Tensor:
    """Return bool [C, K]: the prompts whose u [C, K] is at most `limit`, and the most certain prompt of each class."""
    return (u <= limit) | (u == u.amin(1, keepdim=True))


def total_variance(features: Mapping[str, Tensor]) -> Tensor:
    """Return [n]: the trace of each covariance, which ProLIP calls the uncertainty of an input."""
    return features["logvar"].exp().sum(-1)


def filtered_class_vectors(texts: Mapping[str, Tensor], mask: Tensor) -> dict[str, Tensor]:
    """Average the prompts in `mask` [C, K] as `class_vectors` does: unit mean of means, mean of variances."""
    shape = (*mask.shape, -1)
    share = mask.to(texts["embedding"].dtype)[..., None]
    share = share / share.sum(1, keepdim=True)
    means = (share * F.normalize(texts["embedding"], dim=-1).reshape(shape)).sum(1)
    variances = (share * texts["logvar"].exp().reshape(shape)).sum(1)
    return {"embedding": F.normalize(means, dim=-1), "logvar": variances.log()}


def top1(
    metric: str, images: Mapping[str, Tensor], classes: Mapping[str, Tensor], labels: Tensor, score: str
) -> Number:
    """Return the top-1 accuracy of images [n] among classes [C] by a score as a metric; labels int64 [n]."""
    return Number.mean(metric, score, classify(images, classes, labels, score).hits(1))
