"""How many training pairs are wrong, from a model's confidences: a mixture whose wrong part injected pairs show.

The rows that a run's noise corrupted are a sample of wrong pairs. The others are a mixture: wrong pairs, whose
confidences have the same distribution, and right ones. On the scale on which wrong pairs are standard normal, the right
ones are taken as normal too (the binormal model of ROC curves). The share of wrong ones has the largest likelihood of
counts in bins, so only the order of confidences matters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from bench.arrays import Floats
from bench.errors import UserError

BINS = 30  #: of equally many injected pairs
LEAST = 50  #: injected pairs that an audit needs
REPLICATES = 100  #: of the bootstrap, over injected and other pairs
SEPARATED = 0.7  #: AUROC between injected and other pairs below which the model tells too little of them apart
TAILS = (0.1, 0.5)  #: of the injected pairs: where `_most` looks
_SHARES = np.linspace(0, 1, 101)
_MEANS, _SPREADS = np.linspace(0.25, 5, 20), np.geomspace(0.25, 1.5, 8)  #: of right pairs, where wrong have 0 and 1
_MEAN, _SPREAD = (grid.ravel() for grid in np.meshgrid(_MEANS, _SPREADS))
Counts = npt.NDArray[np.number]


@dataclass(frozen=True)
class Audit:
    """The share of wrong pairs among those that were not injected."""

    share: float
    #: 95 % over pairs: from the mixture's to the largest share that the pairs of least confidence leave room for
    interval: tuple[float, float]
    auroc: float  #: of injected against other pairs
    wrong: Floats  #: [k] probability that each of the others is wrong, at `share`


def audit(injected: npt.NDArray[np.floating], others: npt.NDArray[np.floating], seed: int = 0) -> Audit:
    """Estimate the share of wrong pairs among `others` [k] from the confidences (higher = cleaner) of `injected` [m].

    Raises UserError if there are too few pairs, or the model does not tell them apart, and FloatingPointError for a
    confidence that is not finite.
    """
    if not (np.isfinite(injected).all() and np.isfinite(others).all()):
        raise FloatingPointError("a confidence is NaN or infinite")
    if min(len(injected), len(others)) < LEAST:
        raise UserError(f"{len(injected)} injected and {len(others)} other pairs; an audit needs {LEAST} of each")
    edges = np.unique(np.quantile(injected, np.arange(1, BINS) / BINS))
    places = [np.searchsorted(edges, confidences, "right") for confidences in (injected, others)]
    counts = [np.bincount(places_of, minlength=len(edges) + 1) for places_of in places]
    area = float(counts[1] @ (np.cumsum(counts[0]) - counts[0] / 2)) / (len(injected) * len(others))
    if area < SEPARATED:
        fix = "train longer, or audit a run of another method"
        raise UserError(f"injected and other pairs are told apart with AUROC {area:.2f}, {SEPARATED} is needed; {fix}")
    share, parts = _fit(*counts)
    rng = np.random.default_rng(seed)
    drawn = [[rng.multinomial(one.sum(), one / one.sum()) for one in counts] for _ in range(REPLICATES)]
    low = min(share, float(np.percentile([_fit(*both)[0] for both in drawn], 2.5)))
    high = max(share, float(np.percentile([_most(*both) for both in drawn], 97.5)))
    odds = share * parts[0] / (share * parts[0] + (1 - share) * parts[1])
    falling = np.maximum.accumulate(odds[::-1])[::-1]  # a higher confidence is never more suspicious
    return Audit(share, (low, high), area, falling[places[1]])


def _fit(injected: Counts, others: Counts) -> tuple[float, Floats]:
    """Return the share of wrong pairs with the largest likelihood, and the parts [2, bins] that are mixed.

    injected, others: counts in the bins, which are in the order of confidence.
    """
    wrong = (injected + 0.5) / (injected.sum() + 0.5 * len(injected))
    inner = ndtri(np.cumsum(wrong)[:-1])
    right = np.diff(ndtr((inner - _MEAN[:, None]) / _SPREAD[:, None]), prepend=0.0, append=1.0).clip(1e-12)
    mixed = _SHARES[:, None, None] * wrong + (1 - _SHARES[:, None, None]) * right
    best, shape = divmod(int(np.argmax(np.log(mixed) @ others)), len(right))
    share = min(max(float(_SHARES[best]), 1e-4), 0.9999)
    for _ in range(20):  # EM from the grid's share, towards the one between its points
        share = float(others @ (share * wrong / (share * wrong + (1 - share) * right[shape]))) / float(others.sum())
    return share, np.stack((wrong, right[shape]))


def _most(injected: Counts, others: Counts) -> float:
    """Return the smallest ratio between the shares of other and of injected pairs below a confidence, at most 1.

    If wrong pairs look like injected ones, no more are wrong, whatever right ones look like (Storey's estimate).
    """
    tails = np.cumsum(injected) / injected.sum()
    ratios = np.cumsum(others) / others.sum() / np.maximum(tails, 1e-12)
    inside = (tails >= TAILS[0]) & (tails <= TAILS[1])
    return float(ratios[inside].min(initial=1.0))
