"""Data selections: which training rows a run may see, whatever its method. `KEEPS` lists them.

A new kind is one more entry of `KEEPS`, here or by `KEEPS.add(DataSelection(...))` before the suite is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bench import counter
from bench.registry import Registry

if TYPE_CHECKING:
    from bench.arrays import Floats, Ints


@dataclass(frozen=True)
class SelectionInputs:
    """The data that a choice of rows may use."""

    keys: Sequence[str]  #: [N] of all training rows, in row order
    corrupted: Ints | None  #: rows that the noise manifest names; empty without noise, None if no rows are fixed
    seed: int
    share: float | None  #: share of the rows, if the kind takes one
    rows: int | None  #: number of rows, if the kind takes one
    scores: Floats | None = None  #: [N] of the pairs, `DataSelection.score`; None while the scorer is not trained


@dataclass(frozen=True)
class DataSelection:
    """A kind of data selection."""

    name: str  #: the word in suites
    #: a clause after "trained on": "the pairs that ..."; "" = only given weights score the pairs; "{score}" = by what
    about: str
    choose: Callable[[SelectionInputs], Ints]  #: the kept rows, int64 and rising; ValueError says why there are none
    takes: tuple[str, ...] = ()  #: keys besides the kind that it needs: "share", "rows"
    uses: str = ""  #: knowledge that no method has: "the truth"; such rows are marked, never ranked, never bold
    truth_alone: bool = False  #: its rows depend only on which pairs are clean; the others' captions have no effect
    reference_keeps_all: bool = False  #: a run that the method starts from sees all pairs
    scored: bool = False  #: `choose` asks for scores: a run of the same noise and seed on all pairs is trained first
    score: str = "cosine"  #: what the scorer says of a pair; "csd" needs variances; "s_clip_loss", "norm_sim"
    about_external: str = ""  #: `about` where given weights score the pairs, and no run does; "" = it takes none


def kept_count(asked: SelectionInputs) -> int:
    """Return the number of rows that the share asks for, rounded up as in exact arithmetic."""
    assert asked.share is not None
    return math.ceil(asked.share * len(asked.keys) - 1e-9)


def _clean(asked: SelectionInputs) -> Ints:
    """Return the rows that the manifest leaves alone; ValueError if the noise is new in every step."""
    if asked.corrupted is None:
        raise ValueError("resampled positives leave no fixed set of clean pairs")
    left = np.ones(len(asked.keys), bool)
    left[asked.corrupted] = False
    return np.flatnonzero(left).astype(np.int64)


def _trusted(asked: SelectionInputs) -> Ints:
    assert asked.rows is not None
    order = counter.hash_order(asked.keys, f"trusted {asked.seed}".encode())
    chosen = order[np.isin(order, _clean(asked))]
    if len(chosen) < asked.rows:
        raise ValueError(f"{asked.rows} trusted pairs were asked for, but only {len(chosen)} are clean")
    return np.sort(chosen[: asked.rows])


def _random(asked: SelectionInputs) -> Ints:
    return np.sort(counter.hash_order(asked.keys, f"random {asked.seed}".encode())[: kept_count(asked)])


def _highest(asked: SelectionInputs) -> Ints:
    """Return the rows of highest score, in the order of their hashes where scores are equal."""
    if asked.scores is None:
        raise ValueError("the run that scores the pairs is not trained yet")
    if not np.isfinite(asked.scores).all():
        raise ValueError("a score is NaN or infinite, so the run that scores the pairs did not converge")
    order = counter.hash_order(asked.keys, f"score {asked.seed}".encode())
    ranked = order[np.argsort(-asked.scores[order], kind="stable")]
    return np.sort(ranked[: kept_count(asked)])


def _scored(name: str, best: str, score: str, by_run: bool = True) -> DataSelection:
    """Return a selection of the pairs of `best` score; without `by_run` only given weights score them."""
    return DataSelection(
        name,
        f"the pairs of {best} under a reference run" if by_run else "",
        _highest,
        takes=("share",),
        reference_keeps_all=True,
        scored=True,
        score=score,
        about_external=f"the pairs of {best} under an external model",
    )


KEEPS: Registry[DataSelection] = Registry(
    "a data selection",
    (
        DataSelection("all", "all pairs", lambda asked: np.arange(len(asked.keys), dtype=np.int64)),
        # an upper bound for any way of finding the clean pairs
        DataSelection("oracle", "the pairs that are known to be clean", _clean, uses="the truth", truth_alone=True),
        DataSelection(  # pairs that somebody looked at
            "trusted",
            "pairs drawn among those that are known to be clean",
            _trusted,
            takes=("rows",),
            uses="trusted pairs",
            reference_keeps_all=True,
        ),
        _scored("score", "highest {score}", "cosine"),
        # Chun et al., ProLIP, ICLR 2025, Section C.8: "ProLIP distance" of Table C.7
        _scored("distance", "smallest distance (CSD)", "csd", by_run=False),
        # Wang et al., NeurIPS 2024
        _scored("s_clip_loss", "largest s-CLIPLoss, the cosine less what its batch has by chance,", "s_clip_loss"),
        _scored("norm_sim", "largest NormSim (p = 2), the image's likeness to a sample of all images,", "norm_sim"),
        # the control for any choice of rows: only the number is the same
        DataSelection("random", "a random share of the pairs", _random, takes=("share",)),
    ),
    absent="not offered",
)
