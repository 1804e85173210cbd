"""Archives of a store, unpacked within bounds: number, names and sizes of files, memory and time of the reading."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from bench.errors import UserError, one_line

MEMBERS = 1_000_000  #: files and folders; a run has about twenty
DEPTH, LETTERS = 16, 255  #: parts of a name, and bytes of a part
RATIO, SPARED = 500, 1 << 30  #: unpacked bytes for each byte of the archive, beyond the first GiB
_CHUNK = 1 << 20  #: bytes that are read at once; tarfile reads more only for a name or a header
_READERS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}


class _Forward:
    """A stream that tarfile reads: only forward, never much at once, and no further than `limit` bytes."""

    def __init__(self, stream: BinaryIO, limit: int) -> None:
        self._stream, self._limit, self._place = stream, limit, 0

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _CHUNK:
            raise ValueError(f"a name or a header of {size:,} bytes")
        content = self._stream.read(size)
        self._place += len(content)
        if self._place > self._limit:
            raise ValueError(f"it unpacks to more than {self._limit:,} bytes")
        return content

    def seek(self, place: int) -> int:
        if place < self._place:
            raise ValueError("a member that lies before the one that it follows")
        while self._place < place and self.read(min(_CHUNK, place - self._place)):
            pass
        return self._place

    def tell(self) -> int:
        return self._place


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack an archive to a private folder; return the root of its store: the top, or a folder at the top.

    Only files and folders below `folder` are made, and no file twice. Raises UserError if there is no store in it, or
    if it would need more than half of the free disk: what is taken is copied from there.
    """
    limit = min(shutil.disk_usage(folder).free // 2, unpacked_limit(archive))
    try:
        with archive.open("rb") as file:
            start = file.read(8)
        opener = next((opener for magic, opener in _READERS.items() if start.startswith(magic)), open)
        with cast(BinaryIO, opener(archive, "rb")) as stream:  # type: ignore[operator]
            forward = cast(BinaryIO, _Forward(stream, limit))
            with tarfile.open(fileobj=forward, mode="r:") as tar:
                _extract(tar, folder, limit)
    except UserError as error:
        raise UserError(f"{archive}: {error}") from error
    except Exception as error:  # tarfile and the decompressors raise whatever the bytes lead them to
        raise UserError(f"{archive}: cannot be unpacked as a tar archive: {one_line(error)}") from error
    roots = [path.parent for path in [folder / "runs", *sorted(folder.glob("*/runs"))] if path.is_dir()]
    if not roots:
        raise UserError(f"{archive}: holds no store: there is no folder runs/ in it")
    return roots[0]


def unpacked_limit(archive: Path) -> int:
    """Return the bytes that an archive of this size may unpack to."""
    return SPARED + RATIO * archive.stat().st_size


def _extract(tar: tarfile.TarFile, folder: Path, limit: int) -> None:
    """Write the members of an archive in their order. Raises UserError for what does not belong into a store."""
    count = total = 0
    while (member := tar.next()) is not None:
        tar.members = []  # type: ignore[attr-defined]  # tarfile keeps all of them, and here no member refers to another
        count, total = count + 1, total + member.size
        place = PurePosixPath(member.name)
        if place.is_absolute() or ".." in place.parts or not (member.isreg() or member.isdir()) or member.issparse():
            raise UserError(f"{member.name}: only files and folders below it belong into a store")
        if len(place.parts) > DEPTH or any(len(os.fsencode(part)) > LETTERS for part in place.parts):
            raise UserError(f"{member.name[:80]}: the name is longer than names of a store are")
        if count > MEMBERS:
            raise UserError(f"has more than {MEMBERS:,} files and folders")
        if member.size < 0 or total > limit:
            raise UserError(f"its files take {total:,} bytes; its size and the free disk allow {limit:,}")
        _write(tar, member, folder / place)


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    """Write one member with its time, by which claims are judged."""
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(member)
    assert source is not None  # it is a file
    with target.open("xb") as file:
        shutil.copyfileobj(source, file)
    os.utime(target, (member.mtime, member.mtime))
