"""The page of an audit: the training pairs that look wrong, with their pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.console.markup import Html, html, together
from reports.pages.gallery import Example, picture_item, picture_list
from reports.pages.html import document


def audit_page(name: str, lines: Sequence[str], pairs: Iterable[tuple[Example, str]]) -> Html:
    """Return a self-contained page: the audit's sentences, then pairs, each with a note."""
    items = [picture_item(pair, note) for pair, note in pairs]
    title = f"Pairs of {name} that look wrong"
    body = [
        html("<h1>{}</h1>", title),
        together(html("<p>{}</p>", line.strip()) for line in lines),
        picture_list(f"The {len(items)} of least confidence, which are not all wrong", items),
    ]
    return document(title, body)
