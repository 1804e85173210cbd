"""What is known of every image of a split without decoding it; found on first use and kept as Parquet."""

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

VERSION = "1"  #: of the columns; an index of another one is made anew


@dataclass(frozen=True)
class Rows:
    """Columns of length n, in byte order of the keys. A column that a data set does not have is empty."""

    keys: tuple[str, ...]
    labels: Ints | None = None  #: int64 [n], the class
    captions: tuple[tuple[str, ...], ...] = ()
    groups: Mapping[str, Ints] = field(default_factory=dict)  #: field of the metadata -> int64 [n]
    places: Mapping[str, Ints] = field(default_factory=dict)  #: where its source finds an image: name -> int64 [n]
    digests: tuple[str, ...] = ()  #: sha256 of each image

    def __len__(self) -> int:
        return len(self.keys)

    def ordered(self) -> Rows:
        """The same rows in byte order of their keys."""
        order = sorted(range(len(self)), key=lambda row: self.keys[row].encode())
        return self.select(np.array(order, dtype=np.int64))

    def select(self, rows: Ints) -> Rows:
        """These rows, in this order."""
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
    """The rows of a split: as kept, or from `scan` where its files (name, size, time) are no longer those."""
    mark = _mark(files_of)
    kept = known(found, mark)
    if kept is not None:
        return kept
    rows = scan()
    keep(found, mark, rows)
    return rows


def with_digests(found: Found, files_of: Sequence[Path], rows: Rows, digests: Sequence[str]) -> Rows:
    """The rows with the digests of their images, kept as well."""
    rows = replace(rows, digests=tuple(digests))
    keep(found, _mark(files_of), rows)
    return rows


def known(found: Found, mark: str | None = None) -> Rows | None:
    """The rows that were kept; None where there are none, or not of these files. Without `mark`, of whatever files."""
    import pyarrow.parquet as pq

    for path in _homes(found):
        if path.is_file():
            table = pq.read_table(path)
            said = (table.schema.metadata or {}).get(b"mark", b"").decode()
            if said.startswith(f"{VERSION} ") and mark in (None, said):
                return _rows(table)
    return None


def keep(found: Found, mark: str, rows: Rows) -> None:
    """Write the rows below the data folder, or where that cannot be written in the user's cache."""
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
    name = f"{found.entry.name}-{found.split}-{found.layout}.parquet"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "robust-cl-bench"
    whose = hashlib.sha256(str(data_folder.evaluation().resolve()).encode()).hexdigest()[:16]
    return data_folder.evaluation() / "index" / name, cache / whose / name


def _mark(files_of: Sequence[Path]) -> str:
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
        found: list[object] = table[name].to_pylist() if name in table.column_names else []
        return found

    return Rows(
        tuple(map(str, texts("key"))),
        _ints(table, "label") if "label" in table.column_names else None,
        tuple(tuple(map(str, one)) for one in texts("captions")),  # type: ignore[call-overload]
        ints("group:"),
        ints("place:"),
        tuple(map(str, texts("digest"))),
    )


def _ints(table: pa.Table, name: str) -> Ints:
    found: Ints = table[name].to_numpy().astype(np.int64)
    return found
