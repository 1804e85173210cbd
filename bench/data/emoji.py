"""The embedded emoji pack: one concept drawn by several artists, with short English phrases.

Icon art on a white ground, no photographs. Shards are gzipped webdataset tars, one a style; `tools/build_emoji.py` made
them and decided the splits, which each sample carries.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from bench.arrays import Pixels
from bench.data.pairs import MemoryPairs
from bench.errors import UserError

FOLDER = Path(__file__).parent / "emoji"
TRAINING_STYLES = ("noto", "noto-v1", "twemoji", "fluent-flat", "emojione", "fxemoji", "streamline")
STYLES = (*TRAINING_STYLES, "openmoji", "openmoji-black", "fluent-high-contrast", "emojione-monotone", "fluent-3d")
SIZES = (64, 32)
#: words that training captions use around names, too
TEMPLATES = ("{}", "an emoji of {}", "a drawing of {}")
#: set -> (styles that may hold it, description)
SETS: dict[str, tuple[tuple[str, ...], str]] = {
    "train": (TRAINING_STYLES, "Emoji by seven artists or editions, with names and keywords as captions."),
    "validation": (TRAINING_STYLES, "For tuning: pairs of training concepts and styles that no other set holds."),
    "iid": (TRAINING_STYLES, "Held-out (concept, style) pairs; training shows the concept in other styles."),
    "novel": (TRAINING_STYLES, "Held-out concepts, drawn in the training styles."),
    "openmoji": (
        ("openmoji",),
        "Shift to another artist: training concepts by OpenMoji, whose art training never shows.",
    ),
    "openmoji-black": (("openmoji-black",), "Shift to line drawings: OpenMoji's outlines; training shows no OpenMoji."),
    "fluent-high-contrast": (
        ("fluent-high-contrast",),
        "Shift to silhouettes: Fluent in black; it shares its shapes with the flat Fluent art in training.",
    ),
    "emojione-monotone": (
        ("emojione-monotone",),
        "Shift to silhouettes: EmojiOne in black; it shares its shapes with the coloured EmojiOne art in training.",
    ),
    "near": (
        ("fluent-3d",),
        "Near-duplicates, hardly a shift: Fluent's 3-D rendition of the flat Fluent drawings in training.",
    ),
}


@dataclass(frozen=True)
class Sample:
    fields: dict[str, Any]  #: key, captions, names, concept, subgroup, group, style, split, licence
    webp: bytes


@cache
def shard(style: str, folder: Path = FOLDER) -> tuple[Sample, ...]:
    """All samples of a style. Raises UserError when the file is missing or not the one `sha256s` names."""
    path = folder / f"{style}.tar.gz"
    sums = {name: digest for digest, name in (line.split() for line in (folder / "sha256s").read_text().splitlines())}
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); install the package again") from error
    found = hashlib.sha256(data).hexdigest()
    if found != sums.get(path.name):
        raise UserError(f"{path}: sha256 is {found[:16]}..., not the one in sha256s; install the package again")
    members: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                members[member.name] = file.read()
    stems = [name.removesuffix(".json") for name in members if name.endswith(".json")]
    return tuple(Sample(json.loads(members[f"{stem}.json"]), members[f"{stem}.webp"]) for stem in stems)


def decode(samples: Sequence[Sample], size: int) -> Pixels:
    """uint8 [n, size, size, 3]; 32 px is the rounded 2x2 mean of 64 px."""
    if size not in SIZES:
        raise UserError(f"emoji at {size} px: sizes are {' and '.join(map(str, SIZES))}")
    pixels = np.empty((len(samples), size, size, 3), np.uint8)
    for place, sample in zip(pixels, samples, strict=True):
        with Image.open(io.BytesIO(sample.webp), formats=("WEBP",)) as image:
            full = np.asarray(image.convert("RGB"))
        if size == 64:
            place[:] = full
        else:
            pairs = full[0::2].astype(np.uint16) + full[1::2]
            place[:] = (pairs[:, 0::2] + pairs[:, 1::2] + 2) >> 2
    return pixels


@cache
def _names(novel: bool) -> dict[str, tuple[str, ...]]:
    """Concept -> all its names, of the held-out concepts or of the training concepts, in byte order."""
    found = {
        sample.fields["concept"]: tuple(sample.fields["names"])
        for style in TRAINING_STYLES
        for sample in shard(style)
        if (sample.fields["split"] == "novel") == novel
    }
    return dict(sorted(found.items(), key=lambda item: item[0].encode()))


@cache
def _headings(label: str) -> tuple[str, ...]:
    return tuple(sorted({sample.fields[label] for style in TRAINING_STYLES for sample in shard(style)}, key=str.encode))


def load(split: str, size: int) -> MemoryPairs:
    """One of `SETS` at 64 or 32 px. All sets of training concepts have the same classes in the same order."""
    styles, description = SETS[split]
    samples = [s for style in styles for s in shard(style) if s.fields["split"] == split]
    classes = {
        "concept": tuple(_names(novel=split == "novel")),
        "subgroup": _headings("subgroup"),
        "group": _headings("group"),
        "style": STYLES,
    }
    index = {label: {name: i for i, name in enumerate(names)} for label, names in classes.items()}
    labels = {label: [index[label][s.fields[label]] for s in samples] for label in classes}
    keys, texts = [s.fields["key"] for s in samples], [s.fields["captions"] for s in samples]
    return MemoryPairs.build(f"emoji/{split}", description, keys, texts, labels, classes, decode(samples, size))


def synonyms() -> dict[str, tuple[str, ...]]:
    """Every name of a training concept -> the concept's other names."""
    return {
        name: tuple(other for other in names if other != name)
        for names in _names(novel=False).values()
        if len(names) > 1
        for name in names
    }
