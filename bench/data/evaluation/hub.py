"""Reads WinoGAViL from the Arrow file that DataComp's script leaves in its Hugging Face hub cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench import reading
from bench.data.evaluation.index import SplitRows
from bench.data.evaluation.layouts import Found
from bench.data.shards.scan import MAX_IMAGE_BYTES
from bench.errors import UserError, one_line

_IMAGES = pa.list_(pa.struct({"bytes": pa.binary(), "path": pa.string()}))
_TEXTS = pa.list_(pa.string())
COLUMNS = {"candidates": _TEXTS, "candidate_images": _IMAGES, "cue": pa.string(), "associations": _TEXTS}


@dataclass(frozen=True)
class Puzzle:
    """A cue and the images that it may refer to."""

    cue: str
    candidates: tuple[int, ...]  #: rows of the images
    right: tuple[bool, ...]  #: for each candidate whether people chose it; at least one is true


@dataclass(frozen=True)
class HubCache:
    """The test split of WinoGAViL. The file contains the images or their paths."""

    found: Found

    @property
    def files(self) -> list[Path]:
        """The Arrow file, in a list."""
        return [self.found.path]

    @cached_property
    def table(self) -> pa.Table:
        """The whole table, mapped into memory.

        Raises UserError if the file is damaged, or lacks a column, or if a column has gaps or another type.
        """
        try:
            reading.open_file(self.found.path).close()  # a FIFO would be waited for
            table = pa.ipc.open_stream(pa.memory_map(str(self.found.path))).read_all()
            table.validate(full=True)
            table = table.select(list(COLUMNS)).cast(pa.schema(COLUMNS))
        except (OSError, ValueError, KeyError, MemoryError, OverflowError, pa.ArrowException) as error:
            raise UserError(f"{self.found.path}: cannot be read: {one_line(error, 200)}; get it again") from error
        if gaps := [name for name in COLUMNS if table[name].null_count]:
            raise UserError(f"{self.found.path}: column {gaps[0]} has gaps; get it again")
        return table

    def scan(self) -> SplitRows:
        """Return a row for each image, with its name among the candidates as its caption.

        Raises UserError as `table` does, and for a puzzle that does not fit together.
        """
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
        return SplitRows(tuple(first), None, tuple((name,) for name in first), {}, slots).ordered()

    def puzzles(self, rows: SplitRows) -> tuple[Puzzle, ...]:
        """Return the puzzles over `rows`, which `scan` gave."""
        row_of = {key: row for row, key in enumerate(rows.keys)}
        columns = [self.table[name].to_pylist() for name in ("cue", "candidates", "associations")]
        return tuple(
            Puzzle(cue, tuple(row_of[name] for name in names), tuple(name in chosen for name in names))
            for cue, names, chosen in zip(*columns, strict=True)
        )

    def data(self, place: Mapping[str, int]) -> bytes:
        """Return the bytes of an image file. Raises UserError if it is missing."""
        value: Mapping[str, Any] = self.table["candidate_images"][place["number"]].as_py()[place["slot"]] or {}
        if value.get("bytes") is not None:
            return bytes(value["bytes"])
        if value.get("path") is None:
            raise UserError(f"{self.found.path}: image {dict(place)} has neither bytes nor a path; get it again")
        try:
            return reading.read_file(Path(value["path"]), MAX_IMAGE_BYTES)
        except OSError as error:
            fault = f"its image {value['path']} cannot be read: {error.strerror}"
            raise UserError(f"{self.found.path}: {fault}; get it again") from error

    def lines(self, name: str) -> tuple[str, ...]:
        """Return (): this layout has no text files."""
        return ()
