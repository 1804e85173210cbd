"""Uncertainty by caption length, level and style, and inclusion of inputs in each other, from variances.

Chun et al., ProLIP, ICLR 2025, Section 4.3 (Figures 6-8). Needs variances.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.arrays import Pixels
from bench.data import MemoryPairs, Pairs
from bench.evaluation.bootstrap import mean_interval
from bench.evaluation.features import Features, PooledTowers, evaluation_mode
from bench.evaluation.measures import Number
from bench.evaluation.probabilistic.hierarchy import level_names, levels
from bench.evaluation.probabilistic.prompt_filter import Line, total_variance
from bench.towers.build import normalise
from methods.base import stream
from methods.protocol import Clock, Method, Rows, Tensors

LONGEST = 8  #: words; longer captions are counted with these
MASKED = 0.75  #: share of an input that is hidden
CELLS = 8  #: a masked image has CELLS x CELLS cells
MEAN_COLOUR = np.array([123, 117, 104], np.uint8)  #: CLIP's channel means, the colour of hidden cells


def uncertainties(features: Features, pairs: Pairs) -> list[Line]:
    """Measure mean sums of variances: of distinct captions by length, of captions by level, of images by style.

    Levels and styles are left out if the data set does not have them. With levels it also measures in which share of
    the rows a more special caption is surer, by `surer`.
    """
    captions = sorted({text for row in range(len(pairs)) for text in pairs.captions(row)})
    lengths = np.array([min(words(text), LONGEST) for text in captions])
    of_caption = _variances(features.texts(captions))
    lines = []
    for length in np.unique(lengths).tolist():
        name = f"captions of {length}{' or more' if length == LONGEST else ''} word{'s' if length > 1 else ''}"
        lines.append(mean_line(name, of_caption[lengths == length]))
    known = of_levels(features, pairs)
    lines += [mean_line(f"level {name}", one.distinct) for name, one in known.items()]
    lines += [mean_line(name, values, "share surer") for name, values in surer(known).items()]
    of_image = _variances(features.images(pairs))
    lines.append(mean_line("images", of_image))
    for style in np.unique(pairs.labels["style"]).tolist() if "style" in pairs.labels else ():
        lines.append(mean_line(f"images of {pairs.classes['style'][style]}", of_image[pairs.labels["style"] == style]))
    return lines


@dataclass(frozen=True)
class Level:
    """The captions of one level of a hierarchy, with their sums of variances."""

    texts: tuple[str, ...]  #: [n], of each row
    variances: np.ndarray  #: [n]

    @property
    def distinct(self) -> np.ndarray:
        """The variances of each text once, by the text."""
        return self.variances[np.unique(self.texts, return_index=True)[1]]


def of_levels(features: Features, pairs: Pairs) -> dict[str, Level]:
    """Return the captions of each level by its name, from general to special; {} for data without levels."""
    names = level_names(pairs)
    texts = zip(*levels(pairs), strict=True) if names else ()
    return {
        name: Level(of_rows, _variances(features.texts(of_rows))) for name, of_rows in zip(names, texts, strict=True)
    }


def differences(general: Level, special: Level) -> np.ndarray:
    """Return by how much the variance of the general caption is larger, for rows whose two captions differ."""
    differ = np.array([one != other for one, other in zip(general.texts, special.texts, strict=True)], bool)
    values: np.ndarray = (general.variances - special.variances)[differ]
    return values


def surer(known: Mapping[str, Level]) -> dict[str, np.ndarray]:
    """Return for each two levels, and for all that are adjacent, whether the special caption has less variance.

    Chun et al., ProLIP, Section C.6: the share of ones over adjacent levels is Equation C.1.
    """
    of_pair = {
        (general, special): (differences(known[general], known[special]) > 0).astype(np.float64)
        for general, special in combinations(known, 2)
    }
    shares = {f"level {special} against {general}": values for (general, special), values in of_pair.items()}
    adjacent = [of_pair[one] for one in pairwise(known)]
    return shares | ({"adjacent levels": np.concatenate(adjacent)} if adjacent else {})


def words(text: str) -> int:
    """Return the number of words."""
    return len(text.split())


def _variances(features: Mapping[str, Tensor]) -> np.ndarray:
    variances: np.ndarray = total_variance(features).double().cpu().numpy()
    return variances


def mean_line(name: str, values: np.ndarray, metric: str = "variance") -> Line:
    """Return the mean of values [n] with its interval, as a line of a table."""
    return name, Number(metric, "", float(values.mean()), len(values), mean_interval(values))


def within(inner: Mapping[str, Tensor], outer: Mapping[str, Tensor]) -> Tensor:
    """Return bool [n]: whether H(inner in outer), summed over dimensions, is > 0."""
    mean_1, logvar_1, mean_2, logvar_2 = (
        side[name].double() for side in (inner, outer) for name in ("embedding", "logvar")
    )
    return inclusion(mean_1, logvar_1, mean_2, logvar_2).sum(-1) > 0


def inclusion(mean_1: Tensor, logvar_1: Tensor, mean_2: Tensor, logvar_2: Tensor) -> Tensor:
    """Return H(1, 2) of each dimension; it is > 0 if Gaussian 1 lies within Gaussian 2 (Equations 3 and 4 at eps = 0).

    It is the difference of the two integrals of Equation 3; their common factors cancel.
    """
    sum_1 = torch.logaddexp(logvar_1, logvar_2 + math.log(2))  # ln(sigma_1^2 + 2 sigma_2^2)
    sum_2 = torch.logaddexp(logvar_2, logvar_1 + math.log(2))
    nearer = (mean_1 - mean_2).square() * ((-sum_2).exp() - (-sum_1).exp())
    return logvar_2 - logvar_1 + (sum_2 - sum_1) / 2 + nearer


def inclusions(features: Features, pairs: Pairs, batch: int) -> tuple[list[Line], list[str]]:
    """Measure shares of H > 0 on held-out pairs; also return notes on measures that the method does not allow.

    The measures are an image within its first caption, and an input within itself with 75 % of it hidden, in two ways.
    For any method the input is masked: cells of an image show the mean colour, words of the longest caption are left
    out. If the method masks in training, its own `encode` draws the masks, for batches of `batch` rows.
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
    return lines + [
        _share(f"{side} within itself masked as in training", included) for side, included in trained.items()
    ], []


