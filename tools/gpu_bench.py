"""Cost of training on this machine: samples/s, share of the measured matmul rate, memory, losses, a peer's loop.

    python tools/gpu_bench.py [FILE.json] [PART ...]

With a GPU: ViT-B/32 and RN50 with open_clip's text towers at batches of 1,024 and 4,096 in bf16. Without one: tiny
towers and small batches in fp32, so that the script is the same. Prints tables; the same goes to FILE as JSON (default:
gpu_bench.json in the working directory), each part as soon as it is measured. Without names all parts are measured.

    training   from synthetic rows, which the loader's processes make: each batch whole and in micro-batches
    shards     from JPEGs in tars, written here, decoded and cropped by the loader's processes
    peer       open_clip's own training loop in turn with ours, from synthetic rows and from the tars
    losses     each method's loss and its gradient beside CLIP's, without towers

The peer is `train_one_epoch` of the `open_clip_train` that open_clip_torch installs, with what its `main` gives it:
ClipLoss, AdamW without decay of gains and biases, autocast, cuDNN's search, open_clip's towers of our configuration.
Synthetic rows are batches of our loader, on the device already; shards it reads by its own webdataset pipeline.
"""

from __future__ import annotations

import argparse
import gc
import inspect
import io
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, redirect_stderr
from dataclasses import dataclass
from functools import partial
from itertools import count, islice, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed
import bench.machine.torchvision_fix  # noqa: F401  before open_clip
from bench.adapters import registry
from bench.catalogue import architectures
from bench.checks import lab
from bench.data.pack.packing import pack_shards
from bench.data.pack.writing import PackOptions
from bench.data.shards import indexing
from bench.data.shards.sources import expand_sources
from bench.loading.loader import Loader
from bench.loading.workers import worker_count
from bench.machine.environment import environment, peak_memory, reset_peak_memory
from bench.planning.planner import plan
from bench.store import Store, files, writing
from bench.suite import tower_files
from bench.suite.run import Run
from bench.suite.suite import parse_suite
from bench.towers.build import OpenClipTowers
from bench.training import side_towers
from bench.training.inputs import InputsReader
from bench.training.job import available_device, make_job
from bench.training.loop import TrainingJob, anchor_tiles, train
from bench.yaml_source import YamlSource
from methods.protocol import Batch, Clock, Facts

Measurement = dict[str, Any]
Batches = Iterator[tuple[Tensor, Tensor]]
LOSS_WIDTH = 512  #: D


@dataclass(frozen=True)
class Scale:
    """Sizes of all measurements."""

    towers: dict[str, Measurement]  #: section `towers` of a suite, by what tables call it
    size: int  #: pixels a side
    batches: tuple[int, ...]  #: the first one is that of the peer and of losses
    micro: int  #: of micro-batched steps
    precision: str
    steps: int  #: timed ones; as many again are not
    matmul: int  #: side of the matrices
    pictures: int  #: in ten tars


LARGE = Scale(
    {
        "ViT-B/32": {"image": "ViT-B-32", "text": "ViT-B-32", "dim": 512},
        "RN50": {"image": "RN50", "text": "RN50", "dim": 1024},
    },
    size=224,
    batches=(1024, 4096),
    micro=256,
    precision="bf16",
    steps=10,
    matmul=8192,
    pictures=8192,
)
SMALL = Scale(
    {
        "tiny ResNet": {"image": "tiny-resnet", "dim": 32, "vocabulary": 512},
        "tiny ViT": {"image": "tiny-vit", "dim": 32, "vocabulary": 512},
    },
    size=32,
    batches=(64, 128),
    micro=16,
    precision="fp32",
    steps=3,
    matmul=1024,
    pictures=320,
)


