"""Reads folders of tars that `clip_benchmark_export_wds` writes and DataComp's script downloads."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from PIL import Image

from bench.data import photo
from bench.data.evaluation.index import Rows
from bench.data.evaluation.layouts import Found, shards
from bench.errors import UserError

IMAGES = ("webp", "png", "jpg", "jpeg")
TEXTS = ("cls", "txt", "json", "npy")


@dataclass
class _Sample:
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
        return shards(self.found.path)

    def scan(self) -> Rows:
        """Read all samples. Raises UserError for a broken tar or a sample that lacks something."""
        samples = [sample for number in range(len(self.files)) for sample in self._samples(number)]
        keys = tuple(sample.key for sample in samples)
        if len(set(keys)) < len(keys):  # every shard numbers its samples from 0
            keys = tuple(f"{sample.shard:05d}/{sample.key}" for sample in samples)
        retrieval = self.found.entry.kind == "retrieval"
        labels = None if retrieval else np.array([self._label(sample) for sample in samples], np.int64)
        captions = tuple(map(self._captions, samples)) if retrieval else ()
        places = np.array([(sample.shard, *sample.image) for sample in samples], np.int64).reshape(-1, 3)
        return Rows(
            keys,
            labels,
            captions,
            self._groups(samples),
            {name: places[:, column] for column, name in enumerate(("shard", "offset", "size"))},
        ).ordered()

    def image(self, place: Mapping[str, int]) -> Image.Image:
        """Return the RGB image of a row. Raises UserError if it cannot be decoded."""
        try:
            return photo.decode(self._data(place))
        except photo.Undecodable as error:
            tar = self.files[place["shard"]]
            raise UserError(f"{tar}: the image at byte {place['offset']} cannot be read: {error}") from error

    def digest(self, place: Mapping[str, int]) -> str:
        """Return the sha256 of a row's image file."""
        return hashlib.sha256(self._data(place)).hexdigest()

    def lines(self, name: str) -> tuple[str, ...]:
        """Return the lines of a text file beside the splits; () if there is none."""
        path = self.found.path.parent / name
        return tuple(line.strip() for line in path.read_text("utf-8").splitlines()) if path.is_file() else ()

    def _data(self, place: Mapping[str, int]) -> bytes:
        with self.files[place["shard"]].open("rb") as file:
            return os.pread(file.fileno(), place["size"], place["offset"])

    def _samples(self, number: int) -> Iterator[_Sample]:
        """Yield the samples of a shard. The members of a sample are expected to follow each other."""
        sample = None
        try:
            with tarfile.open(self.files[number], "r:") as tar:
                for member in tar:
                    head, _, name = member.name.rpartition("/")
                    stem, _, extension = name.partition(".")
                    if not member.isfile() or not stem or extension.lower() not in IMAGES + TEXTS:
                        continue
                    key = f"{head}/{stem}" if head else stem
                    if sample is None or sample.key != key:
                        if sample is not None:
                            yield sample
                        sample = _Sample(key, number)
                    if extension.lower() in IMAGES:
                        sample.image = (member.offset_data, member.size)
                    else:
                        text = tar.extractfile(member)
                        sample.texts[extension.lower()] = text.read() if text else b""
        except (OSError, tarfile.TarError) as error:
            raise UserError(f"{self.files[number]}: cannot be read: {error}; get it again") from error
        if sample is not None:
            yield sample

    def _label(self, sample: _Sample) -> int:
        if not sample.image[1]:
            raise self._fault(sample, f"no image ({', '.join(IMAGES)})")
        try:
            return int(sample.texts["cls"])
        except KeyError as error:
            raise self._fault(sample, "no class (cls)") from error
        except ValueError as error:
            raise self._fault(sample, f"class {sample.texts['cls'][:20]!r}, which is no number") from error

    def _captions(self, sample: _Sample) -> tuple[str, ...]:
        if not sample.image[1]:
            raise self._fault(sample, f"no image ({', '.join(IMAGES)})")
        try:
            if "txt" in sample.texts:
                texts = sample.texts["txt"].decode().splitlines()
            else:
                content = json.loads(sample.texts.get("json", b"[]"))
                texts = content if isinstance(content, list) else content.get("captions", content.get("caption", []))
        except ValueError as error:
            raise self._fault(sample, f"captions that cannot be read: {error}") from error
        captions = (texts,) if isinstance(texts, str) else tuple(text for text in texts if text)
        if not captions:
            raise self._fault(sample, "no caption (txt, json)")
        return captions

    def _groups(self, samples: list[_Sample]) -> dict[str, np.ndarray]:
        """Return the integer columns of the metadata by name, int64 [n] each."""
        fields = self.found.entry.fields
        if not fields:
            return {}
        rows = []
        for sample in samples:
            if "npy" not in sample.texts:
                raise self._fault(sample, f"no metadata (npy) of {', '.join(filter(None, fields))}")
            values = np.load(io.BytesIO(sample.texts["npy"]), allow_pickle=False).ravel()
            if len(values) < len(fields):
                raise self._fault(sample, f"metadata of {len(values)} numbers; should have {len(fields)} at least")
            rows.append(values[: len(fields)].astype(np.int64))
        table = np.array(rows, np.int64).reshape(-1, len(fields))
        return {name: table[:, column] for column, name in enumerate(fields) if name}

    def _fault(self, sample: _Sample, fault: str) -> UserError:
        return UserError(f"{self.files[sample.shard]}: sample {sample.key!r} has {fault}")
