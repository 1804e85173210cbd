"""How large tools/gpu_bench.py measures, and a run of that size."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from bench.adapters import hyperparameters
from bench.planning.planner import plan
from bench.store import Store, writing
from bench.suite.run import Run
from bench.suite.settings import Budget, DataSettings, EvaluateSettings, TowerSettings, TrainSettings
from bench.training.inputs import InputsReader
from bench.training.job import make_job
from bench.training.loop import Job


@dataclass(frozen=True)
class Scale:
    """How large everything is."""

    towers: dict[str, TowerSettings]
    size: int  #: pixels a side
    batches: tuple[int, ...]  #: the first one is that of the peer, of equality and of losses
    micro: int  #: of micro-batched steps
    large: int  #: a batch that is not tried whole
    precision: str
    steps: int  #: timed ones at the first batch; as many again are not
    turn: int  #: timed steps of our loop, and of the peer's, in a turn; as many again are not
    matmul: int  #: side of the matrices
    pictures: int  #: in the tars
    shards: int

    @property
    def batch(self) -> int:
        """The first batch."""
        return self.batches[0]

    def steps_of(self, batch: int) -> int:
        """Timed steps at a batch: fewer of larger ones, but two."""
        return max(2, self.steps * self.batch // batch)


LARGE = Scale(
    {
        "ViT-B/32": TowerSettings(image="ViT-B-32", text="ViT-B-32", dim=512),
        "RN50": TowerSettings(image="RN50", text="RN50", dim=1024),
    },
    size=224,
    batches=(1024, 4096),
    micro=256,
    large=16_384,
    precision="bf16",
    steps=10,
    turn=30,
    matmul=8192,
    pictures=8192,
    shards=32,
)
SMALL = Scale(
    {
        "tiny ResNet": TowerSettings(dim=32, vocabulary=512),
        "tiny ViT": TowerSettings(image="tiny-vit", dim=32, vocabulary=512),
    },
    size=32,
    batches=(64, 128),
    micro=16,
    large=256,
    precision="fp32",
    steps=2,
    turn=3,
    matmul=1024,
    pictures=256,
    shards=32,
)


def a_run(
    scale: Scale,
    towers: TowerSettings,
    steps: int,
    batch: int | None = None,
    data: DataSettings | None = None,
    **train_settings: Any,
) -> Run:
    """CLIP on synthetic pairs, or on others with open_clip's crops."""
    batch = batch or scale.batch
    made_up = DataSettings(name="synthetic", size=scale.size, shards=f"synthetic:{batch * 4}")
    recipe = {"batch": batch, "bn_group": scale.micro, "precision": scale.precision}
    recipe["augment"] = "openclip" if data else "none"
    return Run(
        label="clip",
        method="clip",
        preset=None,
        config=hyperparameters.resolve("clip", None, {}),
        data=data or made_up,
        noise=None,
        rate=0.0,
        noise_file=None,
        seed=0,
        budget=Budget(samples=batch * steps),
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
