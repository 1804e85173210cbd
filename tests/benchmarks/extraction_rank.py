"""One of two ranks that extract features, in turn the first one alone and both; a process of its own.

Usage: extraction_rank.py RANK WORLD FOLDER. Writes rankN.json: for each way and round seconds and CPU seconds.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
from torch.distributed import FileStore

from bench import data
from bench.evaluation.features import extract_images
from bench.suite.settings import TowerSettings
from bench.towers.build import build_towers
from bench.towers.tokenization import SmallVocabulary
from bench.training.distributed import current, join, leave
from methods.clip import Clip
from methods.protocol import Facts

ROUNDS = 5


def main() -> None:
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    join(rank, world, FileStore(str(folder / "meeting"), world), near=True)
    pairs, group = data.load("emoji/train", 32), current()
    torch.manual_seed(0)
    towers = build_towers(TowerSettings(), SmallVocabulary(["a red apple"], 64, 8), 32, 128)
    method = Clip(Clip.Config(), Facts(len(pairs), 128, 64, 0))
    measured: dict[str, list[tuple[float, float]]] = {"alone": [], "shared": []}
    for number in range(ROUNDS + 1):
        for way in measured:
            group.rows(0)  # both begin together
            began, used = time.perf_counter(), time.process_time()
            if way == "shared":
                extract_images(method, towers, pairs, ranks=group)
            elif rank == 0:
                extract_images(method, towers, pairs)
            spent = time.perf_counter() - began, time.process_time() - used
            if number:  # the first round warms up
                measured[way].append(spent)
    (folder / f"rank{rank}.json").write_text(json.dumps(measured))
    leave()


if __name__ == "__main__":
    main()
