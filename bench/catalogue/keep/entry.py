"""The entry of a kind of `keep`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from bench.arrays import Floats, Ints


@dataclass(frozen=True)
class Asked:
    """The data that a choice of rows may use."""

    keys: Sequence[str]  #: [N] of all training rows, in row order
    corrupted: Ints | None  #: rows that the noise manifest names; empty without noise, None if no rows are fixed
    seed: int
    share: float | None  #: share of the rows, if the kind takes one
    rows: int | None  #: number of rows, if the kind takes one
    scores: Floats | None = None  #: [N] of the pairs under the run's scorer, `Keep.score`; None while it is not trained


@dataclass(frozen=True)
class Keep:
    """A treatment of the training data: which rows a run may see, whatever its method."""

    name: str  #: the word in suites
    about: str  #: a clause after "trained on": "the pairs that ..."; "" = only given weights score the pairs
    choose: Callable[[Asked], Ints]  #: the kept rows, int64 and rising; ValueError says why there are none
    takes: tuple[str, ...] = ()  #: keys beside the kind that it needs: "share", "rows"
    uses: str = ""  #: knowledge that no method has: "the truth"; such rows are marked, never ranked, never bold
    truth_alone: bool = False  #: its rows follow from which pairs are clean; whose captions the others have is nothing
    reference_keeps_all: bool = False  #: a run that the method starts from is not treated
    scored: bool = False  #: `choose` asks for scores: a run of the same noise and seed, not treated, is trained first
    score: Literal["cosine", "csd"] = "cosine"  #: what the scorer says of a pair; the second needs variances
    about_external: str = ""  #: `about` where given weights score the pairs, and no run does; "" = it takes none


def kept_of(asked: Asked) -> int:
    """Return the number of rows that the share asks for, rounded up as in exact arithmetic."""
    assert asked.share is not None
    return math.ceil(asked.share * len(asked.keys) - 1e-9)
