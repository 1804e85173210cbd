"""What each method's loss costs beside CLIP's, without towers: seconds and peak memory of one step.

`observe`, then draw, loss and backward of every tile, as the training loop does it, on leaves in fp32.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pytest_benchmark.fixture import BenchmarkFixture

from bench.adapters import registry
from bench.checks import lab
from bench.training import side_towers
from bench.training.loop import anchor_tiles
from methods.protocol import Batch, Facts, Tensors

BATCH, WIDTH = 1024, 512
LARGE, NARROW = 8192, 64  #: memory is taken here and at twice as many rows; narrow, so that pairs dominate
TIMES = 7
ONE_PROCESS = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import bench.machine.torchvision_fix, test_loss
name, batch, width, tiled = sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5] == "tiled"
step = test_loss.Step(name, batch, width, tiled)
def kilobytes(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))
Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
before = kilobytes("VmRSS")
step()
print(json.dumps({"bytes": 1024 * (kilobytes("VmHWM") - before)}))
"""


class Step:
    """The loss part of one training step of a method, in its last phase."""

    def __init__(self, name: str, batch: int, width: int, tiled: bool = True) -> None:
        kind = registry.find_method(name)
        self.method: Any = kind(kind.Config(), Facts(rows=4 * batch, batch=batch, dim=width, seed=0))
        self.batch, self.tiled = batch, tiled
        self.clock = lab.a_clock(1, self.method.phases()[-1].name)
        self.leaves = leaves_of(name, batch, width)
        self.ids = torch.arange(batch)

    def __call__(self) -> None:
        with torch.no_grad():
            observed = self.method.observe(self.leaves, Batch(self.ids, self.clock))
        for anchors in self._anchors():
            with torch.no_grad():
                constants = self.method.draw(self.leaves, observed, anchors)
            torch.stack(list(self.method.loss(self.leaves, constants, anchors).values())).sum().backward()
        for leaf in self.leaves.values():
            leaf.grad = None

    def _anchors(self) -> Iterator[slice]:
        everyone = slice(0, self.batch)
        return anchor_tiles(self.method.whole_batch, everyone, self.batch) if self.tiled else iter((everyone,))


def leaves_of(name: str, batch: int, width: int) -> Tensors:
    """Leaves of the names that the method encodes, of unit length; half aligned, as in training."""
    kind = registry.find_method(name)
    towers, when = lab.TinyTowers(), lab.a_clock(1)
    small: Any = kind(kind.Config(), Facts(rows=32, batch=16, dim=16, seed=0))
    side_towers.hold_reference(small, towers, None)
    small.prepare(towers)
    side_towers.hold_average(small, towers)
    when = lab.a_clock(1, small.phases()[-1].name)
    z = small.encode(towers, lab.some_rows(towers, 16, None, when, small.extra_views))
    draws = torch.Generator().manual_seed(0)
    shared = torch.randn(batch, width, generator=draws)
    found = {}
    for key in z:
        x = shared + torch.randn(batch, width, generator=draws)
        value = x / 10 - 5 if "logvar" in key else F.normalize(x, dim=1)
        found[key] = value.requires_grad_(z[key].requires_grad)
    return found


def _memory(name: str, batch: int, width: int, tiled: str = "tiled") -> int:
    command = [sys.executable, "-c", ONE_PROCESS, str(Path(__file__).parent), name, str(batch), str(width), tiled]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}  # freed tensors go back at once, or peaks are noise
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return int(json.loads(found.stdout)["bytes"])


@pytest.mark.parametrize("name", registry.method_names())
def test_loss_against_clips(benchmark: BenchmarkFixture, name: str) -> None:
    """Seconds in turn in one process, memory in a process each, at B = 1024, D = 512."""
    own, clip = Step(name, BATCH, WIDTH), Step("clip", BATCH, WIDTH)
    ratios: list[float] = []

    def one_round() -> None:
        seconds = []
        for step in (own, clip):
            started = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - started)
        ratios.append(seconds[0] / seconds[1])

    benchmark.pedantic(one_round, rounds=TIMES, iterations=1, warmup_rounds=2)
    time_ratio = statistics.median(ratios[2:])
    memory_ratio = _memory(name, BATCH, WIDTH) / _memory("clip", BATCH, WIDTH)
    ratio = f"{time_ratio:.2f} times its seconds, {memory_ratio:.2f} times its peak memory"
    benchmark.extra_info.update(peer="CLIP's loss", ratio=ratio)
    print(f"\n{name}: {ratio}", file=sys.stderr)


ROW_WISE = [name for name in registry.method_names() if not registry.find_method(name).whole_batch]


@pytest.mark.parametrize("name", ROW_WISE)
def test_memory_of_row_wise_losses_is_linear_in_the_batch(benchmark: BenchmarkFixture, name: str) -> None:
    """D = 64: no more than twice from B = 8,192 to 16,384, and there at most an eighth of the untiled memory.

    The allocator's pages blur the first: a fifth is allowed.
    """
    found: dict[str, int] = {}

    def measure() -> None:
        found["tiled"] = _memory(name, LARGE, NARROW)
        found["twice"] = _memory(name, 2 * LARGE, NARROW)
        found["untiled"] = _memory(name, 2 * LARGE, NARROW, "untiled")

    benchmark.pedantic(measure, rounds=1, iterations=1)
    said = ", ".join(f"{key} {value / 2**20:,.0f} MiB" for key, value in found.items())
    benchmark.extra_info.update(peer="untiled", ratio=f"{found['untiled'] / found['twice']:.1f} times less memory")
    print(f"\n{name}: {said}", file=sys.stderr)
    assert found["twice"] <= found["untiled"] / 8
    assert found["twice"] <= 2.4 * found["tiled"]
