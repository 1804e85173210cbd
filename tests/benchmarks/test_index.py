"""Index, order and noise of many rows: tars of tiny files, as img2dataset names them.

BENCH_INDEX_ROWS=3000000 makes it CC3M's size (9 GB in the temporary folder; --basetemp says where).
"""

from __future__ import annotations

import io
import os
import resource
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bench.data.noise.shuffled import shuffled_captions
from bench.data.shards import ShardPairs, load_shard_pairs
from bench.data.shards.indexing import build_index
from bench.data.shards.sources import expand_sources
from bench.suite.settings import DataSettings

ROWS = int(os.environ.get("BENCH_INDEX_ROWS", "20000"))
A_SHARD = 10_000
WORDS = ("a", "photo", "of", "the", "old", "red", "house", "dog", "on", "beach", "with", "trees", "at", "night")


def member(name: str, data: bytes) -> bytes:
    """Header and padded data."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    return info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512)


def tiny_image() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (200, 30, 90)).save(buffer, "PNG")
    return buffer.getvalue()


def write_shards(folder: Path, rows: int) -> None:
    """`rows` samples of image, text and json, 10,000 a shard, with captions of 7 words or so."""
    folder.mkdir()
    image, drawn = tiny_image(), np.random.default_rng(0)
    about = b'{"caption": "x", "url": "https://example.org/picture.jpg", "width": 8, "height": 8, "status": "success"}'
    for shard in range(-(-rows // A_SHARD)):
        here = min(A_SHARD, rows - shard * A_SHARD)
        words = drawn.integers(len(WORDS), size=(here, 7))
        with open(folder / f"{shard:05d}.tar", "wb") as file:
            for i in range(here):
                key = f"{shard:05d}{i:04d}"
                caption = " ".join(WORDS[w] for w in words[i].tolist())
                file.write(member(f"{key}.jpg", image))
                file.write(member(f"{key}.txt", caption.encode()))
                file.write(member(f"{key}.json", about))
            file.write(bytes(1024))


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> DataSettings:
    folder = tmp_path_factory.mktemp("data") / "toy"
    write_shards(folder, ROWS)
    build_index(expand_sources([str(folder)]), folder / "index.parquet", workers=1)
    return DataSettings(name="toy", shards=str(folder))


def pairs_of(settings: DataSettings) -> ShardPairs:
    pairs = load_shard_pairs(settings)
    assert len(pairs) == ROWS
    return pairs


def peak() -> int:
    """MB, of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def test_index(benchmark, indexed, tmp_path_factory) -> None:
    shards = expand_sources([indexed.shards])
    out = tmp_path_factory.mktemp("out") / "index.parquet"
    before = peak()
    report = benchmark.pedantic(lambda: build_index(shards, out, progress=ROWS > 100_000), rounds=1)
    assert report.about.rows == ROWS
    benchmark.extra_info.update(rows_per_second=round(ROWS / report.seconds), peak_mb=peak(), before_mb=before)


def test_open(benchmark, indexed) -> None:
    load_shard_pairs.__globals__["_load"].cache_clear()
    before = peak()
    benchmark.pedantic(pairs_of, (indexed,), rounds=1)
    benchmark.extra_info.update(peak_mb=peak(), before_mb=before)


def test_order(benchmark, indexed) -> None:
    pairs = pairs_of(indexed)
    order = benchmark(pairs.order, 3, 0)
    assert len(order) == ROWS


def test_noise(benchmark, indexed) -> None:
    pairs, before = pairs_of(indexed), peak()
    manifest = benchmark.pedantic(lambda: shuffled_captions(pairs, 0.4, 0), rounds=1)
    assert len(manifest.content_hash) == 64
    benchmark.extra_info.update(peak_mb=peak(), before_mb=before)
