"""Shows corrupted pairs: as text, and as one HTML page that contains the pictures."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from bench.arrays import Pixels
from bench.catalogue.noise_kinds import KINDS
from bench.console.markup import Html, html, together
from bench.console.text import joined
from bench.data.noise import NoiseManifest
from bench.data.pairs import Pairs

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1c1c1e; background: #fff }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem }
h1 { font-size: 1.35rem; margin: 0 0 .3rem } h2 { font-size: 1.1rem; margin: 1.4rem 0 .5rem }
p { margin: 0 0 1rem; color: #555 }
ol { list-style: none; margin: 0; padding: 0; display: grid; gap: .8rem }
ol { grid-template-columns: repeat(auto-fill, minmax(18rem, 1fr)) }
li { border: 1px solid #ddd; border-radius: 8px; padding: .7rem }
li { display: grid; gap: .2rem .8rem; grid-template-columns: 72px 1fr }
li { place-content: start stretch; align-items: start }
img { width: 72px; height: 72px; grid-row: span 3; image-rendering: auto }
.right { color: #777; text-decoration: line-through } .wrong { font-weight: 600 }
.key { font: 12px ui-monospace, monospace; color: #707070; overflow-wrap: anywhere }
@media (prefers-color-scheme: dark) {
  body { background: #16181c; color: #eee } p, .right, .key { color: #aaa } li { border-color: #3a3d44 }
}
"""


def shown(manifest: NoiseManifest, limit: int) -> list[int]:
    """Return at most `limit` indices into the manifest's rows, evenly spaced."""
    count = min(limit, len(manifest.rows))
    return [i * len(manifest.rows) // count for i in range(count)]


def summary(pairs: Pairs, manifest: NoiseManifest) -> str:
    """Describe in one sentence which pairs are corrupted."""
    return (
        f"{manifest.kind}, rate {manifest.rate:g}, seed {manifest.seed}: {len(manifest.wrong_rows)} of {manifest.n} "
        f"pairs of {pairs.name} {KINDS[manifest.kind].effect}; {manifest.realised_rate:.1%} have no correct caption "
        f"left (manifest {manifest.content_hash[:16]}){_notes(manifest)}"
    )


def _notes(manifest: NoiseManifest) -> str:
    """Return the kind's parameters and measured properties as a further sentence; "" if there are none."""
    values = (
        f"{name.replace('_', ' ')} {value:.3g}" if isinstance(value, float) else f"{name.replace('_', ' ')} {value}"
        for name, value in manifest.notes.items()
    )
    return f"; {', '.join(values)}" if manifest.notes else ""


def _source(manifest: NoiseManifest, i: int) -> str:
    """Return the key of the donor of the manifest's i-th row; "" if the row has no donor but itself."""
    return manifest.donor_keys[i] if manifest.donors[i] != manifest.rows[i] else ""


def noise_text(pairs: Pairs, manifest: NoiseManifest, limit: int) -> str:
    """Return the summary, then for at most `limit` pairs a line: key, own and given caption, donor's key."""
    lines = [summary(pairs, manifest)]
    for i in shown(manifest, limit):
        own, given = _shown_texts(manifest, i, *_own_and_given(pairs, manifest, i))
        source = _source(manifest, i)
        lines.append(f"{manifest.keys[i]}  {own!r} -> {given!r}{f'  from {source}' if source else ''}")
    return joined(lines) + "\n"


def noise_page(pairs: Pairs, manifest: NoiseManifest, limit: int) -> Html:
    """Return a self-contained HTML page of at most `limit` corrupted pairs.

    Each has its picture, its own caption struck out and the caption that it trains with. Raises UserError if an image
    cannot be read.
    """
    places = shown(manifest, limit)
    images = manifest.applied(pairs).images(manifest.rows[np.array(places, dtype=np.int64)])
    items = together((_item(pairs, manifest, i, image) for i, image in zip(places, images, strict=True)), "\n")
    title = f"Noise in {pairs.name}"
    body = html(
        "<h1>{}</h1>\n<p>{}. Shown: {}.</p>\n<ol>\n{}\n</ol>", title, summary(pairs, manifest), len(places), items
    )
    return page_of_pairs(title, body)


def page_of_pairs(title: str, body: Html) -> Html:
    """Return a self-contained page whose lists of pairs are tiles: readable on a phone and in the dark."""
    return html(
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n{}\n</body>\n</html>\n",
        title,
        Html(STYLE),
        body,
    )


def _own_and_given(pairs: Pairs, manifest: NoiseManifest, i: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the own texts of the manifest's i-th row, and the texts that it trains with."""
    row = manifest.rows[i : i + 1]
    return pairs.captions(int(row[0])), manifest.texts(pairs, row)[0]


def _shown_texts(manifest: NoiseManifest, i: int, own: tuple[str, ...], given: tuple[str, ...]) -> tuple[str, str]:
    """Return the first captions; without a donor the first two at one place that differ: an edit may leave some."""
    changed = zip(own, given, strict=False) if not _source(manifest, i) else ()
    return next(((one, other) for one, other in changed if one != other), (own[0], given[0]))


def picture(image: Pixels) -> str:
    """Return an image as base64 of a PNG."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def _item(pairs: Pairs, manifest: NoiseManifest, i: int, image: Pixels) -> Html:
    own, given = _own_and_given(pairs, manifest, i)
    right, wrong = _shown_texts(manifest, i, own, given)
    return html(
        '<li><img alt="{0}" src="data:image/png;base64,{1}"><span class="right">{0}</span>'
        '<span class="wrong" title="{2}">{3}</span><span class="key">{4}{5}</span></li>',
        right,
        picture(image),
        " | ".join(given),
        wrong,
        manifest.keys[i],
        html(" &larr; {}", source) if (source := _source(manifest, i)) else html(""),
    )
