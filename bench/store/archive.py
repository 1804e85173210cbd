"""Unpacks archives of a store, with bounds on the number, names and sizes of files, on memory and on time."""

from __future__ import annotations

import os
import shutil
import tarfile
from hashlib import sha256
from pathlib import Path, PurePosixPath

from bench.errors import UserError, one_line
from bench.tars import Header

MAX_MEMBERS = 10_000  #: files and folders that an archive may hold, whatever its size
BYTES_PER_MEMBER = 32  #: bytes of the archive for each further one; packed, they take about 90
MAX_PARTS, MAX_PART_BYTES = 10, 255  #: parts of a name, and bytes of a part
MAX_RATIO, UNCOUNTED_BYTES = 100, 64 << 20  #: unpacked bytes for each byte of the archive, beyond the first 64 MiB
_PART_BYTES = 1 << 20  #: of a file that are in memory at a time
SUM = "packed.json"  #: file at the top of what `bench store pack` wrote: the sum over the sha256 of all others


def unpack_archive(archive: Path, folder: Path) -> tuple[Path, dict[str, str]]:
    """Unpack an archive to a private folder; return the root of its store, and the sha256 of its files by their names.

    The root is the top, or a folder at the top; the names are below it. Creates only files and folders below `folder`,
    and no file twice. Raises UserError if there is no store in it, or if it would need more than half of the free disk.
    """
    limit = min(shutil.disk_usage(folder).free // 2, unpacked_limit(archive))
    try:
        # A stream: it is read once, without seeking. For each header tarfile copies what it has unpacked ahead.
        with tarfile.open(archive, "r|*", tarinfo=Header, bufsize=1024) as tar:
            hashes = _extract(tar, folder, limit, MAX_MEMBERS + archive.stat().st_size // BYTES_PER_MEMBER)
    except UserError as error:
        raise UserError(f"{archive}: {error}") from error
    except Exception as error:  # on malformed bytes, tarfile and the decompressors raise errors of any type
        raise UserError(f"{archive}: cannot be unpacked as a tar archive: {one_line(error)}") from error
    roots = [path.parent for path in [folder / "runs", *sorted(folder.glob("*/runs"))] if path.is_dir()]
    if not roots:
        raise UserError(f"{archive}: holds no store: there is no folder runs/ in it")
    root = roots[0].relative_to(folder)
    below = {name.relative_to(root).as_posix(): one for name, one in hashes.items() if name.is_relative_to(root)}
    return roots[0], below


def unpacked_limit(archive: Path) -> int:
    """Return the bytes that an archive of this size may unpack to."""
    return UNCOUNTED_BYTES + MAX_RATIO * archive.stat().st_size


def _extract(tar: tarfile.TarFile, folder: Path, limit: int, most: int) -> dict[PurePosixPath, str]:
    """Write the members of an archive in order, at most `limit` bytes, and `most` files and folders.

    Returns the sha256 of the files. Raises UserError for what does not belong in a store.
    """
    made, total, hashes = set[PurePosixPath](), 0, dict[PurePosixPath, str]()
    while (member := tar.next()) is not None:
        tar.members = []  # type: ignore[attr-defined]  # tarfile keeps all of them, and here no member refers to another
        total = max(tar.offset, total + member.size)
        place = PurePosixPath(member.name)
        if place.is_absolute() or ".." in place.parts or not (member.isreg() or member.isdir()) or member.issparse():
            raise UserError(f"{member.name}: a store holds only files and folders below it")
        if len(place.parts) > MAX_PARTS or any(len(os.fsencode(part)) > MAX_PART_BYTES for part in place.parts):
            raise UserError(f"{member.name[:80]}: the name is longer than any name in a store")
        if place in made and member.isreg():
            raise UserError(f"{member.name}: appears twice in it")
        parent = place if member.isdir() else place.parent
        absent = parent not in made
        made |= {place, *place.parents}  # folders that no member names are made as well
        if len(made) > most:
            raise UserError(f"has more than {most:,} files and folders")
        if member.size < 0 or total > limit:
            raise UserError(f"its files take {total:,} bytes; its size and the free disk allow {limit:,}")
        if absent:
            (folder / parent).mkdir(parents=True, exist_ok=True)
        source = tar.extractfile(member)
        if source is not None:  # it is not a folder
            content = sha256()
            with (folder / place).open("xb") as file:
                while part := source.read(_PART_BYTES):
                    file.write(part)
                    content.update(part)
            hashes[place] = content.hexdigest()
    return hashes
