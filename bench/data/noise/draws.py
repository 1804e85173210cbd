"""The captions that rows train with in an epoch, drawn from the texts that the noise gives them."""

from __future__ import annotations

import numpy as np

from bench import counter
from bench.arrays import Ints
from bench.data.noise.manifest import Noise
from bench.data.pairs import Pairs


def caption_choice(counts: Ints, rows: Ints, epoch: int, seed: int) -> Ints:
    """Return int64 [b]: the index in 0..counts[i]-1 that row rows[i] draws, keyed by (seed, row, epoch) alone."""
    return counter.below(counts, counter.words(counter.word(seed, "captions", epoch), rows)[:, 0])


def draw_captions(pairs: Pairs, noise: Noise | None, rows: Ints, epoch: int, seed: int) -> list[str]:
    """Return the b captions that `rows` [b] train with in an epoch, drawn from the texts that the noise gives them."""
    texts = (noise or Noise()).texts(pairs, rows)
    choice = caption_choice(np.array([len(t) for t in texts], np.int64), rows, epoch, seed)
    return [t[i] for t, i in zip(texts, choice.tolist(), strict=True)]
