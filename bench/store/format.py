"""The version of a store's layout, in `store.json` at its root.

Format 1 is the layout without that file. Format 2 adds it, and to the settings.json of a run its `format` and
`training_version`. docs/compatibility.md says what a later format may change.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.errors import UserError
from bench.store import files

FORMAT = 2  #: raised whenever an older version of this package would misread what this one writes
NAME = "store.json"


def refuse_newer(root: Path) -> None:
    """UserError where a later version of this package wrote the store, or its store.json is damaged."""
    path = root / NAME
    try:
        found = files.read_json(path)
    except ValueError as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    if found is None:
        return
    number = found.get("format") if isinstance(found, dict) else None
    if not isinstance(number, int) or isinstance(number, bool):
        raise UserError(f"{path}: format: {number!r} should be a whole number, at most {FORMAT}")
    if number > FORMAT:
        fix = "update this package, or name another folder with --results"
        raise UserError(f"{path}: format: {number} is newer than {FORMAT}, which this version reads; {fix}")


def mark(root: Path) -> None:
    """Note this version's format at the root of a store that it writes to."""
    if files.read_json(root / NAME) != {"format": FORMAT}:
        files.write_json(root / NAME, {"format": FORMAT})


def training_version(settings: Mapping[str, Any]) -> int | None:
    """The TRAINING_VERSION that a run was made with: 1 before format 2 noted it; None for a run without settings."""
    return int(settings.get("training_version", 1)) if settings else None
