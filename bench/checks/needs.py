"""The check that an adapter's `needs` are what its `prepare` and `encode` read, seen by towers and rows that tell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from bench.checks import lab
from bench.checks.subject import Failed, Instance, Subject, Variant, moments
from methods.protocol import Rows

SMALL = 16  #: rows that are encoded
_PARTS = {"visual": "pixels", "text": "text_transformer"}
_HARMLESS = ("__get__", "size", "dim", "__len__")  #: of a tensor: its shape, type and place


class Told(torch.Tensor):
    """A tensor that adds its word to a set when anything computes with it."""

    word: str
    heard: set[str]

    @classmethod
    def of(cls, x: Tensor, word: str, heard: set[str]) -> Told:
        tracked = x.as_subclass(cls)
        tracked.word, tracked.heard = word, heard
        return tracked

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if getattr(func, "__name__", "") not in _HARMLESS:
                for x in [*_tensors(args), *_tensors(list((kwargs or {}).values()))]:
                    x.heard.add(x.word)
            return func(*_plain(args), **{key: _plain(value) for key, value in (kwargs or {}).items()})


def _tensors(value: Any) -> Iterator[Told]:
    if isinstance(value, Told):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)


def _plain(value: Any) -> Any:
    if isinstance(value, Told):
        return value.as_subclass(Tensor)
    if type(value) in (list, tuple):
        return type(value)(_plain(one) for one in value)
    return value


class _Views(tuple[Tensor, ...]):
    """Views that tell when one of them is taken."""

    heard: set[str]

    def __getitem__(self, at: Any) -> Any:
        self.heard.add("second_view")
        return super().__getitem__(at)

    def __iter__(self) -> Iterator[Tensor]:
        self.heard.add("second_view")
        return super().__iter__()


class _Captions(list[str]):
    """Captions that tell when one of them is read; their number is no secret."""

    heard: set[str]

    def __getitem__(self, at: Any) -> Any:
        self.heard.add("tokens")
        return super().__getitem__(at)

    def __iter__(self) -> Iterator[str]:
        self.heard.add("tokens")
        return super().__iter__()


class TellingTowers(lab.TinyTowers):
    """Tiny towers that note what is asked of them beside embeddings of whole images and of tokens as given."""

    def __init__(self, visual: str) -> None:
        super().__init__(visual)
        self.heard: set[str] = set()
        self.watched = True

    def __getattr__(self, name: str) -> Any:
        if name in _PARTS and self.__dict__.get("watched", False):
            self.heard.add(_PARTS[name])
        return super().__getattr__(name)

    def encode_image(self, images: Tensor) -> Tensor:
        with self._unwatched():
            return super().encode_image(_plain(images))

    def encode_text(self, tokens: Tensor) -> Tensor:
        with self._unwatched():
            return super().encode_text(_plain(tokens))

    def tokenize(self, captions: list[str]) -> Tensor:
        self.heard.add("tokens")
        with self._unwatched():
            return super().tokenize(captions)

    @contextmanager
    def _unwatched(self) -> Iterator[None]:
        before, self.watched = self.watched, False
        try:
            yield
        finally:
            self.watched = before

    def rows(self, instance: Instance, when: Any) -> Rows:
        """Rows whose parts tell."""
        with self._unwatched():
            heard, given = set(self.heard), instance.rows(when=when, total=SMALL)
        self.heard.intersection_update(heard)  # making rows tokenizes captions
        views = _Views(Told.of(view, "pixels", self.heard) for view in given.views)
        captions = _Captions(given.captions)
        views.heard = captions.heard = self.heard
        images, tokens = Told.of(given.images, "pixels", self.heard), Told.of(given.tokens, "tokens", self.heard)
        return Rows(images, tokens, captions, given.ids, given.positions, given.clock, views)


def needs(subject: Subject) -> None:
    """`needs` says what `prepare` and `encode` read beside whole images and tokens as given, neither less nor more.

    Each variant reads no more than `needs_under` says of it; all together read what the class declares. A second view
    is needed exactly where `extra_views` asks for one.
    """
    read: set[str] = set()
    for variant in subject.variants:
        declared = subject.kind.needs_under(subject.kind.Config(**variant.config))
        for towers in ("vit", "resnet"):
            used, views = _read(subject, variant, towers)
            if not used <= declared:
                more = ", ".join(sorted(used - declared))
                raise Failed(f"{variant.label}, {towers} towers: needs {more}, which `needs` does not declare")
            if bool(views) != ("second_view" in declared):
                verb = "declares" if "second_view" in declared else "does not declare"
                raise Failed(f"{variant.label}: {verb} second_view, but extra_views is {views}")
            read |= used
    if read != subject.kind.needs:
        raise Failed(f"declares {', '.join(sorted(subject.kind.needs - read))} in `needs`, but reads no such thing")


def _read(subject: Subject, variant: Variant, kind: str) -> tuple[set[str], int]:
    """The words for what a variant reads, and the number of views it asks for."""
    towers = TellingTowers(kind)
    instance = subject.instance(variant.config, batch=SMALL, tiny=towers)
    for when in moments(instance.method):
        with torch.no_grad():
            instance.method.encode(towers, towers.rows(instance, when))
    return towers.heard, instance.method.extra_views
