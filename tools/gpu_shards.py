"""Tars of JPEGs that are written here, to measure training from what people have without any of their data."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from pathlib import Path

import numpy as np
from PIL import Image

from bench.data.pack.packing import pack
from bench.data.pack.sample import Options
from bench.data.shards import indexing
from bench.data.shards.sources import expand
from bench.suite.settings import DataSettings

PIXELS = (400, 300)  #: width and height
DETAIL = 25  #: pixels of a picture for each drawn one: smooth, as photographs are, and about 20 kB


def jpeg_shards(folder: Path, pictures: int, shards: int, size: int) -> DataSettings:
    """Write smooth random pictures with captions, pack and index them as `bench data` does; return their settings.

    folder: an empty one. shards: how many tars, over which the pictures are divided. size: pixels a side in training.
    """
    loose, packed = folder / "loose", folder / "packed"
    loose.mkdir()
    draws = np.random.default_rng(0)
    for number in range(pictures):
        coarse = draws.integers(0, 256, (PIXELS[1] // DETAIL, PIXELS[0] // DETAIL, 3), dtype=np.uint8)
        picture = Image.fromarray(coarse).resize(PIXELS, Image.Resampling.BICUBIC)
        picture.save(loose / f"{number:06d}.jpg", quality=90)
        (loose / f"{number:06d}.txt").write_text(f"a picture of {number % 1000} colours in no order")
    with redirect_stderr(io.StringIO()):  # a line a shard
        pack(loose, packed, Options(), per_shard=-(-pictures // shards), workers=1)
    indexing.build(expand([str(packed)]), packed / "index.parquet", workers=1)
    return DataSettings(name="jpegs", size=size, shards=str(packed))
