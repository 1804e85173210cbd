"""Canonical content and its sha256, by which results are addressed."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import UserError
from bench.reading import open_file

OPEN_CLIP = "open_clip:"  #: before the name of pretrained weights, in place of a path


@dataclass(frozen=True)
class Absent:
    """Stands in a run's content for the hash of a file that is not there: the run then has settings, but no id."""

    reason: str  #: one line: which file, and why


class MissingFile(UserError):
    """Weights or a vocabulary that a run's id needs are missing."""


def sha256_order(texts: Sequence[str]) -> list[int]:
    """Return the places 0..n-1 of texts in the order of their sha256."""
    digests = [hashlib.sha256(text.encode()).digest() for text in texts]
    return sorted(range(len(texts)), key=digests.__getitem__)


def canonical(value: Any) -> str:
    """JSON with one spelling a value: sorted keys, 1.0 as 1, tuples as lists. ValueError for nan and infinities."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"keys should be strings, not {key!r}")
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Absent):
        return {"absent": value.reason}
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    return value


def flattened(content: Mapping[str, Any], between: str = ".") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings under names joined by `between`; an empty mapping is a value."""
    for name, value in content.items():
        if isinstance(value, Mapping) and value:
            yield from ((f"{name}{between}{inner}", one) for inner, one in flattened(value, between))
        else:
            yield name, value


def digest(value: Any) -> str:
    """sha256 of the canonical JSON, 64 hex digits."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def file_hash(path: str | Path) -> str:
    """sha256 of a file's bytes, 64 hex digits. Raises OSError if it cannot be read; a FIFO is not waited for."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # it has readinto


@functools.cache
def weights_identity(start: str) -> str | Absent:
    """Return `start` as run ids see it: sha256 of a file's bytes; a pretrained tag is its name.

    A file that is not there is `Absent`: a run that begins at it has settings, but no id.
    """
    if start.startswith(OPEN_CLIP):
        return start
    try:
        return file_hash(start)
    except OSError as error:
        return Absent(f"{start}: cannot be read: {error.strerror}")
