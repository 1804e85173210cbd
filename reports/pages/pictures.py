"""Pages of pairs with their pictures: of noise (`bench noise show`) and of a method's state (`bench inspect state`)."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence

from bench.console.markup import Html, html, together
from reports.pages.html import document


def pictures_page(
    title: str, lines: Sequence[str], lists: Iterable[tuple[str, Iterable[tuple[bytes, str, str, str | None]]]]
) -> Html:
    """Return a self-contained page: sentences, then lists of pairs under their headings.

    A pair has a picture as WebP, its caption, a note, and the caption that training saw; None = its own.
    """
    body = [
        html("<h1>{}</h1>", title),
        together(html("<p>{}</p>", line.strip()) for line in lines),
        *(
            html('<h4>{}</h4><ol class="gallery">{}</ol>', heading, together(_item(*pair) for pair in pairs))
            for heading, pairs in lists
        ),
    ]
    return document(title, body)


def _item(webp: bytes, own: str, note: str, seen: str | None) -> Html:
    """Return a picture with its caption; or with the one that training saw, its own struck out if it is another."""
    others = html("<del>{}</del> ", own) if seen not in (None, own) else html("")
    return html(
        '<li><img alt="" width="48" height="48" loading="lazy" src="data:image/webp;base64,{}">'
        "<span>{}{}<small>{}</small></span></li>",
        base64.b64encode(webp).decode(),
        others,
        own if seen is None else seen,
        note,
    )
