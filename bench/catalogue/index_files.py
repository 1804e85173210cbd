"""The index files of noise that papers publish, recognised by the sha256 of the file. Needs neither numpy nor data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from bench.registry import Registry


@dataclass(frozen=True)
class IndexFile:
    """One published file."""

    name: str  #: "pc2-f30k-0.4"
    data: str  #: the data set whose training split it permutes
    unit: str  #: "image" or "caption": what has an entry
    rate: float  #: as stated by its authors
    images: int  #: of the training split
    entries: int
    moved: int  #: entries that are not at their own image
    papers: str  #: who uses it
    source: str  #: repository, commit and path
    sha256: str  #: of the file


@cache
def published_index_files() -> Registry[IndexFile]:
    """All known files."""
    entries = json.loads((files("bench.catalogue") / "index_files.json").read_text("utf-8"))
    return Registry("a published index file", (IndexFile(**entry) for entry in entries))


def find_index_file(sha256: str) -> IndexFile | None:
    """Return the published file with this sha256; None if there is none."""
    return next((one for one in published_index_files() if one.sha256 == sha256), None)
