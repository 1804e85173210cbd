"""One rank of several small real trainings; started as a process of its own by the tests beside it.

Usage: worker.py RANK WORLD FOLDER PORT CASES, with CASES as JSON: name -> changes to DEFAULTS.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from bench.adapters import hyperparameters
from bench.planning.planner import plan
from bench.store import Store, writing
from bench.suite.run import Run
from bench.suite.settings import Budget, DataSettings, EvaluateSettings, TowerSettings, TrainSettings
from bench.training.inputs import InputsReader
from bench.training.job import make_job
from bench.training.loop import train
from bench.training.schedule import ResolvedSteps

DEFAULTS = {
    "method": "clip",
    "config": {},
    "image": "tiny-resnet",
    "samples": 240,
    "batch": 48,
    "micro_batch": None,
    "precision": "fp64",
    "noise": None,
    "stored": False,
    "rate": 0.0,
    "recompute": False,
}
PIXELS = {"vocabulary": 300, "context": 12}
STORED = {"image": "features", "text": "features", "head": {"kind": "mlp", "hidden": 16}}
MADE_UP = {"name": "made", "features": "nowhere", "shards": "synthetic:192", "widths": (12, 16)}


def make_run(settings: dict[str, object]) -> Run:
    """A run on the embedded pack, with towers of width 32.

    AdamW with an epsilon far above every gradient is SGD with momentum; by itself it would blow the last bits of
    gradients that are zero in exact arithmetic (an attention's key bias) up to whole steps.
    """
    s = {**DEFAULTS, **settings}
    return Run(
        label="test",
        method=s["method"],
        preset=None,
        config=hyperparameters.resolve_config(s["method"], None, s["config"]),
        data=DataSettings.model_validate(MADE_UP if s["stored"] else {"name": "emoji", "size": 32}),
        noise=s["noise"],
        rate=s["rate"],
        noise_file=None,
        seed=3,
        budget=Budget(samples=s["samples"]),
        towers=TowerSettings.model_validate({"image": s["image"], "dim": 32, **(STORED if s["stored"] else PIXELS)}),
        train=TrainSettings(
            batch=s["batch"],
            micro_batch=s["micro_batch"],
            bn_group=8,
            precision=s["precision"],
            threads=1,
            lr=10.0,
            eps=1e3,
            weight_decay=0.0,
            recompute=s["recompute"],
        ),
        evaluate=EvaluateSettings(),
    )


def resolved(run: Run, store: Store, note: Path) -> ResolvedSteps:
    """The run's steps and their costs. The first layout counts them, which takes longer than a step."""
    if not note.exists():
        note.write_bytes(pickle.dumps(plan([run], store)[0].resolved))
    steps: ResolvedSteps = pickle.loads(note.read_bytes())
    return steps


def main() -> None:
    rank, world, folder, port, cases = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], sys.argv[5]
    torch.set_num_threads(1)
    if world > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo")
        dist.init_process_group("gloo", rank=rank, world_size=world)
    store = Store(folder / f"rank{rank}")
    for name, settings in json.loads(cases).items():
        run = make_run(settings)
        steps = resolved(run, store, folder.parent / f"{name}.pickle")
        with writing(store.run(name)) as out:
            job = make_job(run, InputsReader().inputs(run), steps, out, None, torch.device("cpu"))
            job.log_every = 1
            train(job)
        torch.save(
            {"towers": job.towers.state_dict(), "method": job.method.state_dict()},  # type: ignore[attr-defined]
            folder / f"{name}-{rank}.pt",
        )
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
