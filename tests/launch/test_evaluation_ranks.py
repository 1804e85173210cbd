"""Evaluation on several real ranks: every one encodes its share, and the records are those of one rank."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.evaluation.features import IMAGE_BATCH
from bench.planning.planned import Planned
from bench.planning.planner import plan
from bench.store import RunStore, Store
from bench.suite.suite import load_suite

RANK, COUNTED = (Path(__file__).with_name(name) for name in ("evaluation_rank.py", "counted.py"))
SUITE = """
name: shared
budget: {samples: 96}
noise: {kind: poison, rates: [0.3], options: {target: cat face}}
towers: {dim: 8, vocabulary: 300, context: 12}
train: {batch: 96, bn_group: 16, threads: 1}
evaluate: {tasks: [%s]}
methods: [%s]
"""
WORLDS = (1, 2, 3)


def written(folder: Path, tasks: str, methods: str) -> Path:
    path = folder / "shared.yaml"
    path.write_text(SUITE % (tasks, methods))
    return path


@pytest.fixture
def planned(tmp_path: Path, own_plugins: Callable[[Path], str]) -> Planned:
    """An untrained row with poison, so that its weights do not depend on the number of ranks."""
    own_plugins(COUNTED)
    tasks = "zero_shot, retrieval, linear_probe, noise_detection, attack_success"
    suite = load_suite(written(tmp_path, tasks, "{method: counted, untrained: true}, clip"))
    (one,) = plan([next(run for run in suite.cells() if run.method == "counted")], Store(tmp_path))
    return one


def evaluations(run: RunStore) -> dict[str, bytes]:
    """All files of a run's records and outcomes."""
    folder = run.path("evaluations")
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def counts(folder: Path) -> tuple[Counter[tuple[str, int]], dict[int, Counter[str]]]:
    """How often a batch of each size was encoded, on any rank; and by rank, how many images and texts."""
    batches: Counter[tuple[str, int]] = Counter()
    by_rank: dict[int, Counter[str]] = {}
    for line in (folder / "counts").read_text().splitlines():
        kind, rank, number = line.split()
        batches[kind, int(number)] += 1
        by_rank.setdefault(int(rank), Counter())[kind] += int(number)
    return batches, by_rank


def test_records_are_the_same_bytes_and_every_rank_encodes_its_share(
    planned: Planned, tmp_path: Path, start_script: Callable[..., Any]
) -> None:
    started = {}
    for world in WORLDS:
        folder = tmp_path / f"world{world}"
        folder.mkdir()
        (folder / "planned.pickle").write_bytes(pickle.dumps([planned]))
        waits = {"FIRST": "waits"} if world == 3 else {}
        started[folder] = [start_script(RANK, rank, world, folder, env=waits) for rank in range(world)]
    found = {}
    for folder, processes in started.items():
        for process in processes:
            code, said = process.finish()
            assert code == 0, said
        run = Store(folder).run(planned.id)
        assert run.status()["state"] == "done"
        found[len(processes)] = evaluations(run), *counts(folder)
    records, batches, alone = found[1]
    assert len(records) >= 2 * 5
    assert alone[0]["images"] > 20 * IMAGE_BATCH
    for world in WORLDS[1:]:
        same, other_batches, by_rank = found[world]
        assert same == records
        assert other_batches == batches, "the same batches, whoever encodes them"
        for kind in ("images", "texts"):
            shares = [by_rank[rank][kind] for rank in range(world)]
            assert sum(shares) == alone[0][kind]
            assert min(shares) > 0.6 * sum(shares) / world, (kind, shares)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raise", "rank 1: ValueError: the second rank has seen enough"),
        ("die", "of its 2 processes rank 1 ended with exit code -9"),
    ],
)
def test_a_rank_that_fails_in_evaluation_fails_its_run_alone(
    start_bench: Callable[..., Any], tmp_path: Path, unreported: Callable[[Path, str], Path], how: str, said: str
) -> None:
    suite, results = written(tmp_path, "zero_shot", "counted, clip"), unreported(tmp_path / "out", "shared")
    more = ("--results", results, "--plugin", COUNTED, "--processes", 2)
    environment = {"COUNTS": str(tmp_path / "counts")}
    code, output = start_bench("run", suite, *more, env={**environment, "FAILS": how}).finish()
    assert code == 1, output
    assert said in output
    found = {run.settings()["method"]: run for run in Store(results).runs()}
    assert {name: run.status()["state"] for name, run in found.items()} == {"counted": "failed", "clip": "done"}
    code, output = start_bench("run", suite, *more, env=environment).finish()
    assert code == 0, output
    assert {int(line.split()[1]) for line in (tmp_path / "counts").read_text().splitlines()} == {0, 1}
