"""Image-text retrieval with any number of captions per image: recall at 1, 5 and 10 in both directions.

An image counts if any of its captions is among the first k (Karpathy & Fei-Fei, CVPR 2015; clip-benchmark's rule).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bench.catalogue.families.random_guess import RECALL_KS, with_means
from bench.evaluation.ranks import AnswerRanks, offsets, rank, require_finite, tile_rows
from methods.base import spans

_BAND = 1e-5  # scores that differ by less may be equal; far above the rounding error of a dot product


@dataclass(frozen=True)
class Retrieval:
    """Ranks of both directions; `owner` [texts] is the image of each text.

    `i2t.better` is exact up to the largest recall; beyond it near ties may be counted wrongly and ties are not counted.
    """

    i2t: AnswerRanks  #: an entry for each image
    t2i: AnswerRanks  #: an entry for each text
    owner: np.ndarray

    def hits(self) -> dict[str, np.ndarray]:
        """Return the probability of a hit per example: "i2t_r1" -> [images], ..., "t2i_r10" -> [texts]."""
        sides = (("i2t", self.i2t), ("t2i", self.t2i))
        return {f"{name}_r{k}": side.hits(k) for name, side in sides for k in RECALL_KS}

    def metrics(self) -> dict[str, float]:
        """Return the six recalls, their mean, the mean of the two R@1 (all in [0, 1]) and the six's sum, in [0, 6]."""
        return with_means({name: float(hits.mean()) for name, hits in self.hits().items()})

    def outcomes(self) -> dict[str, np.ndarray]:
        """Return the arrays that are stored per example."""
        return {**self.i2t.outcomes("i2t_"), **self.t2i.outcomes("t2i_"), "owner": self.owner.astype(np.int32)}


def retrieve_within(
    folds: int, images: Mapping[str, Tensor], texts: Mapping[str, Tensor], owner: np.ndarray, score: str = "cosine"
) -> Retrieval:
    """Rank as `retrieve` does, within each of `folds` parts of consecutive images and their texts.

    Recalls are then the means over all images and texts: those of equal folds, averaged. owner: rising.
    """
    if folds == 1:
        return retrieve(images, texts, owner, score)
    n, found = len(images["embedding"]), []
    for part in np.array_split(np.arange(n), folds):
        start, stop = np.searchsorted(owner, (part[0], part[-1] + 1)).tolist()
        of_part = {name: x[part[0] : part[-1] + 1] for name, x in images.items()}
        texts_of_part = {name: x[start:stop] for name, x in texts.items()}
        found.append(retrieve(of_part, texts_of_part, owner[start:stop] - part[0], score))
    i2t, t2i = AnswerRanks.joined([one.i2t for one in found]), AnswerRanks.joined([one.t2i for one in found])
    return Retrieval(i2t, t2i, owner)


def retrieve(
    images: Mapping[str, Tensor], texts: Mapping[str, Tensor], owner: Sequence[int] | np.ndarray, score: str = "cosine"
) -> Retrieval:
    """Rank images [n] and texts [m] against each other.

    owner [m]: the image of each text, in any order; every image has at least one text. Raises ValueError if owners do
    not fit, and FloatingPointError if features are not finite.

    One matrix product serves both directions. Texts are processed in tiles of rows, and a text's own image is in its
    row, so text to image is exact. An image's captions may lie in other tiles, so its best own score is computed
    beforehand, which rounds differently. The few images with a wrong text within a narrow band of that score are
    ranked again by themselves.
    """
    of_text = torch.as_tensor(np.asarray(owner, dtype=np.int64))
    n = len(images["embedding"])
    captions = _captions(of_text, n, len(texts["embedding"]))
    t2i, above, within = _one_pass(images, texts, of_text.to(images["embedding"].device), score)
    again = torch.nonzero((above < max(RECALL_KS)) & (within > above)).flatten()
    better, tied_wrong = above.cpu().numpy(), np.zeros(n, dtype=np.int64)
    tied_right = np.ones(n, dtype=np.int64)
    if len(again):
        exact = rank({name: values[again] for name, values in images.items()}, texts, captions[again.cpu()], score)
        rows = again.cpu().numpy()
        better[rows], tied_wrong[rows], tied_right[rows] = exact.better, exact.tied_wrong, exact.tied_right
    return Retrieval(AnswerRanks(better, tied_wrong, tied_right), t2i, of_text.numpy())


def _captions(of_text: Tensor, n: int, m: int) -> Tensor:
    """Return the texts of each image, int64 [n, c], padded with -1."""
    if len(of_text) != m or not n or not m or set(of_text.tolist()) != set(range(n)):
        raise ValueError(f"{len(of_text)} owners do not give {n} images and {m} texts to each other")
    per_image = torch.bincount(of_text, minlength=n)
    by_image = torch.argsort(of_text, stable=True)
    place = torch.arange(m) - (torch.cumsum(per_image, 0) - per_image)[of_text[by_image]]
    captions = torch.full((n, int(per_image.max())), -1, dtype=torch.int64)
    captions[of_text[by_image], place] = by_image
    return captions


@torch.inference_mode()
def _one_pass(
    images: Mapping[str, Tensor], texts: Mapping[str, Tensor], of_text: Tensor, score: str
) -> tuple[AnswerRanks, Tensor, Tensor]:
    """Return text-to-image ranks and, for each image, its wrong texts above the band, and within or above it."""
    a, b = texts["embedding"], images["embedding"]
    shift_a, shift_b = offsets(texts, score), offsets(images, score)
    require_finite(a, b, shift_a, shift_b)
    size = min(tile_rows(len(b), a.element_size()), len(a))
    tiles = spans(len(a), size)
    own = torch.cat([torch.linalg.vecdot(a[rows], b[of_text[rows]]) for rows in tiles]) + shift_a + shift_b[of_text]
    best = own.new_full((len(b),), -torch.inf).scatter_reduce(0, of_text, own, "amax")
    band = _BAND * max(1.0, float(own.abs().max()))
    above, within = torch.zeros(2, len(b), dtype=torch.int64, device=a.device)
    counts = torch.empty(2, len(a), dtype=torch.int64, device=a.device)
    scores, flags = a.new_empty(size, len(b)), a.new_empty(size, len(b))  # counting floats is faster than booleans
    for rows in tiles:
        tile, flag = scores[: rows.stop - rows.start], flags[: rows.stop - rows.start]
        torch.mm(a[rows], b.T, out=tile)
        if score != "cosine":
            tile.add_(shift_a[rows, None]).add_(shift_b)
        right = of_text[rows, None]
        mine = tile.gather(1, right)
        counts[0, rows] = torch.gt(tile, mine, out=flag).sum(1).long()
        counts[1, rows] = torch.ge(tile, mine, out=flag).sum(1).long()
        tile.scatter_(1, right, -torch.inf)
        above += torch.gt(tile, best + band, out=flag).sum(0).long()
        within += torch.ge(tile, best - band, out=flag).sum(0).long()
    better, at_least = counts.cpu().numpy()
    return AnswerRanks(better, at_least - better - 1, np.ones_like(better)), above, within
