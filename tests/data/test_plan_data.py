"""Plans and data: facts are those of the files, and a run trains on what its id was made from or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import data
from bench.console.progress import Progress
from bench.data import evaluation
from bench.data.shards.indexing import build_index
from bench.data.shards.sources import expand_sources
from bench.errors import UserError
from bench.launch.claimed import work_on_run
from bench.launch.ranks import ALONE, Ranks
from bench.planning import plan_file, planner
from bench.planning.planned import Planned
from bench.store import Store
from bench.suite.suite import load_suite

SUITE = """\
name: tiny
budget: {samples: 32}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16, threads: 1, augment: %s}
methods: [clip]
"""


def planned_of(folder: Path, store: Store, more: str, augment: str = "emoji") -> Planned:
    (folder / "tiny.yaml").write_text(SUITE % augment + more)
    (one,) = planner.plan(load_suite(folder / "tiny.yaml").runs(), store)
    return one


def outcomes(one: Planned, store: Store) -> list[tuple[str, str]]:
    """What becomes of a run's first rank and of another one."""
    return [work_on_run(one, store, Progress(), lambda: False, ranks=ranks) for ranks in (ALONE, Ranks(rank=1))]


def refused(one: Planned, store: Store) -> bool:
    said = "the training data changed since planning; start again"
    return all(state == "failed" and said in message for state, message in outcomes(one, store))


@pytest.mark.promise("data that changed since a run was planned is refused")
def test_a_run_refuses_other_shards_than_it_was_planned_for(
    tmp_path: Path, tars: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    store, home = Store(tmp_path / "out"), tars.write_set(tmp_path / "toy", shards=2, rows=20)
    build_index(expand_sources([str(home)]), home / "index.parquet", workers=1)
    one = planned_of(tmp_path, store, "data: {name: toy, size: 32, workers: 0}\n", "cyclip")
    tars.write(home / "00001.tar", [part for n in range(20) for part in tars.sample(f"00001{n:04d}", 100 + n)])
    build_index(expand_sources([str(home)]), home / "index.parquet", workers=1)
    assert refused(one, store)
    assert not store.run(one.id).path("checkpoint.pt").exists()


def test_a_run_refuses_another_noise_file_than_it_was_planned_for(tmp_path: Path) -> None:
    store, file, n = Store(tmp_path / "out"), tmp_path / "noise.npy", len(data.load_dataset("emoji/train", 32))
    swapped = np.arange(n)
    swapped[: n // 2] = np.roll(swapped[: n // 2], 1)
    np.save(file, swapped)
    one = planned_of(tmp_path, store, f"noise: {{kind: imported, rates: [0.5], files: [{file}]}}\n")
    swapped[: n // 2] = np.roll(swapped[: n // 2], 1)
    np.save(file, swapped)
    assert refused(one, store)
    assert not store.run(one.id).path("noise.parquet").exists()


def test_facts_of_evaluation_data_are_those_of_the_files(
    tmp_path: Path, evaluation_folder: Path, webdataset_folder: Callable[..., Path]
) -> None:
    suite = tmp_path / "tiny.yaml"
    suite.write_text(SUITE % "emoji" + "evaluate: {tasks: [zero_shot], datasets: {zero_shot: [pets]}}\n")
    store, home = Store(tmp_path / "out"), evaluation_folder / "wds_pets"

    def facts() -> dict[str, Any]:
        plan_file.write_plan(load_suite(suite), {}, planner.Planner(store))
        found: dict[str, Any] = (store.plan("tiny") or {})["datasets"]["pets"]
        return found

    assert facts()["n"] == 3669  # as published
    webdataset_folder(home, [{"png": b"not looked at", "cls": n % 2} for n in range(8)], classes=("cat", "tree"))
    assert facts()["n"] == 8
    assert facts()["chance"]["zero_shot/class/top1"] == 0.5
    tar = home / "test" / "0.tar"
    tar.write_bytes(tar.read_bytes()[:700])
    evaluation._load.cache_clear()
    with pytest.raises(UserError, match=r"0\.tar: cannot be read"):
        facts()
