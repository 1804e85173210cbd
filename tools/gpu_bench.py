"""What training costs on this machine: samples/s, share of the measured matmul rate, memory, equality, losses.

    python tools/gpu_bench.py [FILE.json]

With a GPU: ViT-B/32 and RN50 with open_clip's text towers at batch 1024 in bf16. Without: tiny towers at batch 64 in
fp32, so that the script is the same. Images are noise, made by the loader's processes as in training. Prints tables;
the same as JSON goes to FILE (default: gpu_bench.json in the working directory).
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.adapters import hyperparameters, registry
from bench.checks import lab
from bench.console.text import columns
from bench.machine.environment import environment, peak_memory, reset_peak_memory
from bench.planning.planner import plan
from bench.store import Store, writing
from bench.suite.run import Run
from bench.suite.settings import Budget, DataSettings, EvaluateSettings, TowerSettings, TrainSettings
from bench.training import side_towers
from bench.training.distributed import Group
from bench.training.inputs import InputsReader
from bench.training.job import available_device, make_job
from bench.training.loop import Job, train
from bench.training.step.tiles import tile_entries, tiles
from methods.protocol import Batch, Facts

Row = dict[str, Any]
LOSS_WIDTH = 512  #: D of the losses
MEASURED = ("samples/s", "TFLOP/s", "share of matmul", "peak GiB", "waiting for data")


@dataclass(frozen=True)
class Scale:
    """How large everything is."""

    towers: dict[str, TowerSettings]
    size: int  #: pixels a side
    batch: int
    micro: int  #: of the micro-batched step
    precision: str
    steps: int  #: timed ones; as many again are not
    matmul: int  #: side of the matrices


LARGE = Scale(
    {
        "ViT-B/32": TowerSettings(image="ViT-B-32", text="ViT-B-32", dim=512),
        "RN50": TowerSettings(image="RN50", text="RN50", dim=1024),
    },
    size=224,
    batch=1024,
    micro=256,
    precision="bf16",
    steps=10,
    matmul=8192,
)
SMALL = Scale(
    {
        "tiny ResNet": TowerSettings(dim=32, vocabulary=512),
        "tiny ViT": TowerSettings(image="tiny-vit", dim=32, vocabulary=512),
    },
    size=32,
    batch=64,
    micro=16,
    precision="fp32",
    steps=3,
    matmul=1024,
)


def a_run(scale: Scale, towers: TowerSettings, steps: int, **train_settings: Any) -> Run:
    """CLIP on synthetic pairs."""
    recipe = {"batch": scale.batch, "bn_group": scale.micro, "precision": scale.precision, "augment": "none"}
    return Run(
        label="clip",
        method="clip",
        preset=None,
        config=hyperparameters.resolve("clip", None, {}),
        data=DataSettings(name="synthetic", size=scale.size, shards=f"synthetic:{scale.batch * 4}"),
        noise=None,
        rate=0.0,
        noise_file=None,
        seed=0,
        budget=Budget(samples=scale.batch * steps),
        towers=towers,
        train=TrainSettings(**{**recipe, "checkpoint_seconds": 1e6, **train_settings}),
        evaluate=EvaluateSettings(),
    )


@contextmanager
def prepared(run: Run, device: torch.device) -> Iterator[Job]:
    """A training in a store of its own, which is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        (planned,) = plan([run], store)
        with writing(store.run(planned.id)) as out:
            yield make_job(run, InputsReader().inputs(run), planned.resolved, out, None, device)


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


def matmul_rate(scale: Scale, device: torch.device) -> float:
    """FLOP/s of one large matrix product in the towers' type."""
    dtype = torch.bfloat16 if scale.precision == "bf16" else torch.float32
    a, b = (torch.randn(scale.matmul, scale.matmul, device=device, dtype=dtype) for _ in range(2))
    return 2 * scale.matmul**3 / seconds_of(lambda: a @ b, 20, device)


def training(scale: Scale, device: torch.device, rate: float) -> list[Row]:
    """Speed and memory of each pair of towers, whole and in micro-batches that encode twice."""
    rows = []
    for name, towers in scale.towers.items():
        for micro in (None, scale.micro):
            row: Row = {"towers": name, "micro-batch": micro or scale.batch}
            try:
                row |= _timed(scale, a_run(scale, towers, 2 * scale.steps, micro_batch=micro), device, rate)
            except torch.cuda.OutOfMemoryError:  # a whole batch is too much for most cards: that is a finding
                row |= dict.fromkeys(MEASURED, "out of memory")
            rows.append(row)
    return rows


