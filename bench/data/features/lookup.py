"""Texts of a run on stored features are read by their features: a lookup takes the place of a tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bench.arrays import Ints
from bench.data.features.about import evaluation_folders
from bench.data.features.pairs import FeaturePairs
from bench.data.features.texts import TextFeatures
from bench.errors import UserError


class TextLookup:
    """Captions and prompts -> their stored features: those of a training set, then those of its evaluation sets."""

    def __init__(self, pairs: FeaturePairs) -> None:
        """Raises UserError if the set has no text features."""
        if pairs.texts is None:
            raise UserError(f"{pairs.folder}: has no text features; extract the set again with --texts MODEL")
        self._pairs, self.folder, self.texts = pairs, pairs.folder, pairs.texts
        self.size = self.context_length = int(pairs.texts.array.shape[1])  #: Q

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the place alone: another process maps the same files."""
        return TextLookup, (self._pairs,)

    def __call__(self, texts: list[str]) -> Tensor:
        """n strings -> [n, Q] of the stored type. Raises UserError with a text that no set has."""
        return torch.from_numpy(self.lookup(texts))

    def lookup(self, texts: list[str]) -> npt.NDArray[Any]:
        """As the call, in an array of NumPy."""
        rows = self.texts.find(texts)
        if (rows >= 0).all():
            return np.asarray(self.texts.array[rows])
        features = np.empty((len(texts), self.size), self.texts.array.dtype)
        for table, places, own in self._found(texts):
            features[places] = table.array[own]
        return features

    def check(self, texts: list[str]) -> None:
        """Look texts up without reading their features. Raises UserError as the call does."""
        for _ in self._found(texts):
            pass

    def check_training(self, texts: list[str]) -> None:
        """The same for texts that a run trains on: its id holds the set's own ones, not those of evaluation sets."""
        self.texts.rows(texts)

    def _found(self, texts: list[str]) -> Iterator[tuple[TextFeatures, Ints, Ints]]:
        """Yield tables, the places of the texts that each has, and their rows there. UserError if one is left."""
        left = np.arange(len(texts))
        for table in self._tables():
            rows = table.find([texts[place] for place in left.tolist()])
            yield table, left[rows >= 0], rows[rows >= 0]
            left = left[rows < 0]
            if not len(left):
                return
        self.texts.rows([texts[int(left[0])]])  # raises the error that names the text

    def _tables(self) -> Iterator[TextFeatures]:
        yield self.texts
        yield from self._others

    @cached_property
    def _others(self) -> tuple[TextFeatures, ...]:
        return tuple(self._evaluation_tables())

    def _evaluation_tables(self) -> Iterator[TextFeatures]:
        """Open the texts of the evaluation sets. Raises UserError if an encoder of other width made one."""
        for folder in evaluation_folders(self.folder):
            table = FeaturePairs(folder).texts
            if table is not None and table.array.shape[1] != self.size:
                wide = f"its texts have {table.array.shape[1]} numbers, those of {self.folder} {self.size}"
                raise UserError(f"{folder}: {wide}; extract both with the same --texts MODEL")
            if table is not None:
                yield table
