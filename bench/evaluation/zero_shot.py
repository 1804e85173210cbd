"""Zero-shot classification: an image is assigned to the class whose prompts are nearest to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.evaluation.ranks import Ranks, offsets, rank, require_finite, tile_rows


def prompts(names: Sequence[str], templates: Sequence[str]) -> list[str]:
    """Return the texts [C * K] of C names in K templates, those of a class together. "{}" stands for the class name."""
    return [template.replace("{}", name) for name in names for template in templates]


def class_vectors(texts: Mapping[str, Tensor], templates: int) -> dict[str, Tensor]:
    """Average the features [C * K, D] of `prompts` to one vector for each class, [C, D].

    The mean of unit vectors, made unit again (Radford et al. 2021, 3.1.4); the variance is the mean of the prompts'
    variances, not divided by K again (ProLIP's code).

    official: github.com/naver-ai/prolip@59f6324 src/prolip/zero_shot_classifier.py
    (build_zero_shot_classifier_with_stds)
    """
    prompts_of = (len(texts["embedding"]) // templates, templates, -1)
    means = F.normalize(texts["embedding"], dim=-1).reshape(prompts_of).mean(1)
    classes = {"embedding": F.normalize(means, dim=-1)}
    if "logvar" in texts:
        classes["logvar"] = torch.logsumexp(texts["logvar"].reshape(prompts_of), 1) - math.log(templates)
    return classes


def classify(images: Mapping[str, Tensor], classes: Mapping[str, Tensor], labels: Tensor, score: str) -> Ranks:
    """Rank the true class of each image; top-k accuracy is the mean of `Ranks.hits(k)`.

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
    size = tile_rows(len(b), a.element_size())
    best = [(a[start : start + size] @ b.T + shift).argmax(1) for start in range(0, len(a), size)]
    return torch.cat(best).cpu().numpy()
