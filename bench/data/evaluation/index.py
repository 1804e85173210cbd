"""The index of a split: labels, captions and positions of all images, made on first use and stored as Parquet."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench import data_folder
from bench.arrays import Ints
from bench.data.evaluation.layouts import Found
from bench.store import files

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = "1"  #: version of the columns; an index of another version is made again


@dataclass(frozen=True)
class Rows:
    """Columns of length n, in byte order of the keys. A column is empty if the data set does not have it."""

    keys: tuple[str, ...]
    labels: Ints | None = None  #: int64 [n], the class
    captions: tuple[tuple[str, ...], ...] = ()
    groups: Mapping[str, Ints] = field(default_factory=dict)  #: field of the metadata -> int64 [n]
    #: position of an image in its source: name -> int64 [n]
    places: Mapping[str, Ints] = field(default_factory=dict)
    digests: tuple[str, ...] = ()  #: sha256 of each image

    def __len__(self) -> int:
        return len(self.keys)

    def ordered(self) -> Rows:
        """Return the same rows in byte order of their keys."""
        order = sorted(range(len(self)), key=lambda row: self.keys[row].encode())
        return self.select(np.array(order, dtype=np.int64))

    def select(self, rows: Ints) -> Rows:
        """Return `rows` [m], in this order."""
        listed = rows.tolist()
        return Rows(
            tuple(self.keys[row] for row in listed),
            None if self.labels is None else self.labels[rows],
            tuple(self.captions[row] for row in listed) if self.captions else (),
            {name: values[rows] for name, values in self.groups.items()},
            {name: values[rows] for name, values in self.places.items()},
            tuple(self.digests[row] for row in listed) if self.digests else (),
        )


def indexed(found: Found, files_of: Sequence[Path], scan: Callable[[], Rows]) -> Rows:
    """Return the rows of a split: the stored ones, or those of `scan` if its files (name, size, time) have changed.

    Raises OSError if a file is missing, and what `scan` raises.
    """
    mark = _mark(files_of)
    stored = known(found, mark)
    if stored is not None:
        return stored
    rows = scan()
    keep(found, mark, rows)
    return rows


def with_digests(found: Found, files_of: Sequence[Path], rows: Rows, digests: Sequence[str]) -> Rows:
    """Return the rows with the sha256 `digests` [n] of their images, and store them."""
    rows = replace(rows, digests=tuple(digests))
    keep(found, _mark(files_of), rows)
    return rows


def known(found: Found, mark: str | None = None) -> Rows | None:
    """Return the stored rows; None if there are none, or if they are not of the files that `mark` stands for.

    Without `mark`, the files are not compared.
    """
    import pyarrow.parquet as pq

    for path in _homes(found):
        if path.is_file():
            table = pq.read_table(path)
            stored_mark = (table.schema.metadata or {}).get(b"mark", b"").decode()
            if stored_mark.startswith(f"{VERSION} ") and mark in (None, stored_mark):
                return _rows(table)
    return None


def keep(found: Found, mark: str, rows: Rows) -> None:
    """Store the rows below the data folder, or in the user's cache if the data folder is read-only.

    Raises OSError if neither can be written.
    """
    import pyarrow.parquet as pq

    table = _table(rows).replace_schema_metadata({"mark": mark})
    inside, outside = _homes(found)
    try:
        inside.parent.mkdir(parents=True, exist_ok=True)
        files.write_path(inside, lambda path: pq.write_table(table, path), durable=False)
    except OSError:  # a shared folder is often read-only
        outside.parent.mkdir(parents=True, exist_ok=True)
        files.write_path(outside, lambda path: pq.write_table(table, path), durable=False)


def _homes(found: Found) -> tuple[Path, Path]:
    """Return the paths of the index in the data folder and in the user's cache."""
    name = f"{found.entry.name}-{found.split}-{found.layout}.parquet"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "robust-cl-bench"
    whose = hashlib.sha256(str(data_folder.evaluation().resolve()).encode()).hexdigest()[:16]
    return data_folder.evaluation() / "index" / name, cache / whose / name


def _mark(files_of: Sequence[Path]) -> str:
    """Return a text that changes with VERSION and with name, size or time of a file."""
    digest = hashlib.sha256()
    for path in files_of:
        state = path.stat()
        digest.update(repr((str(path), state.st_size, state.st_mtime_ns)).encode())
    return f"{VERSION} {digest.hexdigest()}"


def _table(rows: Rows) -> pa.Table:
    import pyarrow as pa

    columns: dict[str, object] = {"key": rows.keys}
    if rows.labels is not None:
        columns["label"] = rows.labels
    if rows.captions:
        columns["captions"] = list(rows.captions)
    columns |= {f"group:{name}": values for name, values in rows.groups.items()}
    columns |= {f"place:{name}": values for name, values in rows.places.items()}
    if rows.digests:
        columns["digest"] = rows.digests
    return pa.table(columns)


def _rows(table: pa.Table) -> Rows:
    def ints(prefix: str) -> dict[str, Ints]:
        names = [name for name in table.column_names if name.startswith(prefix)]
        return {name.removeprefix(prefix): _ints(table, name) for name in names}

    def texts(name: str) -> list[object]:
        values: list[object] = table[name].to_pylist() if name in table.column_names else []
        return values

    return Rows(
        tuple(map(str, texts("key"))),
        _ints(table, "label") if "label" in table.column_names else None,
        tuple(tuple(map(str, one)) for one in texts("captions")),  # type: ignore[call-overload]
        ints("group:"),
        ints("place:"),
        tuple(map(str, texts("digest"))),
    )


def _ints(table: pa.Table, name: str) -> Ints:
    values: Ints = table[name].to_numpy().astype(np.int64)
    return values