def a_run(scale: Scale, towers: str, batch: int, steps: int, data: Measurement | None, micro: int | None = None) -> Run:
    """CLIP on synthetic pairs, or on others with open_clip's crops."""
    recipe = {"batch": batch, "bn_group": scale.micro, "precision": scale.precision, "micro_batch": micro}
    made_up = {"name": "synthetic", "shards": f"synthetic:{batch * 4}"}
    suite = {
        "name": "gpu-bench",
        "data": {**(data or made_up), "size": scale.size},
        "noise": {"rates": [0.4]},  # something to evaluate
        "seeds": [0],
        "budget": {"samples": batch * steps},
        "towers": scale.towers[towers],
        "train": {**recipe, "augment": "openclip" if data else "none", "checkpoint_seconds": 1e6},
        "evaluate": {"tasks": ["noise_detection"]},
        "methods": ["clip"],
    }
    (run,) = parse_suite(YamlSource("gpu_bench", suite, {})).runs()
    return run


@contextmanager
def prepared(run: Run, device: torch.device) -> Iterator[TrainingJob]:
    """A training in a store of its own, which is removed afterwards, as is what it held of the device."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        (planned,) = plan([run], store)
        with writing(store.run(planned.id)) as out:
            yield make_job(run, InputsReader().inputs(run), planned.resolved, out, None, device)


def jpeg_shards(folder: Path, scale: Scale) -> Measurement:
    """Write smooth random pictures with captions, pack and index them as `bench data` does; return section `data`."""
    loose, packed = folder / "loose", folder / "packed"
    loose.mkdir()
    draws = np.random.default_rng(0)
    for number in range(scale.pictures):
        coarse = draws.integers(0, 256, (12, 16, 3), dtype=np.uint8)  # smooth, as photographs are, and about 20 kB
        picture = Image.fromarray(coarse).resize((400, 300), Image.Resampling.BICUBIC)
        picture.save(loose / f"{number:06d}.jpg", quality=90)
        (loose / f"{number:06d}.txt").write_text(f"a picture of {number % 1000} colours in no order")
    with redirect_stderr(io.StringIO()):  # a line a shard
        pack_shards(loose, packed, PackOptions(), per_shard=scale.pictures // 10, workers=1)
    indexing.build_index(expand_sources([str(packed)]), packed / "index.parquet", workers=1)
    return {"name": "jpegs", "shards": str(packed)}


def finished(device: torch.device) -> None:
    """Wait for what the device does."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def release(device: torch.device) -> None:
    """Give back what the last measurement held of the device."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def seconds_of(action: Callable[[], object], times: int, device: torch.device) -> float:
    """Median wall-clock seconds, the device waited for, after one call that is not counted."""
    found = []
    for _ in range(times + 1):
        started = time.perf_counter()
        action()
        finished(device)
        found.append(time.perf_counter() - started)
    return statistics.median(found[1:])


def matmul_rate(scale: Scale, device: torch.device) -> float:
    """FLOP/s of one large matrix product in the towers' type."""
    dtype = torch.bfloat16 if scale.precision == "bf16" else torch.float32
    a, b = (torch.randn(scale.matmul, scale.matmul, device=device, dtype=dtype) for _ in range(2))
    return 2 * scale.matmul**3 / seconds_of(lambda: a @ b, 20, device)


