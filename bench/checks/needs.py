"""The check that an adapter's `needs` are what its `prepare` and `encode` read: towers and rows record their use."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from bench.checks import lab
from bench.checks.subject import Failed, Instance, Subject, Variant, moments
from methods.protocol import Rows

SMALL = 16  #: rows that are encoded
_PARTS = {"visual": "pixels", "text": "text_transformer"}
_HARMLESS = ("__get__", "size", "dim", "__len__")  #: functions that read only the shape, dtype or device of a tensor


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

    watched = True  #: on the class, because a side is a copy of the towers

    def __init__(self, visual: str) -> None:
        super().__init__(visual)
        self.recorded: set[str] = set()
        self.words: dict[int, str] = {}  #: tensor's id() -> what is recorded when anything computes with it

    def __getattr__(self, name: str) -> Any:
        if name in _PARTS and type(self).watched and "recorded" in self.__dict__:
            self.recorded.add(_PARTS[name])
        return super().__getattr__(name)

    def encode_image(self, images: Tensor) -> Tensor:
        with self._unwatched():
            return super().encode_image(images)

    def encode_text(self, tokens: Tensor) -> Tensor:
        with self._unwatched():
            return super().encode_text(tokens)

    def tokenize(self, captions: list[str]) -> Tensor:
        self.recorded.add("tokens")
        with self._unwatched():
            return super().tokenize(captions)

    @contextmanager
    def _unwatched(self) -> Iterator[None]:
        before, type(self).watched = type(self).watched, False
        try:
            yield
        finally:
            type(self).watched = before

    def rows(self, instance: Instance, when: Any) -> Rows:
        """Return rows whose parts record when they are read."""
        with self._unwatched():
            before, given = set(self.recorded), instance.rows(when=when, total=SMALL)
        self.recorded.intersection_update(before)  # making rows tokenizes captions
        self.words = {id(x): "pixels" for x in (given.images, *given.views)} | {id(given.tokens): "tokens"}
        return dataclasses.replace(
            given,
            captions=_recording(list, "tokens", self.recorded)(given.captions),
            views=_recording(tuple, "second_view", self.recorded)(given.views),
        )


class _Watch(TorchFunctionMode):
    """While it is open, whatever computes with a tensor of the rows that towers made is recorded."""

    def __init__(self, towers: RecordingTowers) -> None:
        super().__init__()
        self.towers = towers

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.towers.watched and getattr(func, "__name__", "") not in _HARMLESS:
            given = [*args, *(kwargs or {}).values()]
            for value in given:  # what a list or a tuple holds is appended
                given += value if isinstance(value, list | tuple) else []
                if id(value) in self.towers.words:
                    self.towers.recorded.add(self.towers.words[id(value)])
        return func(*args, **(kwargs or {}))


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
        rows = towers.rows(instance, when)
        with torch.no_grad(), _Watch(towers):
            instance.method.encode(towers, rows)
    return towers.recorded, instance.method.extra_views
