"""Evaluation data that does not come with the package: the sets of a catalogue, read from several file layouts."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from bench import counter
from bench.catalogue.evaluation_sets import CLASS, parse_dataset
from bench.data.evaluation import index, layouts
from bench.data.evaluation.layouts import Found
from bench.data.evaluation.pairs import EvaluationPairs, source_of
from bench.data.photo import CROP, Resize
from bench.data_folder import Missing

__all__ = [
    "CLASS",
    "EvaluationPairs",
    "check_evaluation_set",
    "evaluation_set_counts",
    "find_evaluation_set",
    "load_evaluation_set",
    "missing_evaluation_set",
    "parse_dataset",
]
SAMPLED_IMAGES = 6  #: images that are opened before training besides the first and the last


def load_evaluation_set(dataset: str, size: int, resize: Resize = CROP) -> EvaluationPairs:
    """Load a data set of the catalogue, "pets" or "pets/train", at `size` px.

    Raises UserError for an unknown name, for missing files (the message says how to get them) and for broken ones.
    """
    return _load(layouts.require_split(*parse_dataset(dataset)), size, resize)


@lru_cache(maxsize=64)
def _load(found: Found, size: int, resize: Resize) -> EvaluationPairs:
    return EvaluationPairs.read(source_of(found), size, resize)


def check_evaluation_set(dataset: str) -> None:
    """Read a data set that is there as evaluation will, and open a sample of its images, before anything trains.

    Raises UserError for broken files, labels, captions, class names, prompts, puzzles and images.
    """
    pairs = EvaluationPairs.read(source_of(layouts.require_split(*parse_dataset(dataset))), 1, CROP)
    drawn = counter.random_words(counter.word(0, "opened before training", dataset), np.arange(SAMPLED_IMAGES))[:, 0]
    for row in {0, len(pairs) - 1, *counter.integers_below(np.full(SAMPLED_IMAGES, len(pairs)), drawn).tolist()}:
        pairs.image(row)


def find_evaluation_set(dataset: str) -> Found | None:
    """Find the files of a data set; None if they are missing. Raises UserError for an unknown name."""
    return layouts.find_split(*parse_dataset(dataset))


def missing_evaluation_set(dataset: str, purpose: str = "") -> Missing | None:
    """Describe a missing data set; None if it is not missing. Raises UserError for an unknown name."""
    return None if find_evaluation_set(dataset) else layouts.missing_split(*parse_dataset(dataset), purpose)


def evaluation_set_counts(dataset: str) -> tuple[int, int]:
    """Return the number of images and of classes of a data set: counted if it is present, otherwise as published.

    Raises UserError for an unknown name and for broken files.
    """
    entry, split = parse_dataset(dataset)
    found = layouts.find_split(entry, split)
    if found is None:
        return entry.count(split), entry.classes
    source = source_of(found)
    return len(index.indexed_rows(source)), len(source.lines("classnames.txt")) or entry.classes
