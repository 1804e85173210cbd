"""The embedded emoji pack: each concept is drawn by several artists and has short English phrases as captions.

The images are icons on white, not photographs. There is one shard for each style, a gzipped webdataset tar that
`tools/art/build_emoji.py` made; each sample names its split.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from bench.arrays import Pixels
from bench.data.pairs import MemoryPairs
from bench.errors import UserError
from bench.hashing import sha256_order
from bench.tars import tar_members

FOLDER = Path(__file__).parent / "emoji"
TRAINING_STYLES = ("noto", "noto-v1", "twemoji", "fluent-flat", "emojione", "fxemoji", "streamline")
STYLES = (*TRAINING_STYLES, "openmoji", "openmoji-black", "fluent-high-contrast", "emojione-monotone", "fluent-3d")
SIZES = (64, 32)
#: training captions use these words around names, too
TEMPLATES = ("{}", "an emoji of {}", "a drawing of {}")
#: set -> (styles that may hold it, description)
SETS: dict[str, tuple[tuple[str, ...], str]] = {
    "train": (TRAINING_STYLES, "Emoji by seven artists or editions, with names and keywords as captions."),
    "validation": (TRAINING_STYLES, "For tuning: pairs of training concepts and styles that no other set holds."),
    "selection": (TRAINING_STYLES, "For choosing a checkpoint: the validation pairs whose concepts iid does not hold."),
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
#: halves of all concepts, whatever their split: sets of their own, so that an encoder can be trained on one half and
#: its features be used on the other; -> the places of the half's concepts in the order of their hashes, modulo 2
HALVES = {"emoji-a": 0, "emoji-b": 1}


@dataclass(frozen=True)
class EmojiSample:
    """One sample of a shard."""

    fields: dict[str, Any]  #: key, captions, names, concept, subgroup, group, style, split, licence
    webp: bytes


@cache
def read_style(style: str, folder: Path = FOLDER) -> tuple[EmojiSample, ...]:
    """Read all samples of a style. Raises UserError if the file is missing or `sha256s` has another sha256 for it."""
    path = folder / f"{style}.tar.gz"
    sums = {name: digest for digest, name in (line.split() for line in (folder / "sha256s").read_text().splitlines())}
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); install the package again") from error
    digest = hashlib.sha256(data).hexdigest()
    if digest != sums.get(path.name):
        raise UserError(f"{path}: sha256 is {digest[:16]}..., not the one in sha256s; install the package again")
    content = gzip.decompress(data)
    files = {
        member.name: content[member.offset_data : member.offset_data + member.size]
        for member in tar_members(io.BytesIO(content), len(content))
    }
    stems = [name.removesuffix(".json") for name in files if name.endswith(".json")]
    return tuple(EmojiSample(json.loads(files[f"{stem}.json"]), files[f"{stem}.webp"]) for stem in stems)


def decode_samples(samples: Sequence[EmojiSample], size: int) -> Pixels:
    """Return uint8 [n, size, size, 3]; 32 px is the rounded 2x2 mean of 64 px. Raises UserError for another size."""
    if size not in SIZES:
        raise UserError(f"emoji at {size} px: sizes are {' and '.join(map(str, SIZES))}")
    pixels = np.empty((len(samples), size, size, 3), np.uint8)
    for image_pixels, sample in zip(pixels, samples, strict=True):
        with Image.open(io.BytesIO(sample.webp), formats=("WEBP",)) as image:
            full = np.asarray(image.convert("RGB"))
        if size == 64:
            image_pixels[:] = full
        else:
            pairs = full[0::2].astype(np.uint16) + full[1::2]
            image_pixels[:] = (pairs[:, 0::2] + pairs[:, 1::2] + 2) >> 2
    return pixels


@cache
def _names(novel: bool) -> dict[str, tuple[str, ...]]:
    """Map the held-out (`novel`) or the training concepts, in byte order, to all their names."""
    names = {
        sample.fields["concept"]: tuple(sample.fields["names"])
        for style in TRAINING_STYLES
        for sample in read_style(style)
        if (sample.fields["split"] == "novel") == novel
    }
    return dict(sorted(names.items(), key=lambda item: item[0].encode()))


@cache
def _headings(label: str) -> tuple[str, ...]:
    names = {sample.fields[label] for style in TRAINING_STYLES for sample in read_style(style)}
    return tuple(sorted(names, key=str.encode))


def emoji_samples(split: str) -> tuple[EmojiSample, ...]:
    """The samples of one of `SETS`, in the byte order of their keys. Raises UserError for a damaged shard."""
    if split == "selection":
        tested = {sample.fields["concept"] for sample in emoji_samples("iid")}
        return tuple(sample for sample in emoji_samples("validation") if sample.fields["concept"] not in tested)
    styles, _ = SETS[split]
    chosen = (sample for style in styles for sample in read_style(style) if sample.fields["split"] == split)
    return tuple(sorted(chosen, key=lambda sample: str(sample.fields["key"]).encode()))


def load_emoji(split: str, size: int) -> MemoryPairs:
    """Load one of `SETS` at 64 or 32 px. All sets of training concepts have the same classes in the same order.

    Raises UserError for another size or a damaged shard, and KeyError for another split.
    """
    description, rows = SETS[split][1], emoji_samples(split)
    classes = {
        "concept": tuple(_names(novel=split == "novel")),
        "subgroup": _headings("subgroup"),
        "group": _headings("group"),
        "style": STYLES,
    }
    index = {label: {name: i for i, name in enumerate(names)} for label, names in classes.items()}
    labels = {label: [index[label][s.fields[label]] for s in rows] for label in classes}
    keys, texts = [s.fields["key"] for s in rows], [s.fields["captions"] for s in rows]
    return MemoryPairs.build(f"emoji/{split}", description, keys, texts, labels, classes, decode_samples(rows, size))


def half_of_concepts(pairs: MemoryPairs, name: str) -> MemoryPairs:
    """Return the rows of one of `SETS` whose concepts belong to the half `name`, with these concepts as classes.

    Other labels keep all of their classes. Raises KeyError for another half.
    """
    concepts, split = pairs.classes["concept"], pairs.name.partition("/")[2]
    own = sorted(sha256_order(concepts)[HALVES[name] :: 2])
    chosen = pairs.select(np.isin(pairs.labels["concept"], own))
    names = tuple(concepts[at] for at in own)
    places = {concept: at for at, concept in enumerate(names)}
    labels = np.asarray([places[concepts[at]] for at in chosen.labels["concept"].tolist()], np.int64)
    return replace(
        chosen,
        name=f"{name}/{split}",
        description=f"{pairs.description} One half of the concepts.",
        labels={**chosen.labels, "concept": labels},
        classes={**chosen.classes, "concept": names},
    )


@cache
def emoji_synonyms() -> Mapping[str, tuple[str, ...]]:
    """Map every name of a training concept to the concept's other names. All runs of a process share the mapping."""
    return {
        name: tuple(other for other in names if other != name)
        for names in _names(novel=False).values()
        if len(names) > 1
        for name in names
    }
