"""Reads Arrow files of the Hugging Face hub's cache, in which DataComp's script stores retrieval sets and WinoGAViL."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from bench.data import photo
from bench.data.evaluation.index import Rows
from bench.data.evaluation.layouts import Found
from bench.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = {"retrieval": ("image", "caption"), "association": ("candidates", "candidate_images", "cue", "associations")}


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

    @cached_property
    def table(self) -> pa.Table:
        """The whole table, mapped into memory. Raises UserError if the file is damaged or lacks a column."""
        import pyarrow as pa

        try:
            table = pa.ipc.open_stream(pa.memory_map(str(self.found.path))).read_all()
        except (OSError, pa.ArrowInvalid) as error:
            raise UserError(f"{self.found.path}: cannot be read: {error}; get it again") from error
        lacking = [name for name in _COLUMNS[self.found.entry.kind] if name not in table.column_names]
        if lacking:
            raise UserError(f"{self.found.path}: has no column {', '.join(lacking)}")
        return table

    def scan(self) -> Rows:
        """Return a row for each image: with its captions, or with its name among the candidates.

        Raises UserError as `table` does.
        """
        if self.found.entry.kind == "retrieval":
            texts = [(one,) if isinstance(one, str) else tuple(one) for one in self.table["caption"].to_pylist()]
            keys = tuple(f"s{number:07d}" for number in range(len(texts)))
            return Rows(keys, None, tuple(texts), {}, {"number": np.arange(len(keys), dtype=np.int64)}).ordered()
        first: dict[str, tuple[int, int]] = {}  # name -> its first puzzle, and its position there
        for number, names in enumerate(self.table["candidates"].to_pylist()):
            for slot, name in enumerate(names):
                first.setdefault(name, (number, slot))
        places = np.array([*first.values()], np.int64).reshape(-1, 2)
        columns = {"number": places[:, 0], "slot": places[:, 1]}
        return Rows(tuple(first), None, tuple((name,) for name in first), {}, columns).ordered()

    def puzzles(self, rows: Rows) -> tuple[Puzzle, ...]:
        """Return the puzzles over `rows`, which `scan` gave; () if the data set has none."""
        if self.found.entry.kind != "association":
            return ()
        row_of = {key: row for row, key in enumerate(rows.keys)}
        columns = (self.table[name].to_pylist() for name in ("cue", "candidates", "associations"))
        return tuple(
            Puzzle(cue, tuple(row_of[name] for name in names), tuple(name in chosen for name in names))
            for cue, names, chosen in zip(*columns, strict=True)
        )

    def image(self, place: Mapping[str, int]) -> Image.Image:
        """Return the RGB image of a row. Raises UserError if it is missing or cannot be decoded."""
        try:
            return photo.decode(self._data(place))
        except photo.Undecodable as error:
            raise UserError(f"{self.found.path}: image {dict(place)} cannot be read: {error}") from error

    def digest(self, place: Mapping[str, int]) -> str:
        """Return the sha256 of a row's image file. Raises UserError if it is missing."""
        return hashlib.sha256(self._data(place)).hexdigest()

    def lines(self, name: str) -> tuple[str, ...]:
        """Return (): this layout has no text files."""
        return ()

    def _data(self, place: Mapping[str, int]) -> bytes:
        if "slot" in place:
            value: Mapping[str, Any] = self.table["candidate_images"][place["number"]].as_py()[place["slot"]]
        else:
            value = self.table["image"][place["number"]].as_py()
        if value.get("bytes") is not None:
            return bytes(value["bytes"])
        try:
            return Path(value["path"]).read_bytes()
        except OSError as error:
            fault = f"its image {value['path']} cannot be read: {error.strerror}"
            raise UserError(f"{self.found.path}: {fault}; get it again") from error
