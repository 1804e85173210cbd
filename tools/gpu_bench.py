"""What training costs on this machine: samples/s, share of the measured matmul rate, memory, equality, losses.

    python tools/gpu_bench.py [FILE.json] [PART ...]

With a GPU: ViT-B/32 and RN50 with open_clip's text towers at batches of 1,024 and 4,096 in bf16. Without one: tiny
towers and small batches in fp32, so that the script is the same. Prints tables; the same goes to FILE as JSON (default:
gpu_bench.json in the working directory), each part as soon as it is measured. Parts that are named are measured, again
if FILE has them, and the others of FILE stay; without names all are. Each is meant for less than ten minutes.

    training   from synthetic rows, which the loader's processes make: each batch whole and in micro-batches
    shards     from JPEGs in tars, written here, decoded and cropped by the loader's processes
    large      a batch that fits in micro-batches alone
    peer       open_clip's own training loop in turn with ours, from synthetic rows and from the tars
    equality   one step whole and in micro-batches: loss, gradient, weights
    losses     each method's loss and its gradient beside CLIP's, without towers
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed
sys.path.insert(0, str(Path(__file__).parent))
from gpu_losses import LOSS_WIDTH, losses, seconds_of
from gpu_peer import compared, release
from gpu_scale import LARGE, SMALL, Scale, a_run, prepared
from gpu_shards import jpeg_shards

from bench.console.text import columns
from bench.errors import UserError
from bench.machine.environment import environment, peak_memory, reset_peak_memory
from bench.store import files
from bench.suite.run import Run
from bench.suite.settings import DataSettings
from bench.training.job import available_device
from bench.training.loop import train

Row = dict[str, Any]
TURNS = 2  #: of our loop and the peer's
SHARE, AIMED = 0.45, "ViT-B/32"  #: of the matmul rate, end to end, and the towers that should reach it
OUT_OF_MEMORY = "out of memory"
MEASURED = ("samples/s", "TFLOP/s", "share of matmul", "peak GiB", "waiting for data")


def matmul_rate(scale: Scale, device: torch.device) -> float:
    """FLOP/s of one large matrix product in the towers' type."""
    dtype = torch.bfloat16 if scale.precision == "bf16" else torch.float32
    a, b = (torch.randn(scale.matmul, scale.matmul, device=device, dtype=dtype) for _ in range(2))
    return 2 * scale.matmul**3 / seconds_of(lambda: a @ b, 20, device)


def training(scale: Scale, device: torch.device, rate: float) -> list[Row]:
    """Speed and memory of each pair of towers from synthetic rows, whole and in micro-batches that encode twice."""
    ways = [(batch, micro) for batch in scale.batches for micro in (None, scale.micro)]
    return [_measured(scale, towers, batch, micro, device, rate) for towers in scale.towers for batch, micro in ways]


def shards(scale: Scale, device: torch.device, rate: float) -> list[Row]:
    """The same from JPEGs in tars, in micro-batches where the whole batch was out of memory."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        data = jpeg_shards(Path(folder), scale.pictures, scale.shards, scale.size)
        for towers in scale.towers:
            for batch in scale.batches:
                row = _measured(scale, towers, batch, None, device, rate, data)
                if OUT_OF_MEMORY in row.values():
                    row = _measured(scale, towers, batch, scale.micro, device, rate, data)
                rows.append(row)
    return rows


def large(scale: Scale, device: torch.device, rate: float) -> list[Row]:
    """The large batch from synthetic rows, in micro-batches."""
    return [_measured(scale, towers, scale.large, scale.micro, device, rate) for towers in scale.towers]


def _measured(
    scale: Scale,
    towers: str,
    batch: int,
    micro: int | None,
    device: torch.device,
    rate: float,
    data: DataSettings | None = None,
) -> Row:
    row: Row = {"towers": towers, "batch": batch, "micro-batch": micro or batch}
    run = a_run(scale, scale.towers[towers], 2 * scale.steps_of(batch), batch, data, micro_batch=micro)
    try:
        return row | _timed(run, device, rate)
    except torch.cuda.OutOfMemoryError:  # a whole batch is too much for most cards: that is a finding
        return row | dict.fromkeys(MEASURED, OUT_OF_MEMORY)
    finally:
        release(device)


def _timed(run: Run, device: torch.device, rate: float) -> Row:
    speeds: list[float] = []
    with prepared(run, device) as job:
        reset_peak_memory(device)
        job.on_step = lambda *told: speeds.append(told[-1])
        ledger = train(job)
    speed = statistics.median(speeds[len(speeds) // 2 :])
    flops = job.resolved.flops / job.resolved.steps * speed / run.train.batch
    waiting, peak = ledger.data_seconds / ledger.train_seconds, peak_memory(device) / 2**30
    return dict(zip(MEASURED, (speed, flops / 1e12, flops / rate, peak, waiting), strict=True))


def peer(scale: Scale, device: torch.device, _: float) -> list[Row]:
    """open_clip's own loop in turn with ours at the first batch: samples/s of both, and the median ratio of turns."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        jpegs = jpeg_shards(Path(folder), scale.pictures, scale.shards, scale.size)
        for name, towers in scale.towers.items():
            for told, data in (("synthetic", None), ("JPEG shards", jpegs)):
                run = a_run(scale, towers, 2 * scale.turn + 1, data=data)
                row: Row = {"towers": name, "rows": told, "batch": scale.batch}
                try:
                    row |= compared(prepared, run, scale.turn, TURNS, device)
                except torch.cuda.OutOfMemoryError:
                    row |= dict.fromkeys(("samples/s", "open_clip's", "ratio"), OUT_OF_MEMORY)
                release(device)
                rows.append(row)
    return rows


