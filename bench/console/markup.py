"""HTML and Markdown from external text: `html` is the one place where text becomes markup, and it escapes."""

from __future__ import annotations

import html as _html
import re
from collections.abc import Iterable, Sequence
from typing import LiteralString

from bench.console.text import CONTROL, storable, visible

_CHANGED = re.compile(f"[&<>\"']|{CONTROL.pattern}")  # what `escaped` writes otherwise
_SPECIAL = re.compile(r"[\\`*\[\]<>|~$]|&(?=[#\w]+;)|(?<!\w)_|_(?!\w)")
_BLOCK = re.compile(r"^(\d*)([-+#=.)])(?=[-#=\s]|$)")  # what would begin a list, a heading or a rule


class Html(str):
    """Markup. Every other string is text: `html` and `together` escape it."""

    __slots__ = ()


def html(template: LiteralString, *values: object) -> Html:
    """Return a template with values at its `{}`, each escaped unless it is `Html` already.

    The template must be a constant, never made from values: tests/console/test_markup.py reads the syntax trees. A
    value may stand in an element or in a quoted attribute.

    >>> html('<b title="{}">{}</b>', 'a"b', html("<i>{}</i>", "<script>"))
    '<b title="a&quot;b"><i>&lt;script&gt;</i></b>'
    """
    return Html(template.format(*map(escaped, values)))


def together(parts: Iterable[object], between: LiteralString = "") -> Html:
    """Return parts in a row, each escaped unless it is `Html` already."""
    return Html(between.join(map(escaped, parts)))


def escaped(value: object) -> Html:
    """Return `Html` as it is and anything else as text: escaped, its control characters written out."""
    if isinstance(value, Html):
        return value
    text = str(value)
    # A page has a hundred thousand texts, and few of them need a change: one search takes less than seven.
    return Html(_html.escape(storable(text)) if _CHANGED.search(text) else text)


def markdown(text: str) -> str:
    r"""Return text as one line of Markdown that shows it as it is: no link, HTML, cell or emphasis of its own.

    >>> print(markdown("[a](b) | <i>"))
    \[a\](b) \| \<i\>
    """
    return _BLOCK.sub(r"\1\\\2", _SPECIAL.sub(r"\\\g<0>", visible(" ".join(text.split()))))


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table of cells that are Markdown already, each one line.

    >>> markdown_table(["a", "b"], [["1", "2"]])
    ['| a | b |', '| --- | --- |', '| 1 | 2 |']
    """
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
