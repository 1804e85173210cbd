"""Expected scores of a uniformly random guess, and of ties in random order. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import comb
from typing import TYPE_CHECKING, Any

from bench.catalogue.families.family import DatasetFacts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CAPTIONS_PER_IMAGE = 5  #: per image, in retrieval
RECALL_KS = (1, 5, 10)
TOP_KS = (1, 5)
MEMORISATION_SAMPLE = 8192  #: training pairs whose captions are ranked, at most
DISTRACTORS = 1023  #: captions of other pairs that a training pair's own caption is ranked among, at most


def top_ks(classes: int) -> tuple[int, ...]:
    """Return the k of top-k accuracies: 1, and 5 if there are more classes than that."""
    return tuple(k for k in TOP_KS if k == 1 or k < classes)


def of_ranked_classes(label: str, facts: DatasetFacts) -> Mapping[str, float]:
    """Return top-k accuracies among the classes of a label."""
    return {f"top{k}": k / facts.classes[label] for k in top_ks(facts.classes[label])}


def of_places(label: str, facts: DatasetFacts) -> Mapping[str, float]:
    """Return the mean reciprocal rank of a class at a random place, and its probability if all are equally likely."""
    classes = facts.classes[label]
    return {"mrr": sum(1 / place for place in range(1, classes + 1)) / classes, "likelihood": 1 / classes}


def of_classes(*metrics: str) -> Callable[[str, DatasetFacts], Mapping[str, float]]:
    """Return the function that gives these metrics the share of right guesses among the classes of a label."""
    return lambda label, facts: dict.fromkeys(metrics, 1 / facts.classes[label])


def of_captions(_label: str, facts: DatasetFacts) -> Mapping[str, float]:
    """Return recalls both ways if every image has `CAPTIONS_PER_IMAGE` captions; {} for puzzles and unknown counts."""
    if not facts.images or facts.metric not in ("", "mean_r1"):
        return {}
    texts = facts.images * CAPTIONS_PER_IMAGE
    recalls = {f"i2t_r{k}": 1 - comb(texts - CAPTIONS_PER_IMAGE, k) / comb(texts, min(k, texts)) for k in RECALL_KS}
    return with_means(recalls | {f"t2i_r{k}": min(1.0, k / facts.images) for k in RECALL_KS})


def of_distractors(_label: str, facts: DatasetFacts) -> Mapping[str, float]:
    """Return the shares of captions ranked before all distractors and of true ones before given ones, and the AUROC."""
    first = 1 / (min(DISTRACTORS, facts.images - 1) + 1) if facts.images else 0.0
    return {"memorised": first, "learned": first, "corrected": 0.5, "auroc": 0.5} if first else {}


def of_two_kinds(_label: str, _facts: DatasetFacts) -> Mapping[str, float]:
    """Return the AUROC alone: average precision is the share of corrupted pairs, which differs from run to run."""
    return {"auroc": 0.5}


def with_means(recalls: Mapping[str, Any]) -> dict[str, Any]:
    """Return the six recalls (numbers or arrays), their mean, the mean of the two R@1, and the six's sum (rSum)."""
    total = sum(recalls.values())
    return {
        **recalls,
        "mean_recall": total / len(recalls),
        "mean_r1": (recalls["i2t_r1"] + recalls["t2i_r1"]) / 2,
        "rsum": total,
    }


def hit_probability(better: np.ndarray, tied_wrong: np.ndarray, tied_right: np.ndarray, k: int) -> NDArray[np.float64]:
    """Return float64 [n]: the probability that a right answer is among the first k (0 or 1 without ties).

    Of each query: candidates better than its best right answer, wrong ones as good as it, right ones as good as it (at
    least 1). 1 - C(wrong, p) / C(wrong + right, p) for the p = k - better places that are left for tied candidates.
    """
    import numpy as np

    missed = np.ones(len(better))
    tied = tied_wrong + tied_right
    for draw in range(k):
        wrong_left, left = np.maximum(tied_wrong - draw, 0), np.maximum(tied - draw, 1)
        missed = np.where(better + draw < k, missed * (wrong_left / left), missed)
    return 1.0 - missed
