"""Data: pairs of images and captions, noise manifests, sample order, augmentation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from bench.catalogue import evaluation_sets, training_sets
from bench.catalogue.training_sets import Synonyms
from bench.data import digits, emoji
from bench.data.pairs import MemoryPairs, Pairs, ResizedPairs
from bench.data.photo import Resize
from bench.errors import UserError, nearest

__all__ = [
    "TEMPLATES",
    "MemoryPairs",
    "Pairs",
    "dataset_names",
    "dataset_synonyms",
    "evaluation_captions",
    "load_dataset",
    "load_resized",
]

#: prompt ensembles for zero-shot by data family (the part of a set's name before "/"); "{}" is the class name
TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "emoji": emoji.TEMPLATES,
    "digits": digits.TEMPLATES,
    **dict.fromkeys(emoji.HALVES, emoji.TEMPLATES),
}
_SETS = {
    "emoji": tuple(emoji.SETS),
    "digits": tuple(digits.SETS),
    **dict.fromkeys(emoji.HALVES, tuple(emoji.SETS)),
}


def dataset_names() -> tuple[str, ...]:
    """Names of the data sets that come with the package, such as "emoji/iid"."""
    return tuple(f"{family}/{split}" for family, splits in _SETS.items() for split in splits)


@cache
def load_dataset(name: str, size: int = 64) -> Pairs:
    """Load a data set of the package or of the evaluation catalogue at `size` px, once a process.

    Raises UserError for an unknown name or size, and if the data is missing or broken.
    """
    if name not in dataset_names():
        if not evaluation_sets.unknown_set(name.split("/")[0]):
            from bench.data import evaluation

            return evaluation.load_evaluation_set(name, size)
        raise UserError(f"data set {name!r} is unknown{nearest(name, dataset_names())}")
    family, split = name.split("/")
    if family in emoji.HALVES:
        whole = load_dataset(f"emoji/{split}", size)
        assert isinstance(whole, MemoryPairs)
        return emoji.half_of_concepts(whole, family)
    return emoji.load_emoji(split, size) if family == "emoji" else digits.load_digits(split, size)


@cache
def load_resized(name: str, size: int, seen: int, resize: Resize) -> Pairs:
    """Load a data set of the package at `size` px for a model whose input has `seen` px.

    Images are resized as evaluation resizes photographs, by `photo.evaluation_pixels`. Errors of `load_dataset`.
    """
    pairs = load_dataset(name, size)
    if seen == size:
        return pairs
    assert isinstance(pairs, MemoryPairs)
    return ResizedPairs.of(pairs, seen, resize)


def prompt_templates(pairs: Pairs) -> tuple[str, ...]:
    """Return the zero-shot prompts of a data set, with "{}" for the class name. Raises KeyError if it has none."""
    from bench.data.evaluation import EvaluationPairs
    from bench.data.features.pairs import FeaturePairs

    if isinstance(pairs, EvaluationPairs | FeaturePairs):
        return pairs.templates
    return TEMPLATES[pairs.name.split("/")[0]]


def evaluation_captions(pairs: Pairs, k: int = 5) -> list[tuple[str, ...]]:
    """Return exactly k texts for each of the n rows: its captions, then prompts of the first one, then repeats."""
    templates = TEMPLATES.get(pairs.name.split("/")[0], ("{}",))
    result = []
    for row in range(len(pairs)):
        captions = pairs.captions(row)
        prompts = [template.replace("{}", captions[0]) for template in templates]
        texts = tuple(dict.fromkeys([*captions, *prompts]))
        result.append((texts * k)[:k] if len(texts) < k else texts[:k])
    return result


def dataset_synonyms(name: str) -> Synonyms:
    """Map each name of a data set's training concepts to the concept's other names; {} if the set has no such names."""
    entry = training_sets.embedded().get(name.split("/")[0])
    return entry.synonyms() if entry and entry.synonyms else {}
