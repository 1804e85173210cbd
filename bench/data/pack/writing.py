"""Writes one shard with webdataset's ShardWriter; the same samples give the same bytes."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from PIL import Image

from bench import reading
from bench.data.photo import FORMATS
from bench.data.shards.scan import MAX_IMAGE_BYTES, Unusable, refuse_undecodable_image
from bench.store import files

SUFFIXES = {"JPEG": "jpg", "MPO": "jpg", "PNG": "png", "WEBP": "webp"}


@dataclass(frozen=True)
class ListedSample:
    """One pair as the input lists it. Its image is not read yet."""

    key: str  #: without a dot or a leading slash; "" = its number
    captions: tuple[str, ...]
    path: str  #: file of the image, or of the Parquet table that holds it
    row: int = -1  #: of the Parquet table; -1 for a file of its own
    column: str = ""  #: of the Parquet table


@dataclass(frozen=True)
class PackOptions:
    """Options of reading an input. A form ignores those that it has no use for, but refuses `splits`."""

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


@dataclass(frozen=True)
class OmittedSample:
    """A sample that is left out, and why."""

    key: str
    path: str
    reason: str  #: one of a few; faults are counted by it
    detail: str


@dataclass(frozen=True)
class PackJob:
    """One shard to write."""

    samples: tuple[ListedSample, ...]
    tar: Path
    note: Path  #: the file that is written when the shard is complete: its bytes, samples and faults


def make_shard(job: PackJob) -> int:
    """Write a shard and then its note, each completely or not at all; return the number of its samples."""
    import webdataset

    faults: list[OmittedSample] = []
    count = 0

    def write(path: Path) -> None:
        nonlocal count
        with path.open("wb") as file:
            settings = {"mtime": 0, "user": "", "group": "", "format": "PAX_FORMAT", "encoder": False}
            every = len(job.samples) + 1
            with webdataset.ShardWriter(
                "%d", maxcount=every, maxsize=float("inf"), verbose=0, opener=lambda _: file, **settings
            ) as shard:
                for member in _members(job.samples, faults):
                    shard.write(member)
                    count += 1

    files.write_path(job.tar, write)
    note = {"bytes": job.tar.stat().st_size, "samples": count, "faults": [asdict(one) for one in faults]}
    files.write_json(job.note, note)
    return count


def read_shard_note(job: PackJob) -> tuple[int, list[OmittedSample]] | None:
    """Return the number of samples and the faults of a shard; None if it is not whole."""
    try:
        note = reading.parse_json(reading.read_file(job.note, reading.JSON_BYTES))
        whole = job.tar.stat().st_size == note["bytes"]
        return (note["samples"], [OmittedSample(**one) for one in note["faults"]]) if whole else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _members(samples: Sequence[ListedSample], faults: list[OmittedSample]) -> Iterator[dict[str, Any]]:
    """Yield what webdataset writes for each good sample; add the others to `faults`."""
    tables = _Tables()
    for sample in samples:
        captions = [text for text in map(str.strip, sample.captions) if text]
        try:
            if not captions:
                detail = "no text" if sample.captions else "nothing says what the image shows"
                raise Unusable("empty caption" if sample.captions else "no caption", detail)
            data = tables.image(sample) if sample.row >= 0 else _file(sample.path)
            member = {"__key__": sample.key, _suffix(data): data, "txt": captions[0].encode()}
            if len(captions) > 1 or "\n" in captions[0]:  # readers take this list, not the lines of the .txt
                member["json"] = json.dumps({"captions": captions}, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            faults.append(OmittedSample(ascii(sample.key), sample.path, "caption is not UTF-8", str(error)))
        except Unusable as left:
            faults.append(OmittedSample(sample.key, sample.path, *left.args))
        else:
            yield member


def _file(path: str) -> bytes:
    try:
        with reading.open_file(path) as file:
            return file.read(MAX_IMAGE_BYTES + 1)
    except FileNotFoundError:
        raise Unusable("missing file", "there is no such file") from None
    except (OSError, ValueError) as error:
        raise Unusable("unreadable file", str(error)) from error


def _suffix(data: bytes) -> str:
    """Return the suffix of an image's format. Raises Unusable if training could not read it."""
    if len(data) > MAX_IMAGE_BYTES:
        raise Unusable("too large", f"has more than {MAX_IMAGE_BYTES:,} bytes")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about odd metadata and large images, as the index does
        refuse_undecodable_image(data)
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.format not in SUFFIXES:
                raise Unusable("undecodable image", f"is {image.format}; shards hold {', '.join(SUFFIXES)}")
            return SUFFIXES[image.format]


class _Tables:
    """Images of Parquet tables; one group of rows is in memory."""

    def __init__(self) -> None:
        self._at: tuple[str, int] | None = None
        self._rows: Any = None
        self._first = 0

    def image(self, sample: ListedSample) -> bytes:
        """Return the bytes of a sample's image. Raises Unusable if it has none."""
        with pq.ParquetFile(sample.path) as table:
            first, group = 0, 0
            while sample.row >= first + table.metadata.row_group(group).num_rows:
                first, group = first + table.metadata.row_group(group).num_rows, group + 1
            if self._at != (sample.path, group):
                self._rows = table.read_row_group(group, columns=[sample.column])[sample.column]
                self._at, self._first = (sample.path, group), first
        image = self._rows[sample.row - self._first].as_py() or {}
        if not image.get("bytes"):
            raise Unusable("missing file", f"row {sample.row} holds no image bytes")
        return bytes(image["bytes"])
