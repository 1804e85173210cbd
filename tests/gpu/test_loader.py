"""Rows of worker processes on a GPU: registered memory, asynchronous copies, and a processor that waits for them."""

from __future__ import annotations

from contextlib import closing

import pytest
import torch

from bench.checks.lab import TinyTowers
from bench.data.synthetic import SyntheticPairs
from bench.loading.loader import Loader
from methods.protocol import Clock, Rows

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
STEPS, BATCH, SIZE = 6, 24, 10


def steps(device: torch.device, workers: int) -> list[Rows]:
    """Each micro-batch twice, as a step encodes it; while a GPU multiplies, the copies wait behind."""
    pairs = SyntheticPairs("noise/train", 4 * BATCH, 32)
    busy = torch.ones(2048, 2048, device=device) if device.type == "cuda" else None
    found = []
    towers, dtype = TinyTowers(), torch.float32
    with closing(
        Loader(pairs, None, towers, batch=BATCH, seed=0, recipe="none", dtype=dtype, device=device, workers=workers)
    ) as loader:
        for step in range(STEPS):
            held = list(loader.micro_batches(Clock(step, "train", 0.0, 0), slice(0, BATCH), SIZE, 1))
            if workers and device.type == "cuda":
                assert all(view.is_pinned() for part in held for view in part.pixels)
            for part in (*held, *held):
                if busy is not None:
                    for _ in range(20):
                        busy @ busy
                found.append(loader.on_device(part))
    return found


def test_rows_on_the_device_are_those_of_this_process(device: torch.device) -> None:
    here, there = steps(torch.device("cpu"), 0), steps(device, 2)
    assert len(here) == len(there) == STEPS * 2 * 3
    for one, other in zip(here, there, strict=True):
        assert torch.equal(one.tokens, other.tokens.cpu())
        for image, same in zip((one.images, *one.views), (other.images, *other.views), strict=True):
            assert torch.allclose(image, same.cpu(), atol=1e-5)
