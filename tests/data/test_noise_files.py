"""Published index files: the catalogue is whole, they are recognised, and the recommended noise is what seeds give."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest

from bench.catalogue.index_files import published_index_files
from bench.data import MemoryPairs, load_dataset
from bench.data.noise.imported import import_ncr
from bench.data.noise.shuffled import shuffled_captions
from bench.errors import UserError

from .test_noise_kinds import by_caption


def test_the_catalogue_is_whole() -> None:
    entries = list(published_index_files())
    assert len(entries) == len({entry.sha256 for entry in entries}) == 27
    for entry in entries:
        assert entry.entries == entry.images * (5 if entry.unit == "caption" else 1)
        assert entry.moved / entry.entries == pytest.approx(entry.rate, abs=1e-4)
        assert entry.source.startswith("github.com/")


def captioned(images: int, each: int) -> MemoryPairs:
    rows = range(images * each)
    texts, owners = [f"text {row}" for row in rows], [f"i{row // each:04d}" for row in rows]
    return by_caption(texts, owners, [f"{row:05d}" for row in rows])


@pytest.fixture
def published_file(tmp_path: Path) -> Path:
    """PC2's file for 20 % on Flickr30K, which NCR's procedure makes from seed 96 with NumPy's legacy generator."""
    generator, n = np.random.RandomState(96), 145_000
    index, order = np.arange(n, dtype="<i8") // 5, np.arange(n)
    generator.shuffle(order)
    chosen = order[: int(0.2 * n)]
    images = index[chosen]
    generator.shuffle(images)
    index[chosen] = images
    np.save(path := tmp_path / "pc2.npy", index)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == published_index_files()["pc2-f30k-0.2"].sha256
    return path


@pytest.mark.promise("published index files of noise are recognised")
def test_a_published_file_is_named_in_manifest_and_refusal(published_file: Path) -> None:
    pairs = captioned(29_000, 5)
    manifest = import_ncr(published_file, pairs, 0.2)
    assert manifest.notes["published"] == "pc2-f30k-0.2"
    assert manifest.notes["unit"] == "caption"
    assert f"{manifest.realised_rate:.3%}" == "19.999%"
    message = (
        "shape (145000,) with 15 captions of 3 images in toy/train; it is pc2-f30k-0.2, published for 29,000 images"
    )
    with pytest.raises(UserError, match=re.escape(message)):
        import_ncr(published_file, captioned(3, 5))


def test_the_recommended_noise_of_the_docs_is_what_seeds_give() -> None:
    text = (Path(__file__).parents[2] / "docs" / "noise.md").read_text()
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    files = {row[2]: row for row in rows if len(row) == 4 and row[2].startswith("pc2-")}
    assert len(files) == 6
    for name, row in files.items():
        entry = published_index_files()[name]
        assert row == [entry.data, str(entry.rate), name, entry.sha256]
    drawn_here = [row for row in rows if row[0] == "emoji"]
    assert len(drawn_here) == 3
    for _, rate, count, content in drawn_here:
        manifest = shuffled_captions(load_dataset("emoji/train", 32), float(rate), 0)
        assert (len(manifest.rows), manifest.content_hash) == (int(count), content)
