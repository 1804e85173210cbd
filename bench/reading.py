"""Reads external files within bounds: a FIFO is never waited for, and no claimed size is allocated unchecked.

Functions that take a path raise OSError if it cannot be read; all raise ValueError, in one line, for malformed content.
The caller adds the file and the fix, except for `text_lines`.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from bench.errors import UserError, one_line

if TYPE_CHECKING:
    import numpy.typing as npt

    from bench.arrays import Ints

JSON_BYTES = 1 << 22  #: of a JSON document; each byte may take 25 bytes of memory
TEXT_BYTES = 1 << 20  #: most bytes of a text file
MAX_ROWS_PER_BYTE = 8  #: of a Parquet file; more is not the index or the manifest of anything
TABLE_BYTES, MAX_EXPANSION = 1 << 26, 64  #: memory that a Parquet file may take: a constant, and a factor per byte
SMALL_TABLE, BATCH_ROWS = 1 << 26, 128  #: bytes below which a Parquet file is measured first; rows per step
BUFFER_BYTES = 1 << 16  #: bytes read at a time


class Unfit(OSError):
    """A path cannot be read as a file, or the file is too long. The message is the reason."""

    def __str__(self) -> str:
        return str(self.strerror)


def open_file(path: Path | str, buffering: int = BUFFER_BYTES) -> BinaryIO:
    """Open a regular file, or a link to one, to read its bytes. Raises OSError for anything else, and never waits."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO would wait for its writer
    except ValueError as error:
        raise Unfit(errno.EINVAL, "its name has a NUL character", ascii(str(path))) from error
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return open(descriptor, "rb", buffering=buffering)
    os.close(descriptor)
    kind = "a folder" if stat.S_ISDIR(mode) else "a FIFO" if stat.S_ISFIFO(mode) else "a device"
    raise Unfit(errno.EINVAL, f"it is {kind}, not a file", str(path))


def read_file(path: Path | str, most: int) -> bytes:
    """Return the bytes that a file has. Raises OSError if it is not a regular file or has more than `most` bytes."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise Unfit(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
        return file.read(size)  # `most` bytes would be allocated first: a gigabyte for a short file of metrics


def text_lines(path: Path, most: int = TEXT_BYTES) -> list[str]:
    """Return the lines of a UTF-8 text file of at most `most` bytes, without white space around them.

    Raises UserError if it cannot be read, is empty or too long, not UTF-8, or has a blank line.
    """
    try:
        data = read_file(path, most)
        texts = [line.strip() for line in data.decode("utf-8").removesuffix("\n").split("\n")]
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UserError(f"{path}: line {line} is not UTF-8; save the file as UTF-8") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    if not data:
        raise UserError(f"{path}: is empty; it should have one entry a line")
    if "" in texts:
        at = texts.index("") + 1
        raise UserError(f"{path}: line {at} is blank; it should have one entry a line, and no other lines")
    return texts


def parse_json(data: bytes) -> Any:
    """Return the value of a JSON document. Raises ValueError if it is malformed, too long or nested too deeply."""
    if len(data) > JSON_BYTES:
        raise ValueError(f"it has {len(data):,} bytes, at most {JSON_BYTES:,} are read")
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def map_array(path: Path | str) -> npt.NDArray[Any]:
    """Map the array of a .npy file from the disk. Raises ValueError if it is something else, a pickle, or cut."""
    import numpy as np

    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
    try:
        mapped: Any = np.lib.format.open_memmap(path, mode="r")  # type: ignore[no-untyped-call]
        if mapped.offset + mapped.nbytes != size:
            raise ValueError(f"it says {mapped.offset + mapped.nbytes:,} bytes and has {size:,}")
    except Exception as error:  # a malformed header raises anything from SyntaxError to MemoryError
        raise ValueError(f"it is not a complete .npy file of numbers: {one_line(error, 120)}") from error
    return np.asarray(mapped)


def whole_numbers(values: npt.NDArray[Any]) -> Ints:
    """Convert numbers [n] to int64 [n]. Raises ValueError if one is not whole or does not fit."""
    import numpy as np

    if values.dtype.kind not in "iuf":
        raise ValueError(f"it holds {one_line(values.dtype, 80)}; whole numbers are needed")
    if values.dtype.kind == "i":
        return values.astype(np.int64)
    fits = np.isfinite(values) & (np.abs(values) < 2.0**63)
    rounded: Ints = np.where(fits, values, 0).astype(np.int64)
    wrong = np.flatnonzero(~fits | (rounded != values))
    if len(wrong):
        raise ValueError(f"number {wrong[0]} is {values[wrong[0]]}, which is not an integer of 64 bits")
    return rounded


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> Any:
    """Return a Parquet file, or some of its columns, as a pyarrow Table, with every page's checksum compared.

    Raises OSError if it is not a regular file, and ValueError if it is damaged or lacks a column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            # opened by pyarrow: a thread of it that frees Python's bytes at exit aborts (apache/arrow#34314)
            reader = pq.ParquetFile(pa.OSFile(os.fsencode(path)), page_checksum_verification=True)
            names, rows = reader.schema_arrow.names, reader.metadata.num_rows
            if lacking := [name for name in columns or () if name not in names]:
                raise ValueError(f"it has no column {', '.join(lacking)}")
            if rows > MAX_ROWS_PER_BYTE * size:
                raise ValueError(f"it says {rows:,} rows, which its {size:,} bytes cannot hold")
            wanted = list(columns) if columns is not None else None
            if size <= SMALL_TABLE:
                _refuse_expanding(reader, TABLE_BYTES + MAX_EXPANSION * size, wanted)
            table = reader.read(wanted)
            table.validate(full=True)
        except (pa.ArrowException, OSError, KeyError, TypeError, MemoryError, RecursionError, OverflowError) as error:
            raise ValueError(f"it is damaged: {one_line(error, 200) or type(error).__name__}") from error
    return table


def _refuse_expanding(reader: Any, most: int, columns: list[str] | None) -> None:
    """Raise ValueError if a table would take more than `most` bytes: a few bytes can repeat a long text many times."""
    taken = 0
    for batch in reader.iter_batches(BATCH_ROWS, columns=columns, use_threads=False):
        taken += batch.nbytes
        if taken > most:
            raise ValueError(f"its columns take more than {most:,} bytes of memory, which its size does not explain")
