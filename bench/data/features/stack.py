"""Arrays that others wrote, read row by row: .npy files, tensors of .safetensors files, columns of Parquet files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bench import reading
from bench.arrays import Ints
from bench.errors import UserError, nearest, one_line

TYPES: Mapping[str, np.dtype[Any]] = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4"), "F64": np.dtype("<f8")}
HEADER_BYTES = 1 << 26  #: of a .safetensors file


@dataclass(frozen=True)
class Stack:
    """The rows of one or more arrays, one array after the other."""

    name: str  #: file or folder, for messages
    parts: tuple[npt.NDArray[Any], ...]  #: each [n_i, ...] of the same shape and type beyond the first axis
    times: int = 1  #: how often each row stands, one copy after the other

    def __len__(self) -> int:
        return int(self._starts[-1]) * self.times

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row."""
        return self.parts[0].shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The stored type."""
        return self.parts[0].dtype

    def take(self, rows: Ints) -> npt.NDArray[Any]:
        """Map rows [b] to their numbers [b, ...]."""
        taken = np.empty((len(rows), *self.shape), self.dtype)
        rows = rows // self.times
        part = np.searchsorted(self._starts, rows, side="right") - 1
        for number in np.unique(part).tolist():
            where = np.flatnonzero(part == number)
            taken[where] = self.parts[number][rows[where] - self._starts[number]]
        return taken

    @cached_property
    def _starts(self) -> Ints:
        return np.concatenate([[0], np.cumsum([len(part) for part in self.parts])]).astype(np.int64)


def stacked(name: str, parts: dict[str, npt.NDArray[Any]]) -> Stack:
    """Put arrays on top of each other, by their files' names. Raises UserError if their shapes or types differ."""
    (first, like), *others = parts.items()
    for file, part in others:
        if part.shape[1:] != like.shape[1:] or part.dtype != like.dtype:
            own, expected = (f"{one.dtype} of {list(one.shape[1:])} a row" for one in (part, like))
            raise UserError(f"{file}: holds {own}, {first} holds {expected}; all parts must agree")
    return Stack(name, tuple(parts.values()))


def open_array(given: str) -> npt.NDArray[Any]:
    """Map the array in FILE.npy, or a tensor in FILE.safetensors or FILE.safetensors:NAME, from the disk.

    Raises UserError if it is missing, damaged, or holds anything but floats of two or three axes.
    """
    file, _, tensor = given.rpartition(":") if ".safetensors:" in given else (given, "", "")
    path = Path(file)
    try:
        reading.opened(path).close()
        array = _tensor(path, tensor) if path.suffix == ".safetensors" else _npy(path)
    except (OSError, ValueError) as error:
        reason = one_line(getattr(error, "strerror", None) or error, 200)
        raise UserError(f"{given}: cannot be read as an array: {reason}") from error
    if array.dtype not in TYPES.values() or array.ndim not in (2, 3) or 0 in array.shape:
        fault = f"holds {array.dtype} {list(array.shape)}"
        fix = "features are floats of 16, 32 or 64 bits, [rows, width] or [rows, k, width]"
        raise UserError(f"{given}: {fault}; {fix}")
    return array


def _npy(path: Path) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a malformed header raises anything from SyntaxError to MemoryError
        raise ValueError(f"it is no whole .npy file of numbers: {one_line(error, 120)}") from error
    if not isinstance(array, np.ndarray):
        raise ValueError("it is an .npz archive; save each array as .npy")
    return np.asarray(array)


def _tensor(path: Path, name: str) -> npt.NDArray[Any]:
    """Map one tensor; without a name, the only one."""
    with reading.opened(path) as file:
        length = int.from_bytes(file.read(8), "little")
        if length > HEADER_BYTES:
            raise ValueError("it is no .safetensors file")
        header = json.loads(file.read(length))
    tensors = {key: value for key, value in header.items() if key != "__metadata__"}
    if not name and len(tensors) == 1:
        (name,) = tensors
    if name not in tensors:
        raise ValueError(f"give one of its tensors as {path}:NAME{nearest(name, tensors)}")
    try:
        about = tensors[name]
        start, stop = (int(offset) for offset in about["data_offsets"])
        shape = tuple(int(size) for size in about["shape"])
        if about["dtype"] not in TYPES:
            raise ValueError(f"tensor {name!r} is of type {about['dtype']}; save it as F16 or F32")
    except (KeyError, TypeError) as error:
        raise ValueError(f"tensor {name!r} is not described in its header") from error
    dtype = TYPES[about["dtype"]]
    inside = 0 <= start <= stop <= path.stat().st_size - 8 - length
    if not inside or min(shape, default=0) < 1 or stop - start != dtype.itemsize * int(np.prod(shape)):
        raise ValueError(f"tensor {name!r} of shape {list(shape)} does not fit its bytes; the file is cut or damaged")
    return np.asarray(np.memmap(path, dtype, "r", 8 + length + start, shape))


def column_array(path: Path, name: str, column: Any) -> npt.NDArray[Any]:
    """Return a Parquet column of lists of floats as [n, width]. Raises UserError if it is something else."""
    array = column.combine_chunks()
    array = pa.concat_arrays(array.chunks) if hasattr(array, "chunks") else array
    kind = array.type
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not lists or not pa.types.is_floating(kind.value_type) or array.null_count or not len(array):
        raise UserError(f"{path}: {name}: is a column of {kind}; features are lists of floats, without nulls")
    widths = pc.unique(pc.list_value_length(array)).to_pylist()
    if len(widths) != 1 or widths[0] < 1:
        raise UserError(f"{path}: {name}: rows have {len(widths)} different widths; all must have one")
    values: npt.NDArray[Any] = array.flatten().to_numpy(zero_copy_only=False).reshape(len(array), widths[0])
    return values


def text_lines(path: Path, most: int = 1 << 31) -> list[str]:
    """Return the lines of a UTF-8 file without white space around them.

    Raises UserError if it is missing, not UTF-8, empty, or has a blank line.
    """
    lines = [line.strip() for line in utf8(path, most).removesuffix("\n").split("\n")]
    if "" in lines:
        raise UserError(f"{path}: line {lines.index('') + 1} is blank; each line is a caption or a key")
    return lines


def utf8(path: Path, most: int) -> str:
    """Return the text of a file of at most `most` bytes. Raises UserError if it is missing, longer or not UTF-8."""
    try:
        return reading.content(path, most).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UserError(f"{path}: cannot be read: {reason}") from error
