"""How long a step is held up by a checkpoint of a ViT-B/32 with AdamW: written at once, and by a thread from a copy.

The peer is what training did before: `torch.save`, fsync and rename in the training thread, through the same fence.
Both write the same state, in turn.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

import torch
from pytest_benchmark.fixture import BenchmarkFixture

from bench.store import RunWriter, Store, writing
from bench.suite.settings import TowerSettings, TrainSettings
from bench.towers.build import OpenClipTowers, build_towers, tokenizer_of
from bench.training.checkpoint import CHECKPOINT_FILE, CheckpointWriter
from bench.training.ledger import Ledger
from bench.training.optimizer import make_optimiser, set_trainable
from methods.clip import Clip
from methods.protocol import Facts, Phase

ROUNDS, LIMIT = 4, 0.5  #: the first round, which gets fresh memory, is left out


def model() -> tuple[OpenClipTowers, Clip, torch.optim.Optimizer]:
    """A ViT-B/32 after a step of AdamW; its numbers are drawn, because only their size counts."""
    spec = TowerSettings(image="ViT-B-32", text="ViT-B-32", dim=512)
    with torch.device("meta"):
        towers = build_towers(spec, tokenizer_of(spec, lambda *_: None), 224, 128)
    towers.to_empty(device="cpu")
    method = Clip(Clip.Config(), Facts(rows=1024, batch=1024, dim=512, seed=0))
    set_trainable(method, towers, Phase())
    optimiser = make_optimiser(method, towers, Phase(), TrainSettings())
    with torch.no_grad():
        for parameter in (*towers.parameters(), *method.parameters()):
            parameter.uniform_(-1, 1)
            parameter.grad = parameter.clone()
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return towers, method, optimiser


def clocks() -> tuple[float, float]:
    """Seconds, and CPU seconds of this thread."""
    return time.perf_counter(), time.thread_time()


def since(began: tuple[float, float]) -> tuple[float, float]:
    """What went by on both clocks."""
    return time.perf_counter() - began[0], time.thread_time() - began[1]


def at_once(out: RunWriter, towers: OpenClipTowers, method: Clip, optimiser: torch.optim.Optimizer) -> None:
    """The writer before: everything in the calling thread."""
    parts = {"towers": towers.state_dict(), "method": method.state_dict(), "optimiser": optimiser.state_dict()}
    out.write_path(CHECKPOINT_FILE, lambda path: torch.save({"step": 1, **parts}, path))


def test_a_copy_holds_a_step_up_for_less_than_the_write(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    towers, method, optimiser = model()
    held: dict[str, list[tuple[float, float]]] = {"at once": [], "by a thread": []}

    def in_turn() -> None:
        with writing(Store(tmp_path).run("a")) as out, CheckpointWriter(out, 9) as checkpoints:
            for _ in range(ROUNDS):
                began = clocks()
                at_once(out, towers, method, optimiser)
                held["at once"].append(since(began))
                began = clocks()
                checkpoints.save(1, method, towers, optimiser, Ledger())
                held["by a thread"].append(since(began))
                checkpoints.wait()

    benchmark.pedantic(in_turn, rounds=1)
    size = os.path.getsize(next(tmp_path.rglob(CHECKPOINT_FILE)))
    medians = {name: [statistics.median(one[k] for one in each[1:]) for k in (0, 1)] for name, each in held.items()}
    ratios = [new / old for new, old in zip(medians["by a thread"], medians["at once"], strict=True)]
    benchmark.extra_info.update(peer="written at once", ratio=f"{ratios[0]:.2f} times its seconds")
    print(f"\n{size / 1e9:.2f} GB: seconds and CPU seconds {medians}, ratios {ratios}; all {held}")
    assert size > 1.5e9
    assert max(ratios) < LIMIT
