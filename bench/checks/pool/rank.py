"""The ranks of `bench check`: processes that start once, and train the same thing in four layouts for every method.

Usage: python -m bench.checks.pool.rank FOLDER. Rank 0 reads a task a line from stdin,
{"id": ..., "trainings": {...}}, and prints "done <id>" on stdout when FOLDER/<id>-<layout>-<rank>.pt are written. The
end of stdin ends all ranks.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_pre_hook

from bench.checks import lab
from bench.checks.pool.packing import Packed, pack
from bench.checks.trainings import Training, make
from bench.store import RunStore, RunWriter
from bench.training.distributed import Group
from bench.training.loop import Job, train
from bench.training.optimizer import named_parameters

WORLD = 3
#: name -> (first rank, number of ranks, micro-batch); rank 2 works alone while ranks 0 and 1 work together
LAYOUTS: dict[str, tuple[int, int, int | None]] = {
    "three ranks in micro-batches": (0, 3, 8),
    "two ranks": (0, 2, None),
    "one process": (2, 1, None),
    "one process in micro-batches": (2, 1, 16),
}


class MetricsOnly(RunWriter):
    """Writes the lines of every step. Weights and checkpoints, which nobody reads here, are not written."""

    def write_path(self, name: str, writer: Callable[[Path], object]) -> None:
        """Write nothing."""


@contextmanager
def recorded_gradients(job: Job) -> Iterator[list[Packed]]:
    """Record every parameter's gradient at each optimiser step that is taken while the context is open."""
    by_step: list[Packed] = []

    def keep(*_: Any) -> None:
        gradients = ((name, p.grad) for name, p in named_parameters(job.method, job.towers))
        by_step.append(pack({name: grad for name, grad in gradients if grad is not None}))

    handle = register_optimizer_step_pre_hook(keep)
    try:
        yield by_step
    finally:
        handle.remove()


def trained(training: Training, out: RunStore, group: Group) -> dict[str, Any]:
    """Losses and gradients of every step, and the state at the end."""
    with out.claim() as claim:
        job = make(training, MetricsOnly(claim), group)
        with recorded_gradients(job) as gradients:
            train(job)
    method: Any = job.method
    return {
        "losses": [line["terms"] for line in out.metrics()],
        "gradients": gradients,
        "towers": pack(job.towers.state_dict()),
        "method": pack(method.state_dict()),
    }


def work(folder: Path, task: dict[str, Any], rank: int, two: dist.ProcessGroup | None) -> None:
    """Do this rank's part of all layouts of a task."""
    for layout, (first, world, micro) in LAYOUTS.items():
        if not first <= rank < first + world:
            continue
        group = Group(rank - first, world, two if world == 2 else None)
        results = {}
        for name, settings in task["trainings"].items():
            training = replace(Training(**settings), micro=micro)
            results[name] = trained(training, RunStore(folder / f"{task['id']}-{layout}-{rank}-{name}"), group)
        torch.save(results, folder / f"{task['id']}-{layout}-{rank}.pt")


def main() -> None:
    lab.TinyTowers("timm")  # imports all modules that towers need
    folder, rank = Path(sys.argv[1]), 0
    for number in range(1, WORLD):  # after the imports, which are then done once, and before any thread starts
        if os.fork() == 0:
            rank = number
            break
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    rendezvous = f"file://{(folder / 'rendezvous').resolve()}"
    idle = timedelta(hours=12)
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=WORLD, timeout=idle)
    two = dist.new_group([0, 1], timeout=idle)
    try:
        while True:
            given = [sys.stdin.readline() if rank == 0 else None]
            dist.broadcast_object_list(given)
            if not given[0]:
                break
            task = json.loads(given[0])
            work(folder, task, rank, two)
            dist.barrier()
            if rank == 0:
                print("done", task["id"], flush=True)
    except Exception:  # the other ranks fail and end when this process ends
        (folder / f"error-{rank}.txt").write_text(traceback.format_exc())
        os._exit(1)
    dist.destroy_process_group()
    for _ in range(WORLD - 1 if rank == 0 else 0):
        os.wait()


if __name__ == "__main__":
    main()
