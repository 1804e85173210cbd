"""Evaluation data that does not come with the package: a catalogue, and the layouts its files may lie in."""

from __future__ import annotations

from functools import lru_cache

from bench.catalogue.evaluation_sets import CLASS, Entry, Split, entries, parse, unknown
from bench.data.evaluation import index, layouts
from bench.data.evaluation.layouts import Found
from bench.data.evaluation.pairs import EvaluationPairs, source_of
from bench.data.photo import CROP, Resize
from bench.data_folder import Missing

__all__ = [
    "CLASS",
    "Entry",
    "EvaluationPairs",
    "Found",
    "Missing",
    "Split",
    "counts",
    "entries",
    "find",
    "load",
    "missing",
    "parse",
    "unknown",
]


def load(dataset: str, size: int, resize: Resize = CROP) -> EvaluationPairs:
    """A data set of the catalogue, "pets" or "pets/train", at `size` px.

    UserError for an unknown name, for files that are not there (with how to get them) and for broken ones.
    """
    return _load(layouts.require(*parse(dataset)), size, resize)


@lru_cache(maxsize=64)
def _load(found: Found, size: int, resize: Resize) -> EvaluationPairs:
    return EvaluationPairs.read(source_of(found), size, resize)


def find(dataset: str) -> Found | None:
    """Where a data set lies; None where it is not there."""
    return layouts.find(*parse(dataset))


def missing(dataset: str, purpose: str = "") -> Missing | None:
    """What to say of a data set that is not there; None where it is."""
    return None if find(dataset) else layouts.missing(*parse(dataset), purpose)


def counts(dataset: str) -> tuple[int, int]:
    """Images and classes of a data set: exactly where it is there, else as published. Decodes nothing.

    A builder's folder counts as published until it was read once. UserError for broken files.
    """
    entry, split = parse(dataset)
    found = layouts.find(entry, split)
    if found is None:
        return entry.count(split), entry.classes
    source = source_of(found)
    rows = index.known(found) if found.layout == "builder" else index.indexed(found, source.files, source.scan)
    names = source.lines("classnames.txt") if found.layout == "webdataset" else ()
    return entry.count(split) if rows is None else len(rows), len(names) or entry.classes
