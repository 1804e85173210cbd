"""features.json: the description of a feature set, with the size and sha256 of each of its files."""

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
from bench.hashing import digest, file_hash

VERSION = 1
NAME = "features.json"
IMAGE, TEXT, INDEX = "image.npy", "text.npy", "text_index.npy"
ROWS, MAPPED, PROMPTS = "rows.parquet", "rows.arrow", "prompts.parquet"
HASHED_FILES = (INDEX, MAPPED, PROMPTS)  #: files whose sha256 is compared whenever a set is opened
EVALUATION_FOLDER = "evaluation"  #: the folder of a set's evaluation sets
MAX_DESCRIPTION_BYTES = 1 << 26  #: of features.json; 21,843 classes take 1 MB
RENEW_SET = "extract or import the set again"


@dataclass(frozen=True)
class Encoder:
    """Encoder that made one of the two arrays."""

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
class SetDescription:
    """A feature set's description."""

    version: int
    name: str  #: "cc3m/pairs"; of an evaluation set its name, such as "imagenet1k"
    description: str
    made_by: str  #: the command and the version of bench
    rows: int  #: N
    captions: int  #: of all rows together, repeats included
    prompts: int  #: further texts, such as those of classes
    texts: int  #: M, the number of distinct captions and prompts; 0 without text features
    rows_hash: str  #: sha256 of keys, captions and labels, whatever the file's encoding
    image: Encoder
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
        """The names of the files that such a set has besides features.json."""
        text = (TEXT, INDEX) if self.text else ()
        prompts = (PROMPTS,) if self.prompts else ()
        return (IMAGE, *text, ROWS, MAPPED, *prompts)


def read_description(folder: Path) -> SetDescription:
    """Read features.json; compare with it the sizes of all files, and the sha256 of those that are not arrays.

    Raises UserError if it is missing, damaged or of another version, or if a file is missing or was changed.
    """
    path = folder / NAME
    try:
        about = TypeAdapter(SetDescription).validate_json(reading.read_file(path, MAX_DESCRIPTION_BYTES), strict=True)
    except FileNotFoundError:
        fix = "`bench features extract` and `bench features convert` make feature sets"
        raise UserError(f"{path}: no such file; {fix}") from None
    except (OSError, ValueError) as error:
        fault = f"is not the description of a feature set ({one_line(error, 200)})"
        raise UserError(f"{path}: {fault}; {RENEW_SET}") from error
    if about.version != VERSION:
        raise UserError(f"{path}: version: is {about.version}, this bench reads {VERSION}; {RENEW_SET}")
    if set(about.files) != set(about.expected()):
        names = (", ".join(sorted(names)) for names in (about.files, about.expected()))
        raise UserError(f"{path}: files: are {', not '.join(names)}; {RENEW_SET}")
    for name in about.expected():
        refuse_changed_file(folder / name, about.files[name], whole=name in HASHED_FILES)
    return about


def refuse_changed_file(path: Path, file: File, whole: bool = True) -> None:
    """Raise UserError unless a file has the size of its description and, if `whole`, the sha256."""
    try:
        size, own = os.stat(path).st_size, file_hash(path) if whole else file.sha256
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}; {RENEW_SET}") from error
    if size != file.bytes:
        raise UserError(f"{path}: has {size:,} bytes, {NAME} says {file.bytes:,}; it was cut or replaced, {RENEW_SET}")
    if own != file.sha256:
        fault = f"sha256 is {own[:16]}..., {NAME} says {file.sha256[:16]}..."
        raise UserError(f"{path}: {fault}; it was changed, {RENEW_SET}")


def evaluation_folders(folder: Path) -> list[Path]:
    """Return the evaluation sets of a feature set, in the order of their names."""
    return sorted(path.parent for path in (folder / EVALUATION_FOLDER).rglob(NAME))
