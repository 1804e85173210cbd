"""features.json: what a feature set holds, who made it, and the size and sha256 of each of its files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from bench import reading
from bench.errors import UserError, one_line
from bench.hashing import digest

VERSION = 1
NAME = "features.json"
IMAGE, TEXT, INDEX = "image.npy", "text.npy", "text_index.npy"
ROWS, MAPPED, PROMPTS = "rows.parquet", "rows.arrow", "prompts.parquet"
EVALUATION = "evaluation"  #: the folder of a set's evaluation sets
ABOUT_BYTES = 1 << 26  #: of features.json; 21,843 classes take 1 MB
AGAIN = "extract or import the set again"


@dataclass(frozen=True)
class Encoder:
    """What made one of the two arrays."""

    name: str  #: "ViT-B-32/openai", "timm:vit_small_patch14_dinov2"; of an imported array, its file
    weights: str  #: sha256 of the weights; "" if it is not known
    transform: str  #: how images or texts were prepared, in words
    dtype: Literal["float16", "float32"]
    width: int
    views: int = 1  #: stored views of each row; texts have one


@dataclass(frozen=True)
class File:
    """A file of the set."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class About:
    """A feature set's description."""

    version: int
    name: str  #: "cc3m/pairs"; of an evaluation set its name, such as "imagenet1k"
    description: str
    made_by: str  #: the command and the version of bench
    rows: int  #: N
    captions: int  #: of all rows together, repeats included
    prompts: int  #: further texts, such as those of classes
    texts: int  #: M, the number of different captions and prompts; 0 without text features
    rows_hash: str  #: sha256 of keys, captions and labels, whatever the file's encoding
    image: Encoder | None
    text: Encoder | None
    classes: Mapping[str, tuple[str, ...]]  #: label name -> class names
    templates: tuple[str, ...]  #: prompts for a class name "{}"
    files: Mapping[str, File]

    def to_json(self) -> bytes:
        """Return the bytes of features.json."""
        return (json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n").encode()

    @property
    def content_hash(self) -> str:
        """sha256 over keys, captions, labels, classes, templates and the recorded sha256 of the arrays."""
        arrays = {name: self.files[name].sha256 for name in (IMAGE, TEXT, PROMPTS) if name in self.files}
        return digest({"rows": self.rows_hash, "arrays": arrays, "classes": self.classes, "templates": self.templates})

    def expected(self) -> tuple[str, ...]:
        """The names of the files that such a set has beside features.json."""
        text = (TEXT, INDEX) if self.text else ()
        prompts = (PROMPTS,) if self.prompts else ()
        return ((IMAGE,) if self.image else ()) + text + (ROWS, MAPPED) + prompts


def read(folder: Path) -> About:
    """Read features.json and compare the sizes of the files with it.

    Raises UserError if it is missing, damaged, of another version, or contradicts itself or the files.
    """
    path = folder / NAME
    try:
        about = TypeAdapter(About).validate_json(reading.content(path, ABOUT_BYTES), strict=True)
    except FileNotFoundError:
        raise UserError(
            f"{path}: no such file; `bench features extract` and `bench features import` make feature sets"
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: is not the description of a feature set ({one_line(error, 200)}); {AGAIN}") from error
    if about.version != VERSION:
        raise UserError(f"{path}: version: is {about.version}, this bench reads {VERSION}; {AGAIN}")
    for field, wrong in _contradictions(about):
        raise UserError(f"{path}: {field}: {wrong}; {AGAIN}")
    for name in about.expected():
        _check_size(folder / name, about.files[name].bytes)
    return about


def evaluation_folders(folder: Path) -> list[Path]:
    """Return the evaluation sets of a feature set, in the order of their names."""
    return sorted(path.parent for path in (folder / EVALUATION).rglob(NAME))


def _contradictions(about: About) -> list[tuple[str, str]]:
    """List the fields that contradict others, each with its fault."""
    faults = []
    if about.rows < 1 or about.captions < about.rows:
        faults.append(("rows", f"{about.rows:,} rows with {about.captions:,} captions, and each row needs one"))
    if about.image is None and about.text is None:
        faults.append(("image", "there is neither an image nor a text array"))
    if (about.texts > 0) != (about.text is not None) or about.texts > about.captions + about.prompts:
        texts = f"{about.captions:,} captions and {about.prompts:,} prompts"
        faults.append(("texts", f"{about.texts:,} text features do not fit {texts}"))
    if set(about.files) != set(about.expected()):
        faults.append(("files", f"are {', '.join(sorted(about.files))}, not {', '.join(sorted(about.expected()))}"))
    for field, encoder in (("image", about.image), ("text", about.text)):
        if encoder and (encoder.width < 1 or encoder.views < 1):
            faults.append((field, f"width {encoder.width}, views {encoder.views}; both are at least 1"))
    return faults


def _check_size(path: Path, expected: int) -> None:
    try:
        size = os.stat(path).st_size
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}; {AGAIN}") from error
    if size != expected:
        raise UserError(f"{path}: has {size:,} bytes, features.json says {expected:,}; it was cut or replaced, {AGAIN}")
