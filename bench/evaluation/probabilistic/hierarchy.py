"""HierarCaps' traversal, for any method: does the path from an image to a root meet its captions of all levels?

Alper & Averbuch-Elor, "Emergent visual-semantic hierarchies in image-text representations", ECCV 2024; ProLIP's root:
Chun et al., ICLR 2025, Section 4.4. Captions are found by dot product as in the code below; ProLIP's paper says by CSD.

official: github.com/naver-ai/prolip@59f6324 src/analysis/eval_hcaps.py
official: github.com/TAU-VAILab/hierarcaps@ba22b89
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.data import Pairs
from bench.data.evaluation import EvaluationPairs
from bench.errors import UserError
from bench.evaluation.measures import Measured, MeasureInputs, Number
from bench.evaluation.tasks import Task
from methods.base import spans

STEPS = 50
_ROWS = 16  #: images that are traversed at a time


def levels(pairs: Pairs) -> list[tuple[str, ...]]:
    """Return four captions of each row, from general to special.

    They are those of HierarCaps, or an emoji's group, subgroup, name, and name with tags: the longest caption that
    begins with the name. A name can equal its heading ("sleepy face"). Raises UserError for other data sets.
    """
    if isinstance(pairs, EvaluationPairs) and pairs.source.found.entry.kind == "hierarchy":
        return [pairs.captions(row) for row in range(len(pairs))]
    if isinstance(pairs, EvaluationPairs) or not {"group", "subgroup", "concept"} <= pairs.labels.keys():
        fix = "the emoji sets and hierarcaps have one"
        raise UserError(f"data set {pairs.name}: no hierarchy of captions is known; {fix}")
    captions: list[tuple[str, ...]] = []
    for row in range(len(pairs)):
        group, subgroup, name = (pairs.classes[of][pairs.labels[of][row]] for of in ("group", "subgroup", "concept"))
        tagged = [text for text in pairs.captions(row) if text.startswith(f"{name}, ")]
        captions.append((group, subgroup, name, max(tagged, key=len, default=name)))
    return captions


def traverse(images: Tensor, texts: Tensor, own: Tensor, roots: Tensor, steps: int = STEPS) -> dict[str, Tensor]:
    """Walk from each image's nearest caption towards its root; at each step the nearest caption is met.

    images [n, D], texts [m, D] distinct captions, own bool [n, m], roots [n, D], all unit. The steps are
    k / `steps` of the way, k = 0..steps-1: the root itself is never reached. Returns [n] in [0, 1] each: "precision",
    the share of the met captions that are the image's own; "recall", the share of its own that are met; "any", whether
    at least one is; "r1_root", whether the caption nearest to the root is its own.
    """
    met = torch.zeros_like(own)
    for rows in spans(len(images), _ROWS):
        met[rows] = met[rows].scatter(1, nearest_along(images[rows], texts, roots[rows], steps), True)
    right = (met & own).sum(1).double()
    of_root = own.gather(1, (roots @ texts.T).argmax(1, keepdim=True)).squeeze(1).double()
    return {
        "precision": right / met.sum(1),
        "recall": right / own.sum(1),
        "any": (right > 0).double(),
        "r1_root": of_root,
    }


def nearest_along(images: Tensor, texts: Tensor, roots: Tensor, steps: int) -> Tensor:
    """Return int64 [n, steps]: the text nearest to each point of the way from an image's nearest text to its root."""
    share = torch.arange(steps, dtype=images.dtype, device=images.device)[:, None] / steps
    start = texts[(images @ texts.T).argmax(1)][:, None]
    path = F.normalize(start - share * (start - roots[:, None]), dim=-1)
    return (path @ texts.T).argmax(-1)


def log_overlap(mean_1: Tensor, logvar_1: Tensor, mean_2: Tensor, logvar_2: Tensor) -> Tensor:
    """Return I(1, 2) of each dimension: ln of the integral of p_1^2 p_2 up to a constant (ProLIP, Equation 3), stable.

    The normaliser -2 ln s_1^2 - ln s_2^2 is the code's, twice the integral's.
    """
    narrow = torch.logaddexp(-logvar_1, -logvar_2 - math.log(2))
    pull = (mean_1 - mean_2).square() / (logvar_1.exp() + 2 * logvar_2.exp())
    return -2 * logvar_1 - logvar_2 - narrow / 2 - pull


def most_inclusive(images: Mapping[str, Tensor], texts: Mapping[str, Tensor]) -> Tensor:
    """Return int64 [n]: for each image the text with the largest sum of I(image, text) over dimensions."""
    means, logvar = images["embedding"].double(), images["logvar"].double()
    outer = texts["embedding"].double(), texts["logvar"].double()
    return torch.stack([log_overlap(*inner, *outer).sum(-1).argmax() for inner in zip(means, logvar, strict=True)])


def roots(images: Mapping[str, Tensor], texts: Mapping[str, Tensor], empty: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return roots [n, D] by name: the empty text and, with variances, its unit mean with the most inclusive text."""
    by_name = {"empty text": empty["embedding"].expand(len(images["embedding"]), -1)}
    if "logvar" in images and "logvar" in texts:
        chosen = texts["embedding"][most_inclusive(images, texts)]
        by_name["empty and most inclusive text"] = F.normalize(chosen + empty["embedding"], dim=-1)
    return by_name


def along_hierarchy(task: Task, bench: MeasureInputs) -> Measured:
    """Measure precision, recall, any and R@1 of the root over all distinct captions of the set.

    The path to the empty text counts under the score "cosine", the one to ProLIP's root, which needs variances, under
    "csd". `r1_root` counts a hit as 1; counted like recall, over all four levels, a hit would be a quarter. Raises
    UserError if the data set has no hierarchy.
    """
    pairs = bench.plan.load(task.dataset)
    captions = levels(pairs)
    pool = sorted({text for texts in captions for text in texts})
    images, texts, empty = bench.features.images(pairs), bench.features.texts(pool), bench.features.texts([""])
    own = caption_owners(captions, pool).to(images["embedding"].device)
    numbers = []
    for score, root in zip(("cosine", "csd"), roots(images, texts, empty).values(), strict=False):
        for name, values in traverse(images["embedding"], texts["embedding"], own, root).items():
            numbers.append(Number.mean(name, score, values.cpu().numpy()))
    return numbers, {}


def caption_owners(captions: Sequence[Sequence[str]], pool: Sequence[str]) -> Tensor:
    """Return bool [n, m]: whether each text of the pool is a caption of each image."""
    place = {text: column for column, text in enumerate(pool)}
    own = torch.zeros(len(captions), len(pool), dtype=torch.bool)
    for row, texts in enumerate(captions):
        own[row, [place[text] for text in texts]] = True
    return own
