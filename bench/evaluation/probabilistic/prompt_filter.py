"""Zero-shot classification with the uncertain prompts of each class left out (Chun et al., ProLIP, ICLR 2025, 3.4).

Needs variances. The rules are those of the code below; the paper's Table 3 names two of them.

official: github.com/naver-ai/prolip@59f6324 src/analysis/unc_zeroshot_prompts.py
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.data import Pairs, templates
from bench.evaluation.bootstrap import mean_interval
from bench.evaluation.features import Features
from bench.evaluation.measures import Number
from bench.evaluation.ranks import SCORES
from bench.evaluation.zero_shot import class_vectors, classify, prompts

Line = tuple[str, Number]  #: a description, and the measured number


@dataclass(frozen=True)
class Filter:
    """A rule that keeps some prompts, by u = sum of a prompt's variances.

    by_ranking: the `value` lowest of each class, and ties. std_per_class: u <= mean + value * std of the class
    (unbiased). std_all: u <= the value-th smallest of all classes' prompts. abs: u <= value.
    """

    strategy: Literal["by_ranking", "std_per_class", "std_all", "abs"]
    value: float

    def __str__(self) -> str:
        return f"{self.strategy}={self.value:g}"

    def kept(self, u: Tensor) -> Tensor:
        """Return bool [C, K]: the prompts that stay, from u [C, K]. Each class keeps its most certain prompt."""
        if self.strategy == "by_ranking":
            limit = u.kthvalue(int(self.value), dim=1, keepdim=True).values
        elif self.strategy == "std_per_class":
            limit = u.mean(1, keepdim=True) + self.value * u.std(1, keepdim=True)
        elif self.strategy == "std_all":
            limit = u.flatten().kthvalue(int(self.value)).values
        else:
            limit = u.new_tensor(self.value)
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


def default_filters(u: Tensor) -> tuple[Filter, ...]:
    """Return the filters that are tried by default.

    For each class they keep its most certain prompt, its more certain half, and prompts up to its mean; over all
    classes the more certain half, and prompts up to the mean.
    """
    half = math.ceil(u.shape[1] / 2)
    return (
        *(Filter("by_ranking", keep) for keep in dict.fromkeys((1, half))),
        Filter("std_per_class", 0.0),
        Filter("std_all", math.ceil(u.numel() / 2)),
        Filter("abs", float(u.mean())),
    )


def prompt_filtering(features: Features, pairs: Pairs, label: str) -> list[Line]:
    """Measure top-1 accuracy with all prompts and with each default filter, and the share of prompts that it keeps."""
    images, own = features.images(pairs), templates(pairs)
    texts = features.texts(prompts(pairs.classes[label], own))
    labels = torch.from_numpy(pairs.labels[label])
    lines = list(top1("all prompts", images, class_vectors(texts, len(own)), labels))
    u = total_variance(texts).reshape(-1, len(own))
    for one in default_filters(u):
        mask = one.kept(u)
        share = mask.double().mean(1).cpu().numpy()
        lines.append((str(one), Number("kept", "", float(share.mean()), len(share), mean_interval(share))))
        lines += top1(str(one), images, filtered_class_vectors(texts, mask), labels)
    return lines


def top1(
    name: str,
    images: Mapping[str, Tensor],
    classes: Mapping[str, Tensor],
    labels: Tensor,
    scores: Sequence[str] = SCORES,
) -> Iterator[Line]:
    """Yield the top-1 accuracy of images [n] among classes [C] by each score, under `name`; labels int64 [n]."""
    for score in scores:
        hits: np.ndarray = classify(images, classes, labels, score).hits(1)
        yield name, Number("top1", score, float(hits.mean()), len(hits), mean_interval(hits))
