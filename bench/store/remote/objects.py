"""Object storage as workers share it, through fsspec: whole objects, some of which are made once and never replaced.

Two processes that create the same object must not both succeed. A local folder gives that by hard link, S3 by its
If-None-Match (which s3fs sends for mode="create"), and memory, which is one process's, by a lock. Of other storage it
is not known, so it is refused.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
import uuid
from pathlib import Path

from bench.errors import UserError, one_line
from bench.store import files

KINDS = ("file", "memory", "s3")  #: where creation is exclusive
#: seconds before each further try to create an object on whose name others work; S3 says then that one has to try again
_WAITS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
_IN_MEMORY = threading.Lock()  #: fsspec's memory looks whether a name is free before it takes it


class Objects:
    """The objects below a URL. Names have / between their parts. Storage that fails raises what its package raises."""

    def __init__(self, url: str) -> None:
        """Raises UserError for storage of another kind, that lacks a package, or that replaces what is created."""
        import fsspec

        self.url = url.rstrip("/")
        kind = url.partition("://")[0]
        if kind not in KINDS:
            known = ", ".join(f"{one}://" for one in KINDS)
            raise UserError(f"{url}: should be one of {known}; elsewhere two workers could own a run")
        try:
            self._fs, root = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
        except Exception as error:  # whatever the store's package raises
            raise UserError(f"{url}: {one_line(error)}") from error
        self._root, self._local, self._in_memory = root.rstrip("/"), kind == "file", kind == "memory"

    def refuse_unsafe(self) -> None:
        """Raise UserError unless an object that is there cannot be created again, and for storage out of reach."""
        name = f"probe/{uuid.uuid4().hex}"
        try:
            first, second = self.create(name, b"1"), self.create(name, b"2")
            self.remove(name)
        except Exception as error:  # whatever the store's package raises
            raise UserError(f"{self.url}: cannot be written ({type(error).__name__}: {one_line(error)})") from error
        if not first or second:
            raise UserError(f"{self.url}: replaces objects that should be made once, so two workers could own a run")

    def create(self, name: str, content: bytes) -> bool:
        """Make an object. Returns False, and changes nothing, if it is there."""
        try:
            if self._local:
                with files.scratch(target := Path(self._path(name))) as path:
                    path.write_bytes(content)
                    files.sync(path)
                    os.link(path, target)
                return True
            with _IN_MEMORY if self._in_memory else contextlib.nullcontext():
                self._create(self._path(name), content)
        except FileExistsError:
            return False
        return True

    def _create(self, path: str, content: bytes) -> None:
        """Make an object, later if another request works on its name just now. Raises FileExistsError if it is there.

        S3 answers such a request with 409 (ConditionalRequestConflict) and has written nothing. Without s3fs's own
        words for it, its 412 stands for an object that is there.
        """
        for wait in (*_WAITS, None):
            try:
                self._fs.pipe_file(path, content, mode="create")
                return
            except OSError as error:
                status = _status(error)
                if status == 412:
                    raise FileExistsError(path) from error
                if status != 409 or wait is None:
                    raise
            time.sleep(wait)

    def write(self, name: str, content: bytes) -> None:
        """Make or replace an object in one step."""
        if self._local:
            files.write_bytes(Path(self._path(name)), content)
        else:
            self._fs.pipe_file(self._path(name), content)

    def read(self, name: str) -> bytes | None:
        """Return the bytes of an object, None if there is none."""
        try:
            return bytes(self._fs.cat_file(self._path(name)))
        except FileNotFoundError:
            return None

    def upload(self, file: Path, name: str) -> None:
        """Make or replace an object by a file, in one step."""
        if self._local:
            files.write_path(Path(self._path(name)), lambda path: shutil.copyfile(file, path))
        else:
            self._fs.put_file(str(file), self._path(name))

    def download(self, name: str, file: Path) -> None:
        """Write an object to a file. Raises FileNotFoundError if there is none."""
        self._fs.get_file(self._path(name), str(file))

    def names(self, folder: str) -> list[str]:
        """Return the last parts of the names below a folder, sorted; none if nothing is there."""
        try:
            found = self._fs.ls(self._path(folder), detail=False, refresh=True)
        except FileNotFoundError:
            return []
        last = (path.rstrip("/").rpartition("/")[2] for path in found)
        return sorted(name for name in last if not name.startswith(files.TEMPORARY))

    def remove(self, name: str) -> None:
        """Remove an object, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


def _status(error: OSError) -> int | None:
    """Return the HTTP status of the answer that s3fs made an error of; botocore's error, its cause, holds it."""
    response = getattr(error.__cause__, "response", None) or {}
    found: int | None = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return found
