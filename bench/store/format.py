"""The version of a store's layout, in `store.json` at its root. docs/compatibility.md says what may change."""

from __future__ import annotations

import contextlib
from pathlib import Path

from bench.errors import UserError
from bench.store import files
from bench.store.reading import read_json

FORMAT = 2  #: raised whenever an older version of this package would misread what this one writes
NAME = "store.json"
_REMEDY = "if no later version of this package wrote to this store, delete the file: `bench run` writes it again"


def refuse_newer(root: Path) -> None:
    """Raise UserError if a later version of this package wrote the store, and Damaged if its store.json is damaged."""
    with contextlib.suppress(FileNotFoundError):
        root.stat()  # a root that no folder can have does not damage the store: its OSError names it
    path = root / NAME
    content = read_json(path, "format", remedy=_REMEDY)
    if content is not None and content["format"] > FORMAT:
        fix = "update this package, or name another folder with --results"
        raise UserError(f"{path}: format: {content['format']} is newer than {FORMAT}, which this version reads; {fix}")


def mark(root: Path) -> None:
    """Write this version's format number to the root of a store, unless it is there."""
    if read_json(root / NAME, remedy=_REMEDY) != {"format": FORMAT}:
        files.write_json(root / NAME, {"format": FORMAT})