def _timed(scale: Scale, run: Run, device: torch.device, rate: float) -> Row:
    speeds: list[float] = []
    with prepared(run, device) as job:
        reset_peak_memory(device)
        job.on_step = lambda *told: speeds.append(told[-1])
        ledger = train(job)
    speed = statistics.median(speeds[scale.steps :])
    flops = job.resolved.flops / job.resolved.steps * speed / scale.batch
    waiting, peak = ledger.data_seconds / ledger.train_seconds, peak_memory(device) / 2**30
    return dict(zip(MEASURED, (speed, flops / 1e12, flops / rate, peak, waiting), strict=True))


def equality(scale: Scale, device: torch.device) -> list[Row]:
    """One fp32 step whole and in micro-batches: the largest relative difference of loss, gradient norm and weights.

    AdamW's epsilon is far above every gradient, so that a step is proportional to its gradient. The batch is a quarter
    of the other tables', as fp32 takes twice the memory.
    """
    scale, rows = replace(scale, batch=scale.batch // 4, micro=scale.micro // 4), []
    for name, towers in scale.towers.items():
        found: list[tuple[Row, dict[str, Tensor]]] = []
        for micro in (None, scale.micro):
            plain = {"precision": "fp32", "eps": 1e3, "lr": 10.0, "weight_decay": 0.0, "micro_batch": micro}
            with prepared(a_run(scale, towers, 1, **plain), device) as job:
                train(job)
                found.append((job.out.metrics()[-1], job.towers.state_dict()))
        (one, weights), (other, others) = found
        apart = max(_apart(weights[key], others[key]) for key in weights if weights[key].is_floating_point())
        told = {key: abs(one[key] - other[key]) / abs(one[key]) for key in ("loss", "gradient_norm")}
        rows.append({"towers": name, **told, "weights": apart})
    return rows


def _apart(x: Tensor, y: Tensor) -> float:
    x, y = x.nan_to_num(0.0, 0.0, 0.0).double(), y.nan_to_num(0.0, 0.0, 0.0).double()
    scale = float(x.abs().max()) if x.numel() else 0.0
    return float((x - y).abs().max()) / scale if scale else 0.0


def losses(scale: Scale, device: torch.device) -> list[Row]:
    """Seconds and memory of each method's loss, forward and backward, without towers."""
    rows = []
    for name in registry.names():
        step = loss_step(name, scale.batch, device)
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
    entries = tile_entries(device, everyone, batch, (), Group())

    def step() -> None:
        with torch.no_grad():
            observed = method.observe(leaves, Batch(ids, when))
        for anchors in tiles(method.whole_batch, everyone, batch, entries):
            with torch.no_grad():
                constants = method.draw(leaves, observed, anchors)
            torch.stack(list(method.loss(leaves, constants, anchors).values())).sum().backward()

    return step


def shown(title: str, rows: list[Row]) -> None:
    """A table on stdout."""
    cells = [[f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows]
    print(f"\n{title}")
    for line in columns([list(rows[0]), *cells]):
        print(f"  {line}", flush=True)


def measured(scale: Scale, device: torch.device) -> dict[str, Any]:
    """Measure everything at this scale: hardware, matmul_flops, training, equality, losses. Prints each table."""
    where = environment(device)["hardware"]
    rate = matmul_rate(scale, device)
    print(f"{where['device']}: {rate / 1e12:.4g} TFLOP/s in a {scale.precision} matmul of {scale.matmul}")
    found: dict[str, Any] = {"hardware": where, "matmul_flops": rate, "scale": replace(scale, towers={}).__dict__}
    found["training"] = training(scale, device, rate)
    shown(f"training, batch {scale.batch}, {scale.precision}", found["training"])
    found["equality"] = equality(scale, device)
    shown(f"four micro-batches against one batch of {scale.batch // 4}, fp32, relative", found["equality"])
    found["losses"] = losses(scale, device)
    shown(f"losses, batch {scale.batch}, {LOSS_WIDTH} dimensions, fp32", found["losses"])
    return found


def main() -> None:
    """Measure, print, write."""
    warnings.simplefilter("ignore")
    device = available_device()
    found = measured(LARGE if device.type == "cuda" else SMALL, device)
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "gpu_bench.json")
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(f"\nwritten to {path}")


if __name__ == "__main__":
    main()
