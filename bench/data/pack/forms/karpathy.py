"""Karpathy's JSON: `images` with filename, split and sentences, for COCO also filepath (the folder)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from bench.data.pack.sample import Options, Sample, key_of
from bench.errors import UserError, nearest


def fits(path: Path) -> bool:
    """See `bench.data.pack.forms.Form`."""
    with path.open(encoding="utf-8") as file:
        content = json.load(file)
    images = content.get("images") if isinstance(content, dict) else None
    return isinstance(images, list) and bool(images) and "sentences" in images[0]


def read(path: Path, options: Options) -> Iterator[Sample]:
    """See `bench.data.pack.forms.Form`. Raises UserError for a split that no image has."""
    with path.open(encoding="utf-8") as file:
        images = json.load(file)["images"]
    known = {str(image["split"]) for image in images}
    for split in options.splits:
        if split not in known:
            raise UserError(f"--split {split}: no image of {path} has it{nearest(split, known)}")
    base = Path(options.images or path.parent)
    for image in images:
        if not options.splits or image["split"] in options.splits:
            name = "/".join(filter(None, (image.get("filepath", ""), image["filename"])))
            yield Sample(key_of(name), tuple(str(one["raw"]) for one in image["sentences"]), str(base / name))
