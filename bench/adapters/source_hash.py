"""Hashes the source of an adapter for run ids: the meaning of all that its class reaches, alike on every Python."""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path

from bench.adapters import registry
from bench.adapters.reach import Reach


def source_hash(module: str, path: Path) -> str:
    """Return the sha256, 64 hex digits, of the definitions that a method's class reaches (see `bench.adapters.reach`).

    `module`: its name, `path`: its file. Nothing is imported. UserError for a file that is not Python, defines no
    method, imports `*` or runs code on import.
    """
    text = json.dumps(Reach(module, path).items, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def adapter_source_hash(method: str) -> str:
    """Return the sha256 of the meaning of all that a method's class reaches in `methods` or its own package.

    It is kept as long as the adapter's own file has the same bytes.
    """
    location = registry.source(method)
    return _kept(location.module, location.path, location.path.read_bytes())


@functools.lru_cache(maxsize=256)
def _kept(module: str, path: Path, _source: bytes) -> str:
    return source_hash(module, path)
