"""Texts of a run on stored features are read by their features: a lookup takes the place of a tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

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
        self.folder, self.texts = pairs.folder, pairs.texts
        self.size = self.context_length = int(pairs.texts.array.shape[1])  #: Q

    def __call__(self, texts: list[str]) -> Tensor:
        """n strings -> [n, Q] of the stored type. Raises UserError with a text that no set has."""
        return torch.from_numpy(self.lookup(texts))

    def lookup(self, texts: list[str]) -> npt.NDArray[Any]:
        """As the call, in an array of NumPy."""
        rows = self.texts.find(texts)
        if (rows >= 0).all():
            return np.asarray(self.texts.array[rows])
        features = np.empty((len(texts), self.size), self.texts.array.dtype)
        features[rows >= 0] = self.texts.array[rows[rows >= 0]]
        left = np.flatnonzero(rows < 0)
        for table in self._others:
            rows = table.find([texts[place] for place in left.tolist()])
            features[left[rows >= 0]] = table.array[rows[rows >= 0]]
            left = left[rows < 0]
        if len(left):
            self.texts.rows([texts[int(left[0])]])  # raises the error that names the text
        return features

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
