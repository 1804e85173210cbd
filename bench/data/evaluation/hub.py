"""Reads Arrow files of the Hugging Face hub's cache, in which DataComp's script stores retrieval sets and WinoGAViL."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
from PIL import Image

from bench import reading
from bench.data import photo
from bench.data.evaluation.index import contradicted
from bench.data.evaluation.layouts import Found
from bench.data.evaluation.rows import Row, Rows
from bench.errors import UserError, one_line

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = {"retrieval": ("image", "caption"), "association": ("candidates", "candidate_images", "cue", "associations")}
TEXT, BYTES = ("string", "large_string", "null"), ("binary", "large_binary", "null")
IMAGE_BYTES = 1 << 27  #: of an image file


@dataclass(frozen=True)
class Puzzle:
    """A cue and the images that it may refer to."""

    cue: str
    candidates: tuple[int, ...]  #: rows of the images
    right: tuple[bool, ...]  #: for each candidate whether people chose it; at least one is true


@dataclass(frozen=True)
class HubCache:
    """One split of a data set in this layout. The file contains the images or their paths."""

    found: Found

    @property
    def files(self) -> list[Path]:
        """The Arrow file, in a list."""
        return [self.found.path]

    @property
    def places(self) -> frozenset[str]:
        """The names of a row's place."""
        return frozenset(("number", "slot") if self.found.entry.kind == "association" else ("number",))

    def agrees(self, rows: Rows) -> bool:
        """Whether the rows are those of `scan`, which reads no image. Raises UserError as `scan` does."""
        own = self.scan()
        return rows.same_images(own) and rows.captions == own.captions

    @cached_property
    def table(self) -> pa.Table:
        """The whole table, mapped into memory.

        Raises UserError if the file is damaged, or lacks a column, or if a column has gaps or another type.
        """
        import pyarrow as pa

        try:
            reading.opened(self.found.path).close()  # a FIFO would be waited for
            table = pa.ipc.open_stream(pa.memory_map(str(self.found.path))).read_all()
            table.validate(full=True)
        except (OSError, ValueError, MemoryError, OverflowError, pa.ArrowException) as error:
            raise UserError(f"{self.found.path}: cannot be read: {one_line(error, 200)}; get it again") from error
        lacking = [name for name in _COLUMNS[self.found.entry.kind] if name not in table.column_names]
        if lacking:
            raise UserError(f"{self.found.path}: has no column {', '.join(lacking)}")
        for name in _COLUMNS[self.found.entry.kind]:
            if table[name].null_count or not _fits(name, table[name].type):
                raise UserError(f"{self.found.path}: column {name} is of type {table[name].type}, or has gaps")
        return table

    def scan(self) -> Rows:
        """Return a row for each image: with its captions, or with its name among the candidates.

        Raises UserError as `table` does, and for an image without captions or a puzzle that does not fit together.
        """
        if self.found.entry.kind == "retrieval":
            texts = [(one,) if isinstance(one, str) else tuple(one) for one in self.table["caption"].to_pylist()]
            for number, own in enumerate(texts):
                if not own or None in own:
                    raise UserError(f"{self.found.path}: image {number} has no caption, or an empty one; get it again")
            keys = tuple(f"s{number:07d}" for number in range(len(texts)))
            return Rows(keys, None, tuple(texts), {}, {"number": np.arange(len(keys), dtype=np.int64)}).ordered()
        first: dict[str, tuple[int, int]] = {}  # name -> its first puzzle, and its position there
        columns = [self.table[name] for name in ("candidates", "candidate_images", "associations")]
        images = pc.list_value_length(columns[1]).to_pylist()
        for number, (names, chosen) in enumerate(zip(columns[0].to_pylist(), columns[2].to_pylist(), strict=True)):
            if len(names) != images[number] or None in names or not set(chosen) & set(names):
                fault = f"puzzle {number} has {len(names)} candidates, {images[number]} images and answers {chosen}"
                raise UserError(f"{self.found.path}: {one_line(fault, 300)}; get it again")
            for slot, name in enumerate(names):
                first.setdefault(name, (number, slot))
        places = np.array([*first.values()], np.int64).reshape(-1, 2)
        slots = {"number": places[:, 0], "slot": places[:, 1]}
        return Rows(tuple(first), None, tuple((name,) for name in first), {}, slots).ordered()

    def puzzles(self, rows: Rows) -> tuple[Puzzle, ...]:
        """Return the puzzles over `rows`, which `scan` gave; () if the data set has none."""
        if self.found.entry.kind != "association":
            return ()
        row_of = {key: row for row, key in enumerate(rows.keys)}
        columns = [self.table[name].to_pylist() for name in ("cue", "candidates", "associations")]
        return tuple(
            Puzzle(cue, tuple(row_of[name] for name in names), tuple(name in chosen for name in names))
            for cue, names, chosen in zip(*columns, strict=True)
        )

    def image(self, row: Row) -> Image.Image:
        """Return the RGB image of a row. Raises UserError if it is missing, another one, or cannot be decoded."""
        data = self._data(row.place)
        if row.digest not in ("", hashlib.sha256(data).hexdigest()):
            raise contradicted(self.found, row.key)
        try:
            return photo.decode(data)
        except photo.Undecodable as error:
            raise UserError(f"{self.found.path}: image {dict(row.place)} cannot be read: {error}") from error

    def digest(self, place: Mapping[str, int]) -> str:
        """Return the sha256 of a row's image file. Raises UserError if it is missing."""
        return hashlib.sha256(self._data(place)).hexdigest()

    def lines(self, name: str) -> tuple[str, ...]:
        """Return (): this layout has no text files."""
        return ()

    def _data(self, place: Mapping[str, int]) -> bytes:
        try:
            if "slot" in place:
                value: Mapping[str, Any] = self.table["candidate_images"][place["number"]].as_py()[place["slot"]] or {}
            else:
                value = self.table["image"][place["number"]].as_py()
        except IndexError as error:
            raise UserError(f"{self.found.path}: has no image {dict(place)}; get it again") from error
        if value.get("bytes") is not None:
            return bytes(value["bytes"])
        if value.get("path") is None:
            raise UserError(f"{self.found.path}: image {dict(place)} has neither bytes nor a path; get it again")
        try:
            return reading.content(Path(value["path"]), IMAGE_BYTES)
        except OSError as error:
            fault = f"its image {value['path']} cannot be read: {error.strerror}"
            raise UserError(f"{self.found.path}: {fault}; get it again") from error


def _fits(column: str, kind: pa.DataType) -> bool:
    """Whether a column has the type that the hub gives it: an image, a text, or a list of one of these."""
    import pyarrow.types as types

    listed = kind.value_type if types.is_list(kind) or types.is_large_list(kind) else None
    own = kind if column in ("image", "cue") or (column == "caption" and listed is None) else listed
    if "image" not in column:
        return str(own) in TEXT
    parts = {field.name: str(field.type) for field in own} if own is not None and types.is_struct(own) else {}
    return parts.get("bytes") in BYTES and parts.get("path") in TEXT
