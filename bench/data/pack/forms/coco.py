"""COCO's captions JSON: `images` with id and file_name, `annotations` with image_id and caption."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from bench.data.pack.sample import Options, Sample, key_of


def fits(path: Path) -> bool:
    """See `bench.data.pack.forms.Form`."""
    with path.open(encoding="utf-8") as file:
        content = json.load(file)
    return isinstance(content, dict) and {"images", "annotations"} <= content.keys()


def read(path: Path, options: Options) -> Iterator[Sample]:
    """See `bench.data.pack.forms.Form`."""
    with path.open(encoding="utf-8") as file:
        content = json.load(file)
    base, captions = Path(options.images or path.parent), defaultdict[int, list[str]](list)
    for annotation in content["annotations"]:
        captions[annotation["image_id"]].append(str(annotation["caption"]))
    for image in content["images"]:
        name = str(image["file_name"])
        yield Sample(key_of(name), tuple(captions[image["id"]]), str(base / name))