def _share(name: str, included: Tensor) -> Line:
    return mean_line(name, included.double().cpu().numpy(), "share H > 0")


def longest_captions(pairs: Pairs) -> list[str]:
    """Return the caption with the most words of each row."""
    return [max(pairs.captions(row), key=words) for row in range(len(pairs))]


def fewer_words(text: str, number: int) -> str:
    """Draw a quarter of the words, at least one, and keep their order; equal `number`s give equal draws."""
    parts = text.split()
    count = max(1, round(len(parts) * (1 - MASKED)))
    chosen = torch.randperm(len(parts), generator=stream(0, "masked words", number))[:count].sort().values
    return " ".join(parts[place] for place in chosen.tolist())


def masked(pairs: Pairs) -> MemoryPairs:
    """Return the same pairs with 75 % of each image's cells, drawn for each image, in the mean colour."""
    rows = np.arange(len(pairs))
    pixels = pairs.images(rows)
    order = torch.rand(len(rows), CELLS * CELLS, generator=stream(0, "masked cells")).argsort(1)
    hidden = (order < round(CELLS * CELLS * MASKED)).reshape(-1, 1, CELLS, CELLS)
    places = F.interpolate(hidden.float(), size=pixels.shape[1:3], mode="nearest")[:, 0].bool().numpy()
    pixels = np.where(places[..., None], MEAN_COLOUR, pixels)
    return with_pixels(pairs, pixels)


def with_pixels(pairs: Pairs, pixels: Pixels) -> MemoryPairs:
    """Return the same pairs with other images, uint8 [n, H, W, 3]."""
    texts = [pairs.captions(row) for row in range(len(pairs))]
    return MemoryPairs.build(pairs.name, pairs.description, pairs.keys, texts, pairs.labels, pairs.classes, pixels)


def masked_in_training(
    method: Method, towers: PooledTowers, pairs: Pairs, captions: Sequence[str], batch: int
) -> dict[str, Tensor]:
    """Return whether H > 0 by side, bool [about n], with masks of the method's `encode`; {} if it does not mask.

    Only some rows of a batch are masked, so the pairs are encoded several times, each time shifted by one row.
    """
    shift, shifts, included = 0, 1, dict[str, list[Tensor]]()
    with evaluation_mode(method, towers):
        while shift < shifts:
            for start in range(0, len(pairs), batch):
                rows = (start + shift + np.arange(batch)) % len(pairs)
                z = method.encode(towers, _rows(method, towers, pairs, rows, captions, shift))
                if "masked_image" not in z or not z["masked_image"].any():  # no masks, or none of these settings
                    return {}
                places = z["masked_image"].abs().sum(1).nonzero().flatten()
                shifts = batch // len(places)
                places = places[places < len(pairs) - start - shift]  # later rows repeat the first pairs
                for side in ("image", "text"):
                    whole, part = _gaussian(z, side, places), _gaussian(z, f"masked_{side}", places)
                    included.setdefault(side, []).append(within(whole, part))
            shift += 1
    return {side: torch.cat(parts) for side, parts in included.items()}


def _rows(
    method: Method, towers: PooledTowers, pairs: Pairs, rows: np.ndarray, captions: Sequence[str], step: int
) -> Rows:
    """Return `rows` [b] as a training batch, without augmentation."""
    parameter = next(towers.visual.parameters())
    images = normalise(pairs.images(rows), parameter.device, towers.channels).to(parameter.dtype)
    texts = [captions[row] for row in rows.tolist()]
    clock = Clock(step, method.phases()[-1].name, 0.0, 0)
    ids, views = torch.from_numpy(rows).to(images.device), (images,) * method.extra_views
    return Rows(images, towers.tokenize(texts), texts, ids, range(len(rows)), clock, views)


def _gaussian(z: Tensors, side: str, places: Tensor) -> Tensors:
    return {"embedding": z[side][places], "logvar": z[f"{side}_logvar"][places]}
