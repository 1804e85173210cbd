"""What the variances say: uncertainty by caption length, level and style, and which inputs lie within which.

Chun et al., ProLIP, ICLR 2025, Section 4.3 (Figures 6-8). Needs variances.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.data import MemoryPairs, Pairs
from bench.evaluation.bootstrap import mean_interval
from bench.evaluation.features import Features, PooledTowers, evaluation_mode
from bench.evaluation.measures import Number
from bench.evaluation.probabilistic.hierarchy import LEVELS, levels
from bench.evaluation.probabilistic.prompt_filter import Line, total_variance
from bench.towers.build import normalise
from methods.base import stream
from methods.protocol import Clock, Method, Rows, Tensors

LONGEST = 8  #: words; longer captions are counted with these
MASKED = 0.75  #: share of an input that is hidden
CELLS = 8  #: a side of the grid of cells of a masked image
MEAN_COLOUR = np.array([123, 117, 104], np.uint8)  #: CLIP's channel means: what hidden cells show


def uncertainties(features: Features, pairs: Pairs) -> list[Line]:
    """Mean sum of variances of the distinct captions by length, those of each level, and the images of each style.

    Levels and styles only where the data set has them.
    """
    captions = sorted({text for row in range(len(pairs)) for text in pairs.captions(row)})
    lengths = np.array([min(words(text), LONGEST) for text in captions])
    of_caption = _variances(features.texts(captions))
    lines = []
    for length in np.unique(lengths).tolist():
        name = f"captions of {length}{' or more' if length == LONGEST else ''} word{'s' if length > 1 else ''}"
        lines.append(_mean(name, of_caption[lengths == length]))
    if "concept" in pairs.labels:
        for level, texts in zip(LEVELS, zip(*levels(pairs), strict=True), strict=True):
            lines.append(_mean(f"level {level}", _variances(features.texts(sorted(set(texts))))))
    of_image = _variances(features.images(pairs))
    lines.append(_mean("images", of_image))
    for style in np.unique(pairs.labels["style"]).tolist() if "style" in pairs.labels else ():
        lines.append(_mean(f"images of {pairs.classes['style'][style]}", of_image[pairs.labels["style"] == style]))
    return lines


def words(text: str) -> int:
    return len(text.split())


def _variances(features: Mapping[str, Tensor]) -> np.ndarray:
    found: np.ndarray = total_variance(features).double().cpu().numpy()
    return found


def _mean(what: str, values: np.ndarray, metric: str = "variance") -> Line:
    return what, Number(metric, "", float(values.mean()), len(values), mean_interval(values))


def within(inner: Mapping[str, Tensor], outer: Mapping[str, Tensor]) -> Tensor:
    """bool [n]: H(inner in outer) > 0, summed over dimensions."""
    mean_1, logvar_1, mean_2, logvar_2 = (
        side[name].double() for side in (inner, outer) for name in ("embedding", "logvar")
    )
    return inclusion(mean_1, logvar_1, mean_2, logvar_2).sum(-1) > 0


def inclusion(mean_1: Tensor, logvar_1: Tensor, mean_2: Tensor, logvar_2: Tensor) -> Tensor:
    """H(1, 2) of each dimension, > 0 where Gaussian 1 lies within Gaussian 2 (Equations 3 and 4 at eps = 0).

    The difference of the two integrals of Equation 3, whose common factors cancel.
    """
    sum_1 = torch.logaddexp(logvar_1, logvar_2 + math.log(2))  # ln(sigma_1^2 + 2 sigma_2^2)
    sum_2 = torch.logaddexp(logvar_2, logvar_1 + math.log(2))
    nearer = (mean_1 - mean_2).square() * ((-sum_2).exp() - (-sum_1).exp())
    return logvar_2 - logvar_1 + (sum_2 - sum_1) / 2 + nearer


def inclusions(features: Features, pairs: Pairs, batch: int) -> tuple[list[Line], list[str]]:
    """Shares of H > 0 on held-out pairs, and notes on what cannot be measured.

    An image within its first caption; an input within itself with 75 % of it hidden, in two ways. On the input: cells
    of an image show the mean colour, words of its longest caption are left out, through the features any method has.
    As in training: with the masks that the method's own `encode` draws for batches of `batch` rows, where it has any.
    """
    images, longest = features.images(pairs), longest_captions(pairs)
    first = features.texts([pairs.captions(row)[0] for row in range(len(pairs))])
    several = [text for text in longest if words(text) > 1]
    fewer = [fewer_words(text, number) for number, text in enumerate(several)]
    lines = [
        _share("image within its caption", within(images, first)),
        _share("image within itself masked", within(images, features.images(masked(pairs)))),
        _share("caption within itself, fewer words", within(features.texts(several), features.texts(fewer))),
    ]
    trained = masked_in_training(features.method, features.towers, pairs, longest, batch)
    if not trained:
        return lines, [f"masked as in training: n/a, {features.method.name} encodes no masked versions"]
    return lines + [_share(f"{side} within itself masked as in training", held) for side, held in trained.items()], []


def _share(what: str, held: Tensor) -> Line:
    return _mean(what, held.double().cpu().numpy(), "share H > 0")


def longest_captions(pairs: Pairs) -> list[str]:
    """The caption of most words of each row."""
    return [max(pairs.captions(row), key=words) for row in range(len(pairs))]


def fewer_words(text: str, number: int) -> str:
    """A quarter of the words, at least one, in their order; drawn by `number`."""
    parts = text.split()
    count = max(1, round(len(parts) * (1 - MASKED)))
    kept = torch.randperm(len(parts), generator=stream(0, "masked words", number))[:count].sort().values
    return " ".join(parts[place] for place in kept.tolist())


def masked(pairs: Pairs) -> MemoryPairs:
    """The same pairs with 75 % of the cells of each image in the mean colour, others for every image."""
    rows = np.arange(len(pairs))
    pixels = pairs.images(rows)
    order = torch.rand(len(rows), CELLS * CELLS, generator=stream(0, "masked cells")).argsort(1)
    hidden = (order < round(CELLS * CELLS * MASKED)).reshape(-1, 1, CELLS, CELLS)
    places = F.interpolate(hidden.float(), size=pixels.shape[1:3], mode="nearest")[:, 0].bool().numpy()
    pixels = np.where(places[..., None], MEAN_COLOUR, pixels)
    texts = [pairs.captions(row) for row in rows.tolist()]
    return MemoryPairs.build(pairs.name, pairs.description, pairs.keys, texts, pairs.labels, pairs.classes, pixels)


def masked_in_training(
    method: Method, towers: PooledTowers, pairs: Pairs, captions: Sequence[str], batch: int
) -> dict[str, Tensor]:
    """H > 0 by side, bool [about n], with the masks of the method's `encode`; {} where it gives no masked versions.

    Only some places of a batch are masked, so the pairs pass through several times, each time moved on by one.
    """
    shift, shifts, held = 0, 1, dict[str, list[Tensor]]()
    with evaluation_mode(method, towers):
        while shift < shifts:
            for start in range(0, len(pairs), batch):
                rows = (start + shift + np.arange(batch)) % len(pairs)
                z = method.encode(towers, _rows(method, towers, pairs, rows, captions, shift))
                if "masked_image" not in z or not z["masked_image"].any():  # no masks, or none of these settings
                    return {}
                places = z["masked_image"].abs().sum(1).nonzero().flatten()
                shifts = batch // len(places)
                places = places[places < len(pairs) - start - shift]  # later ones began again at the first pair
                for side in ("image", "text"):
                    whole, part = _gaussian(z, side, places), _gaussian(z, f"masked_{side}", places)
                    held.setdefault(side, []).append(within(whole, part))
            shift += 1
    return {side: torch.cat(parts) for side, parts in held.items()}


def _rows(
    method: Method, towers: PooledTowers, pairs: Pairs, rows: np.ndarray, captions: Sequence[str], step: int
) -> Rows:
    """Pairs as a batch of training, without augmentation."""
    parameter = next(towers.visual.parameters())
    images = normalise(pairs.images(rows), parameter.device, towers.channels).to(parameter.dtype)
    texts = [captions[row] for row in rows.tolist()]
    clock = Clock(step, method.phases()[-1].name, 0.0, 0)
    ids, views = torch.from_numpy(rows).to(images.device), (images,) * method.extra_views
    return Rows(images, towers.tokenize(texts), texts, ids, range(len(rows)), clock, views)


def _gaussian(z: Tensors, side: str, places: Tensor) -> Tensors:
    return {"embedding": z[side][places], "logvar": z[f"{side}_logvar"][places]}