def equality(scale: Scale, device: torch.device, _: float) -> list[Row]:
    """One fp32 step whole and in micro-batches: the largest relative difference of loss, gradient norm and weights.

    AdamW's epsilon is far above every gradient, so that a step is proportional to its gradient. The batch is a quarter
    of the other tables', as fp32 takes twice the memory.
    """
    scale, rows = replace(scale, batches=(scale.batch // 4,), micro=scale.micro // 4), []
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


def shown(title: str, rows: list[Row]) -> None:
    """A table on stdout."""
    cells = [[f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows]
    print(f"\n{title}")
    for line in columns([list(rows[0]), *cells]):
        print(f"  {line}", flush=True)


#: name -> what is measured, and the title of its table
PARTS: dict[str, tuple[Callable[[Scale, torch.device, float], list[Row]], str]] = {
    "training": (training, "training from synthetic rows, {0.precision}"),
    "shards": (shards, "training from JPEGs in tars, {0.precision}"),
    "large": (large, "a batch of {0.large}, {0.precision}"),
    "peer": (peer, "open_clip's own loop in turn with ours, {0.precision}"),
    "equality": (equality, "four micro-batches against one batch of a quarter of {0.batch}, fp32, relative"),
    "losses": (
        lambda scale, device, _: losses(scale.batch, device),
        f"losses, batch {{0.batch}}, {LOSS_WIDTH} dimensions, fp32",
    ),
}


def measured(
    scale: Scale, device: torch.device, parts: Sequence[str] = tuple(PARTS), path: Path | None = None
) -> dict[str, Any]:
    """Measure parts at this scale and print their tables; each is written to `path` as soon as it is there.

    Returns what `path` has then: hardware, packages and commit, matmul_flops, and the rows of each part. Raises
    UserError if it cannot be read, or has parts of another machine, commit or scale.
    """
    told = environment(device)
    about = {key: told[key] for key in ("hardware", "packages", "commit")}
    about["scale"] = json.loads(json.dumps({**asdict(scale), "towers": list(scale.towers)}))
    found = _earlier(path, about)
    rate = matmul_rate(scale, device)
    print(f"{told['hardware']['device']}: {rate / 1e12:.4g} TFLOP/s in a {scale.precision} matmul of {scale.matmul}")
    found["matmul_flops"] = rate
    for name in parts:
        part, title = PARTS[name]
        started = time.perf_counter()
        found[name] = part(scale, device, rate)
        found.setdefault("seconds", {})[name] = time.perf_counter() - started
        shown(title.format(scale), found[name])
        found["goals"] = goals(found)
        if path is not None:
            files.write_json(path, found)
    if found["goals"]:
        shown("what was aimed at, on a large GPU", found["goals"])
    return found


def _earlier(path: Path | None, about: dict[str, Any]) -> dict[str, Any]:
    """What a file has of the same measurement; without a file, what it is about."""
    if path is None or not path.exists():
        return dict(about)
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        other = [key for key, value in about.items() if found[key] != value]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: is no file of gpu_bench; name another one, or remove it") from error
    if other:
        raise UserError(f"{path}: was measured with another {other[0]}; name another file, or remove it")
    return found


def goals(found: dict[str, Any]) -> list[Row]:
    """The goals that the measured parts speak of: the wanted number, the measured one, and whether it is reached."""
    told: list[Row] = []
    for part, key, wanted, where in (
        ("training", "share of matmul", SHARE, "synthetic rows"),
        ("shards", "share of matmul", SHARE, "JPEGs in tars"),
        ("peer", "ratio", 1.0, "beside open_clip's loop"),
    ):
        for name in dict.fromkeys(row["towers"] for row in found.get(part, [])):
            if part != "peer" and name != AIMED:
                continue
            own = [row[key] for row in found[part] if row["towers"] == name and row[key] != OUT_OF_MEMORY]
            value = (min if part == "peer" else max)(own, default=0.0)
            told.append({"goal": f"{name}, {where}: {key}", "wanted": wanted, "measured": value})
    return [{**one, "reached": one["measured"] >= one["wanted"]} for one in told]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=Path("gpu_bench.json"), metavar="FILE.json")
    parser.add_argument("parts", nargs="*", metavar="PART", help="default: all")
    asked = parser.parse_args(arguments)
    if asked.file.name in PARTS:
        parser.error(f"{asked.file}: is a part; name FILE.json before it")
    for part in asked.parts:
        if part not in PARTS:
            parser.error(f"{part}: is no part; parts are {', '.join(PARTS)}")
    warnings.simplefilter("ignore")
    device = available_device()
    if device.type != "cuda":
        print("no GPU on this machine: tiny towers and small batches, which say nothing of one")
    try:
        measured(LARGE if device.type == "cuda" else SMALL, device, asked.parts or tuple(PARTS), asked.file)
    except UserError as error:
        parser.error(str(error))
    print(f"\nwritten to {asked.file}")


if __name__ == "__main__":
    main()
