"""Pages of pairs with their pictures: of an audit, of noise, of a method's state, of ways through a hierarchy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.console.markup import Html, html, together
from reports.pages.gallery import Example, picture_item, picture_list
from reports.pages.html import document


def pictures_page(
    title: str, lines: Sequence[str], lists: Iterable[tuple[str, Iterable[tuple[Example, str, str | None]]]]
) -> Html:
    """Return a self-contained page: sentences, then lists of pairs under their headings.

    A pair has a note, and the caption that training saw; None = its own.
    """
    body = [
        html("<h1>{}</h1>", title),
        together(html("<p>{}</p>", line.strip()) for line in lines),
        *(picture_list(heading, [picture_item(*pair) for pair in pairs]) for heading, pairs in lists),
    ]
    return document(title, body)
