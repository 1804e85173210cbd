"""Markdown of generated pages: text that was written for a terminal, tables, and the comments of fields."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from sphinx.pycode import ModuleAnalyzer

from bench.console.markup import markdown, markdown_table

_CODE = re.compile(r"(`[^`]+`)")


def prose(text: str) -> str:
    """Return plain text as one line of Markdown; what stands in single backquotes is code."""
    parts = _CODE.split(" ".join(text.split()))
    return "".join(part if number % 2 else _spaced(part) for number, part in enumerate(parts))


def _spaced(part: str) -> str:
    """`markdown` of a part of a line, with the blanks at its ends."""
    if not part.strip():
        return part
    before, after = part[: len(part) - len(part.lstrip())], part[len(part.rstrip()) :]
    return before + markdown(part) + after


def code(value: object) -> str:
    """Return a value as code for a cell of a table."""
    text = str(value).replace("|", r"\|")
    return f"`{text}`" if text else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table of cells that are Markdown already."""
    lines = ([cell.replace("\n", " ") for cell in line] for line in (head, *rows))
    return "\n".join(markdown_table(next(lines), lines)) + "\n"


def type_name(hint: Any) -> str:
    """Return a type as a suite's author reads it: a choice lists its words.

    >>> type_name(float), type_name(Literal["a", "b"]), type_name(int | None)
    ('float', "'a', 'b'", 'int or None')
    """
    if typing.get_origin(hint) is Literal:
        return ", ".join(map(repr, typing.get_args(hint)))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(map(type_name, typing.get_args(hint)))
    if typing.get_origin(hint) is typing.Annotated:
        return type_name(typing.get_args(hint)[0])
    if typing.get_origin(hint) is not None:
        return str(hint).replace("typing.", "")
    return "None" if hint is type(None) else getattr(hint, "__name__", str(hint))


def comments(kind: type) -> dict[str, str]:
    """Return by field of a class, or of a class that it inherits from, its `#:` comment as one line."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__ not in ("builtins", "typing", "abc") and not base.__module__.startswith("pydantic"):
            docs = ModuleAnalyzer.for_module(base.__module__).find_attr_docs()
            found |= {name: " ".join(lines).strip() for (owner, name), lines in docs.items() if owner == base.__name__}
    return found
