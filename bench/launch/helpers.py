"""Scoring and evaluation on several ranks: the first one measures, the others encode their share of images and texts.

The others cannot know which features a measure needs, or which are stored already. So the first rank tells them each
thing to do, and they do it beside it: load the run's scorer, begin, train, load weights, extract features.
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
class Score:
    """Load the model that scores the run's pairs, and share the pairs that it sees."""


@dataclass(frozen=True)
class Begin:
    """Build the run's towers and method, and train them if asked to."""

    train: bool


@dataclass(frozen=True)
class Load:
    """Load weights of the run by the name of their file."""

    weights: str


_END = b"end"
_SCORED = ""  #: travels for the pairs that a scorer sees; no data set has this name
Request = Score | Begin | Load | Extraction


class _Private(Exception):
    """Pairs that only this process has."""


class _Shared:
    """Pairs that every rank has: those of evaluation, and those that a scorer sees. They travel by name."""

    def __init__(self, plan: EvaluationPlan) -> None:
        self._plan = plan
        self._names = {name for task in plan.chosen() for name in (task.dataset, task.train, task.validation) if name}
        self.scored: Pairs | None = None  #: what `share` was given

    def name(self, pairs: Pairs) -> str:
        """Return the name under which `load` gives the same pairs on any rank. Raises _Private if there is none."""
        if pairs is self.scored:
            return _SCORED
        if pairs.name in self._names and self._plan.load(pairs.name) is pairs:
            return pairs.name
        raise _Private

    def load(self, name: str) -> Pairs:
        if name != _SCORED:
            return self._plan.load(name)
        assert self.scored is not None
        return self.scored


class Helpers:
    """The other ranks as the first one sees them. In a group of one there are none, and every context is empty."""

    def __init__(self, heard: Words | None, plan: EvaluationPlan, group: Group) -> None:
        self._words, self._group, self._shared = heard, group, _Shared(plan)
        self._listening = True  #: whether the others wait for a word

    @property
    def world(self) -> int:
        """Number of ranks, this one included."""
        return self._group.world

    def share(self, pairs: Pairs) -> None:
        """Take pairs as those that the scorer sees, which the others share as well once they heard `Score`."""
        self._shared.scored = pairs

    @contextmanager
    def together(self, request: Request) -> Iterator[None]:
        """Have the others do what is requested, for the time of the context."""
        if self._words is not None:
            self._tell(self._words, _packed(request, self._shared))
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
            packed = _packed(extraction, self._shared) if self._words else b""
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


class Requests:
    """What the first rank asks of this one, in turn, until it lets it go."""

    def __init__(self, first: Words, plan: EvaluationPlan) -> None:
        self._first, self._shared = first, _Shared(plan)

    def __iter__(self) -> Iterator[Request]:
        for packed in iter(self._first.hear, _END):
            yield _Unpickler(io.BytesIO(packed), self._shared).load()

    def share(self, pairs: Pairs) -> None:
        """Take pairs as those that the scorer sees, as the first rank does."""
        self._shared.scored = pairs


@contextmanager
def requests(plan: EvaluationPlan) -> Iterator[Requests]:
    """Yield what the first rank asks of this one, until it lets it go."""
    with words(current()) as first:
        assert first is not None
        yield Requests(first, plan)


def _packed(request: Request, shared: _Shared) -> bytes:
    """Return a request as bytes. Raises _Private if it is about pairs that another rank cannot load."""
    buffer = io.BytesIO()
    _Pickler(buffer, shared).dump(request)
    return buffer.getvalue()


class _Pickler(pickle.Pickler):
    """Writes pairs that every rank has by their name."""

    def __init__(self, file: io.BytesIO, shared: _Shared) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._shared = shared

    def persistent_id(self, value: Any) -> str | None:
        if isinstance(value, str | type | DerivedPairs) or not isinstance(value, Pairs):
            return None
        return self._shared.name(value)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: _Shared) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_load(self, name: str) -> Pairs:
        return self._shared.load(name)
