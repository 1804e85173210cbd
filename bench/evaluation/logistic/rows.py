"""The labelled rows of a probe. Selected rows stay in their table, so that no features are stored twice."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from bench.evaluation.ranks import require_finite


class Labelled:
    """Features [n, P] and labels [n] int64 of one split: all rows of `table`, or its `rows` [n] in their order.

    Raises ValueError if the shapes do not fit and FloatingPointError if a feature is not finite.
    """

    def __init__(self, table: Tensor, labels: Tensor, rows: Tensor | None = None) -> None:
        if table.ndim != 2 or len(table if rows is None else rows) != len(labels):
            raise ValueError(f"features {tuple(table.shape)} and {len(labels)} labels do not fit")
        if rows is None:  # other rows are of a table that was checked before
            require_finite(table)
        self.table, self.labels, self.rows = table, labels, rows

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def features(self) -> Tensor:
        """[n, P]: the table itself if the split has all of it, otherwise a copy of the rows."""
        return self.table if self.rows is None else self.table[self.rows]

    def __add__(self, other: Labelled) -> Labelled:
        """Return the rows of both, in order. Features are copied unless both are rows of one table."""
        labels = torch.cat((self.labels, other.labels))
        if self.table is other.table:
            return Labelled(self.table, labels, torch.cat((self._places(), other._places())))
        return Labelled(torch.cat((self.features, other.features)), labels)

    def _places(self) -> Tensor:
        return torch.arange(len(self.table), device=self.table.device) if self.rows is None else self.rows

    def to(self, device: torch.device) -> Labelled:
        """Return the same split on another device; without a copy if it is there already."""
        if self.table.device == self.labels.device == device:
            return self
        return Labelled(self.features.to(device), self.labels.to(device))

    def select(self, mask: Tensor) -> Labelled:
        """Return the rows whose entry of `mask` [n] is true, without a copy of their features."""
        where = mask.nonzero().squeeze(1)
        return Labelled(self.table, self.labels[where], self._places()[where])

    def take(self, where: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Return features and labels of some rows of the split."""
        return self.table[where if self.rows is None else self.rows[where]], self.labels[where]

    def chunks(self, size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield features and labels of `size` rows at a time, on a device."""
        for start in range(0, len(self), size):
            features, labels = self.take(slice(start, start + size))
            yield features.to(device), labels.to(device)
