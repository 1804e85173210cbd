"""Shuffled captions: rows, or whole images, swap captions among themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bench import counter
from bench.data.noise.cycle import cycle
from bench.data.noise.images import Images
from bench.data.noise.manifest import Noise, NoiseManifest, check_rate, first_rows
from bench.data.pairs import Pairs
from bench.data.text_sets import TextSets

if TYPE_CHECKING:
    from bench.suite.noise_settings import NoiseSettings


def shuffled_captions(pairs: Pairs, rate: float, seed: int) -> NoiseManifest:
    """Corrupt the round(rate * n) rows with the smallest keyed hash of their key.

    So the corrupted rows of a lower rate are among those of a higher one, and the order of files does not matter. In
    the order of the hashes each row takes the captions of the next, in one cycle over all corrupted rows; a donor with
    the same caption set is skipped and used later. Raises UserError if the rate is not in [0, 1] or no such cycle
    exists.
    """
    order = first_rows(pairs, rate, seed)
    texts = TextSets.of(pairs, order)
    rows = cycle(order.tolist(), texts.kinds(order).tolist(), f"{pairs.name} at rate {rate:g}")
    donors = np.roll(rows, -1)
    return NoiseManifest.of(pairs, "shuffled_captions", rate, seed, rows, donors, texts.disjoint(rows, donors))


def shuffled_images(pairs: Pairs, rate: float, seed: int) -> NoiseManifest:
    """Corrupt all rows of the round(rate * g) images with the smallest keyed hash of their key, of g images.

    In the order of the hashes each image takes the captions of the next, in one cycle, as in `shuffled_captions`, which
    this is if every row is an image of its own; see `Images.swapped` for its rows. Index files of RCL and DECL are of
    this sort. Raises UserError as `shuffled_captions` does.
    """
    check_rate(rate)
    images = Images.of(pairs)
    order = counter.hash_order(images.keys, str(seed).encode())[: round(rate * len(images))]
    kinds = images.text_sets(pairs, order).kinds(order).tolist()
    ordered = cycle(order.tolist(), kinds, f"{pairs.name} at rate {rate:g}", "images")
    rows, donors = images.swapped(ordered, np.roll(ordered, -1))
    lost = TextSets.of(pairs, rows).disjoint(rows, donors)
    return NoiseManifest.of(pairs, "shuffled_images", rate, seed, rows, donors, lost)


def make_shuffled(pairs: Pairs, _settings: NoiseSettings, rate: float, seed: int) -> Noise:
    """Make the noise of the entry "shuffled_captions"; errors as in `shuffled_captions`."""
    return shuffled_captions(pairs, rate, seed)


def make_shuffled_images(pairs: Pairs, _settings: NoiseSettings, rate: float, seed: int) -> Noise:
    """Make the noise of the entry "shuffled_images"; errors as in `shuffled_images`."""
    return shuffled_images(pairs, rate, seed)
