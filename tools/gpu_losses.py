"""What each method's loss and its gradient take beside CLIP's, without towers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from bench.adapters import registry
from bench.checks import lab
from bench.machine.environment import peak_memory, reset_peak_memory
from bench.training import side_towers
from bench.training.tiles import tiles
from methods.protocol import Batch, Facts

Row = dict[str, Any]
LOSS_WIDTH = 512  #: D


def seconds_of(action: Callable[[], object], times: int, device: torch.device) -> float:
    """Median wall-clock seconds, the device waited for, after one call that is not counted."""
    found = []
    for _ in range(times + 1):
        started = time.perf_counter()
        action()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found.append(time.perf_counter() - started)
    return statistics.median(found[1:])


def losses(batch: int, device: torch.device) -> list[Row]:
    """Seconds and memory of each method's loss, forward and backward, without towers."""
    rows = []
    for name in registry.names():
        step = loss_step(name, batch, device)
        reset_peak_memory(device)
        before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
        seconds = seconds_of(step, 5, device)
        row = {"method": name, "ms": seconds * 1e3, "times clip's": 0.0}
        if device.type == "cuda":  # a process's own memory is no measure of one step's
            row["peak MiB"] = (peak_memory(device) - before) / 2**20
        rows.append(row)
    clip = next(row["ms"] for row in rows if row["method"] == "clip")
    return [{**row, "times clip's": row["ms"] / clip} for row in rows]


def loss_step(name: str, batch: int, device: torch.device) -> Callable[[], None]:
    """One `observe`, and draw, loss and backward of every tile, as the training loop does it."""
    kind, towers = registry.find(name), lab.TinyTowers()
    small: Any = kind(kind.Config(), Facts(rows=32, batch=16, dim=16, seed=0))
    side_towers.hold_reference(small, towers, None)
    small.prepare(towers)
    side_towers.hold_average(small, towers)
    when = lab.clock(1, small.phases()[-1].name)
    shapes = small.encode(towers, lab.some_rows(towers, 16, None, when, small.extra_views))
    method: Any = kind(kind.Config(), Facts(rows=4 * batch, batch=batch, dim=LOSS_WIDTH, seed=0))
    method.to(device)
    shared = torch.randn(batch, LOSS_WIDTH, device=device)
    leaves = {}
    for key, like in shapes.items():
        x = shared + torch.randn(batch, LOSS_WIDTH, device=device)
        value = x / 10 - 5 if "logvar" in key else F.normalize(x, dim=1)
        leaves[key] = value.detach().requires_grad_(like.requires_grad)
    ids, everyone = torch.arange(batch, device=device), slice(0, batch)

    def step() -> None:
        with torch.no_grad():
            observed = method.observe(leaves, Batch(ids, when))
        for anchors in tiles(method.whole_batch, everyone, batch):
            with torch.no_grad():
                constants = method.draw(leaves, observed, anchors)
            torch.stack(list(method.loss(leaves, constants, anchors).values())).sum().backward()

    return step
