"""Images a second from 400 x 300 JPEGs in tars to normalised batches at 224 px, beside webdataset.

Same shards, same two worker processes, same crop; webdataset reads in sequence and makes floats in its workers, as
open_clip's trainer does; ours reads rows in any order and makes floats where the towers are.
"""

from __future__ import annotations

import io
import statistics
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import sklearn.datasets
import torch
import webdataset as wds
from PIL import Image
from pytest_benchmark.fixture import BenchmarkFixture
from torch import Tensor
from torchvision.transforms import Compose, InterpolationMode, Normalize, RandomResizedCrop, ToTensor

from bench.catalogue.architectures import CLIP_CHANNELS
from bench.checks.lab import TinyTowers
from bench.data import shards
from bench.data.shards import indexing
from bench.data.shards.sources import expand_sources
from bench.loading.loader import Loader
from bench.suite.settings import DataSettings
from methods.protocol import Clock

SHARDS, IN_EACH, BATCH, WORKERS = 4, 250, 128, 2
BATCHES = 8  #: timed in a round; one more comes before


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Crops of two photographs, 400 x 300 at quality 90: about 35 kB each."""
    folder = tmp_path_factory.mktemp("benchmark") / "photographs"
    folder.mkdir()
    pictures = [Image.open(path) for path in sorted((Path(sklearn.datasets.__file__).parent / "images").glob("*.jpg"))]
    draws = np.random.default_rng(0)
    for shard in range(SHARDS):
        with tarfile.open(folder / f"{shard:05d}.tar", "w") as archive:
            for number in range(IN_EACH):
                left, top = draws.integers((0, 0), (240, 127))
                file, key = io.BytesIO(), f"{shard:05d}{number:04d}"
                pictures[number % 2].crop((left, top, left + 400, top + 300)).save(file, "JPEG", quality=90)
                for name, data in ((f"{key}.jpg", file.getvalue()), (f"{key}.txt", b"a flower, or a palace")):
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
    indexing.build_index(expand_sources([str(folder)]), folder / "index.parquet", workers=1)
    return folder


def ours(loader: Loader) -> Iterator[Tensor]:
    for step in count():
        clock = Clock(step=step, phase="train", progress=0.0, epoch=0)
        for held in loader.micro_batches(clock, slice(0, BATCH), BATCH, 0):
            yield loader.on_device(held).images


def theirs(folder: Path) -> Iterator[Tensor]:
    crop = RandomResizedCrop(224, scale=(0.9, 1.0), interpolation=InterpolationMode.BICUBIC)
    transform = Compose([crop, ToTensor(), Normalize(*CLIP_CHANNELS)])
    paths = [str(path) for path in sorted(folder.glob("*.tar"))]
    data = wds.WebDataset(paths, shardshuffle=SHARDS, nodesplitter=wds.split_by_node, empty_check=False)
    data = data.repeat().shuffle(IN_EACH).decode("pilrgb").to_tuple("jpg", "txt")
    data = data.map_tuple(transform, lambda text: text).batched(BATCH)
    yield from (images for images, _ in wds.WebLoader(data, batch_size=None, num_workers=WORKERS))


def rate(batches: Iterator[Tensor]) -> float:
    """Images a second after the first batch."""
    assert next(batches).shape == (BATCH, 3, 224, 224)
    started = time.perf_counter()
    for _ in range(BATCHES):
        next(batches)
    return BATCH * BATCHES / (time.perf_counter() - started)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_images_a_second_beside_webdataset(benchmark: BenchmarkFixture, folder: Path) -> None:
    """Alternating rounds; the median ratio of neighbours, because what else the machine does changes by the minute."""
    pairs = shards.load_shard_pairs(DataSettings(name="photographs", size=224, shards=str(folder)))
    options = {"batch": BATCH, "seed": 0, "recipe": "openclip", "dtype": torch.float32, "device": torch.device("cpu")}
    rates: list[tuple[float, float]] = []

    def one_round() -> None:
        with closing(Loader(pairs, None, TinyTowers(), workers=WORKERS, **options)) as loader:  # type: ignore[arg-type]
            own = rate(ours(loader))
        rates.append((own, rate(theirs(folder))))

    benchmark.pedantic(one_round, rounds=5, iterations=1)
    own, peer = (max(column) for column in zip(*rates, strict=True))
    ratio = statistics.median(a / b for a, b in rates)
    found = f"{ratio:.2f} times its images a second ({own:.0f} against {peer:.0f})"
    benchmark.extra_info.update(peer="webdataset", ratio=found)
    print(f"\nloader: {own:.0f} images/s, webdataset {peer:.0f}; median ratio {ratio:.2f}", file=sys.stderr)
    assert ratio > 1.0
