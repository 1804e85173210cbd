"""Write files so that they appear whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TEMPORARY = ".tmp-"  #: prefix of what a killed writer leaves behind
CLAIM_FILE = "claim"


@contextlib.contextmanager
def scratch(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside `target` to write to; whatever is left there at the end is removed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    path = target.parent / f"{TEMPORARY}{target.name}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    try:
        yield path
    finally:
        remove(path)


def remove(path: Path) -> None:
    """Remove a file or a directory, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Force a file's bytes to the disk, so that a rename never publishes an empty file after a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_path(target: Path, writer: Callable[[Path], object], durable: bool = True) -> None:
    """Let `writer` write a file, then rename it to `target` in one step.

    A file that is not `durable` may be lost in a power cut, though not in a kill; use this for what is made in seconds.
    """
    with scratch(target) as path:
        writer(path)
        if durable:
            sync(path)
        path.replace(target)


def write_bytes(target: Path, content: bytes, durable: bool = True) -> None:
    """Replace the bytes of `target`. Readers, also after a kill, see either the old bytes or the new ones."""
    write_path(target, lambda path: path.write_bytes(content), durable)


def write_json(target: Path, value: Any) -> None:
    """Replace `target` by a value as JSON: indented, UTF-8, keys in the given order. ValueError on NaN or infinity."""
    write_bytes(target, dump(value))


def dump(value: Any) -> bytes:
    """Return the bytes that `write_json` writes."""
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_json(path: Path) -> Any | None:
    """Return the parsed file, or None if there is no such file. Raises ValueError if it is not JSON."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None


def publish_folder(target: Path, files: dict[str, bytes]) -> bool:
    """Publish a folder with these files in one step. Returns False, and changes nothing, if the folder exists."""
    if target.is_dir():
        return False
    with scratch(target) as path:
        path.mkdir()
        for name, content in files.items():
            (path / name).write_bytes(content)
            sync(path / name)
        try:
            path.rename(target)
        except OSError:  # another process published first; its folder stays
            if not target.is_dir():
                raise
            return False
    return True


def clear_scratch(folder: Path) -> None:
    """Remove what killed writers left in `folder` and below. Call it only while holding the claim on the folder.

    Claim files that other processes are writing at this moment stay.
    """
    for path in list(folder.rglob(f"{TEMPORARY}*")):
        if not path.name.startswith(f"{TEMPORARY}{CLAIM_FILE}-"):
            remove(path)
