"""Registries: one entry per concept, the words a suite may use. Needs neither torch nor data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, Generic, Protocol, TypeVar

from bench.errors import UserError, nearest


class HasName(Protocol):
    """Anything that has a name of its own."""

    @property
    def name(self) -> str:
        """The word for it in suites."""


E = TypeVar("E", bound=HasName)


class Registry(Generic[E]):
    """Entries by name, in the order in which they were added."""

    def __init__(self, what: str, entries: Iterable[E] = (), absent: str = "") -> None:
        """The words of messages: `what` is one of them, with its article, such as "a kind of noise".

        absent: what an unknown name "is"; "" = "not a kind of noise".
        """
        self.what, self.absent = what, absent or f"not {what}"
        self._entries: dict[str, E] = {}
        for entry in entries:
            self.add(entry)

    def add(self, entry: E) -> None:
        """Register an entry in this process. UserError if its name is taken."""
        if entry.name in self._entries:
            raise UserError(f"{entry.name!r} is already {self.what}; choose another name")
        self._entries[entry.name] = entry

    def remove(self, name: str) -> None:
        """Forget an entry. UserError for an unknown name."""
        del self._entries[self[name].name]

    def __getitem__(self, name: str) -> E:
        """The entry of a name. UserError, with the nearest name, for an unknown one."""
        if message := self.unknown(name):
            raise UserError(message)
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[E]:
        return iter(self._entries.values())

    def names(self) -> tuple[str, ...]:
        """The names of all entries, in their order."""
        return tuple(self._entries)

    def unknown(self, name: str) -> str:
        """What is wrong with a name, with the nearest valid one; "" for the name of an entry."""
        return "" if name in self._entries else f"{name!r} is {self.absent}{nearest(name, self._entries)}"

    def wrong(self, name: str) -> str:
        """As `unknown`, with all valid names and the nearest one."""
        if name in self._entries:
            return ""
        *most, last = map(repr, self._entries)
        valid = f"{', '.join(most)} or {last}" if most else last
        return f"{name!r} should be {valid}{nearest(name, self._entries)}"


def lazy(reference: str) -> Callable[..., Any]:
    """The function or class "package.module:name", which is imported when it is called first."""
    module, _, name = reference.partition(":")

    def call(*arguments: Any, **named: Any) -> Any:
        return getattr(import_module(module), name)(*arguments, **named)

    return call
