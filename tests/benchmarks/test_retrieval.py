"""Retrieval against clip-benchmark's on the same features: 5,000 images, 25,010 texts, width 512 (COCO's test size).

Each runs in a process of its own, as clip-benchmark's command line evaluates once a process. Most of its time goes into
memory for one-hot masks, so it varies with what else the machine does; four fifths of ours are the one matrix product
that any exact ranking needs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from clip_benchmark.metrics import zeroshot_retrieval as peer
from pytest_benchmark.fixture import BenchmarkFixture

from bench.evaluation.retrieval import retrieve

IMAGES, TEXTS, WIDTH = 5_000, 25_010, 512
FASTER = 10  #: times at least; 9 to 42 were seen on two shared cores, where the matrix product alone takes 0.8 to 1.5 s
BATCH = 64  #: of its loader: the default of clip-benchmark's command line, and the block its recall is computed in
ONE_PROCESS = """
import json, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import bench.machine.torchvision_fix, test_retrieval
arguments = test_retrieval.features()
(lambda a, b: a @ b.T)(*(x[:256] for x in arguments[:2]))  # starts the threads
def kilobytes(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))
Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
start, before = time.perf_counter(), kilobytes("VmRSS")
values = getattr(test_retrieval, sys.argv[2])(*arguments)
seconds, peak = time.perf_counter() - start, kilobytes("VmHWM")
print(json.dumps({"values": values, "seconds": seconds, "bytes": 1024 * (peak - before)}))
"""


def features() -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Unit features of a middling model: about two thirds of the images find a caption first."""
    generator = torch.Generator().manual_seed(0)
    owner = np.sort(np.concatenate([np.repeat(np.arange(IMAGES), 5), np.arange(TEXTS - 5 * IMAGES)]))
    images = torch.randn(IMAGES, WIDTH, generator=generator)
    texts = images[torch.from_numpy(owner)] + 7 * torch.randn(TEXTS, WIDTH, generator=generator)
    return F.normalize(images, dim=-1), F.normalize(texts, dim=-1), owner


def peers_values(images: torch.Tensor, texts: torch.Tensor, owner: np.ndarray) -> dict[str, float]:
    captions = np.split(np.arange(TEXTS), np.searchsorted(owner, np.arange(1, IMAGES)))
    rows = range(0, IMAGES, BATCH)
    batches = [(images[row : row + BATCH], [list(own) for own in captions[row : row + BATCH]]) for row in rows]
    model = SimpleNamespace(encode_image=lambda images: images, encode_text=lambda tokens: texts[tokens])
    found = peer.evaluate(model, batches, torch.tensor, "cpu", amp=False, recall_k_list=[1, 5, 10])
    ways = {"i2t": "text", "t2i": "image"}
    return {f"{way}_r{k}": found[f"{name}_retrieval_recall@{k}"] for way, name in ways.items() for k in (1, 5, 10)}


def our_values(images: torch.Tensor, texts: torch.Tensor, owner: np.ndarray) -> dict[str, float]:
    return retrieve({"embedding": images}, {"embedding": texts}, owner).metrics()


def in_a_process(function: str) -> dict[str, Any]:
    command = [sys.executable, "-c", ONE_PROCESS, str(Path(__file__).parent), function]
    env = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}  # all cores, for both
    done = subprocess.run(command, check=True, capture_output=True, env=env)
    return cast("dict[str, Any]", json.loads(done.stdout))


def test_many_times_faster_in_less_than_a_gigabyte_with_the_same_values(benchmark: BenchmarkFixture) -> None:
    """Alternating, a fresh process each, features ready: the best of each, because a busy machine only ever adds."""
    rounds: list[tuple[dict[str, Any], dict[str, Any]]] = []
    benchmark.pedantic(lambda: rounds.append((in_a_process("our_values"), in_a_process("peers_values"))), rounds=2)
    own, theirs = (min(seconds) for seconds in zip(*((a["seconds"], b["seconds"]) for a, b in rounds), strict=True))
    extra = max(ours["bytes"] for ours, _ in rounds)
    memory = f"{extra / 1e6:.0f} MB against {rounds[0][1]['bytes'] / 1e6:.0f} MB"
    ratio = f"{theirs / own:.0f} times faster ({own:.2f} s), {memory}, the same values"
    benchmark.extra_info.update(peer="clip-benchmark", ratio=ratio)
    print(f"\nretrieval: {ratio}", file=sys.stderr)
    ours, peers = rounds[0][0]["values"], rounds[0][1]["values"]
    assert {name: ours[name] for name in peers} == pytest.approx(peers, abs=1e-6)  # theirs are float32 means
    assert extra < 1e9
    assert theirs > FASTER * own
