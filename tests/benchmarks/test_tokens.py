"""What 1,024 ready rows cost the training process."""

from __future__ import annotations

import io
import os
import statistics
import sys
import tarfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from open_clip.tokenizer import SimpleTokenizer
from PIL import Image
from pytest_benchmark.fixture import BenchmarkFixture

import bench.machine.torchvision_fix  # noqa: F401  before open_clip
from bench.checks.lab import TinyTowers
from bench.data import shards
from bench.data.shards import indexing
from bench.data.shards.sources import expand_sources
from bench.loading.loader import Loader
from bench.suite.settings import DataSettings
from bench.towers.tokenization import ClipTokenizer
from methods.protocol import Clock

CAPTIONS = int(os.environ.get("BENCH_CAPTIONS", "100000"))
BATCH, STEPS = 1024, 4


@pytest.fixture(scope="module")
def captions() -> list[str]:
    """Captions of 5 to 16 words of CLIP's vocabulary, with the frequencies of a language."""
    words = [token.removesuffix("</w>") for token in SimpleTokenizer().encoder if token.endswith("</w>")][256:]
    words = [word for word in words if word.isascii() and word.isalpha()]
    draws = np.random.default_rng(0)
    ranks = [
        (draws.pareto(0.7, draws.integers(5, 17)) + 1).clip(max=len(words) - 1).astype(int) for _ in range(CAPTIONS)
    ]
    return [" ".join(words[rank] for rank in row) + "." for row in ranks]


def seconds(tokenizer: Any, captions: list[str]) -> float:
    """CPU time, as others use the machine too."""
    started = time.thread_time()
    for start in range(0, len(captions), BATCH):
        tokenizer(captions[start : start + BATCH])
    return time.thread_time() - started


def packed(folder: Path, captions: list[str]) -> DataSettings:
    """One shard of small drawings with a caption each."""
    folder.mkdir()
    file = io.BytesIO()
    Image.new("RGB", (32, 32)).save(file, "PNG")
    with tarfile.open(folder / "00000.tar", "w") as archive:
        for number, caption in enumerate(captions):
            for name, data in ((f"{number:05d}.png", file.getvalue()), (f"{number:05d}.txt", caption.encode())):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    indexing.build_index(expand_sources([str(folder)]), folder / "index.parquet", workers=1)
    return DataSettings(name="drawings", size=32, shards=str(folder))


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_a_batch_of_ready_rows_beside_open_clips_tokens(
    benchmark: BenchmarkFixture, captions: list[str], tmp_path: Path
) -> None:
    """CPU time of the training process alone: a worker makes the rows. The peer is what their tokens took there."""
    towers, peer = TinyTowers(), SimpleTokenizer()
    towers.tokenizer = ClipTokenizer(77, {})
    pairs = shards.load_shard_pairs(packed(tmp_path / "drawings", captions[: 2 * BATCH]))
    options: dict[str, Any] = {"batch": BATCH, "seed": 0, "recipe": "none", "dtype": torch.float32, "workers": 1}
    spent: list[tuple[float, float]] = []

    def a_step(loader: Loader, step: int) -> None:
        started = time.thread_time()
        (rows,) = loader.micro_batches(Clock(step, "train", 0.0, 0), slice(0, BATCH), BATCH, 0)
        spent.append((time.thread_time() - started, seconds(peer, rows.captions)))

    with closing(Loader(pairs, None, towers, device=torch.device("cpu"), **options)) as loader:
        a_step(loader, 0)  # starts the worker
        steps = iter(range(1, 1 + STEPS))
        benchmark.pedantic(lambda: a_step(loader, next(steps)), rounds=STEPS, iterations=1)
    own, of_peer = (1000 * statistics.median(column) for column in zip(*spent[1:], strict=True))
    benchmark.extra_info.update(peer="open_clip's tokenizer", ratio=f"{own:.1f} against {of_peer:.1f} ms")
    print(f"\nbatch of {BATCH}: {own:.1f} ms, open_clip's tokens {of_peer:.1f} ms", file=sys.stderr)
    assert own < min(10, of_peer)
