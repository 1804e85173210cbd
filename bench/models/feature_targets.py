"""The pairs that features are extracted of: training pairs and evaluation sets, with their pixels and texts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pydantic import ValidationError

from bench import data
from bench.arrays import Ints, Pixels
from bench.catalogue import training_sets
from bench.catalogue.augmentations import DEFAULTS
from bench.data import MemoryPairs, Pairs, evaluation, photo, shards
from bench.data.evaluation import CLASS, EvaluationPairs
from bench.data.shards import ShardPairs
from bench.data.strings import TEXT_LISTS, Strings
from bench.data.text_sets import caption_lists
from bench.errors import UserError, one_line
from bench.evaluation.pixels import batches
from bench.evaluation.zero_shot import class_prompts
from bench.models.encoders import ImagePreparation
from bench.suite.settings import DataSettings

EMBEDDED_SIZE = 64  #: pixels a side of embedded data before it is resized to what an encoder sees


@dataclass(frozen=True)
class Pictures:
    """The pixels of one view of pairs, at the size that an encoder asks for."""

    pairs: Pairs
    sight: ImagePreparation
    view: int
    recipe: str  #: the augmentation of views after the first

    def images(self, rows: Ints) -> Pixels:
        """Map rows [b] to uint8 [b, scaled, scaled, 3]. Raises UserError if an image cannot be read."""
        if self.view:
            return self.pairs.sampled(rows, 0, 0, self.view, self.recipe)
        if not isinstance(self.pairs, ShardPairs) or self.sight.resize == photo.CROP:
            return self.pairs.images(rows)
        size = self.sight.scaled or self.sight.size
        try:
            decoded = [photo.decode_image(content) for content in self.pairs.encoded(rows)]
        except photo.Undecodable as error:
            raise UserError(f"{self.pairs.index_path}: an image cannot be decoded ({error}); index it again") from error
        return np.stack([photo.evaluation_pixels(image, size, self.sight.resize) for image in decoded])

    def batches(self, rows: Ints, size: int) -> Iterator[Pixels]:
        """Yield the pixels of each `size` of `rows` [n], in order; photographs are decoded by worker processes."""
        if isinstance(self.pairs, MemoryPairs):
            for start in range(0, len(rows), size):
                yield self.images(rows[start : start + size])
        else:
            yield from batches(cast(Pairs, self), rows, size)  # it asks for `images` alone


@dataclass(frozen=True)
class Target:
    """One feature set that is to be made."""

    pairs: Pairs = field(repr=False)
    folder: Path
    keys: Strings
    captions: Any  #: pyarrow Array of n lists of texts
    recipe: str = "none"
    templates: tuple[str, ...] = ()
    prompts: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.keys)

    def pictures(self, sight: ImagePreparation, view: int) -> Pictures:
        """Return the pixels of a view as an encoder sees them."""
        return Pictures(self.pairs, sight, view, self.recipe)


def training_target(given: str, out: Path, sight: ImagePreparation | None, further: Sequence[str]) -> Target:
    """Load training pairs: the name of embedded ones, a folder of indexed shards, or a set's name in the data folder.

    sight: the pixels that are needed; None if only texts are encoded. further: prompts. Raises UserError if the pairs
    are missing or damaged.
    """
    if given in training_sets.embedded():
        pairs = _embedded(f"{given}/train", sight)
        return _target(pairs, out, recipe=DEFAULTS["drawn art"], prompts=tuple(further))
    name = re.sub(r"[^A-Za-z0-9._+-]+", "-", Path(given).resolve().name) if os.path.isdir(given) else given
    size = (sight.scaled or sight.size) if sight else EMBEDDED_SIZE
    try:
        settings = DataSettings(name=name, shards=given if os.path.isdir(given) else None, size=size)
    except ValidationError as error:
        fix = f"give {' or '.join(training_sets.embedded())}, a folder of shards, or a set's name in the data folder"
        raise UserError(f"{given}: {one_line(error.errors()[0]['msg'], 200)}; {fix}") from error
    return _target(shards.load_shard_pairs(settings), out, recipe=DEFAULTS["photographs"], prompts=tuple(further))


def evaluation_target(name: str, folder: Path, sight: ImagePreparation | None) -> Target:
    """Load an evaluation set of the package or the catalogue, with its class prompts.

    Raises UserError if it is unknown, missing or damaged, or needs more than features of its images and texts.
    """
    if name in data.dataset_names():
        pairs = _embedded(name, sight)
        texts = [text for row in data.evaluation_captions(pairs) for text in row]
    else:
        size = (sight.scaled or sight.size) if sight else EMBEDDED_SIZE
        pairs, texts = evaluation.load_evaluation_set(name, size, sight.resize if sight else photo.CROP), []
        if pairs.puzzles:
            raise UserError(f"--evaluation {name}: its puzzles need pixels; omit it")
    templates = data.prompt_templates(pairs)
    shown = [label for label in pairs.classes if label == CLASS or not isinstance(pairs, EvaluationPairs)]
    texts += [text for label in shown for text in class_prompts(pairs.classes[label], templates)]
    own = {text for row in range(len(pairs)) for text in pairs.captions(row)}
    further = [text for text in dict.fromkeys(texts) if text not in own]
    return _target(pairs, folder, templates=templates, prompts=further)


def _target(pairs: Pairs, folder: Path, **more: Any) -> Target:
    captions = caption_lists(pairs, np.arange(len(pairs)))
    captions = pa.concat_arrays(captions.chunks) if hasattr(captions, "chunks") else captions
    return Target(pairs, folder, Strings.of(pairs.keys), captions.cast(TEXT_LISTS), **more)


def _embedded(name: str, sight: ImagePreparation | None) -> Pairs:
    """Load a set of the package; at a size that it does not have it is resized as evaluation resizes."""
    size = (sight.scaled or sight.size) if sight else EMBEDDED_SIZE
    entry = training_sets.embedded().get(name.split("/")[0])
    if entry is None or size in entry.sizes:
        return data.load_dataset(name, size)
    return data.load_resized(name, EMBEDDED_SIZE, size, sight.resize if sight else photo.CROP)
