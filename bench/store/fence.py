"""The fence of a claim: a process that lost its claim while it slept writes nothing that a reader sees.

Every holder of a claim has a folder of its own below the run's folder. Each of its writes begins in there and ends with
one rename out of there. Whoever takes the claim over first renames that folder away, in one step. From then on every
rename by the former holder fails, because its source is gone, wherever that process slept. There is no gap between a
check and a write. Nothing creates such a folder again.

Files that grow have a second name in the folder, a hard link, and are opened by that name alone. The next holder
replaces such a file by a copy, so a descriptor that the former one has open writes to a file without a name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.store import files

CLAIM, HOLDER = "claim", "holder.json"  #: folder of a run with its holder's own folder, and the file in there
CLAIM_PREFIX = f"{files.TEMPORARY}{CLAIM}-"  #: begins the name of a claim that is made or released


class Busy(Exception):
    """Another live process holds the run."""

    def __init__(self, host: str, pid: int) -> None:
        super().__init__(f"held by process {pid} on {host}")
        self.host = host
        self.pid = pid


class ClaimLost(Busy):
    """Another process took the run over from this one, which was silent for too long and writes nothing more."""

    def __init__(self) -> None:
        Exception.__init__(self, "this process was silent for too long; another one took the run over")


class Fence:
    """Writes files below `folder` for one holder of the claim. Every method raises ClaimLost once the claim is lost."""

    def __init__(self, folder: Path, token: str) -> None:
        self.folder = folder
        self.path = folder / CLAIM / token  #: the holder's own folder

    @property
    def lost(self) -> bool:
        """Return whether another process took the claim over."""
        return not self.path.is_dir()

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Turn an error into ClaimLost if the claim is lost, because then the loss is its cause."""
        try:
            yield
        except Exception as error:
            if self.lost:
                raise ClaimLost from error
            raise

    def write_path(self, name: str, writer: Callable[[Path], object]) -> None:
        """Let `writer` write to a temporary path, then publish it under `name` in one step."""
        with self.guarded():
            files.write_path(self.folder / name, writer, inside=self.path)

    def publish_folder(self, name: str, content: dict[str, bytes]) -> bool:
        """Publish a folder with these files in one step. Returns False, and changes nothing, if the folder exists."""
        with self.guarded():
            return files.publish_folder(self.folder / name, content, inside=self.path)

    def link(self, name: str, other: str) -> None:
        """Publish the file `name` also under the name `other`."""
        with self.guarded():
            self._link(self.folder / name, self.folder / other)

    def set_aside(self, name: str) -> Path:
        """Rename a damaged file or folder to the first free name `NAME.damaged-N` next to it; return the new path."""
        with self.guarded():
            return files.set_aside(self.folder / name, self.path)

    def discard(self, name: str) -> None:
        """Remove a file or folder, if it is there, in one step for readers."""
        with self.guarded():
            files.discard(self.folder / name, self.path)

    def append(self, name: str, content: bytes) -> None:
        """Add bytes at the end of a file in one write. Raises OSError if the disk does not take all of them."""
        with self.guarded():
            descriptor = os.open(self.own(name), os.O_WRONLY | os.O_APPEND)
            try:
                if os.write(descriptor, content) < len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(self.folder / name))
            finally:
                os.close(descriptor)

    def overwrite(self, name: str, content: bytes) -> None:
        """Write bytes over the beginning of a file in one write, without waiting for the disk."""
        with self.guarded():
            descriptor = os.open(self.own(name), os.O_WRONLY)
            try:
                os.pwrite(descriptor, content, 0)
            finally:
                os.close(descriptor)

    def renew(self, name: str, content: bytes | None = None) -> None:
        """Replace an append-only file by a new one with this content, by default its own; descriptors keep the old.

        The bytes are on the disk when this returns.
        """
        target, own = self.folder / name, self._second_name(name)
        with self.guarded():
            if content is None:
                content = target.read_bytes() if target.exists() else b""
            files.write_bytes(own, content, inside=self.path)
            files.make_folder(target.parent, self.path)
            self._link(own, target)

    def _link(self, source: Path, target: Path) -> None:
        fresh = self.path / uuid.uuid4().hex
        os.link(source, fresh)
        fresh.replace(target)

    def own(self, name: str) -> Path:
        """Return the holder's own name of a file that grows; the first use of a holder renews the file."""
        path = self._second_name(name)
        if not path.exists():
            self.renew(name)
        return path

    def _second_name(self, name: str) -> Path:
        return self.path / f"grows-{name.replace('/', '-')}"
