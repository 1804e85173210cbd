"""The index of a split: labels, captions and positions of all images, made on first use and stored as Parquet."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench import counter, data_folder, reading
from bench.arrays import Ints
from bench.data.evaluation.layouts import Found
from bench.store import files

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLE = 6  #: images that are opened besides the first and the last
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


def sample(name: str, n: int) -> list[int]:
    """Return the rows whose images are opened before anything trains: the first, the last and a few of `n` between."""
    if not n:
        return []
    drawn = counter.words(counter.word(0, "opened before training", name), np.arange(SAMPLE))[:, 0]
    return sorted({0, n - 1, *counter.below(np.full(SAMPLE, n), drawn).tolist()})


def indexed(found: Found, files_of: Sequence[Path], scan: Callable[[], Rows]) -> Rows:
    """Return the rows of a split: the stored ones, or those of `scan` if its files (name, size, time) have changed.

    A stored index that cannot be read is made again. Raises what `scan` raises.
    """
    mark = mark_of(files_of)
    stored = known(found, mark)
    if stored is not None:
        return stored
    rows = scan()
    keep(found, mark, rows)
    return rows


def with_digests(found: Found, files_of: Sequence[Path], rows: Rows, digests: Sequence[str]) -> Rows:
    """Return the rows with the sha256 `digests` [n] of their images, and store them."""
    rows = replace(rows, digests=tuple(digests))
    keep(found, mark_of(files_of), rows)
    return rows


def known(found: Found, mark: str | None = None) -> Rows | None:
    """Return the stored rows; None if there are none, or if they are not of the files that `mark` stands for.

    A file that is damaged or of another kind counts as none. Without `mark`, the files are not compared.
    """
    for path in _homes(found):
        with contextlib.suppress(OSError, ValueError):
            table = reading.parquet(path)
            stored_mark = (table.schema.metadata or {}).get(b"mark", b"").decode()
            if stored_mark.startswith(f"{VERSION} ") and mark in (None, stored_mark):
                rows = _rows(table)
                _check(rows, found)
                return rows
    return None


def keep(found: Found, mark: str, rows: Rows) -> None:
    """Store the rows below the data folder, or in the user's cache if the data folder is read-only.

    If neither can be written, nothing is stored, and the next process scans again.
    """
    import pyarrow.parquet as pq

    table = _table(rows).replace_schema_metadata({"mark": mark})
    for home in _homes(found):
        with contextlib.suppress(OSError):  # a shared folder is often read-only
            files.write_path(home, lambda path: pq.write_table(table, path, write_page_checksum=True), durable=False)
            return


def _homes(found: Found) -> tuple[Path, Path]:
    """Return the paths of the index in the data folder and in the user's cache."""
    name = f"{found.entry.name}-{found.split}-{found.layout}.parquet"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "robust-cl-bench"
    whose = hashlib.sha256(str(data_folder.evaluation().resolve()).encode()).hexdigest()[:16]
    return data_folder.evaluation() / "index" / name, cache / whose / name


def mark_of(files_of: Sequence[Path]) -> str:
    """Return a text that changes with VERSION and with name, size or time of a file."""
    digest = hashlib.sha256()
    for path in files_of:
        try:
            state = path.stat()
            digest.update(repr((str(path), state.st_size, state.st_mtime_ns)).encode())
        except OSError:  # a link to nothing among a builder's files
            digest.update(repr((str(path), None)).encode())
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


def _check(rows: Rows, found: Found) -> None:
    """Raise ValueError if the columns are not those that a scan of this layout gives."""
    entry = found.entry
    places = {"webdataset": {"shard", "offset", "size"}, "builder": {"part", "number"}, "hub": {"number"}}[found.layout]
    if entry.kind == "association" and found.layout == "hub":
        places = places | {"slot"}
    groups = set(filter(None, entry.fields)) if found.layout == "webdataset" else set()
    if set(rows.places) != places or set(rows.groups) != groups:
        raise ValueError("it has other columns")
    if (rows.labels is None) == bool(entry.classes) or bool(rows.captions) == bool(entry.classes):
        raise ValueError("it has labels where captions belong, or captions where labels belong")
    numbers = [*rows.places.values(), *rows.groups.values(), *([] if rows.labels is None else [rows.labels])]
    texts = all(one and None not in one for one in rows.captions)
    if not len(rows) or not texts or min(int(column.min()) for column in numbers) < 0:
        raise ValueError("it has no row, a row without a caption, or a negative number")


def _rows(table: pa.Table) -> Rows:
    """Return the rows of a stored table. Raises ValueError if a column has another type, or gaps."""
    import pyarrow as pa

    if any(column.null_count for column in table.columns):
        raise ValueError("it has gaps")

    def ints(prefix: str) -> dict[str, Ints]:
        names = [name for name in table.column_names if name.startswith(prefix)]
        return {name.removeprefix(prefix): _ints(table, name) for name in names}

    def texts(name: str, kind: pa.DataType) -> list[Any]:
        if name not in table.column_names:
            return []
        if table[name].type != kind:
            raise ValueError(f"column {name} is of type {table[name].type}")
        values: list[Any] = table[name].to_pylist()
        return values

    return Rows(
        tuple(texts("key", pa.string())),
        _ints(table, "label") if "label" in table.column_names else None,
        tuple(map(tuple, texts("captions", pa.list_(pa.string())))),
        ints("group:"),
        ints("place:"),
        tuple(texts("digest", pa.string())),
    )


def _ints(table: pa.Table, name: str) -> Ints:
    if str(table[name].type) != "int64":
        raise ValueError(f"column {name} is of type {table[name].type}")
    values: Ints = table[name].to_numpy().astype(np.int64)  # a copy that can be written
    return values
