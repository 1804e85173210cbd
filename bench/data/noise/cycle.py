"""A cycle of donors: every row takes the captions of the next, and no row those that it has."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from bench.arrays import Ints
from bench.errors import UserError


def cycle(rows: list[int], kinds: list[int], what: str, unit: str = "rows") -> Ints:
    """Reorder rows as little as possible into a cycle whose neighbours differ in kind.

    A row of the same kind as the one before it waits, and is inserted after the next row of another kind. The rows
    that still wait at the end are all of one kind; they are inserted between neighbours that are both of other kinds.
    There are enough such places exactly if no kind has more than half of the rows. Raises UserError otherwise.
    """
    placed: list[int] = []  # indices into `rows`
    waiting: list[int] = []  # indices of rows of the kind that was placed last
    for i, kind in enumerate(kinds):
        if placed and kind == kinds[placed[-1]]:
            waiting.append(i)
            continue
        placed.append(i)
        if waiting:
            placed.append(waiting.pop())
    if len(placed) > 1 and kinds[placed[0]] == kinds[placed[-1]]:
        waiting.append(placed.pop())
    if waiting:
        kind = kinds[waiting[0]]
        spread: list[int] = []
        for here, after in pairwise([*placed, placed[0]]):
            spread.append(here)
            if waiting and kind not in (kinds[here], kinds[after]):
                spread.append(waiting.pop())
        placed = spread
    if waiting or len(placed) == 1:
        raise UserError(
            f"{what}: {len(rows)} {unit} cannot swap captions, more than half of them have the same ones; "
            "change the rate"
        )
    return np.array([rows[i] for i in placed], dtype=np.int64)
