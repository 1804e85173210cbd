"""What rows train with, as the loader draws it."""

from __future__ import annotations

from bench.arrays import Ints
from bench.data import Pairs
from bench.data.noise.manifest import Noise, drawn_of


def draw_captions(pairs: Pairs, noise: Noise, rows: Ints, epoch: int, seed: int) -> list[str]:
    """Return the captions of `rows` [b] in an epoch, drawn from the texts that the noise gives them."""
    return drawn_of(noise.texts(pairs, rows), rows, epoch, seed)
