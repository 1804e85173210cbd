"""scikit-learn's handwritten digits: a second real labelled set, 1,797 scans of 8 x 8 pixels in 17 grey levels."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

from bench.data.pairs import MemoryPairs
from bench.hashing import sha256_order

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TEMPLATES = ("{}", "the digit {}", "a drawing of the digit {}")
SETS = {
    "train": "Handwritten digits, three quarters of them; nothing in common with the emoji.",
    "test": "Handwritten digits, the other quarter; the same hands as in digits/train.",
}
TEST_SHARE = 0.25


def load_digits(split: str, size: int) -> MemoryPairs:
    """Load one of `SETS`, black on white, scaled bilinearly to `size` px. The test rows are those of the lowest hashes.

    Raises KeyError for another split.
    """
    package = find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    # the file that scikit-learn's `load_digits` reads: 64 grey levels from 0 to 16 and a digit in each line; importing
    # scikit-learn would take seconds
    with gzip.open(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", "rt") as file:
        lines = np.loadtxt(file, delimiter=",")
    scans, drawn = lines[:, :-1].reshape(-1, 8, 8), lines[:, -1].astype(np.int64)
    keys = [f"digit-{i:04d}" for i in range(len(scans))]
    chosen = set(sha256_order(keys)[: round(TEST_SHARE * len(keys))])
    rows = [i for i in range(len(keys)) if (i in chosen) == (split == "test")]
    grey = np.round(255 - scans * (255 / 16)).astype(np.uint8)
    side = (size, size)
    pixels = np.stack(
        [np.asarray(Image.fromarray(grey[i]).resize(side, Image.Resampling.BILINEAR).convert("RGB")) for i in rows]
    )
    digits = [int(drawn[i]) for i in rows]
    texts = [tuple(template.format(NAMES[d]) for template in TEMPLATES) for d in digits]
    name, own = f"digits/{split}", [keys[i] for i in rows]
    return MemoryPairs.build(name, SETS[split], own, texts, {"digit": digits}, {"digit": NAMES}, pixels)
