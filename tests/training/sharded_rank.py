"""One of three ranks that train in groups of one, two and three, with an optimiser that is sharded or not.

Usage: sharded_rank.py RANK FOLDER CASES, with CASES as JSON: a list of [NAME, WORLD, SHARD, STEPS, FROM]. Each trains
the run in FOLDER/NAME: STEPS after which it is asked to stop, or null; FROM, whose run it resumes, or null. Ranks
beyond WORLD take no part. Writes FOLDER/NAME-RANK.pt.
"""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import nullcontext, suppress
from itertools import count
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import FileStore
from torch.optim.optimizer import register_optimizer_step_post_hook
from worker import make_run, resolved

from bench.planning.memory import step_memory
from bench.store import Store, writing
from bench.training.distributed import Group, join, leave
from bench.training.inputs import InputsReader
from bench.training.job import make_job
from bench.training.loop import Interrupted, train
from bench.training.step import buckets

RANKS = 3
used: dict[str, Any] = {}  #: the last optimiser that made a step


def trained(folder: Path, name: str, group: Group, shard: bool, steps: int | None) -> dict[str, Any]:
    """Train a case as one rank of a group; return its state, and the bytes of moments held and counted."""
    run, store = make_run({"method": "ncu", "shard": shard}), Store(folder / name)
    out, inputs = store.run("run"), InputsReader().inputs(run)
    with writing(out) if group.rank == 0 else nullcontext(out) as mine:
        job = make_job(run, inputs, resolved(run, store, folder / "steps.pickle"), mine, None, torch.device("cpu"))
        job.log_every, job.group, asked = 1, group, count(1)
        job.should_stop = lambda: next(asked) == steps
        with suppress(Interrupted):
            train(job)
    moments = [x for state in used["last"].state.values() for key, x in state.items() if key != "step"]
    found = {"moments": sum(x.nbytes for x in moments), "optimiser": type(used["last"]).__name__}
    found["counted"] = step_memory(run, inputs, group.world)[-1].moments if shard and group.rank == 0 else 0
    return {**found, "towers": job.towers.state_dict(), "method": job.method.state_dict()}  # type: ignore[attr-defined]


def main() -> None:
    rank, folder, cases = int(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
    torch.set_num_threads(1)
    buckets.BUCKET = 2**16  # else these towers have one
    join(rank, RANKS, FileStore(str(folder / "meeting"), RANKS), near=True)
    register_optimizer_step_post_hook(lambda optimiser, *_: used.update(last=optimiser))
    groups: dict[int, Any] = {world: dist.new_group([*range(world)]) for world in range(1, RANKS + 1)}
    for name, world, shard, steps, source in cases:
        if rank == 0 and source:
            shutil.copytree(folder / source, folder / name)
        dist.barrier()
        if rank < world:
            group = Group(rank, world, groups[world])
            torch.save(trained(folder, name, group, shard, steps), folder / f"{name}-{rank}.pt")
    leave()


if __name__ == "__main__":
    main()
