"""Shuffled captions: rows, or whole images, swap captions among themselves."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bench import counter
from bench.arrays import Ints
from bench.data.noise.images import ImageRows
from bench.data.noise.manifest import Noise, NoiseManifest, first_rows
from bench.data.pairs import Pairs
from bench.data.text_sets import disjoint, in_blocks, kinds_of_sets
from bench.errors import UserError


def derangement_cycle(rows: list[int], kinds: list[int], what: str, unit: str = "rows") -> Ints:
    """Reorder rows as little as possible into a cycle in which neighbours are of different kinds.

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


def shuffled_captions(pairs: Pairs, rate: float, seed: int) -> NoiseManifest:
    """Corrupt the round(rate * n) rows with the smallest keyed hash of their key.

    So the corrupted rows of a lower rate are among those of a higher one, and the order of files does not matter. In
    the order of the hashes each row takes the captions of the next, in one cycle over all corrupted rows; a donor with
    the same caption set is skipped and used later. Raises UserError if no such cycle exists.
    """
    order = first_rows(pairs, rate, seed)
    rows = derangement_cycle(order.tolist(), kinds_of_sets(in_blocks(pairs, order)), f"{pairs.name} at rate {rate:g}")
    donors = np.roll(rows, -1)
    return NoiseManifest.of(pairs, "shuffled_captions", rate, seed, rows, donors, disjoint(pairs, rows, donors))


def shuffled_images(pairs: Pairs, rate: float, seed: int) -> NoiseManifest:
    """Corrupt all rows of the round(rate * g) images with the smallest keyed hash of their key, of g images.

    In the order of the hashes each image takes the captions of the next, in one cycle, as in `shuffled_captions`, which
    this is if every row is an image of its own; see `ImageRows.swapped` for its rows. Index files of RCL and DECL are
    of this sort. Raises UserError as `shuffled_captions` does.
    """
    images = ImageRows.of(pairs)
    order = counter.hash_order(images.keys, str(seed).encode())[: round(rate * len(images))]
    what = f"{pairs.name} at rate {rate:g}"
    ordered = derangement_cycle(order.tolist(), images.kinds(pairs, order), what, "images")
    rows, donors = images.swapped(ordered, np.roll(ordered, -1))
    lost = disjoint(pairs, rows, donors)
    return NoiseManifest.of(pairs, "shuffled_images", rate, seed, rows, donors, lost)


@dataclass(frozen=True)
class Resampled(Noise):
    """Resampled positives: in every step floor(rate * B) rows take the caption of a row drawn from the batch."""

    rate: float
    seed: int
    kind: str = "resampled_positives"

    def donors_in_batch(self, step: int, batch: int) -> Ints:
        """Return int64 [batch]: the position whose caption each row takes, drawn uniformly from all of the batch."""
        positions = np.arange(batch, dtype=np.int64)
        drawn = counter.random_words(counter.word(self.seed, "resampled", step), positions, 2)
        count = int(self.rate * batch + 1e-9)  # 0.29 * 100 is 28.999... in binary and means 29
        chosen = np.argsort(drawn[:, 0], kind="stable")[:count]
        positions[chosen] = counter.integers_below(np.full(len(chosen), batch), drawn[chosen, 1])
        return positions
