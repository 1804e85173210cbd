"""Ranks of the right answers among all candidates, counted in tiles: the matrix of all scores is never in memory.

**Ties.** Candidates with exactly the score of the best right answer are counted separately, and a hit is the
probability of a hit if tied candidates are ordered at random. So a collapsed model, which gives every pair the same
score, scores chance. Counting only strictly better candidates would call it perfect, and a sort would be arbitrary.
Right and wrong candidates are compared within one matrix product, so that equal features give equal scores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bench.arrays import Floats
from bench.catalogue.families.random_guess import hit_probability
from methods.base import spans

SCORES = ("cosine", "csd")
_SUMMED = 1 << 10  #: rows
TILE_BYTES = 10 << 20  #: of one tile of scores; measured best of 1 to 40 MB at 5,000 candidates of width 512


@dataclass(frozen=True)
class AnswerRanks:
    """For each query, the number of candidates better than its best right answer, and of those equally good."""

    better: np.ndarray  #: int64 [n]
    tied_wrong: np.ndarray  #: int64 [n]
    tied_right: np.ndarray  #: int64 [n], at least 1: the best right answer itself

    @classmethod
    def joined(cls, parts: Sequence[AnswerRanks]) -> AnswerRanks:
        """Return the ranks of the queries of all parts, in their order."""
        fields = ("better", "tied_wrong", "tied_right")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in fields))

    def hits(self, k: int) -> np.ndarray:
        """Return float64 [n]: the probability that a right answer is among the first k (0 or 1 without ties)."""
        return hit_probability(self.better, self.tied_wrong, self.tied_right, k)

    def reciprocal(self) -> Floats:
        """Return [n]: one over the place of the best right answer, expected over random orders of tied candidates."""
        mean = np.asarray(1.0 / (self.better + 1.0), dtype=np.float64)
        ties = np.flatnonzero(self.tied_wrong)
        kinds, kind = np.unique(self._counts()[ties], axis=0, return_inverse=True)
        mean[ties] = np.array([_reciprocal(*kind) for kind in kinds.tolist()], np.float64)[kind.reshape(-1)]
        return mean

    def _counts(self) -> np.ndarray:
        return np.stack((self.better, self.tied_wrong, self.tied_right), axis=1)

    def ties(self) -> float:
        """Return the number of terms that `reciprocal` sums, about: equal rows are computed once."""
        kinds = np.unique(self._counts()[np.flatnonzero(self.tied_wrong)], axis=0).astype(np.float64)
        return float((kinds[:, 1] * kinds[:, 2]).sum())

    def outcomes(self, prefix: str) -> dict[str, np.ndarray]:
        """Return the arrays int32 [n] that are stored per example; every recall can be computed from them."""
        counts = {"better": self.better, "tied_wrong": self.tied_wrong, "tied_right": self.tied_right}
        return {f"{prefix}{name}": values.astype(np.int32) for name, values in counts.items()}


def _reciprocal(better: int, wrong: int, right: int) -> float:
    ways = [math.comb(wrong + right - place, right - 1) for place in range(1, wrong + 2)]  # that the first right one is
    terms = (way / (better + place) for place, way in enumerate(ways, 1))
    return sum(terms) / math.comb(wrong + right, right)


def offsets(features: Mapping[str, Tensor], score: str) -> Tensor:
    """Return [n]: the term that each row adds to its dot products.

    Closed-form sampled distance (Chun et al., ProLIP, ICLR 2025): CSD = |mu - mu'|^2 + sum s2 + sum s2'. For unit means
    -CSD = 2 mu.mu' - 2 - sum s2 - sum s2', so ranking by -CSD is ranking by mu.mu' - (sum s2)/2 - (sum s2')/2.
    Raises ValueError for another score than "cosine" and "csd".
    """
    means = features["embedding"]
    if score == "cosine":
        return torch.zeros(len(means), dtype=means.dtype, device=means.device)
    if score == "csd":
        return -0.5 * features["logvar"].exp().sum(-1).to(means.dtype)
    raise ValueError(f"score {score!r} is not one of {SCORES}")


def require_finite(*values: Tensor) -> None:
    """Raise FloatingPointError unless all are finite: NaN is never better, so it would count as a perfect score."""
    parts = (part for value in values for part in value.split(_SUMMED))  # a sum copies its terms in double precision
    if not all(math.isfinite(part.sum(dtype=torch.float64)) for part in parts):  # NaN and infinity survive a sum
        raise FloatingPointError("features hold NaN or infinite values; nothing can be ranked by them")


def tile_rows(candidates: int, element_size: int) -> int:
    """Return the rows of a tile of scores, at least 64, because the matrix product is slow with few rows."""
    return max(64, TILE_BYTES // (max(candidates, 1) * element_size))


@torch.inference_mode()
def rank(queries: Mapping[str, Tensor], candidates: Mapping[str, Tensor], right: Tensor, score: str) -> AnswerRanks:
    """Rank `candidates` [m] for each of `queries` [n].

    right: int64 [n, c], the candidates that are right answers, at least one a query, padded at the end with -1.
    Raises ValueError if it does not fit queries and candidates, and FloatingPointError if features are not finite.
    """
    a, b = queries["embedding"], candidates["embedding"]
    shift = offsets(candidates, score)  # a query's own variance moves all its scores alike
    require_finite(a, b, shift)
    right = right.to(a.device)
    if len(right) != len(a) or bool((right[:, 0] < 0).any()) or int(right.max()) >= len(b):
        raise ValueError(f"right answers {tuple(right.shape)} do not fit {len(a)} queries and {len(b)} candidates")
    counts = torch.empty(3, len(a), dtype=torch.int64, device=a.device)
    for rows in spans(len(a), tile_rows(len(b), a.element_size())):
        scores = a[rows] @ b.T
        scores += shift
        own = scores.gather(1, right[rows].clamp(min=0)).masked_fill(right[rows] < 0, -torch.inf)
        best = own.amax(1, keepdim=True)
        tied_right = (own == best).sum(1)
        better = torch.count_nonzero(scores > best, dim=1)
        tied_wrong = torch.count_nonzero(scores >= best, dim=1) - better - tied_right
        counts[:, rows] = torch.stack((better, tied_wrong, tied_right))
    better, tied_wrong, tied_right = counts.cpu().numpy()
    return AnswerRanks(better, tied_wrong, tied_right)
