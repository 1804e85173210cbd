"""One rank of a small real training; started as a process of its own by the tests beside it.

Usage: worker.py RANK WORLD FOLDER SETTINGS, with SETTINGS as JSON (see DEFAULTS).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from bench.run import make_job
from bench.settings import Budget, DataSettings, EvaluateSettings, TowerSettings, TrainSettings
from bench.steps import plan
from bench.store import Store
from bench.suite import Run
from bench.train import train

DEFAULTS = {
    "method": "clip",
    "config": {},
    "image": "tiny-resnet",
    "samples": 240,
    "batch": 48,
    "micro_batch": None,
    "precision": "fp64",
    "noise": None,
    "rate": 0.0,
}


def make_run(settings: dict[str, object]) -> Run:
    """A run on the validation split's 32-px images: real, and small."""
    from bench import discovery

    s = {**DEFAULTS, **settings}
    return Run(
        label="test",
        method=s["method"],
        preset=None,
        config=discovery.resolve(s["method"], None, s["config"]),
        data=DataSettings(name="emoji", size=32),
        noise=s["noise"],
        rate=s["rate"],
        seed=3,
        budget=Budget(samples=s["samples"]),
        towers=TowerSettings(image=s["image"], dim=32, vocabulary=400),
        train=TrainSettings(
            batch=s["batch"], micro_batch=s["micro_batch"], bn_group=8, precision=s["precision"], threads=1
        ),
        evaluate=EvaluateSettings(),
    )


def main() -> None:
    rank, world, folder, settings = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), json.loads(sys.argv[4])
    torch.set_num_threads(1)
    if world > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[5], GLOO_SOCKET_IFNAME="lo")
        dist.init_process_group("gloo", rank=rank, world_size=world)
    store = Store(folder / f"rank{rank}")
    run = make_run(settings)
    planned = plan([run], store)[0]
    job = make_job(run, planned.resolved, store.run("only"), None, torch.device("cpu"))
    job.log_every = 1
    train(job)
    torch.save(
        {"towers": job.towers.state_dict(), "method": job.method.state_dict()},  # type: ignore[attr-defined]
        folder / f"state{rank}.pt",
    )
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
