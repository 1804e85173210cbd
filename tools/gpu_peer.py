"""open_clip's own training loop beside ours: the same towers, batches and precision, in turn in one process.

The loop is `train_one_epoch` of the `open_clip_train` that open_clip_torch installs, with what its `main` gives it:
ClipLoss, AdamW without decay of gains and biases, autocast, the clamp of the logit scale, cuDNN's search. Its model has
open_clip's towers of our towers' configuration. From synthetic rows it gets batches of our loader, which are on the
device already; from shards it reads by its own webdataset pipeline.
"""

from __future__ import annotations

import gc
import inspect
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

import bench.lean_open_clip  # noqa: F401  before open_clip
from bench.catalogue import architectures
from bench.loading.loader import Loader
from bench.loading.workers import processes
from bench.suite import tower_files
from bench.suite.run import Run
from bench.towers.build import OpenClipTowers
from bench.training.inputs import InputsReader
from bench.training.loop import Job, train
from methods.protocol import Clock

Batches = Iterator[tuple[Tensor, Tensor]]
Prepared = Callable[[Run, torch.device], AbstractContextManager[Job]]
ENDLESS = 1 << 30  #: samples that open_clip's pipeline is told there are: it draws shards with replacement


def open_clip_model(run: Run, towers: OpenClipTowers, device: torch.device) -> Any:
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


def optimiser_of(model: Any, run: Run) -> torch.optim.Optimizer:
    """AdamW as open_clip_train's `main` makes it: no decay of gains, biases, norms and the logit scale."""
    kept: list[Any] = []
    decayed: list[Any] = []
    for name, x in model.named_parameters():
        plain = x.ndim < 2 or any(part in name for part in ("bn", "ln", "bias", "logit_scale"))
        (kept if plain else decayed).append(x)
    groups = [{"params": kept, "weight_decay": 0.0}, {"params": decayed, "weight_decay": run.train.weight_decay}]
    return torch.optim.AdamW(groups, lr=run.train.lr, betas=run.train.betas, eps=run.train.eps)


@dataclass(frozen=True)
class Epoch:
    """The next batches as a loader that open_clip's loop reads to its end."""

    batches: Batches
    num_batches: int
    num_samples: int

    def __iter__(self) -> Batches:
        return islice(self.batches, self.num_batches)


class Peer:
    """open_clip's loop, some steps at a time."""

    def __init__(self, run: Run, towers: OpenClipTowers, batches: Batches, device: torch.device) -> None:
        from open_clip import ClipLoss

        self.model, self.batches, self.device = open_clip_model(run, towers, device), batches, device
        self.optimiser, self.loss = optimiser_of(self.model, run), ClipLoss(cache_labels=True)
        self.args = SimpleNamespace(
            device=str(device),
            precision="amp_bf16" if run.train.precision == "bf16" else "fp32",
            batch_size=run.train.batch,
            log_every_n_steps=100,  # its default
            accum_freq=1,
            world_size=1,
            rank=0,
            grad_clip_norm=None,
            skip_scheduler=True,
            distill=False,
            horovod=False,
            wandb=False,
        )

    def steps(self, number: int) -> float:
        """Train for some steps; return their seconds, the device waited for."""
        from open_clip_train.train import train_one_epoch

        some = Epoch(self.batches, number, number * self.args.batch_size)
        data = {"train": SimpleNamespace(set_epoch=lambda _: None, dataloader=some)}
        finished(self.device)
        started = time.perf_counter()
        with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False, allow_tf32=True):
            train_one_epoch(self.model, data, self.loss, 0, self.optimiser, None, None, None, self.args)
        finished(self.device)
        return time.perf_counter() - started


def finished(device: torch.device) -> None:
    """Wait for what the device does."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def our_batches(run: Run, towers: OpenClipTowers, device: torch.device) -> Iterator[Batches]:
    """Images and tokens of the run's steps on the device, by a loader of its own."""
    inputs, batch, workers = InputsReader().inputs(run), run.train.batch, processes(run.data.workers, 1)
    options: Any = {"batch": batch, "seed": run.seed, "recipe": run.train.augment, "dtype": torch.float32}

    def read(loader: Loader) -> Batches:
        for step in count():
            clock = Clock(step=step, phase="train", progress=0.0, epoch=0)
            for held in loader.micro_batches(clock, slice(0, batch), batch, 0):
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
    expand = webdataset.tariterators.tar_file_expander
    if "eof_value" in inspect.signature(expand).parameters:
        open_clip_train.data.tar_file_expander = partial(expand, eof_value=None)
    shards = "::".join(str(path) for path in sorted(Path(str(run.data.shards)).glob("*.tar")))
    args = SimpleNamespace(
        train_data=shards,
        train_num_samples=ENDLESS,
        train_data_upsampling_factors=None,
        dataset_resampled=True,
        workers=processes(run.data.workers, 1),
        batch_size=run.train.batch,
        world_size=1,
        seed=run.seed,
    )
    transform = image_transform(run.data.size, is_train=True)

    def tokenize(text: str) -> Tensor:
        return towers.tokenizer([text])

    loader = open_clip_train.data.get_wds_dataset(args, transform, is_train=True, tokenizer=tokenize).dataloader
    try:
        yield iter(loader)
    finally:  # its processes would go on to decode
        for stage in loader.pipeline:
            if getattr(stage, "_iterator", None) is not None:
                stage._iterator._shutdown_workers()


def our_seconds(job: Job, steps: int) -> float:
    """Seconds of `steps` steps of a job that has one more than twice as many; those before are not counted.

    The last step writes a checkpoint, which open_clip's loop leaves to its caller. Snapshots are left out as well.
    """
    marks: list[float] = []

    def after(step: int, *_: float) -> None:
        if not step % steps:
            finished(job.device)
            marks.append(time.perf_counter())

    job.curve, job.on_step = (), after
    train(job)
    return marks[1] - marks[0]


def its_seconds(run: Run, towers: OpenClipTowers, steps: int, device: torch.device) -> float:
    """Seconds of `steps` steps of open_clip's loop, after as many that are not counted."""
    reads = our_batches if run.data.synthetic else its_batches
    with reads(run, towers, device) as batches:
        peer = Peer(run, towers, batches, device)
        peer.steps(steps)
        return peer.steps(steps)


def compared(prepared: Prepared, run: Run, steps: int, turns: int, device: torch.device) -> dict[str, float]:
    """Samples a second of a run of 2 * steps + 1 steps and of open_clip's loop, and the median ratio of the turns.

    Processes that read data, models and optimisers are there in their own turn alone. prepared: as in gpu_bench.
    """
    seconds: list[tuple[float, float]] = []
    for _ in range(turns):
        with prepared(run, device) as job:
            ours, towers = our_seconds(job, steps), job.towers
        release(device)
        seconds.append((ours, its_seconds(run, towers, steps, device)))
        release(device)
    ours, theirs = (steps * run.train.batch / statistics.median(column) for column in zip(*seconds, strict=True))
    ratio = statistics.median(peer / own for own, peer in seconds)
    return {"samples/s": ours, "open_clip's": theirs, "ratio": ratio}


def release(device: torch.device) -> None:
    """Give back what the last measurement held of the device."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
