"""The rows of a split: labels, captions and positions of all images, read on first use and stored as Parquet."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench import data_folder, reading
from bench.arrays import Ints
from bench.data.evaluation.layouts import Found
from bench.errors import UserError
from bench.hashing import file_hash
from bench.store import files

INDEX_VERSION = "4"  #: version of the columns; an index of another version is made again


@dataclass(frozen=True)
class SplitRows:
    """Columns of length n, in byte order of the keys. A column is empty if the data set does not have it."""

    keys: tuple[str, ...]
    labels: Ints | None = None  #: int64 [n], the class
    captions: tuple[tuple[str, ...], ...] = ()
    groups: Mapping[str, Ints] = field(default_factory=dict)  #: field of the metadata -> int64 [n]
    #: position of an image in its source: name -> int64 [n]
    places: Mapping[str, Ints] = field(default_factory=dict)
    digests: tuple[str, ...] = ()  #: sha256 of each image file

    def __len__(self) -> int:
        return len(self.keys)

    def place(self, row: int) -> dict[str, int]:
        """Return the position of one image."""
        return {name: int(values[row]) for name, values in self.places.items()}

    def ordered(self) -> SplitRows:
        """Return the same rows in byte order of their keys."""
        order = sorted(range(len(self)), key=lambda row: self.keys[row].encode())
        rows = np.array(order, dtype=np.int64)
        return SplitRows(
            tuple(self.keys[row] for row in order),
            None if self.labels is None else self.labels[rows],
            tuple(self.captions[row] for row in order) if self.captions else (),
            {name: values[rows] for name, values in self.groups.items()},
            {name: values[rows] for name, values in self.places.items()},
        )


class SplitReader(Protocol):
    """The reader of one layout."""

    @property
    def found(self) -> Found: ...

    @property
    def files(self) -> list[Path]:
        """The files whose names, sizes and times show whether a stored index is still valid."""

    def scan(self) -> SplitRows:
        """Read all rows, in byte order of their keys. Raises UserError for files that cannot be read."""

    def data(self, place: Mapping[str, int]) -> bytes:
        """Return the bytes of the image file at a position. Raises UserError if they cannot be read."""

    def lines(self, name: str) -> Sequence[str]:
        """Return the lines of a text file that comes with the data set; empty if there is none."""


def indexed_rows(source: SplitReader) -> SplitRows:
    """Return the rows of a split: the stored ones, or a scan's if the files (name, size, time) have changed.

    A stored index that is damaged is made again. Raises what `source.scan` raises.
    """
    mark = _mark(source)
    for path in homes(source.found):
        with contextlib.suppress(OSError):
            note, begun = reading.read_file(_note(path), 200), f"{mark} {path.stat().st_size} "
            if note.startswith(begun.encode()) and note == f"{begun}{file_hash(path)}".encode():
                return _rows(pq.read_table(path))
    rows = source.scan()
    _keep(source.found, mark, rows)
    return rows


def with_digests(source: SplitReader, rows: SplitRows, digests: Sequence[str]) -> None:
    """Store the rows with the sha256 `digests` [n] of their images."""
    _keep(source.found, _mark(source), replace(rows, digests=tuple(digests)))


def homes(found: Found) -> tuple[Path, Path]:
    """Return the paths of the index in the data folder and in the user's cache."""
    name = f"{found.entry.name}-{found.split}.parquet"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "robust-cl-bench"
    whose = hashlib.sha256(str(data_folder.evaluation_folder().resolve()).encode()).hexdigest()[:16]
    return data_folder.evaluation_folder() / "index" / name, cache / whose / name


def _keep(found: Found, mark: str, rows: SplitRows) -> None:
    """Store the rows below the data folder, or in the user's cache if the data folder is read-only.

    If neither can be written, nothing is stored, and the next process scans again.
    """
    columns: dict[str, object] = {"key": rows.keys}
    if rows.labels is not None:
        columns["label"] = rows.labels
    if rows.captions:
        columns["captions"] = list(rows.captions)
    columns |= {f"group:{name}": values for name, values in rows.groups.items()}
    columns |= {f"place:{name}": values for name, values in rows.places.items()}
    if rows.digests:
        columns["digest"] = rows.digests
    table = pa.table(columns)
    for home in homes(found):
        with contextlib.suppress(OSError):  # a shared folder is often read-only
            files.write_path(home, lambda path: pq.write_table(table, path), durable=False)
            files.write_bytes(_note(home), f"{mark} {home.stat().st_size} {file_hash(home)}".encode(), durable=False)
            return


def _note(home: Path) -> Path:
    """Return the file next to an index that says which files it is of, and its own sha256."""
    return home.with_suffix(".mark")


def _mark(source: SplitReader) -> str:
    """Return a text that changes with INDEX_VERSION, with what is read, and with name, size or time of a file.

    Raises UserError if a file cannot be read.
    """
    entry = source.found.entry
    digest = hashlib.sha256(repr((entry.kind, entry.fields)).encode())
    for path in source.files:
        try:
            state = path.stat()
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror}; get it again") from error
        digest.update(repr((str(path), state.st_size, state.st_mtime_ns)).encode())
    return f"{INDEX_VERSION} {digest.hexdigest()}"


def _rows(table: pa.Table) -> SplitRows:
    """Return the rows of a stored table."""
    columns: dict[str, Any] = {
        name: table[name].to_numpy().astype(np.int64) if ":" in name or name == "label" else table[name].to_pylist()
        for name in table.column_names
    }

    def ints(prefix: str) -> dict[str, Ints]:
        return {name.removeprefix(prefix): column for name, column in columns.items() if name.startswith(prefix)}

    return SplitRows(
        tuple(columns["key"]),
        columns.get("label"),
        tuple(map(tuple, columns.get("captions", ()))),
        ints("group:"),
        ints("place:"),
        tuple(columns.get("digest", ())),
    )
