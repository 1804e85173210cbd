"""Rows of the package's data sets as a report shows them: texts and pictures as stored, without decoding a pixel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.data import emoji
from bench.data.noise import NoiseManifest


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


def changed_captions(noise: Path) -> dict[int, int | str]:
    """Map the rows of a stored noise manifest to what they train with: the row of their donor, or an edited caption.

    Raises Damaged.
    """
    manifest = NoiseManifest.load(noise)
    lists = [()] * len(manifest.rows) if manifest.edited is None else manifest.edited.to_pylist()
    rows = zip(manifest.rows.tolist(), manifest.donors.tolist(), lists, strict=True)
    return {row: texts[0] if texts else donor for row, donor, texts in rows}