def training(scale: Scale, device: torch.device, rate: float, data: Measurement | None = None) -> list[Measurement]:
    """Speed and memory of each pair of towers, whole and in micro-batches that encode twice; without data, made up."""
    rows = []
    for towers, batch, micro in product(scale.towers, scale.batches, (None, scale.micro)):
        speeds: list[float] = []
        row: Measurement = {"towers": towers, "batch": batch, "micro-batch": micro or batch}
        try:
            with prepared(a_run(scale, towers, batch, 2 * scale.steps, data, micro), device) as job:
                reset_peak_memory(device)
                job.on_step = lambda *told, of=speeds: of.append(told[-1])
                ledger = train(job)
        except torch.cuda.OutOfMemoryError:  # a whole batch is too much for most cards: that is a finding
            row["samples/s"] = "out of memory"
        else:
            speed = statistics.median(speeds[len(speeds) // 2 :])
            flops = job.resolved.flops / job.resolved.steps * speed / batch
            row |= {"samples/s": speed, "TFLOP/s": flops / 1e12, "share of matmul": flops / rate}
            waiting = ledger.data_seconds / ledger.train_seconds
            row |= {"peak GiB": peak_memory(device) / 2**30, "waiting for data": waiting}
            del job
        release(device)
        rows.append(row)
    return rows


def shards(scale: Scale, device: torch.device, rate: float) -> list[Measurement]:
    """The same from JPEGs in tars."""
    with tempfile.TemporaryDirectory() as folder:
        return training(scale, device, rate, jpeg_shards(Path(folder), scale))


def peer(scale: Scale, device: torch.device, _: float) -> list[Measurement]:
    """open_clip's own loop in turn with ours: samples/s of both, and the median ratio of turns."""
    rows, batch = [], scale.batches[0]
    with tempfile.TemporaryDirectory() as folder:
        jpegs = jpeg_shards(Path(folder), scale)
        for name in scale.towers:
            for told, data in (("synthetic", None), ("JPEG shards", jpegs)):
                run = a_run(scale, name, batch, 2 * scale.steps + 1, data)
                row = {"towers": name, "rows": told, "batch": batch}
                turns = [in_turn(run, scale.steps, device) for _ in range(2)]
                ours, theirs = (scale.steps * batch / statistics.median(one) for one in zip(*turns, strict=True))
                ratio = statistics.median(other / own for own, other in turns)
                rows.append({**row, "samples/s": ours, "open_clip's": theirs, "ratio": ratio})
    return rows


def in_turn(run: Run, steps: int, device: torch.device) -> tuple[float, float]:
    """Seconds of `steps` steps of our loop and of open_clip's, each after as many that are not counted.

    The run has one step more than twice as many: the last one writes a checkpoint, which open_clip's loop leaves to its
    caller. Processes that read data, models and optimisers are there in their own turn alone.
    """
    marks: list[float] = []

    def after(step: int, *_: float) -> None:
        if not step % steps:
            finished(device)
            marks.append(time.perf_counter())

    with prepared(run, device) as job:
        job.curve, job.on_step, towers = (), after, job.towers
        train(job)
    del job
    release(device)
    reads = our_batches if run.data.synthetic else its_batches
    with reads(run, towers, device) as batches:
        theirs = its_seconds(run, peer_model(run, towers, device), batches, steps, device)
    return marks[1] - marks[0], theirs


def peer_model(run: Run, towers: OpenClipTowers, device: torch.device) -> Any:
    """open_clip's model of a run's towers. Raises ValueError if its towers have other numbers of parameters."""
    from open_clip.model import CustomTextCLIP

    image, text = tower_files.image_config(run.towers, run.data.size), tower_files.text_config(run.towers)
    text = {"vocab_size": getattr(towers.tokenizer, "size", None), **text}
    fast = architectures.quick_gelu(run.towers.image)
    model = CustomTextCLIP(run.towers.dim, image, text, quick_gelu=fast, output_dict=True).to(device)
    for name in ("visual", "text"):
        own, theirs = (sum(x.numel() for x in getattr(one, name).parameters()) for one in (towers, model))
        if own != theirs:
            raise ValueError(f"{name}: open_clip's tower has {theirs:,} parameters, ours {own:,}")
    return model


@dataclass(frozen=True)
class Epoch:
    """The next batches as a loader that open_clip's loop reads to its end."""

    batches: Batches
    num_batches: int
    num_samples: int

    def __iter__(self) -> Batches:
        return islice(self.batches, self.num_batches)


def its_seconds(run: Run, model: Any, batches: Batches, steps: int, device: torch.device) -> float:
    """Train by open_clip's loop for `steps` steps, and again; return the seconds of the second time."""
    from open_clip import ClipLoss
    from open_clip_train.train import train_one_epoch

    kept: list[Any] = []
    decayed: list[Any] = []
    for name, x in model.named_parameters():  # open_clip_train's own rule
        whole = x.ndim < 2 or any(part in name for part in ("bn", "ln", "bias", "logit_scale"))
        (kept if whole else decayed).append(x)
    groups = [{"params": kept, "weight_decay": 0.0}, {"params": decayed, "weight_decay": run.train.weight_decay}]
    optimiser = torch.optim.AdamW(groups, lr=run.train.lr, betas=run.train.betas, eps=run.train.eps)
    precision = "amp_bf16" if run.train.precision == "bf16" else "fp32"
    plain = {"log_every_n_steps": 100, "accum_freq": 1, "world_size": 1, "rank": 0, "grad_clip_norm": None}
    off = {"skip_scheduler": True, "distill": False, "horovod": False, "wandb": False}
    args = SimpleNamespace(device=str(device), precision=precision, batch_size=run.train.batch, **plain, **off)
    some = Epoch(batches, steps, steps * run.train.batch)
    data, loss = {"train": SimpleNamespace(set_epoch=lambda _: None, dataloader=some)}, ClipLoss(cache_labels=True)
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False, allow_tf32=True):
        return seconds_of(lambda: train_one_epoch(model, data, loss, 0, optimiser, None, None, None, args), 1, device)


@contextmanager
def our_batches(run: Run, towers: OpenClipTowers, device: torch.device) -> Iterator[Batches]:
    """Images and tokens of the run's steps on the device, by a loader of its own."""
    inputs, batch, workers = InputsReader().inputs(run), run.train.batch, worker_count(run.data.workers, 1)
    options: Any = {"batch": batch, "seed": run.seed, "recipe": run.train.augment, "dtype": torch.float32}

    def read(loader: Loader) -> Batches:
        for step in count():
            for held in loader.micro_batches(Clock(step, "train", 0.0, 0), slice(0, batch), batch, 0):
                rows = loader.on_device(held)
                yield rows.images, rows.tokens

    with closing(Loader(inputs.seen, None, towers, device=device, workers=workers, **options)) as loader:
        yield read(loader)


@contextmanager
def its_batches(run: Run, towers: OpenClipTowers, _: torch.device) -> Iterator[Batches]:
    """Images and tokens of a run's shards by open_clip_train's pipeline, with as many processes as our loader has."""
    import open_clip_train.data
    import webdataset.tariterators
    from open_clip import image_transform

    # webdataset 1.0 ends a tar with an empty dict, which open_clip_train 3.3 takes for a file
    expand_tar = webdataset.tariterators.tar_file_expander
    if "eof_value" in inspect.signature(expand_tar).parameters:
        open_clip_train.data.tar_file_expander = partial(expand_tar, eof_value=None)
    args = SimpleNamespace(
        train_data="::".join(str(path) for path in sorted(Path(str(run.data.shards)).glob("*.tar"))),
        train_num_samples=1 << 30,  # without an end: it draws shards with replacement
        train_data_upsampling_factors=None,
        dataset_resampled=True,
        workers=worker_count(run.data.workers, 1),
        batch_size=run.train.batch,
        world_size=1,
        seed=run.seed,
    )
    transform = image_transform(run.data.size, is_train=True)
    tokenize = lambda text: towers.tokenizer([text])  # noqa: E731
    loader = open_clip_train.data.get_wds_dataset(args, transform, is_train=True, tokenizer=tokenize).dataloader
    yield iter(loader)


def losses(scale: Scale, device: torch.device, _: float) -> list[Measurement]:
    """Seconds and memory of each method's loss, forward and backward, without towers."""
    rows = []
    for name in registry.method_names():
        step = loss_step(name, scale.batches[0], device)
        reset_peak_memory(device)
        before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
        row = {"method": name, "ms": 1e3 * seconds_of(step, 5, device), "times clip's": 0.0}
        if device.type == "cuda":  # a process's own memory is no measure of one step's
            row["peak MiB"] = (peak_memory(device) - before) / 2**20
        rows.append(row)
    clip = next(row["ms"] for row in rows if row["method"] == "clip")
    return [{**row, "times clip's": row["ms"] / clip} for row in rows]


def loss_step(name: str, batch: int, device: torch.device) -> Callable[[], None]:
    """One `observe`, and draw, loss and backward of every tile, as the training loop does it."""
    kind = registry.find_method(name)

    def ready(rows: int, batch: int, dim: int) -> tuple[Any, lab.TinyTowers]:
        method, towers = kind(kind.Config(), Facts(rows=rows, batch=batch, dim=dim, seed=0)), lab.TinyTowers()
        towers.dim = dim
        side_towers.hold_reference(method, towers, None)
        method.prepare(towers)
        side_towers.hold_average(method, towers)
        return method, towers

    (small, towers), (method, _) = ready(32, 16, 16), ready(4 * batch, batch, LOSS_WIDTH)
    when = lab.a_clock(1, small.phases()[-1].name)
    method.to(device)
    shared, leaves = torch.randn(batch, LOSS_WIDTH, device=device), {}
    for key, like in small.encode(towers, lab.some_rows(towers, 16, None, when, small.extra_views)).items():
        if not like.is_floating_point():  # tokens
            leaves[key] = like.repeat(-(-batch // len(like)), 1)[:batch].to(device)
            continue
        width = LOSS_WIDTH if like.shape[1] == towers.dim else like.shape[1]
        x = (shared + torch.randn(batch, LOSS_WIDTH, device=device))[:, :width]
        value = x / 10 - 5 if "logvar" in key else F.normalize(x, dim=1)
        leaves[key] = value.detach().requires_grad_(like.requires_grad)
    ids, everyone = torch.arange(batch, device=device), slice(0, batch)

    def step() -> None:
        with torch.no_grad():
            observed = method.observe(leaves, Batch(ids, when))
        for anchors in anchor_tiles(method.whole_batch, everyone, batch):
            with torch.no_grad():
                constants = method.draw(leaves, observed, anchors)
            torch.stack(list(method.loss(leaves, constants, anchors).values())).sum().backward()

    return step


Part = Callable[[Scale, torch.device, float], list[Measurement]]
PARTS: dict[str, Part] = {"training": training, "shards": shards, "peer": peer, "losses": losses}


def measured(scale: Scale, device: torch.device, parts: Sequence[str], path: Path) -> dict[str, Any]:
    """Measure parts and print their tables; each is written to `path` as soon as it is there. Return what it has."""
    told, rate = environment(device), matmul_rate(scale, device)
    print(f"{told['hardware']['device']}: {rate / 1e12:.4g} TFLOP/s in a {scale.precision} matmul of {scale.matmul}")
    found = {key: told[key] for key in ("hardware", "packages", "commit")} | {"matmul_flops": rate}
    for name in parts:
        found[name] = PARTS[name](scale, device, rate)
        table = pd.DataFrame(found[name]).to_string(index=False, na_rep="", float_format="{:.4g}".format)
        print(f"\n{name}, {scale.precision}", table, sep="\n", flush=True)
        files.write_json(path, found)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=Path("gpu_bench.json"), metavar="FILE.json")
    parser.add_argument("parts", nargs="*", metavar="PART", help="default: all")
    asked = parser.parse_args(arguments)
    for part in (asked.file.name, *asked.parts):
        if (part in PARTS) != (part in asked.parts):
            parser.error(f"{part}: is no FILE.json or no part; parts are {', '.join(PARTS)}")
    warnings.simplefilter("ignore")
    device = available_device()
    if device.type != "cuda":
        print("no GPU on this machine: tiny towers and small batches, which say nothing of one")
    measured(LARGE if device.type == "cuda" else SMALL, device, asked.parts or tuple(PARTS), asked.file)


if __name__ == "__main__":
    main()
