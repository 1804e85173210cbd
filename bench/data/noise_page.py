"""Shows corrupted pairs: as text, and as one HTML page that contains the pictures."""

from __future__ import annotations

import base64
import html
import io

import numpy as np
from PIL import Image

from bench.catalogue.noise_kinds import KINDS
from bench.data.noise import NoiseManifest
from bench.data.pairs import Pairs

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1c1c1e; background: #fff }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem }
h1 { font-size: 1.35rem; margin: 0 0 .3rem } p { margin: 0 0 1rem; color: #555 }
ol { list-style: none; margin: 0; padding: 0; display: grid; gap: .8rem }
ol { grid-template-columns: repeat(auto-fill, minmax(18rem, 1fr)) }
li { border: 1px solid #ddd; border-radius: 8px; padding: .7rem }
li { display: grid; gap: .2rem .8rem; grid-template-columns: 72px 1fr; align-items: start }
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
        f"{manifest.kind}, rate {manifest.rate:g}, seed {manifest.seed}: {len(manifest.rows)} of {manifest.n} pairs of "
        f"{pairs.name} {KINDS[manifest.kind].effect}; {manifest.realised_rate:.1%} have no correct caption left "
        f"(manifest {manifest.content_hash[:16]})"
    )


def noise_text(pairs: Pairs, manifest: NoiseManifest, limit: int) -> str:
    """Return the summary, then for at most `limit` pairs a line: key, own and given first caption, donor's key."""
    lines = [summary(pairs, manifest)]
    for i in shown(manifest, limit):
        own, given = (texts[0] for texts in _own_and_given(pairs, manifest, i))
        lines.append(f"{manifest.keys[i]}  {own!r} -> {given!r}  from {manifest.donor_keys[i]}")
    return "\n".join(lines) + "\n"


def noise_page(pairs: Pairs, manifest: NoiseManifest, limit: int) -> str:
    """Return a self-contained HTML page of at most `limit` corrupted pairs.

    Each has its picture, its own caption struck out and the caption that it trains with. Raises UserError if an image
    cannot be read.
    """
    places = shown(manifest, limit)
    images = manifest.applied(pairs).images(manifest.rows[np.array(places, dtype=np.int64)])
    items = "\n".join(_item(pairs, manifest, i, image) for i, image in zip(places, images, strict=True))
    title = f"Noise in {html.escape(pairs.name)}"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        f"<p>{html.escape(summary(pairs, manifest))}. Shown: {len(places)}.</p>\n"
        f"<ol>\n{items}\n</ol>\n</body>\n</html>\n"
    )


def _own_and_given(pairs: Pairs, manifest: NoiseManifest, i: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the own texts of the manifest's i-th row, and the texts that it trains with."""
    row = manifest.rows[i : i + 1]
    return pairs.captions(int(row[0])), manifest.texts(pairs, row)[0]


def _item(pairs: Pairs, manifest: NoiseManifest, i: int, image: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> str:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    picture = base64.b64encode(buffer.getvalue()).decode()
    own, given = _own_and_given(pairs, manifest, i)
    key, donor = html.escape(manifest.keys[i]), html.escape(manifest.donor_keys[i])
    return (
        f'<li><img alt="{html.escape(own[0])}" src="data:image/png;base64,{picture}">'
        f'<span class="right">{html.escape(own[0])}</span>'
        f'<span class="wrong" title="{html.escape(" | ".join(given))}">{html.escape(given[0])}</span>'
        f'<span class="key">{key} &larr; {donor}</span></li>'
    )
