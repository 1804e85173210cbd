"""One rank that makes planned runs with others, as `bench run` has it do; a process of its own.

Usage: evaluation_rank.py RANK WORLD FOLDER. FOLDER holds a list of runs, planned.pickle, and gets results and counts.
"""

from __future__ import annotations

import os
import pickle
import sys
from contextlib import nullcontext
from pathlib import Path

from torch.distributed import FileStore

from bench.adapters import registry
from bench.console.progress import Progress
from bench.distributed import join_group, leave_group
from bench.launch.execute import execute_run
from bench.store import Store, writing


def main() -> None:
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    os.environ["COUNTS"] = str(folder / "counts")
    registry.add_plugin(Path(__file__).with_name("counted.py"))
    store = Store(folder)
    if world > 1:
        join_group(rank, world, FileStore(str(folder / "meeting"), world), near=True)
    for one in pickle.loads((folder / "planned.pickle").read_bytes()):
        with nullcontext(None) if rank else writing(store.run(one.id)) as out:
            execute_run(one, store, out, Progress(), lambda: False)
    leave_group()


if __name__ == "__main__":
    main()
