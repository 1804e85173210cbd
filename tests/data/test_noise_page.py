"""Corrupted pairs as text and as a page."""

import base64
import html.parser
import io

import numpy as np
from PIL import Image

import bench.data
from bench.data import MemoryPairs, noise
from bench.data.noise_page import noise_page, noise_text, shown


class Reader(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.images: list[dict[str, str | None]] = []

    def handle_starttag(self, tag, attrs):
        if tag == "img":
            self.images.append(dict(attrs))
        elif tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def made():
    pairs = bench.data.load("emoji/iid", 32)
    return pairs, noise.shuffled_captions(pairs, 0.3, 0)


def test_text_names_rows_and_donors():
    pairs, manifest = made()
    first, *lines = noise_text(pairs, manifest, 5).splitlines()
    assert first.startswith("shuffled_captions, rate 0.3, seed 0: 140 of 466 pairs of emoji/iid")
    assert f"{manifest.realised_rate:.1%} have no correct caption left" in first
    assert len(lines) == 5
    key, donor = lines[2].split()[0], lines[2].split()[-1]
    place = manifest.keys.index(key)
    assert manifest.donor_keys[place] == donor
    assert repr(pairs.captions(int(manifest.donors[place]))[0]) in lines[2]


def test_page_is_whole_and_self_contained():
    pairs, manifest = made()
    page = noise_page(pairs, manifest, 12)
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    assert len(reader.images) == 12
    assert "http" not in page
    assert "<script" not in page
    place = shown(manifest, 12)[3]
    png = base64.b64decode((reader.images[3]["src"] or "").split(",", 1)[1])
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(png))), pairs.images(manifest.rows[[place]])[0])
    assert reader.images[3]["alt"] == pairs.captions(int(manifest.rows[place]))[0]


def test_captions_are_escaped():
    texts = [["<b>one</b>"], ["two & 'three'"]]
    pairs = MemoryPairs.build("toy", "toy", ["a", "b"], texts, {}, {}, np.zeros((2, 2, 2, 3), np.uint8))
    manifest = noise.shuffled_captions(pairs, 1.0, 0)
    page = noise_page(pairs, manifest, 10)
    assert "<b>" not in page
    assert "&lt;b&gt;one&lt;/b&gt;" in page
    assert "two &amp; &#x27;three&#x27;" in page


def test_clean_data_gives_an_empty_page():
    pairs = bench.data.load("emoji/iid", 32)
    clean = noise.shuffled_captions(pairs, 0.0, 0)
    assert "0 of 466 pairs" in noise_text(pairs, clean, 5)
    assert "<li>" not in noise_page(pairs, clean, 5)
