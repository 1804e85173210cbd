"""The check that an adapter's `needs` are what its `prepare` and `encode` read: towers and rows record their use."""

from __future__ import annotations

import dataclasses
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
_HARMLESS = ("__get__", "size", "dim", "__len__")  #: functions that read only the shape, dtype or device of a tensor


class Recorded(torch.Tensor):
    """A tensor that adds its word to a set when anything computes with it."""

    word: str
    recorded: set[str]

    @classmethod
    def of(cls, x: Tensor, word: str, recorded: set[str]) -> Recorded:
        tensor = x.as_subclass(cls)
        tensor.word, tensor.recorded = word, recorded
        return tensor

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if getattr(func, "__name__", "") not in _HARMLESS:
                for x in [*_tensors(args), *_tensors(list((kwargs or {}).values()))]:
                    x.recorded.add(x.word)
            return func(*_plain(args), **{key: _plain(value) for key, value in (kwargs or {}).items()})


def _tensors(value: Any) -> Iterator[Recorded]:
    if isinstance(value, Recorded):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)


def _plain(value: Any) -> Any:
    if isinstance(value, Recorded):
        return value.as_subclass(Tensor)
    if type(value) in (list, tuple):
        return type(value)(_plain(one) for one in value)
    return value


def _recording(kind: type, word: str, recorded: set[str]) -> type:
    """Return a sequence type that adds its word to a set when an item is read; reading the length adds nothing."""

    class Recording(kind):  # type: ignore[misc]
        def __getitem__(self, at: Any) -> Any:
            recorded.add(word)
            return super().__getitem__(at)

        def __iter__(self) -> Any:
            recorded.add(word)
            return super().__iter__()

    return Recording


class RecordingTowers(lab.TinyTowers):
    """Tiny towers that record every use but the embedding of whole images and of tokens as given."""

    def __init__(self, visual: str) -> None:
        super().__init__(visual)
        self.recorded: set[str] = set()
        self.watched = True

    def __getattr__(self, name: str) -> Any:
        if name in _PARTS and self.__dict__.get("watched", False):
            self.recorded.add(_PARTS[name])
        return super().__getattr__(name)

    def encode_image(self, images: Tensor) -> Tensor:
        with self._unwatched():
            return super().encode_image(_plain(images))

    def encode_text(self, tokens: Tensor) -> Tensor:
        with self._unwatched():
            return super().encode_text(_plain(tokens))

    def tokenize(self, captions: list[str]) -> Tensor:
        self.recorded.add("tokens")
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
        """Return rows whose parts record when they are read."""
        with self._unwatched():
            before, given = set(self.recorded), instance.rows(when=when, total=SMALL)
        self.recorded.intersection_update(before)  # making rows tokenizes captions
        views = [Recorded.of(view, "pixels", self.recorded) for view in given.views]
        images = Recorded.of(given.images, "pixels", self.recorded)
        tokens = Recorded.of(given.tokens, "tokens", self.recorded)
        return dataclasses.replace(
            given,
            images=images,
            tokens=tokens,
            captions=_recording(list, "tokens", self.recorded)(given.captions),
            views=_recording(tuple, "second_view", self.recorded)(views),
        )


def needs(subject: Subject) -> None:
    """`needs` says what `prepare` and `encode` read besides whole images and tokens as given, neither less nor more.

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
    """Return the needs that a variant reads, and the number of views it asks for."""
    towers = RecordingTowers(kind)
    instance = subject.instance(variant.config, batch=SMALL, tiny=towers)
    for when in moments(instance.method):
        with torch.no_grad():
            instance.method.encode(towers, towers.rows(instance, when))
    return towers.recorded, instance.method.extra_views
