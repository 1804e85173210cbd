"""The linear probe with its sweep against clip-benchmark's on the same features, on the CPU.

clip-benchmark refuses to probe without CUDA. Its `evaluate` is run here unchanged, with what it asks of CUDA answered by
the CPU: `.cuda()` leaves things where they are, `DataParallel` is the module itself, and the device compares equal to
"cuda". Everything else is its command line's defaults (AdamW, lr 0.1, 10 epochs, batch 64, its sweep of weight decays on
validation, its refit on both), but for mixed precision (off) and loader processes (none), which only slow it down here.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from clip_benchmark.metrics import linear_probe as peer
from pytest_benchmark.fixture import BenchmarkFixture

from bench import data
from bench.evaluate.probe import Labelled, sweep_probe

CLASSES, WIDTH = 65, 512


class CpuNamedCuda(str):
    """The CPU to torch, CUDA to an assertion."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return other == "cuda" or str.__eq__(self, other)  # type: ignore[arg-type]


def features(split: str) -> Labelled:
    """Unit features of the emoji's pixels (a fixed random layer, 512 wide) with their 65 subgroups."""
    pairs = data.load(f"emoji/{split}", 32)
    pixels = torch.from_numpy(pairs.images(np.arange(len(pairs)))).float().permute(0, 3, 1, 2) / 255
    small = F.avg_pool2d(pixels, 4).flatten(1) - 0.5
    layer = torch.randn(small.shape[1], WIDTH, generator=torch.Generator().manual_seed(0)) / small.shape[1] ** 0.5
    return Labelled(F.normalize(torch.relu(small @ layer), dim=-1), torch.from_numpy(pairs.labels["subgroup"]))


def peers_accuracy(splits: dict[str, Labelled], folder: Path, monkeypatch: pytest.MonkeyPatch) -> float:
    (folder / "model").mkdir()
    for name, split in splits.items():
        torch.save(split.features, folder / "model" / f"features_{name}.pt")
        torch.save(split.labels, folder / "model" / f"targets_{name}.pt")
    monkeypatch.setattr(torch.nn.Module, "cuda", lambda module, *_: module)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor, *_: tensor)
    monkeypatch.setattr(torch.nn, "DataParallel", lambda module, device_ids: module)
    torch.manual_seed(0)
    loaders = {"train_dataloader": None, "dataloader": None, "val_dataloader": "features are cached"}
    found = peer.evaluate(
        torch.nn.Identity(),
        **loaders,
        fewshot_k=-1,
        batch_size=64,
        num_workers=0,
        lr=0.1,
        epochs=10,
        model_id="model",
        seed=0,
        feature_root=str(folder),
        device=CpuNamedCuda("cpu"),
        amp=False,
    )
    return float(found["lp_acc1"])


@pytest.mark.filterwarnings("ignore")  # of clip-benchmark: pinned memory without CUDA, absent classes, array to scalar
def test_four_times_faster_and_not_less_accurate(
    benchmark: BenchmarkFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    splits = {"train": features("train"), "val": features("validation"), "test": features("iid")}
    probe = benchmark.pedantic(lambda: sweep_probe(splits["train"], splits["val"], CLASSES), rounds=3, warmup_rounds=1)
    own = statistics.median(benchmark.stats.stats.data)
    ours = probe.correct(splits["test"]).mean()
    start = time.perf_counter()
    theirs = peers_accuracy(splits, tmp_path, monkeypatch)
    seconds = time.perf_counter() - start
    benchmark.extra_info.update(clip_benchmark_seconds=seconds, ratio=seconds / own, ours=ours, theirs=theirs)
    print(
        f"\nprobe: {own:.2f} s, accuracy {ours:.4f}; clip-benchmark {seconds:.1f} s, {theirs:.4f}: "
        f"{seconds / own:.1f} times",
        file=sys.stderr,
    )
    assert ours >= theirs
    assert seconds > 4 * own
