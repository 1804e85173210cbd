"""Lists the members of tars. `tarfile` takes a header that is cut or damaged for the end; here it is an error."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import BinaryIO, Self

MAX_HEADER_BYTES = 1 << 20  #: bytes of a long name or of a header's further fields, which are read at once


class Broken(Exception):
    """The tar is damaged."""


class Header(tarfile.TarInfo):
    """A header of a member. Raises Broken where it is cut or damaged, or a name is longer than `MAX_HEADER_BYTES`."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        try:
            info = super().frombuf(buf, encoding, errors)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # zeros, with which an archive ends
            raise
        except tarfile.HeaderError as error:
            whole = len(buf) == tarfile.BLOCKSIZE
            raise Broken("has no valid header" if whole else "ends without the end mark") from error
        if info.size < 0:
            raise Broken("has no valid header")
        if info.size > MAX_HEADER_BYTES and not info.isreg():
            raise Broken(f"has a name or attributes of {info.size:,} bytes")
        return info


def tar_members(file: BinaryIO, size: int) -> Iterator[tarfile.TarInfo]:
    """Yield the members but folders, in order; a name that is not UTF-8 has surrogates. `size` is the file's, in bytes.

    The caller may read and seek between two members. Raises Broken if a header is damaged, a member is cut off or the
    end mark is missing, and OSError if the file cannot be read.
    """
    at = 0
    try:
        with tarfile.open(fileobj=file, mode="r:", tarinfo=Header, encoding="utf-8", errors="surrogateescape") as tar:
            while (info := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]  # tarfile keeps all of them
                if info.size < 0 or tar.offset <= info.offset:
                    raise Broken("has no valid header")
                if info.isreg() and not info.issparse() and info.offset_data + info.size > size:
                    raise Broken("is cut off inside a member")
                at = tar.offset
                if not info.isdir():
                    yield info
    except OSError:
        raise
    except Exception as error:  # tarfile raises whatever the bytes lead it to
        raise Broken(f"{error if isinstance(error, Broken) else 'has no valid header'} at byte {at}") from error
