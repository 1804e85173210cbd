"""Evaluation on several ranks: the first one measures, the others encode their share of all images and texts.

The others cannot know which features a measure needs, or which are stored already. So the first rank tells them each
thing to do, and they do it beside it: begin, train, load weights, extract features.
"""

from __future__ import annotations

import contextlib
import io
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench.data.pairs import DerivedPairs, Pairs
from bench.evaluation import EvaluationPlan
from bench.evaluation.features import Extraction
from bench.training.distributed import Group, Words, current, words


@dataclass(frozen=True)
class Begin:
    """Build the run's towers and method, and train them if asked to."""

    train: bool


@dataclass(frozen=True)
class Load:
    """Load weights of the run by the name of their file."""

    weights: str


_END = b"end"
Request = Begin | Load | Extraction


class _Private(Exception):
    """Pairs that only this process has."""


class Helpers:
    """The other ranks as the first one sees them. In a group of one there are none, and every context is empty."""

    def __init__(self, heard: Words | None, plan: EvaluationPlan, group: Group) -> None:
        self._words, self._plan, self._group = heard, plan, group
        self._listening = True  #: whether the others wait for a word

    @contextmanager
    def together(self, request: Request) -> Iterator[None]:
        """Have the others do what is requested, for the time of the context."""
        if self._words is not None:
            self._tell(self._words, _packed(request, self._plan))
        yield
        self._listening = True

    @contextmanager
    def extracting(self, extraction: Extraction) -> Iterator[Group | None]:
        """Have the others make an extraction, and yield the group that shares its batches.

        Yields None, which means this rank alone, in a group of one and for images that only this process has, as those
        that a measure changes pixel by pixel.
        """
        packed = b""
        with contextlib.suppress(_Private):
            packed = _packed(extraction, self._plan) if self._words else b""
        if self._words and packed:
            self._tell(self._words, packed)
            yield self._group
            self._listening = True
        else:
            yield None

    def dismiss(self) -> None:
        """Let the others go, unless an error came while they worked: they wait for this rank then and have to end."""
        if self._words is not None and self._listening:
            self._words.tell(_END)

    def _tell(self, others: Words, packed: bytes) -> None:
        self._listening = False
        others.tell(packed)


@contextmanager
def helpers(plan: EvaluationPlan) -> Iterator[Helpers]:
    """Yield the other ranks, each of which reads `requests`; let them go at the end."""
    group = current()
    with words(group) as others:
        found = Helpers(others, plan, group)
        try:
            yield found
        finally:
            found.dismiss()


@contextmanager
def requests(plan: EvaluationPlan) -> Iterator[Iterator[Request]]:
    """Yield what the first rank asks of this one, until it lets it go."""
    with words(current()) as first:
        assert first is not None
        yield (_Unpickler(io.BytesIO(packed), plan).load() for packed in iter(first.hear, _END))


def _packed(request: Request, plan: EvaluationPlan) -> bytes:
    """Return a request as bytes. Raises _Private if it is about pairs that another rank cannot load."""
    buffer = io.BytesIO()
    _Pickler(buffer, plan).dump(request)
    return buffer.getvalue()


class _Pickler(pickle.Pickler):
    """Writes pairs of evaluation by their name, because every rank has them."""

    def __init__(self, file: io.BytesIO, plan: EvaluationPlan) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._plan = plan
        tasks = plan.chosen()
        self._names = {name for task in tasks for name in (task.dataset, task.train, task.validation) if name}

    def persistent_id(self, value: Any) -> str | None:
        if isinstance(value, str | type | DerivedPairs) or not isinstance(value, Pairs):
            return None
        if value.name in self._names and self._plan.load(value.name) is value:
            return value.name
        raise _Private


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, plan: EvaluationPlan) -> None:
        super().__init__(file)
        self._plan = plan

    def persistent_load(self, name: str) -> Pairs:
        return self._plan.load(name)
