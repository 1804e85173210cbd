"""Reads folders of tars that `clip_benchmark_export_wds` writes and DataComp's script downloads."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tarfile import TarInfo
from typing import Any, BinaryIO

import numpy as np

from bench import reading
from bench.data.evaluation.index import SplitRows
from bench.data.evaluation.layouts import Found, split_tars
from bench.data.shards.scan import IMAGES, MAX_IMAGE_BYTES, Unusable, sample_captions
from bench.errors import UserError, one_line
from bench.tars import Broken, tar_members

TEXTS = frozenset({"cls", "txt", "json", "npy"})
PLACE_COLUMNS = ("shard", "offset", "size")  #: number of the tar, bytes of the image in it
MAX_CLASSES = 10**6  #: classes of a data set, and values of a field of its metadata


@dataclass
class _TarSample:
    """The members of a tar that have one key."""

    key: str
    shard: int
    image: tuple[int, int] = (0, 0)  #: offset and size in bytes; size 0: there is none
    texts: dict[str, bytes] = field(default_factory=dict)  #: by extension


@dataclass(frozen=True)
class WebDataset:
    """One split of a data set in this layout."""

    found: Found

    @cached_property
    def files(self) -> list[Path]:
        """The tars, by number."""
        return split_tars(self.found.path)

    def scan(self) -> SplitRows:
        """Read all samples. Raises UserError for a broken tar or a sample that lacks something."""
        samples = [sample for number in range(len(self.files)) for sample in self._samples(number)]
        for sample in samples:
            if not sample.image[1]:
                raise self._fault(sample, f"no image ({', '.join(sorted(IMAGES))})")
        keys = [sample.key for sample in samples]
        if len(set(keys)) < len(keys):  # every shard numbers its samples from 0
            keys = [f"{sample.shard:05d}/{sample.key}" for sample in samples]
        classes = bool(self.found.entry.classes)
        columns = np.array([(one.shard, *one.image) for one in samples], np.int64).reshape(-1, len(PLACE_COLUMNS)).T
        return SplitRows(
            tuple(keys),
            np.array([self._label(sample) for sample in samples], np.int64) if classes else None,
            () if classes else tuple(map(self._captions, samples)),
            self._groups(samples),
            dict(zip(PLACE_COLUMNS, columns, strict=True)),
        ).ordered()

    def lines(self, name: str) -> tuple[str, ...]:
        """Return the lines of a text file next to the splits; () if there is none. Raises UserError for other files."""
        path = self.found.path.parent / name
        return tuple(reading.text_lines(path)) if os.path.lexists(path) else ()

    def data(self, place: Mapping[str, int]) -> bytes:
        """Return the bytes of an image file. Raises UserError if they cannot be read."""
        tar, size = self.files[place["shard"]], place["size"]
        try:
            with reading.open_file(tar) as file:
                data = os.pread(file.fileno(), size, place["offset"])
        except OSError as error:
            raise UserError(f"{tar}: image {dict(place)} cannot be read: {one_line(error)}") from error
        if len(data) != size:
            fault = f"the image at byte {place['offset']} cannot be read: the file ends inside it"
            raise UserError(f"{tar}: {fault}; get it again")
        return data

    def _samples(self, number: int) -> Iterator[_TarSample]:
        """Yield the samples of a shard. The members of a sample are expected to follow each other."""
        sample = None
        try:
            with reading.open_file(self.files[number]) as file:
                for member in tar_members(file, os.fstat(file.fileno()).st_size):
                    head, slash, name = member.name.encode().decode().rpartition("/")
                    stem, _, extension = name.partition(".")
                    if not member.isreg() or member.issparse() or not stem or extension.lower() not in IMAGES | TEXTS:
                        continue
                    key = f"{head}{slash}{stem}"
                    if sample is None or sample.key != key:
                        if sample is not None:
                            yield sample
                        sample = _TarSample(key, number)
                    self._take(sample, extension.lower(), member, file)
        except (OSError, Broken, UnicodeError) as error:
            raise UserError(f"{self.files[number]}: cannot be read: {one_line(error)}; get it again") from error
        if sample is not None:
            yield sample

    def _take(self, sample: _TarSample, extension: str, member: TarInfo, file: BinaryIO) -> None:
        """Note the place of an image, or read a text. Raises UserError if it is too large."""
        most = MAX_IMAGE_BYTES if extension in IMAGES else reading.TEXT_BYTES
        if member.size > most:
            raise self._fault(sample, f"a member .{extension} of {member.size:,} bytes; at most {most:,} are read")
        if extension in IMAGES:
            sample.image = (member.offset_data, member.size)
        else:
            file.seek(member.offset_data)
            sample.texts[extension] = file.read(member.size)

    def _label(self, sample: _TarSample) -> int:
        if "cls" not in sample.texts:
            raise self._fault(sample, "no class (cls)")
        text = sample.texts["cls"].strip()
        if not text.isdigit():
            raise self._fault(sample, f"class {text[:20]!r}, which is not a whole number from 0 on")
        if len(text.lstrip(b"0")) > len(str(MAX_CLASSES - 1)):
            raise self._fault(sample, f"class {text[:20]!r}; there are at most {MAX_CLASSES:,} classes")
        return int(text)

    def _captions(self, sample: _TarSample) -> tuple[str, ...]:
        try:
            return sample_captions(sample.texts.get("txt"), sample.texts.get("json", b""))
        except Unusable as error:
            raise self._fault(sample, f"no usable caption: {': '.join(map(one_line, error.args))}") from error

    def _groups(self, samples: list[_TarSample]) -> dict[str, np.ndarray]:
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
                numbers: Any = np.lib.format.read_array(io.BytesIO(sample.texts["npy"]))  # type: ignore[no-untyped-call]
                values = numbers.ravel("K")
                if len(values) < len(fields):
                    raise ValueError(f"it has {len(values)} numbers; should have {len(fields)} at least")
                row = reading.whole_numbers(values[used])
            except Exception as error:  # a malformed header raises anything from SyntaxError to MemoryError
                raise self._fault(sample, f"metadata (npy) that cannot be read: {one_line(error)}") from error
            if row.min() < 0 or row.max() >= MAX_CLASSES:
                raise self._fault(sample, f"metadata {row.tolist()}; each number should be 0 to {MAX_CLASSES - 1:,}")
            rows.append(row)
        table = np.array(rows, np.int64).reshape(-1, len(used))
        return {fields[number]: table[:, column] for column, number in enumerate(used)}

    def _fault(self, sample: _TarSample, fault: str) -> UserError:
        return UserError(f"{self.files[sample.shard]}: sample {sample.key[:200]!r} has {fault}")
