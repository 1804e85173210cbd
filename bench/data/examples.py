"""Rows of the package's data sets as a report shows them: texts and pictures as stored, without decoding a pixel."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from bench.arrays import Ints
from bench.data import Pairs, emoji
from bench.data.noise import NoiseManifest
from bench.data.pairs import StoredFeatures
from bench.errors import UserError


@dataclass(frozen=True)
class Example:
    """One pair."""

    captions: tuple[str, ...]  #: its own, the plainest first
    webp: bytes  #: its picture


def examples(dataset: str) -> tuple[Example, ...] | None:
    """Return the pairs of a data set in the order of their rows; None if the package has no pictures of it."""
    family, _, split = dataset.partition("/")
    if family != "emoji" or split not in emoji.SETS:
        return None
    return tuple(Example(tuple(one.fields["captions"]), one.webp) for one in emoji.samples(split))


def drawn(pairs: Pairs, rows: Ints) -> list[Example]:
    """Return some rows of any pairs of pictures. Raises UserError if they are stored features, or cannot be read."""
    if isinstance(pairs, StoredFeatures):
        raise UserError(f"{pairs.name}: its images are stored features, which have no pictures")
    examples = []
    for row, pixels in zip(rows.tolist(), pairs.images(rows), strict=True):
        Image.fromarray(pixels).save(file := io.BytesIO(), "WEBP", lossless=True)
        examples.append(Example(pairs.captions(row), file.getvalue()))
    return examples


def changed_captions(noise: Path) -> dict[int, int | str]:
    """Map the rows of a stored noise manifest to what they train with: the row of their donor, or an edited caption.

    Raises Damaged.
    """
    manifest = NoiseManifest.load(noise)
    lists = [()] * len(manifest.rows) if manifest.edited is None else manifest.edited.to_pylist()
    rows = zip(manifest.rows.tolist(), manifest.donors.tolist(), lists, strict=True)
    return {row: texts[0] if texts else donor for row, donor, texts in rows}
