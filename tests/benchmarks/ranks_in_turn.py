"""What a rank of a benchmark does: join the others, and time work that all do together, in several ways in turn."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch.distributed import FileStore

from bench.distributed import Group, current_group, join_group, leave_group

ROUNDS = 5
Work = Callable[[], object]


def in_turn(ways: Callable[[int, Group], Mapping[str, Callable[[], Work]]]) -> None:
    """Write rankN.json: for each way and round seconds and CPU seconds. Arguments: RANK WORLD FOLDER.

    ways: of (rank, group), name -> what prepares the work and returns it; only the work is timed.
    """
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    join_group(rank, world, FileStore(str(folder / "meeting"), world), near=True)
    torch.manual_seed(0)
    group = current_group()
    prepared = ways(rank, group)
    measured: dict[str, list[tuple[float, float]]] = {way: [] for way in prepared}
    for number in range(ROUNDS + 1):
        for way, prepare in prepared.items():
            work = prepare()
            group.rows(0)  # all begin together
            began, used = time.perf_counter(), time.process_time()
            work()
            spent = time.perf_counter() - began, time.process_time() - used
            if number:  # the first round warms up
                measured[way].append(spent)
    (folder / f"rank{rank}.json").write_text(json.dumps(measured))
    leave_group()
