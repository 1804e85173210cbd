"""Pictures with the texts that are met on the way from each to a root (Figure 9 of Chun et al., ProLIP, ICLR 2025)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.console.markup import Html, html, together
from bench.data import Pairs
from bench.data.noise_page import page_of_pairs, picture
from bench.evaluation.features import Features
from bench.evaluation.probabilistic.hierarchy import levels, met_texts

ARROW = " → "


def traversal_page(title: str, features: Features, pairs: Pairs, count: int, steps: int) -> Html:
    """Return a self-contained HTML page of `count` images, evenly spaced: own captions, and those that are met.

    A text that is not the image's own stands in brackets. Raises UserError if the data set has no hierarchy, or if an
    image cannot be read.
    """
    shown = min(count, len(pairs))
    rows = [place * len(pairs) // shown for place in range(shown)]
    own, met = levels(pairs), met_texts(features, pairs, rows, steps)
    images = pairs.images(np.array(rows, dtype=np.int64))
    items = together(
        html(
            '<li><img alt="{0}" src="data:image/png;base64,{1}"><span class="wrong">{2}</span>{3}</li>',
            own[row][-1],
            picture(image),
            ARROW.join(dict.fromkeys(reversed(own[row]))),
            together(
                html("<span>to the {}: {}</span>", root, _way(ways[place], own[row])) for root, ways in met.items()
            ),
        )
        for place, (row, image) in enumerate(zip(rows, images, strict=True))
    )
    body = html(
        "<h1>{}</h1>\n<p>Bold: an image's own captions, from special to general. Below: the texts of {} that are met "
        "on the way to each root; those in brackets are not its own.</p>\n<ol>\n{}\n</ol>",
        title,
        pairs.name,
        items,
    )
    return page_of_pairs(title, body)


def _way(met: Sequence[str], own: Sequence[str]) -> str:
    return ARROW.join(text if text in own else f"[{text}]" for text in met)
