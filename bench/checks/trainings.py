"""Small real trainings: the loop, loader and checkpoints of `bench run`, on drawn pairs and tiny towers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from bench.adapters import hyperparameters, registry
from bench.checks import lab
from bench.data.noise.manifest import NoiseManifest
from bench.data.order import steps_per_epoch
from bench.data.pairs import MemoryPairs
from bench.distributed import Group
from bench.loading.loader import Loader
from bench.store import RunStore, writing
from bench.suite.settings import TrainSettings
from bench.training import side_towers
from bench.training.loop import TrainingJob, train
from bench.training.schedule import ResolvedSteps
from methods.protocol import Facts

CPU = torch.device("cpu")
WORDS = ("red", "green", "blue", "dark", "round", "square", "striped", "dotted", "small", "tall", "cat", "car")
OPTIMISER_SETTINGS = {
    #: AdamW with an epsilon far above every gradient is SGD with momentum; by itself it would blow the last bits of
    #: gradients that are zero in exact arithmetic (an attention's key bias) up to whole steps.
    "sgd": {"lr": 10.0, "eps": 1e3},
    "adamw": {"lr": 1e-3},
}


def pack_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Return a copy of the tensors as one message to another process, equal for equal bits; `load` unpacks it."""
    return save({name: x.detach().contiguous() for name, x in tensors.items()})


@dataclass(frozen=True)
class Training:
    """The settings of a training, as plain values, so that they can be sent to another process."""

    method: str
    config: Mapping[str, Any] = field(default_factory=dict)
    plugin: str | None = None
    towers: str = "resnet"
    patch: int = 16  #: pixels of a side of a vision transformer's patch; an image has 32
    precision: str = "fp64"
    steps: int = 5  #: shared evenly among the phases
    rows: int = 150
    micro: int | None = None
    optimiser: str = "sgd"
    batch: int = 48


@lru_cache(maxsize=8)
def learnable_pairs(rows: int) -> MemoryPairs:
    """Pairs that can be learned: every caption is three words, every image the sum of its words' patterns."""
    draws = np.random.default_rng(0)
    patterns = draws.integers(0, 80, (len(WORDS), 4, 4, 3)).repeat(8, axis=1).repeat(8, axis=2)
    chosen = np.array([draws.permutation(len(WORDS))[:3] for _ in range(rows)])
    images: Any = (patterns[chosen].sum(1) + draws.integers(0, 16, (rows, 32, 32, 3))).astype(np.uint8)
    texts = [[" ".join(WORDS[i] for i in words)] for words in chosen.tolist()]
    keys = [f"{row:04d}" for row in range(rows)]
    return MemoryPairs.build("check/train", "drawn for bench check", keys, texts, {}, {}, images)


def make_training(
    training: Training,
    out: RunStore,
    group: Group = Group(),  # noqa: B008  frozen
    data: MemoryPairs | None = None,
    noise: NoiseManifest | None = None,
    device: torch.device = CPU,
) -> TrainingJob:
    """A training that is ready to start or to resume, its weights drawn from fixed seeds on the CPU."""
    if training.plugin is not None:
        registry.add_plugin(training.plugin)
    data = data or learnable_pairs(training.rows)
    dtype = {"fp64": torch.float64}.get(training.precision, torch.float32)
    towers = lab.TinyTowers(training.towers, patch=training.patch)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        facts = Facts(len(data), training.batch, towers.dim, seed=3)
        method: Any = hyperparameters.make_method(training.method, None, training.config, facts)
        side_towers.hold_reference(method, towers, None)
        method.prepare(towers)
        side_towers.hold_average(method, towers)
    towers.to(device, dtype), method.to(device, dtype)
    how: dict[str, Any] = {"batch": training.batch, "dtype": dtype, "device": device}
    loader = Loader(data, noise, towers, seed=3, recipe="none", **how)
    names = [phase.name for phase in method.phases()]
    counts = [training.steps // len(names) + (number < training.steps % len(names)) for number in range(len(names))]
    resolved = ResolvedSteps(
        tuple(zip(names, counts, strict=True)),
        dict.fromkeys(names, 0),
        training.batch,
        steps_per_epoch(len(data), training.batch),
    )
    settings = TrainSettings.model_validate(
        {
            **OPTIMISER_SETTINGS[training.optimiser],
            "batch": training.batch,
            "micro_batch": training.micro,
            "bn_group": 8,
            "precision": training.precision,
            "weight_decay": 0.0,
            "checkpoint_seconds": 1e9,
            "augment": "none",
        }
    )
    return TrainingJob(method, towers, loader, settings, resolved, 3, out, group, device, log_every=1)


def train_alone(
    training: Training, run: RunStore, data: MemoryPairs | None = None, noise: NoiseManifest | None = None
) -> None:
    """Make a training on the CPU, or resume it, under the claim of its store."""
    with writing(run) as out:
        train(make_training(training, out, data=data, noise=noise))
