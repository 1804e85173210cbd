"""Reads folders of tars that `clip_benchmark_export_wds` writes and DataComp's script downloads."""

from __future__ import annotations

import hashlib
import io
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from PIL import Image

from bench import reading
from bench.data import photo
from bench.data.evaluation.index import contradicted
from bench.data.evaluation.layouts import Found, shards
from bench.data.evaluation.rows import CLASSES, Row, Rows, drawn_rows
from bench.errors import UserError, one_line

if TYPE_CHECKING:
    from bench.data.shards.tar import Member

IMAGES = ("webp", "png", "jpg", "jpeg")
TEXTS = ("cls", "txt", "json", "npy")
IMAGE_BYTES = 1 << 27  #: of an image file
PLACES = ("shard", "start", "end", "offset", "size")  #: number of the tar, bytes of the sample, bytes of its image


@dataclass
class _Sample:
    """The members of a tar that have one key."""

    key: str
    shard: int
    start: int = 0  #: byte after the sample before it
    end: int = 0  #: byte at which the next sample begins; the file's size if there is none
    image: tuple[int, int] = (0, 0)  #: offset and size in bytes; size 0: there is none
    texts: dict[str, bytes] = field(default_factory=dict)  #: by extension


@dataclass(frozen=True)
class WebDataset:
    """One split of a data set in this layout."""

    found: Found

    @cached_property
    def files(self) -> list[Path]:
        """The tars, by number."""
        return shards(self.found.path)

    @property
    def places(self) -> frozenset[str]:
        """The names of a row's place."""
        return frozenset(PLACES)

    def scan(self) -> Rows:
        """Read all samples. Raises UserError for a broken tar or a sample that lacks something."""
        samples = [sample for number in range(len(self.files)) for sample in self._samples(number)]
        rows = self._rows(samples)
        if len(set(rows.keys)) < len(rows):  # every shard numbers its samples from 0
            rows = replace(rows, keys=tuple(_numbered(sample.shard, sample.key) for sample in samples))
        return rows.ordered()

    def _rows(self, samples: list[_Sample]) -> Rows:
        retrieval = self.found.entry.kind == "retrieval"
        labels = None if retrieval else np.array([self._label(sample) for sample in samples], np.int64)
        captions = tuple(map(self._captions, samples)) if retrieval else ()
        places = [(one.shard, one.start, one.end, *one.image) for one in samples]
        columns = np.array(places, np.int64).reshape(-1, len(PLACES)).T
        keys = tuple(sample.key for sample in samples)
        return Rows(keys, labels, captions, self._groups(samples), dict(zip(PLACES, columns, strict=True)))

    def agrees(self, rows: Rows) -> bool:
        """Whether the rows divide each tar among them without a gap, and a few are the samples that lie there.

        Raises UserError for a tar that cannot be read.
        """
        shard, first, last = (rows.places[name] for name in ("shard", "start", "end"))
        order = np.lexsort((first, shard))
        shard, first, last = shard[order], first[order], last[order]
        if int(shard[-1]) >= len(self.files):
            return False
        begins = np.append(True, shard[1:] != shard[:-1])  # whether a row is the first of its tar
        sizes = np.array([self._size(number) for number in shard[begins].tolist()], np.int64)
        whole = (first[begins] == 0).all() and (last[np.roll(begins, -1)] == sizes).all()
        if not whole or (first[1:] != last[:-1])[~begins[1:]].any() or (first >= last).any():
            return False
        empty = {*range(len(self.files))} - {*shard[begins].tolist()}
        if any(next(self._samples(number), None) is not None for number in empty):
            return False
        return all(self._holds(rows.row(number)) for number in drawn_rows(self.found.entry.name, len(rows)))

    def _size(self, number: int) -> int:
        try:
            return self.files[number].stat().st_size
        except OSError as error:
            raise UserError(f"{self.files[number]}: cannot be read: {one_line(error)}; get it again") from error

    def _holds(self, row: Row) -> bool:
        """Whether the bytes of a row in its tar are one sample, with the row's key, image, class and texts."""
        place = row.place
        try:
            samples = list(islice(self._samples(place["shard"], place["start"], place["end"]), 2))
            own = self._rows(samples).row(0)
        except (UserError, IndexError):  # no sample begins there
            return False
        same = row.key in (own.key, _numbered(place["shard"], own.key)) and len(samples) == 1
        return same and replace(own, key=row.key, digest=row.digest) == row

    def image(self, row: Row) -> Image.Image:
        """Return the RGB image of a row.

        Raises UserError if it cannot be decoded, or if the tar has another sample in its place.
        """
        if not self._holds(row):
            raise contradicted(self.found, row.key)
        data = self._data(row.place)
        if row.digest not in ("", hashlib.sha256(data).hexdigest()):
            raise contradicted(self.found, row.key)
        try:
            return photo.decode(data)
        except photo.Undecodable as error:
            tar = self.files[row.place["shard"]]
            raise UserError(f"{tar}: the image at byte {row.place['offset']} cannot be read: {error}") from error

    def digest(self, place: Mapping[str, int]) -> str:
        """Return the sha256 of a row's image file."""
        return hashlib.sha256(self._data(place)).hexdigest()

    def lines(self, name: str) -> tuple[str, ...]:
        """Return the lines of a text file beside the splits; () if there is none. Raises UserError for other files."""
        path = self.found.path.parent / name
        try:
            return tuple(reading.lines(path)) if os.path.lexists(path) else ()
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: {one_line(error)}") from error

    def _data(self, place: Mapping[str, int]) -> bytes:
        try:
            tar, size = self.files[place["shard"]], place["size"]
            with reading.opened(tar) as file:
                data = os.pread(file.fileno(), min(size, IMAGE_BYTES), place["offset"])
        except (OSError, IndexError) as error:
            raise UserError(f"{self.found.path}: image {dict(place)} cannot be read: {one_line(error)}") from error
        if len(data) != size:
            fault = f"the image at byte {place['offset']} cannot be read: the file ends inside it"
            raise UserError(f"{tar}: {fault}; get it again")
        return data

    def _samples(self, number: int, start: int = 0, end: int = sys.maxsize) -> Iterator[_Sample]:
        """Yield the samples of a shard that begin at the bytes from `start` to `end`.

        The members of a sample are expected to follow each other.
        """
        from bench.data.shards.tar import Broken, members

        sample = None
        try:
            with reading.opened(self.files[number]) as file:
                size = os.fstat(file.fileno()).st_size
                for member in members(file, size, start):
                    if member.start >= end:
                        break
                    head, _, name = member.name.decode().rpartition("/")
                    stem, _, extension = name.partition(".")
                    if member.kind != "file" or not stem or extension.lower() not in IMAGES + TEXTS:
                        continue
                    key = f"{head}/{stem}" if head else stem
                    if sample is None or sample.key != key:
                        if sample is not None:
                            yield replace(sample, end=member.start)
                        sample = _Sample(key, number, member.start if sample else start)
                    self._take(sample, extension.lower(), member, file)
        except (OSError, Broken, UnicodeDecodeError) as error:
            raise UserError(f"{self.files[number]}: cannot be read: {one_line(error)}; get it again") from error
        if sample is not None:
            yield replace(sample, end=min(end, size))

    def _take(self, sample: _Sample, extension: str, member: Member, file: BinaryIO) -> None:
        """Note the place of an image, or read a text. Raises UserError if it is too large."""
        most = IMAGE_BYTES if extension in IMAGES else reading.TEXT_BYTES
        if member.size > most:
            raise self._fault(sample, f"a member .{extension} of {member.size:,} bytes; at most {most:,} are read")
        if extension in IMAGES:
            sample.image = (member.offset, member.size)
        else:
            file.seek(member.offset)
            sample.texts[extension] = file.read(member.size)

    def _label(self, sample: _Sample) -> int:
        if not sample.image[1]:
            raise self._fault(sample, f"no image ({', '.join(IMAGES)})")
        if "cls" not in sample.texts:
            raise self._fault(sample, "no class (cls)")
        text = sample.texts["cls"].strip()
        if not text.isdigit():
            raise self._fault(sample, f"class {text[:20]!r}, which is no number from 0 on")
        if len(text.lstrip(b"0")) > len(str(CLASSES - 1)):
            raise self._fault(sample, f"class {text[:20]!r}; there are at most {CLASSES:,} classes")
        return int(text)

    def _captions(self, sample: _Sample) -> tuple[str, ...]:
        if not sample.image[1]:
            raise self._fault(sample, f"no image ({', '.join(IMAGES)})")
        try:
            if "txt" in sample.texts:
                texts: object = sample.texts["txt"].decode().splitlines()
            else:
                texts = reading.parsed(sample.texts.get("json", b"[]"))
                if isinstance(texts, dict):
                    texts = texts.get("captions", texts.get("caption", []))
            listed = [texts] if isinstance(texts, str) else texts
            if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
                raise ValueError("the .json should be a list of texts, or have one as captions")
            "".join(listed).encode()  # JSON can escape a lone surrogate, which has no UTF-8
        except ValueError as error:
            raise self._fault(sample, f"captions that cannot be read: {one_line(error)}") from error
        captions = tuple(text for text in listed if text)
        if not captions:
            raise self._fault(sample, "no caption (txt, json)")
        return captions

    def _groups(self, samples: list[_Sample]) -> dict[str, np.ndarray]:
        """Return the integer columns of the metadata by name, int64 [n] each."""
        fields = self.found.entry.fields
        used = [column for column, name in enumerate(fields) if name]
        if not used:
            return {}
        rows = []
        for sample in samples:
            if "npy" not in sample.texts:
                raise self._fault(sample, f"no metadata (npy) of {', '.join(filter(None, fields))}")
            try:
                values = reading.numbers(io.BytesIO(sample.texts["npy"]))
                if len(values) < len(fields):
                    raise self._fault(sample, f"metadata of {len(values)} numbers; should have {len(fields)} at least")
                row = reading.whole(values[used])
            except ValueError as error:
                raise self._fault(sample, f"metadata (npy) that cannot be read: {one_line(error)}") from error
            if row.min() < 0 or row.max() >= CLASSES:
                raise self._fault(sample, f"metadata {row.tolist()}; each number should be 0 to {CLASSES - 1:,}")
            rows.append(row)
        table = np.array(rows, np.int64).reshape(-1, len(used))
        return {fields[number]: table[:, column] for column, number in enumerate(used)}

    def _fault(self, sample: _Sample, fault: str) -> UserError:
        return UserError(f"{self.files[sample.shard]}: sample {sample.key[:200]!r} has {fault}")


def _numbered(shard: int, key: str) -> str:
    """Return the key of a sample of which other shards have the like."""
    return f"{shard:05d}/{key}"
