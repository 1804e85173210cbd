"""Evaluation data that does not come with the package: the sets of a catalogue, read from several file layouts."""

from __future__ import annotations

from functools import lru_cache

from bench.catalogue.evaluation_sets import CLASS, Entry, Split, entries, parse, unknown
from bench.data.evaluation import index, layouts
from bench.data.evaluation.layouts import Found
from bench.data.evaluation.pairs import EvaluationPairs, source_of
from bench.data.evaluation.rows import drawn_rows
from bench.data.photo import CROP, Resize
from bench.data_folder import Missing

__all__ = [
    "CLASS",
    "Entry",
    "EvaluationPairs",
    "Found",
    "Missing",
    "Split",
    "check",
    "counts",
    "entries",
    "find",
    "load",
    "missing",
    "parse",
    "unknown",
]


def load(dataset: str, size: int, resize: Resize = CROP) -> EvaluationPairs:
    """Load a data set of the catalogue, "pets" or "pets/train", at `size` px.

    Raises UserError for an unknown name, for missing files (the message says how to get them) and for broken ones.
    """
    return _load(layouts.require(*parse(dataset)), size, resize)


@lru_cache(maxsize=64)
def _load(found: Found, size: int, resize: Resize) -> EvaluationPairs:
    return EvaluationPairs.read(source_of(found), size, resize)


def check(dataset: str) -> None:
    """Read a data set that is there as evaluation will, and open a sample of its images, before anything trains.

    Raises UserError for broken files, labels, captions, class names, prompts, puzzles and images. A builder's folder
    that was never read is not decoded as a whole: labels and images of the sample stand for it.
    """
    found = layouts.require(*parse(dataset))
    source = source_of(found)
    if found.layout == "builder" and index.known(source, index.mark_of(source.files)) is None:
        from bench.data.evaluation.builders import Built

        Built(found).check(dataset)
        return
    pairs = EvaluationPairs.read(source, 1, CROP)
    for row in drawn_rows(dataset, len(pairs)):
        pairs.image(row)


def find(dataset: str) -> Found | None:
    """Find the files of a data set; None if they are missing. Raises UserError for an unknown name."""
    return layouts.find(*parse(dataset))


def missing(dataset: str, purpose: str = "") -> Missing | None:
    """Describe a missing data set; None if it is not missing. Raises UserError for an unknown name."""
    return None if find(dataset) else layouts.missing(*parse(dataset), purpose)


def counts(dataset: str) -> tuple[int, int]:
    """Return the number of images and of classes of a data set: counted if it is present, otherwise as published.

    No image is decoded; so the published numbers are also used for a builder's folder that was never read. Raises
    UserError for an unknown name and for broken files.
    """
    entry, split = parse(dataset)
    found = layouts.find(entry, split)
    if found is None:
        return entry.count(split), entry.classes
    source = source_of(found)
    rows = index.known(source) if found.layout == "builder" else index.indexed(source)
    names = source.lines("classnames.txt") if found.layout == "webdataset" else ()
    return entry.count(split) if rows is None else len(rows), len(names) or entry.classes
