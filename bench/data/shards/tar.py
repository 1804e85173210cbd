"""Lists the members of a tar from their headers, several times faster than `tarfile`, and strict about damage.

Formats: ustar, GNU (long names), pax (path and size). Nothing is extracted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

BLOCK = 512
_FILES, _LINKS, _FOLDER = b"\x0007", b"12", b"5"
_ATTRIBUTES, _SHARED_ATTRIBUTES, _LONG_NAME, _LONG_LINK = b"x", b"g", b"L", b"K"


@dataclass(frozen=True, slots=True)
class Member:
    """A file, link or special member; folders are left out."""

    name: bytes
    kind: str  #: "file", "link" or "special"
    offset: int  #: of its data, in bytes
    size: int


class Broken(Exception):
    """The tar is damaged."""

    def __init__(self, message: str, offset: int) -> None:
        """`offset`: byte from which the tar cannot be read."""
        super().__init__(f"{message} at byte {offset}")


def members(file: BinaryIO, size: int) -> Iterator[Member]:
    """Yield the members in order. `size` is the file's, in bytes.

    The caller may read and seek between two members. Raises Broken if a header is damaged, a member is cut off or the
    end mark is missing.
    """
    at = 0
    given: dict[str, bytes] = {}  # attributes that extra headers give to the next member
    while True:
        file.seek(at)
        header = file.read(BLOCK)
        if len(header) < BLOCK:
            raise Broken("ends without the end mark", at)
        if not any(header):
            return
        kind, data = header[156:157], at + BLOCK
        length = _length(header, given.get("size") if kind in _FILES else None, at)
        if data + length > size:
            raise Broken("is cut off inside a member", at)
        at = data + -(-length // BLOCK) * BLOCK
        if kind in _LONG_NAME:
            given["path"] = file.read(length).rstrip(b"\0")
        elif kind in _ATTRIBUTES:
            given.update(_attributes(file.read(length), data))
        elif kind not in _SHARED_ATTRIBUTES + _LONG_LINK:
            if kind not in _FOLDER:
                yield _member(header, kind, given, data, length)
            given = {}


def _member(header: bytes, kind: bytes, given: dict[str, bytes], offset: int, size: int) -> Member:
    name = given.get("path")
    if name is None:
        name = header[:100].split(b"\0", 1)[0]
        if header[257:262] == b"ustar" and header[262:263] == b"\0" and header[345]:
            name = header[345:500].split(b"\0", 1)[0] + b"/" + name
    sparse = any(key.startswith("GNU.sparse") for key in given)
    sort = "file" if kind in _FILES and not sparse else "link" if kind in _LINKS else "special"
    return Member(name, sort, offset, size)


def _length(header: bytes, given: bytes | None, at: int) -> int:
    """Return the bytes of data after a header. Raises Broken if the checksum or the number is wrong."""
    try:
        stated = int(header[148:156].strip(b" \0"), 8)
        if stated != sum(header[:148]) + sum(header[156:]) + 8 * 0x20:
            raise ValueError
        if given is not None:
            return int(given)
        if header[124] & 0x80:  # GNU: a binary number
            return int.from_bytes(header[125:136], "big")
        return int(header[124:136].strip(b" \0") or b"0", 8)
    except ValueError:
        raise Broken("has no valid header", at) from None


def _attributes(data: bytes, at: int) -> dict[str, bytes]:
    """Parse the records of a pax header, "length key=value\\n" each. Raises Broken if one is malformed."""
    attributes, start = {}, 0
    while start < len(data) and data[start]:
        digits, _, _ = data[start : start + 20].partition(b" ")
        try:
            end = start + int(digits)
            key, _, value = data[start + len(digits) + 1 : end - 1].partition(b"=")
        except ValueError:
            end = start
        if end <= start:
            raise Broken("has invalid attributes", at)
        attributes[key.decode("utf-8", "replace")] = value
        start = end
    return attributes
