"""Pairs that several real ranks score: the kept rows and the records are those of one rank, and a rank can fail."""

from __future__ import annotations

import pickle
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bench
from bench.planning.planner import plan
from bench.store import RunStore, Store
from bench.store.writer import KEPT_FILE
from bench.suite.suite import Suite, load_suite

RANK, COUNTED = (Path(__file__).with_name(name) for name in ("evaluation_rank.py", "counted.py"))
PAIRS = 3965  #: of the emoji
SUITE = """\
name: shared
noise: {rates: [0.4]}
budget: {samples: 96}
budget_rule: additional
baseline: counted
towers: {dim: 8, vocabulary: 300, context: 12}
train: {batch: 96, bn_group: 16, threads: 1}
evaluate: {tasks: [%s]}
methods:
"""
WORLDS = (1, 3)


def suite_in(folder: Path, *rows: str, measured: str = "hierarchy", size: int = 32) -> Suite:
    file = folder / "shared.yaml"
    file.write_text(SUITE % measured + "".join(f"- {row}\n" for row in rows))
    return load_suite(file, (f"data.size={size}",))


@pytest.fixture
def scorers(tmp_path: Path, own_plugins: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch) -> dict[str, RunStore]:
    """Runs by method: an untrained one that counts what it encodes, of larger images, and one with variances."""
    own_plugins(COUNTED)
    monkeypatch.setenv("COUNTS", str(tmp_path / "ignored"))
    for label, size in (("counted", 64), ("prolip", 32)):
        suite = suite_in(tmp_path, "{method: counted, untrained: true}", "prolip", size=size)
        assert not bench.run_suite(suite, tmp_path / "scorers", only=[label]).failed
    return {run.settings()["method"]: run for run in Store(tmp_path / "scorers").runs()}


def images_by_rank(folder: Path) -> Counter[int]:
    """How many images each rank encoded with a model that counts them."""
    found: Counter[int] = Counter()
    for line in (folder / "counts").read_text().splitlines():
        kind, rank, number = line.split()
        found[int(rank)] += int(number) if kind == "images" else 0
    return found


def kept(run: RunStore) -> tuple[pa.Table, str]:
    """The record of the rows that a scorer chose, and who that was."""
    table = pq.read_table(run.path(KEPT_FILE))
    return table.replace_schema_metadata(), run.ledger()["scoring"].get("scorer", "")


def results_of(run: RunStore) -> dict[str, bytes]:
    """All files of a run's records, outcomes and weights."""
    files = [*run.path("evaluations").rglob("*"), *run.folder.glob("weights-*")]
    return {str(path.relative_to(run.folder)): path.read_bytes() for path in files if path.is_file()}


def test_ranks_keep_the_same_rows_and_share_the_scoring(
    scorers: dict[str, RunStore], tmp_path: Path, start_script: Callable[..., Any]
) -> None:
    """By a reference run, by weights that see larger images, and by distance. No step is made, so bytes are equal."""
    weights = {name: run.path("weights-100.safetensors") for name, run in scorers.items()}
    common = "method: clip, untrained: true"
    suite = suite_in(
        tmp_path,
        "{method: counted, untrained: true}",
        f"{{{common}, label: reference, keep: {{kind: score, share: 0.6}}}}",
        f"{{{common}, label: outside, keep: {{kind: score, share: 0.6, weights: '{weights['counted']}'}}}}",
        f"{{{common}, label: nearest, keep: {{kind: distance, share: 0.6, weights: '{weights['prolip']}'}}}}",
        measured="noise_detection",
    )
    baseline, *planned = plan(suite.runs(), Store(tmp_path / "plan"))
    assert not bench.run_suite(suite, tmp_path / "baseline", only=["counted"]).failed
    started = {}
    for world in WORLDS:
        folder = tmp_path / f"world{world}"
        shutil.copytree(tmp_path / "baseline" / "runs" / baseline.id, folder / "runs" / baseline.id)
        (folder / "planned.pickle").write_bytes(pickle.dumps(planned))
        started[folder] = [start_script(RANK, rank, world, folder) for rank in range(world)]
    alone: list[Any] = []
    for folder, processes in started.items():
        for process in processes:
            code, said = process.finish()
            assert code == 0, said
        runs = [Store(folder).run(one.id) for one in planned]
        found = [(kept(run), results_of(run)) for run in runs]
        alone = alone or found
        assert found == alone
        for one, run in zip(planned, runs, strict=True):
            ledger = run.ledger()["scoring"]
            assert ledger["image_forwards"] == ledger["text_forwards"] == PAIRS
            assert ledger["flops"] == one.resolved.scoring_flops
        images, world = images_by_rank(folder), len(processes)
        assert sum(images.values()) == 2 * PAIRS, "of the reference run and of the same model as a file"
        assert min(images[rank] for rank in range(world)) > 0.6 * 2 * PAIRS / world
    assert len({tuple(table["row"].to_pylist()) for (table, _), _ in alone}) == 3, "three scorers, three choices"


def test_a_rank_that_fails_while_it_scores_fails_its_run_alone_and_the_run_goes_on(
    start_bench: Callable[..., Any],
    tmp_path: Path,
    own_plugins: Callable[[Path], str],
    unreported: Callable[[Path, str], Path],
) -> None:
    own_plugins(COUNTED)
    suite_in(
        tmp_path,
        "{method: counted, untrained: true}",
        "{method: clip, label: filtered, keep: {kind: score, share: 0.6}}",
        "clip",
    )
    results, environment = unreported(tmp_path / "out", "shared"), {"COUNTS": str(tmp_path / "counts")}
    command = ("run", tmp_path / "shared.yaml", "--results", results, "--plugin", COUNTED, "--processes", 2)

    def run_it(expected: int, *more: str, **variables: str) -> str:
        code, output = start_bench(*command, *more, env={**environment, **variables}).finish()
        assert code == expected, output
        return str(output)

    def runs() -> dict[str, RunStore]:
        return {run.settings().get("label", run.settings()["method"]): run for run in Store(results).runs()}

    run_it(0, "--only", "counted")
    for how, said in (
        ("raise", "rank 1: ValueError: the second rank has seen enough"),
        ("die", "of its 2 processes rank 1 ended with exit code -9"),
    ):
        assert said in run_it(1, FAILS=how)
        assert {name: run.status()["state"] for name, run in runs().items()} == {
            "counted": "done",
            "filtered": "failed",
            "clip": "done",
        }
        assert not runs()["filtered"].path(KEPT_FILE).exists()
    (tmp_path / "counts").unlink()
    run_it(0)
    run = runs()["filtered"]
    assert run.status()["state"] == "done"
    assert set(images_by_rank(tmp_path)) == {0, 1}
    assert run.ledger()["scoring"]["train_seconds"] > 0
    together, _ = kept(run)
    alone = tmp_path / "alone"
    shutil.copytree(results / "runs" / runs()["counted"].id, alone / "runs" / runs()["counted"].id)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COUNTS", environment["COUNTS"])
        assert not bench.run_suite(load_suite(tmp_path / "shared.yaml"), alone, only=["filtered"]).failed
    assert kept(Store(alone).run(run.id))[0] == together
