"""Retrieval against clip-benchmark's on the same features: 5,000 images, 25,010 texts, width 512 (COCO's test size)."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from clip_benchmark.metrics import zeroshot_retrieval as peer
from pytest_benchmark.fixture import BenchmarkFixture

from bench.evaluate.retrieval import retrieve

IMAGES, TEXTS, WIDTH = 5_000, 25_010, 512
BATCH = 64  #: of its loader: the default of clip-benchmark's command line, and the block its recall is computed in
MEMORY = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from test_retrieval import features
from bench.evaluate.retrieval import retrieve
images, texts, owner = features()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
retrieve({"embedding": images}, {"embedding": texts}, owner)
print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
"""


def features() -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Unit features of a middling model: about two thirds of the images find a caption first."""
    generator = torch.Generator().manual_seed(0)
    owner = np.sort(np.concatenate([np.repeat(np.arange(IMAGES), 5), np.arange(TEXTS - 5 * IMAGES)]))
    images = torch.randn(IMAGES, WIDTH, generator=generator)
    texts = images[torch.from_numpy(owner)] + 7 * torch.randn(TEXTS, WIDTH, generator=generator)
    return F.normalize(images, dim=-1), F.normalize(texts, dim=-1), owner


class Tables:
    """What clip-benchmark calls a model: features go in, features come out."""

    def __init__(self, texts: torch.Tensor) -> None:
        self.texts = texts

    def encode_image(self, images: torch.Tensor) -> torch.Tensor:
        return images

    def encode_text(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.texts[tokens]


def peers_values(images: torch.Tensor, texts: torch.Tensor, owner: np.ndarray) -> dict[str, float]:
    captions = np.split(np.arange(TEXTS), np.searchsorted(owner, np.arange(1, IMAGES)))
    rows = range(0, IMAGES, BATCH)
    batches = [(images[row : row + BATCH], [list(own) for own in captions[row : row + BATCH]]) for row in rows]
    found = peer.evaluate(Tables(texts), batches, torch.tensor, "cpu", amp=False, recall_k_list=[1, 5, 10])
    ways = {"i2t": "text", "t2i": "image"}
    return {f"{way}_r{k}": found[f"{name}_retrieval_recall@{k}"] for way, name in ways.items() for k in (1, 5, 10)}


def test_thirty_times_faster_with_the_same_values(benchmark: BenchmarkFixture) -> None:
    images, texts, owner = features()
    ours = benchmark.pedantic(
        lambda: retrieve({"embedding": images}, {"embedding": texts}, owner).metrics(), rounds=5, warmup_rounds=1
    )
    own = statistics.median(benchmark.stats.stats.data)
    start = time.perf_counter()
    theirs = peers_values(images, texts, owner)
    seconds = time.perf_counter() - start
    benchmark.extra_info.update(clip_benchmark_seconds=seconds, ratio=seconds / own)
    print(f"\nretrieval: {own:.2f} s, clip-benchmark {seconds:.1f} s: {seconds / own:.0f} times", file=sys.stderr)
    assert {name: ours[name] for name in theirs} == pytest.approx(theirs, abs=1e-6)  # theirs are float32 means
    assert seconds > 30 * own


def test_under_a_gigabyte_beside_the_features(benchmark: BenchmarkFixture) -> None:
    command = [sys.executable, "-c", MEMORY, str(__file__).rsplit("/", 1)[0]]
    extra = benchmark.pedantic(lambda: int(subprocess.check_output(command)), rounds=1)
    benchmark.extra_info["extra_bytes"] = extra
    print(f"\nretrieval: {extra / 1e6:.0f} MB beside the features", file=sys.stderr)
    assert extra < 1e9
