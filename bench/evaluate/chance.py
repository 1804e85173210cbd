"""What a uniformly random guess scores. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import comb
from typing import Any

from bench.data import Pairs

CAPTIONS = 5  #: per image, in retrieval
RECALLS = (1, 5, 10)
TOPS = (1, 5)


@dataclass(frozen=True)
class Facts:
    """What is known of a data set without its images."""

    description: str
    images: int
    classes: Mapping[str, int] = field(default_factory=dict)  #: label -> number of classes
    metric: str = ""  #: its main one, of the catalogue's


def tops(classes: int) -> tuple[int, ...]:
    """The k of top-k accuracies: 1, and 5 where there are more classes than that."""
    return tuple(k for k in TOPS if k == 1 or k < classes)


def facts_of(pairs: Pairs) -> Facts:
    """Of data that is there."""
    return Facts(pairs.description, len(pairs), {label: len(names) for label, names in pairs.classes.items()})


def chance(family: str, label: str, facts: Facts, *, main: bool = False) -> dict[str, float]:
    """Metric -> expected score of a random guess, for those where the counts of classes and images tell it.

    `main`: also of the data set's main metric, and under the name "main".
    """
    if label and label not in facts.classes:
        return {}  # of a data set of the user's own that is not there
    if family.endswith("probe"):
        return {"accuracy": 1 / facts.classes[label]}
    if family in ("retrieval", "validation"):
        found = _retrieval(facts.images) if facts.images and facts.metric in ("", "mean_r1") else {}
    elif family in ("zero_shot", "shift"):
        found = {f"top{k}": k / facts.classes[label] for k in tops(facts.classes[label])}
        if main and facts.metric == "mean_per_class_recall":
            found[facts.metric] = found["top1"]
    else:
        found = {"auroc": 0.5}  # average precision: the share of corrupted pairs, which differs from run to run
    return {**found, "main": found[facts.metric]} if main and facts.metric in found else found


def _retrieval(images: int) -> dict[str, float]:
    texts = images * CAPTIONS
    recalls = {f"i2t_r{k}": 1 - comb(texts - CAPTIONS, k) / comb(texts, k) for k in RECALLS}
    recalls |= {f"t2i_r{k}": min(1.0, k / images) for k in RECALLS}
    return with_means(recalls)


def with_means(recalls: Mapping[str, Any]) -> dict[str, Any]:
    """The six recalls (numbers or arrays), their mean as papers print it, and the mean of the two R@1."""
    return {
        **recalls,
        "mean_recall": sum(recalls.values()) / len(recalls),
        "mean_r1": (recalls["i2t_r1"] + recalls["t2i_r1"]) / 2,
    }
