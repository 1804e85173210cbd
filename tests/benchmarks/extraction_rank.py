"""One of two ranks that extract features, in turn the first one alone and both; a process of its own."""

from __future__ import annotations

from collections.abc import Callable

from ranks_in_turn import Work, in_turn

from bench import data
from bench.distributed import Group
from bench.evaluation.features import extract_images
from bench.suite.settings import TowerSettings
from bench.towers.build import build_towers
from bench.towers.tokenization import SmallVocabulary
from methods.clip import Clip
from methods.protocol import Facts


def ways(rank: int, group: Group) -> dict[str, Callable[[], Work]]:
    pairs = data.load_dataset("emoji/train", 32)
    towers = build_towers(TowerSettings(), SmallVocabulary(["a red apple"], 64, 8), 32, 128)
    method = Clip(Clip.Config(), Facts(len(pairs), 128, 64, 0))

    def alone() -> object:
        return None if rank else extract_images(method, towers, pairs)

    def shared() -> object:
        return extract_images(method, towers, pairs, group=group)

    return {"alone": lambda: alone, "shared": lambda: shared}


if __name__ == "__main__":
    in_turn(ways)
