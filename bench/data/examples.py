"""Pairs of pictures as a page shows them."""

from __future__ import annotations

import io
from dataclasses import dataclass

from PIL import Image

from bench.arrays import Ints
from bench.data import Pairs
from bench.data.pairs import StoredFeatures
from bench.errors import UserError


@dataclass(frozen=True)
class Example:
    """One pair."""

    captions: tuple[str, ...]  #: its own, the plainest first
    webp: bytes  #: its picture


def drawn(pairs: Pairs, rows: Ints) -> list[Example]:
    """Return some rows of any pairs of pictures. Raises UserError if they are stored features, or cannot be read."""
    if isinstance(pairs, StoredFeatures):
        raise UserError(f"{pairs.name}: its images are stored features, which have no pictures")
    examples = []
    for row, pixels in zip(rows.tolist(), pairs.images(rows), strict=True):
        Image.fromarray(pixels).save(file := io.BytesIO(), "WEBP", lossless=True)
        examples.append(Example(pairs.captions(row), file.getvalue()))
    return examples
