"""Rows of worker processes on a GPU: registered memory, asynchronous copies, and a processor that waits for them."""

from __future__ import annotations

from contextlib import closing

import pytest
import torch

from bench.checks.lab import TinyTowers
from bench.data.ring import Ring
from bench.data.synthetic import SyntheticPairs
from bench.training.loader import Loader
from bench.training.step.travel import Travel
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


def test_memory_that_cuda_refuses_is_said_and_harms_nothing(device: torch.device) -> None:
    """What is registered cannot be registered again."""
    ring, other = (Ring([torch.zeros(1, 8, dtype=torch.uint8)], 4, 2, device) for _ in range(2))
    other.fields = ring.fields
    assert ring.register()
    assert other.register() == (device.type == "cpu")
    assert int(torch.ones(3, device=device).sum()) == 3, "no error is left for the next kernel"
    other.close()
    ring.close()
    assert not ring.fields


def test_pixels_travel_while_a_gpu_computes(device: torch.device) -> None:
    travel, pixels = Travel(device), torch.arange(2**24, dtype=torch.int32)
    if device.type == "cpu":
        assert travel.send([pixels])[0] is pixels, "nothing is copied"
        return
    pixels, busy = pixels.pin_memory(), torch.ones(8192, 8192, device=device)
    travel.send([pixels])
    torch.cuda.synchronize(device)
    for _ in range(40):
        busy @ busy
    multiplied = torch.cuda.current_stream(device).record_event()
    (there,) = travel.send([pixels])
    travel._stream.synchronize()  # type: ignore[union-attr]
    assert not multiplied.query(), "the copy waited for what was asked before it"
    assert torch.equal(there.cpu(), pixels)
