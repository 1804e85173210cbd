"""A folder of images, at any depth, each with a .txt of the same name beside it: one caption a line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from bench import reading
from bench.data.pack.sample import Options, Sample, key_of
from bench.data.shards.scan import IMAGES


def fits(path: Path) -> bool:
    """See `bench.data.pack.forms.Form`."""
    return any(True for _ in _images(path))


def read(path: Path, _: Options) -> Iterator[Sample]:
    """See `bench.data.pack.forms.Form`. An image has no captions without a .txt, or with a pipe or megabytes there."""
    for image in _images(path):
        lines = _lines(image.with_suffix(".txt"))
        yield Sample(key_of(str(image.relative_to(path))), tuple(filter(str.strip, lines)), str(image))


def _lines(text: Path) -> list[str]:
    try:
        return reading.content(text, reading.TEXT_BYTES).decode("utf-8-sig", "replace").splitlines()
    except (FileNotFoundError, reading.Unfit):
        return []


def _images(path: Path) -> Iterator[Path]:
    """Yield the images in the order of their names, folder by folder."""
    for folder, folders, names in os.walk(path):
        folders.sort()
        yield from (Path(folder, name) for name in sorted(names) if name.rpartition(".")[2].lower() in IMAGES)
