"""The index of a split: labels, captions and positions of all images, made on first use and stored as Parquet."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench import data_folder, reading
from bench.arrays import Ints
from bench.data.evaluation.layouts import Found
from bench.data.evaluation.rows import CLASSES, Rows, Source
from bench.errors import UserError
from bench.store import files

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = "2"  #: version of the columns; an index of another version is made again
_DIGEST = re.compile("[0-9a-f]{64}")


def indexed(source: Source) -> Rows:
    """Return the rows of a split: the stored ones, or a scan's if the files (name, size, time) have changed.

    A stored index that cannot be read, or that contradicts the files, is made again. Raises what `source.scan` raises.
    """
    mark = mark_of(source.files)
    stored = known(source, mark)
    if stored is not None:
        return stored
    rows = source.scan()
    keep(source.found, mark, rows)
    return rows


def with_digests(found: Found, files_of: Sequence[Path], rows: Rows, digests: Sequence[str]) -> Rows:
    """Return the rows with the sha256 `digests` [n] of their images, and store them."""
    rows = replace(rows, digests=tuple(digests))
    keep(found, mark_of(files_of), rows)
    return rows


def known(source: Source, mark: str | None = None) -> Rows | None:
    """Return the stored rows; None if there are none, or if they are not of the files that `mark` stands for.

    An index that is damaged, of another kind, or whose rows cannot be those of the files counts as none. Without
    `mark`, names, sizes and times of the files are not compared. Raises UserError if the files cannot be read.
    """
    for path in _homes(source.found):
        with contextlib.suppress(OSError, ValueError):
            table = reading.parquet(path)
            stored_mark = (table.schema.metadata or {}).get(b"mark", b"").decode()
            if stored_mark.startswith(f"{VERSION} ") and mark in (None, stored_mark):
                rows = _rows(table)
                _check(rows, source)
                if source.agrees(rows):
                    return rows
    return None


def contradicted(found: Found, key: str) -> UserError:
    """Return the error for a row of a stored index whose image, label or captions are not those of the files."""
    path = next((home for home in _homes(found) if os.path.lexists(home)), _homes(found)[0])
    return UserError(f"{path}: row {key!r} is not what {found.path} holds; delete the index, and it is made again")


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


def _check(rows: Rows, source: Source) -> None:
    """Raise ValueError if the columns are not those that a scan of this source gives."""
    entry = source.found.entry
    groups = set(filter(None, entry.fields)) if source.found.layout == "webdataset" else set()
    if set(rows.places) != source.places or set(rows.groups) != groups:
        raise ValueError("it has other columns")
    if (rows.labels is None) == bool(entry.classes) or bool(rows.captions) == bool(entry.classes):
        raise ValueError("it has labels where captions belong, or captions where labels belong")
    values = [*rows.groups.values(), *([] if rows.labels is None else [rows.labels])]
    texts = all(one and None not in one for one in rows.captions)
    if not len(rows) or not texts or min(int(column.min()) for column in (*rows.places.values(), *values)) < 0:
        raise ValueError("it has no row, a row without a caption, or a negative number")
    if max((int(column.max()) for column in values), default=0) >= CLASSES:
        raise ValueError(f"a label or a group is beyond {CLASSES:,}")
    if any(one > other for one, other in pairwise(key.encode() for key in rows.keys)):
        raise ValueError("its keys are not in order")
    if not all(map(_DIGEST.fullmatch, rows.digests)):
        raise ValueError("a digest is no sha256")


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
