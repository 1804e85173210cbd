"""What a form of input yields: where the image of a pair lies, and its captions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """One pair as the input lists it. Nothing of its image is read yet."""

    key: str  #: without a dot or a leading slash; "" = its number
    captions: tuple[str, ...]
    path: str  #: file of the image, or of the Parquet table that holds it
    row: int = -1  #: of the Parquet table; -1 for a file of its own
    column: str = ""  #: of the Parquet table


@dataclass(frozen=True)
class Options:
    """How an input is read. A form ignores what it has no use for."""

    images: str | None = None  #: folder that paths of images are relative to; default: the input's own
    image_column: str | None = None
    caption_column: str | None = None
    key_column: str | None = None
    splits: tuple[str, ...] = ()  #: of Karpathy's JSON; none: all


def key_of(path: str) -> str:
    """Return a key made from a relative path: without its suffix, dots replaced, since a key ends at the first dot.

    >>> key_of("val2014/COCO_1.v2.jpg")
    'val2014/COCO_1_v2'
    """
    folder, slash, name = path.replace("\\", "/").rpartition("/")
    return f"{folder.lstrip('/')}{slash}{name.rpartition('.')[0] or name}".replace(".", "_").lstrip("/")
