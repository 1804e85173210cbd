"""Photographs as torch resamples them on the device, beside Pillow's: how many values differ, and by how much."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from bench.data import shards
from bench.suite.settings import DataSettings
from bench.training.step.pixels import on_device

LOADING = runpy.run_path(str(Path(__file__).parents[1] / "training" / "test_loader.py"))
LIMIT = 0.05  #: of 255, the mean difference
EPOCHS = 4


@pytest.mark.parametrize("recipe", ["openclip", "ncu"])
@pytest.mark.parametrize("size", [32, 64, 224])
def test_resampling_is_near_pillows(benchmark: BenchmarkFixture, tmp_path: Path, size: int, recipe: str) -> None:
    folder = tmp_path / "photographs"
    LOADING["write_shards"](folder)
    LOADING["indexing"].build(LOADING["expand"]([str(folder)]), folder / "index.parquet", workers=1)
    pairs = shards.load(DataSettings(name="photographs", size=size, shards=str(folder), block=2))
    there, rows = on_device(pairs, recipe, torch.device("cpu"), 0), np.arange(len(pairs))
    theirs = [torch.from_numpy(pairs.sampled(rows, epoch, 1, 0, recipe)) for epoch in range(EPOCHS)]
    found = benchmark.pedantic(lambda: [there.sampled(rows, epoch, 1, 0) for epoch in range(EPOCHS)], rounds=1)
    apart = (torch.stack(found).int() - torch.stack(theirs).int()).abs()
    differ, mean, most = float((apart > 0).float().mean()), float(apart.float().mean()), int(apart.max())
    benchmark.extra_info.update(differ=differ, mean=mean, most=most)
    print(f"\n{recipe}, {size} px: {differ:.4%} of the values differ, by {mean:.5f} in the mean and {most} at most")
    assert mean < LIMIT
