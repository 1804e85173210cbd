"""The one reader of everything that a store holds: sizes and depths are bounded, and `Damaged` is the only error.

Files are opened once, without waiting (a pipe in the place of a file would block for ever), and read as bytes. What the
bytes say is checked by bench/store/content.py. A file that is not there gives None.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.errors import UserError, one_line
from bench.reading import open_file, read_file
from bench.store.content import complaint

if TYPE_CHECKING:
    import numpy as np

REMEDY = "`bench run` moves it aside and recomputes what it can"  #: what helps for a file of a run
SET_ASIDE = re.compile(r"\.damaged-\d+$")  #: the end of a name that `set_aside` gave
MAX_SMALL_JSON = 8 << 20  #: bytes of a JSON file; parsed, `[[],[],...` takes thirty times as much memory
MAX_PLAN = 64 << 20  #: bytes of a plan.json: about 2 KiB for every run
MAX_LINES = 1 << 30  #: bytes of a file of JSON lines
MAX_ARRAYS = 4 << 30  #: bytes of all arrays of an archive
MAX_DEPTH = 32  #: levels of nesting; the deepest file of a store, a plan, has eight


class Damaged(UserError):
    """A file of a store that is cut, of the wrong type, unreadable or changed. Its text is one printable line."""

    def __init__(self, path: str | Path, reason: str, remedy: str = REMEDY) -> None:
        super().__init__(path, reason, remedy)
        self.path, self.reason, self.remedy = Path(path), reason, remedy

    @property
    def lines(self) -> tuple[str, ...]:
        """The message, always one line."""
        line = f"{self.path}: {self.reason}; {self.remedy}"
        return ("".join(letter if letter.isprintable() else "?" for letter in line),)


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not valid JSON")


_strict, _loose = json.JSONDecoder(parse_constant=_constant).decode, json.JSONDecoder().decode
_SURROGATE = re.compile(rb"\\ud[89a-f]", re.IGNORECASE)  # a lone surrogate, which cannot be written as UTF-8


def read_bytes(path: str | Path, limit: int = MAX_SMALL_JSON, remedy: str = REMEDY) -> bytes | None:
    """Return the content of a file, or None. Raises Damaged if it is not a regular file or above `limit` bytes."""
    try:
        return read_file(path, limit)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Damaged(path, f"cannot be read: {error.strerror or one_line(error, 120)}", remedy) from error


@contextmanager
def _zip(path: str | Path, most: int | None = None) -> Iterator[zipfile.ZipFile | None]:
    """Yield a zip archive; None if there is no file. Any error of zipfile or numpy becomes Damaged.

    most: bytes that its parts may take unpacked; None: as many as the file has, because torch compresses nothing.
    """
    try:
        file = open_file(path)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise Damaged(path, f"cannot be read: {error.strerror}") from error
    try:
        with file, zipfile.ZipFile(file) as archive:
            size = sum(part.file_size for part in archive.infolist())
            limit = os.fstat(file.fileno()).st_size if most is None else most
            if size > limit:
                raise ValueError(f"its parts take {size:,} bytes unpacked, but at most {limit:,} are allowed")
            yield archive
    except Exception as error:
        raise Damaged(path, f"is not a readable archive: {one_line(error, 120)}") from error


def parse_stored_json(path: str | Path, content: bytes, remedy: str = REMEDY, nan: bool = False) -> Any:
    """Return bytes as JSON, not checked further; `nan` allows NaN and infinities. Raises Damaged."""
    try:
        return (_loose if nan else _strict)(content.decode())
    except (ValueError, RecursionError) as error:
        if not content.strip():
            reason = "is empty"
        elif isinstance(error, RecursionError):
            reason = "is nested too deeply"
        else:
            reason = f"cannot be read: it is not JSON: {one_line(error, 120)}"
        raise Damaged(path, reason, remedy) from error


def read_json(path: str | Path, model: str = "", limit: int = MAX_SMALL_JSON, remedy: str = REMEDY) -> Any | None:
    """Return a JSON file that fits `model`, or None if there is no file. Raises Damaged.

    model: a key of `bench.store.content.MODELS`, or "" for any JSON. The value is returned as it stands in the file,
    with the fields that the model does not know.
    """
    content = read_bytes(path, limit, remedy)
    if content is None:
        return None
    value = parse_stored_json(path, content, remedy)
    reason = unstorable(value, content) or (complaint(value, model) if model else "")
    if reason:
        raise Damaged(path, reason, remedy)
    return value


def unstorable(value: Any, content: bytes) -> str:
    """Return what no file of a store may hold: deep nesting, numbers beyond 64 bits, lone surrogates; "" for none."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            return f"is nested more than {MAX_DEPTH} deep"
        whole = [one for one in level if type(one) is int]
        if whole and not (min(whole) >= -(2**63) and max(whole) < 2**63):
            return "holds a whole number of more than 64 bits"
        if not all(map(math.isfinite, [one for one in level if type(one) is float])):
            return "holds a number that is infinite"
        inner = [one.values() if type(one) is dict else one for one in level if type(one) in (dict, list)]
        level = list(chain.from_iterable(inner))
    if _SURROGATE.search(content):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return "holds half of a surrogate pair"
    return ""


def read_lines(path: Path) -> list[Any]:
    """Return the complete lines of a file of JSON lines; a last line that a kill cut short is left out.

    Numbers may be NaN. Raises Damaged with the number of the first line that is not a line of metrics.
    """
    values = []
    for number, line in enumerate(complete_lines(path), start=1):
        try:
            value = parse_stored_json(path, line, nan=True)
        except Damaged as error:
            raise Damaged(path, f"line {number} {error.reason}") from error
        if reason := complaint(value, "line"):
            raise Damaged(path, f"line {number}: {reason}")
        values.append(value)
    return values


def complete_lines(path: str | Path) -> list[bytes]:
    """Return the lines of a file that end in a line break; [] if there is no file. Raises Damaged."""
    return (read_bytes(path, MAX_LINES) or b"").split(b"\n")[:-1]


def refuse_bad_archive(path: str | Path) -> None:
    """Raise Damaged unless every part of a zip archive, if there is one, has the checksum that is stored with it."""
    with _zip(path) as archive:
        wrong = archive.testzip() if archive else None
    if wrong is not None:
        raise Damaged(path, f"{wrong}: differs from its checksum")


def read_arrays(path: str | Path, most: int = MAX_ARRAYS) -> dict[str, np.ndarray]:
    """Return the arrays of a .npz file by their names; {} if there is no file. Pickles are not read.

    Raises Damaged, also if they would take more than `most` bytes; then nothing is unpacked.
    """
    with _zip(path, most) as archive:
        if archive is None:
            return {}
        return {one.filename.removesuffix(".npy"): _array(archive.read(one)) for one in archive.infolist()}


def _array(content: bytes) -> np.ndarray:
    """Return the array in the bytes of a .npy file; ValueError if they are not as many as its header says."""
    import numpy as np

    npy: Any = np.lib.format
    stream = io.BytesIO(content)
    header = npy.read_array_header_1_0 if npy.read_magic(stream) == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = header(stream)
    if math.prod(shape) * dtype.itemsize != len(content) - stream.tell():
        raise ValueError(f"an array of shape {shape} does not fit its bytes")
    stream.seek(0)
    array: np.ndarray = npy.read_array(stream, allow_pickle=False)
    return array
