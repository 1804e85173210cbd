"""Zero-shot classification: an image is assigned to the class whose prompts are nearest to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.arrays import Floats
from bench.evaluation.ranks import AnswerRanks, offsets, rank, require_finite, tile_rows
from methods.base import spans

MAX_SHARPNESS = 1e6  #: the largest inverse temperature that is tried; cosines that differ by 1e-5 are then told apart
_HALVINGS = 60  #: of the interval of the logarithm, to 1e-16 of its length


def class_prompts(names: Sequence[str], templates: Sequence[str]) -> list[str]:
    """Return the texts [C * K] of C names in K templates, those of a class together. "{}" stands for the class name."""
    return [template.replace("{}", name) for name in names for template in templates]


def class_vectors(texts: Mapping[str, Tensor], templates: int) -> dict[str, Tensor]:
    """Average the features [C * K, D] of `class_prompts` to one vector for each class, [C, D].

    The L2-normalised mean of L2-normalised vectors (Radford et al. 2021, 3.1.4); the variance is the mean of the
    prompts' variances, not divided by K again (ProLIP's code).

    official: github.com/naver-ai/prolip@59f6324 src/prolip/zero_shot_classifier.py
    (build_zero_shot_classifier_with_stds)
    """
    prompts_of = (len(texts["embedding"]) // templates, templates, -1)
    means = F.normalize(texts["embedding"], dim=-1).reshape(prompts_of).mean(1)
    classes = {"embedding": F.normalize(means, dim=-1)}
    if "logvar" in texts:
        classes["logvar"] = torch.logsumexp(texts["logvar"].reshape(prompts_of), 1) - math.log(templates)
    return classes


def classify(images: Mapping[str, Tensor], classes: Mapping[str, Tensor], labels: Tensor, score: str) -> AnswerRanks:
    """Rank the true class of each image; top-k accuracy is the mean of `AnswerRanks.hits(k)`.

    images [n], classes [C] features; labels [n] int64 in 0..C-1. Raises ValueError and FloatingPointError as `rank`
    does.
    """
    return rank(images, classes, labels[:, None], score)


@torch.inference_mode()
def predictions(images: Mapping[str, Tensor], classes: Mapping[str, Tensor], score: str) -> np.ndarray:
    """Return int64 [n]: the class with the highest score for each image.

    Raises FloatingPointError if features are not finite.
    """
    a, b = images["embedding"], classes["embedding"]
    shift = offsets(classes, score)
    require_finite(a, b, shift)
    tiles = spans(len(a), tile_rows(len(b), a.element_size()))
    return torch.cat([(a[rows] @ b.T + shift).argmax(1) for rows in tiles]).cpu().numpy()


def inverse_temperature(
    images: Mapping[str, Tensor], labels: Tensor, classes: Mapping[str, Tensor], score: str
) -> float:
    """Return the b with which softmax(b * scores) makes the labels [n] most probable, from 1/s to s = `MAX_SHARPNESS`.

    The log-likelihood is concave in b, so the sign of its slope halves the interval of log b. Guo et al. (ICML 2017)
    call it temperature scaling. Raises FloatingPointError if features are not finite.
    """
    require_finite(images["embedding"], classes["embedding"], offsets(classes, score))
    low, high = -np.log(MAX_SHARPNESS), np.log(MAX_SHARPNESS)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        slope = _likelihoods(images, labels, classes, score, float(np.exp(middle)))[1].sum()
        low, high = (middle, high) if slope > 0 else (low, middle)
    return float(np.exp((low + high) / 2))


def log_likelihoods(
    images: Mapping[str, Tensor], labels: Tensor, classes: Mapping[str, Tensor], score: str, sharpness: float
) -> Floats:
    """Return [n]: the logarithm of the probability that softmax(sharpness * scores) gives the right class."""
    return _likelihoods(images, labels, classes, score, sharpness)[0]


@torch.inference_mode()
def _likelihoods(
    images: Mapping[str, Tensor], labels: Tensor, classes: Mapping[str, Tensor], score: str, sharpness: float
) -> tuple[Floats, Floats]:
    """Return log-probabilities [n] of the right classes, and their slopes [n] in the sharpness, in double precision."""
    a, b = images["embedding"], classes["embedding"]
    shift, labels = offsets(classes, score), labels.to(a.device)
    parts = []
    for rows in spans(len(a), tile_rows(len(b), 8)):
        scores = (a[rows] @ b.T + shift).double()
        right = scores.gather(1, labels[rows, None]).squeeze(1)
        logs = torch.log_softmax(sharpness * scores, 1)
        slope = right - (logs.exp() * scores).sum(1)
        parts.append(torch.stack((logs.gather(1, labels[rows, None]).squeeze(1), slope)))
    log, slope = torch.cat(parts, 1).cpu().numpy()
    return log, slope
