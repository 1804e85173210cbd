"""`keep: {kind: score, share: k}`: what a reference run on the same pairs, or a model from elsewhere, trusts most."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bench.catalogue.keep.entry import Asked, Keep, kept_of

if TYPE_CHECKING:
    from bench.arrays import Ints


def highest(asked: Asked) -> Ints:
    """Return the rows of highest score, in the order of their hashes where scores are equal."""
    from bench import counter

    if asked.scores is None:
        raise ValueError("the run that scores the pairs is not trained yet")
    if not np.isfinite(asked.scores).all():
        raise ValueError("a score is NaN or infinite, so the run that scores the pairs did not converge")
    order = counter.hash_order(asked.keys, f"score {asked.seed}".encode())
    ranked = order[np.argsort(-asked.scores[order], kind="stable")]
    return np.sort(ranked[: kept_of(asked)])


SCORE = Keep(
    "score",
    "the pairs of highest cosine under a reference run",
    highest,
    takes=("share",),
    reference_keeps_all=True,
    scored=True,
    about_external="the pairs of highest cosine under a model from elsewhere",
)
