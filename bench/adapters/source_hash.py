"""Hashes the source of an adapter for run ids: the meaning of all that its class reaches, alike on every Python."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from bench.adapters import registry
from bench.adapters.reach import Reach

_known: dict[tuple[str, Path], tuple[dict[Path, bytes], str]] = {}  #: file -> bytes of all that was read, and the hash


def source_hash(module: str, path: Path) -> str:
    """Return the sha256, 64 hex digits, of the definitions that a method's class reaches (see `bench.adapters.reach`).

    `module`: its name, `path`: its file. Nothing is imported. UserError for a file that is not Python, defines no
    method or imports `*` from its own package.
    """
    key = module, path
    if key in _known:
        read, known = _known[key]
        if all(file.is_file() and file.read_bytes() == source for file, source in read.items()):
            return known
    reach = Reach(module, path)
    text = json.dumps(reach.items, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    _known[key] = {file: file.read_bytes() for file in reach.files.values()}, digest
    return digest


def adapter_source_hash(method: str) -> str:
    """Return the sha256 of the meaning of all that a method's class reaches in `methods` or its own package."""
    location = registry.source(method)
    return source_hash(location.module, location.path)
