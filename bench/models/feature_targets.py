"""The pairs that features are extracted of: training pairs and evaluation sets, with their pixels and texts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import ValidationError

from bench import data
from bench.arrays import Ints, Pixels
from bench.catalogue import training_sets
from bench.catalogue.augmentations import DEFAULTS
from bench.data import Pairs, evaluation, photo, shards
from bench.data.evaluation import CLASS, EvaluationPairs
from bench.data.shards import ShardPairs
from bench.data.strings import TEXT_LISTS, Strings
from bench.data.text_sets import ColumnPairs, of_rows
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
    preparation: ImagePreparation
    view: int
    recipe: str  #: the augmentation of views after the first

    def images(self, rows: Ints) -> Pixels:
        """Map rows [b] to uint8 [b, scaled, scaled, 3]. Raises UserError if an image cannot be read."""
        if self.view:
            return self.pairs.sampled(rows, 0, 0, self.view, self.recipe)
        if not isinstance(self.pairs, ShardPairs) or self.preparation.resize == photo.CROP:
            return self.pairs.images(rows)
        try:
            decoded = [photo.decode_image(content) for content in self.pairs.encoded(rows)]
        except photo.Undecodable as error:
            raise UserError(f"{self.pairs.index_path}: an image cannot be decoded ({error}); index it again") from error
        size, resize = self.preparation.scaled, self.preparation.resize
        return np.stack([photo.evaluation_pixels(image, size, resize) for image in decoded])

    def batches(self, rows: Ints, size: int) -> Iterator[Pixels]:
        """Yield the pixels of each `size` of `rows` [n], in order; photographs are decoded by worker processes."""
        return batches(self.pairs, rows, size, self.images)


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

    def pictures(self, preparation: ImagePreparation, view: int) -> Pictures:
        """Return the pixels of a view as an encoder sees them."""
        return Pictures(self.pairs, preparation, view, self.recipe)


def training_target(given: str, out: Path, preparation: ImagePreparation, further: Sequence[str]) -> Target:
    """Load training pairs: the name of embedded ones, a folder of indexed shards, or a set's name in the data folder.

    preparation: of the pixels that are needed. further: prompts. Raises UserError if the pairs are missing or damaged.
    """
    if given in training_sets.embedded():
        pairs = _embedded(f"{given}/train", preparation)
        return _target(pairs, out, recipe=DEFAULTS["drawn art"], prompts=tuple(further))
    name = re.sub(r"[^A-Za-z0-9._+-]+", "-", Path(given).resolve().name) if os.path.isdir(given) else given
    shards_folder = given if os.path.isdir(given) else None
    try:
        settings = DataSettings(name=name, shards=shards_folder, size=preparation.scaled)
    except ValidationError as error:
        fix = f"give {' or '.join(training_sets.embedded())}, a folder of shards, or a set's name in the data folder"
        raise UserError(f"{given}: {one_line(error.errors()[0]['msg'], 200)}; {fix}") from error
    return _target(shards.load_shard_pairs(settings), out, recipe=DEFAULTS["photographs"], prompts=tuple(further))


def evaluation_target(name: str, folder: Path, preparation: ImagePreparation) -> Target:
    """Load an evaluation set of the package or the catalogue, with its class prompts.

    Raises UserError if it is unknown, missing or damaged, or needs more than features of its images and texts.
    """
    if name in data.dataset_names():
        pairs = _embedded(name, preparation)
        texts = [text for row in data.evaluation_captions(pairs) for text in row]
    else:
        pairs, texts = evaluation.load_evaluation_set(name, preparation.scaled, preparation.resize), []
        if pairs.puzzles:
            raise UserError(f"--evaluation {name}: its puzzles need pixels; omit it")
    templates = data.prompt_templates(pairs)
    shown = [label for label in pairs.classes if label == CLASS or not isinstance(pairs, EvaluationPairs)]
    texts += [text for label in shown for text in class_prompts(pairs.classes[label], templates)]
    own = {text for row in range(len(pairs)) for text in pairs.captions(row)}
    further = [text for text in dict.fromkeys(texts) if text not in own]
    return _target(pairs, folder, templates=templates, prompts=further)


def _target(pairs: Pairs, folder: Path, **more: Any) -> Target:
    rows = np.arange(len(pairs))
    if isinstance(pairs, ColumnPairs):
        captions = pairs.caption_lists(rows)
    else:
        captions = pa.array(of_rows(pairs, rows), TEXT_LISTS)
    captions = pa.concat_arrays(captions.chunks) if hasattr(captions, "chunks") else captions
    return Target(pairs, folder, Strings.of(pairs.keys), captions.cast(TEXT_LISTS), **more)


def _embedded(name: str, preparation: ImagePreparation) -> Pairs:
    """Load a set of the package; at a size that it does not have it is resized as evaluation resizes."""
    size = preparation.scaled
    entry = training_sets.embedded().get(name.split("/")[0])
    if entry is None or size in entry.sizes:
        return data.load_dataset(name, size)
    return data.load_resized(name, EMBEDDED_SIZE, size, preparation.resize)
