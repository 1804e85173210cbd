"""Records name the data they were measured on; evaluation needs no more shared memory than there is."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from bench.data import evaluation
from bench.data.synthetic import SyntheticPairs
from bench.evaluation import EvaluationPlan, evaluate_features, pixels
from bench.evaluation.features import Features
from bench.loading import workers
from bench.store import Record, RunStore, RunWriter
from bench.suite.settings import DataSettings, EvaluateSettings
from bench.towers.build import OpenClipTowers
from methods.protocol import Method

Model = tuple[Method, OpenClipTowers]
Writer = Callable[[RunStore], RunWriter]
Folder = Callable[..., Path]


def samples(seed: int) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for number in range(15):
        file = io.BytesIO()
        drawn = np.random.default_rng((seed, number % 3)).integers(0, 255, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(drawn).save(file, "PNG")
        found.append({"png": file.getvalue(), "cls": number % 3})
    return found


def plan_of(settings: DataSettings, **datasets: tuple[str, ...]) -> EvaluationPlan:
    asked = {"tasks": tuple(datasets), "datasets": {name: sets for name, sets in datasets.items() if sets}}
    return EvaluationPlan(settings, EvaluateSettings.model_validate(asked))


def measured(model: Model, plan: EvaluationPlan, out: RunWriter) -> dict[str, Record]:
    evaluate_features(
        Features(*model, "c" * 64, plan.protocol.label, None, plan.channels),
        plan,
        at=1.0,
        run="run",
        manifest=None,
        done=out.has_records,
        publish=out.write_records,
    )
    return {record.task: record for record in out.records()}


def test_records_name_the_pairs_that_were_scored_and_learned_from(
    model: Model, evaluation_folder: Path, webdataset_folder: Folder, tmp_path: Path, writer: Writer
) -> None:
    plan = plan_of(DataSettings(name="cc3m"), zero_shot=("dtd",), linear_probe=("dtd",))
    found = []
    for number, (test, train) in enumerate([(0, 1), (0, 2), (3, 2)]):
        for split, seed in (("test", test), ("train", train)):
            home = evaluation_folder / "wds_dtd"
            webdataset_folder(home, samples(seed), split=split, classes=("cat", "tree", "ship"))
        evaluation._load.cache_clear()
        found.append(measured(model, plan, writer(RunStore(tmp_path / str(number)))))
    hashes = [evaluation.load_evaluation_set(name, 32).content_hash for name in ("dtd", "dtd/train")]
    assert found[2]["zero_shot/class"].data == hashes[0][:16]
    assert found[2]["linear_probe/class"].data == hashlib.sha256("".join(hashes).encode()).hexdigest()[:16]
    assert found[0]["zero_shot/class"].data == found[1]["zero_shot/class"].data != found[2]["zero_shot/class"].data
    assert len({one["linear_probe/class"].data for one in found}) == 3


def test_pairs_of_the_package_are_fixed_by_the_protocols_version(model: Model, tmp_path: Path, writer: Writer) -> None:
    found = measured(model, plan_of(DataSettings(), retrieval=()), writer(RunStore(tmp_path / "run")))
    assert {record.data for record in found.values()} == {""}


def test_synthetic_training_pairs_are_described_by_their_number() -> None:
    plan = plan_of(DataSettings(name="made-up", shards="synthetic:123"), noise_detection=())
    assert plan.datasets()[plan.training]["n"] == 123


@dataclass(frozen=True, eq=False)
class _Counted(SyntheticPairs):
    """Writes down how many rows are asked for at a time, from whatever process."""

    log: Path = field(default=Path())

    def images(self, rows: np.ndarray) -> np.ndarray:
        with self.log.open("a") as file:
            file.write(f"{len(rows)}\n")
        return super().images(rows)


def test_decoded_pixels_wait_only_as_far_as_shared_memory_reaches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pairs = _Counted("made-up", 600, 8, log=tmp_path / "log")
    monkeypatch.setattr(workers.shutil, "disk_usage", lambda _: SimpleNamespace(free=16 * 8 * 8 * 3))
    found = np.concatenate(list(pixels.batches(pairs, np.arange(600), 256)))
    most = max(map(int, (tmp_path / "log").read_text().split()))
    assert most <= 4  # 8 rows may wait, and a process has two pieces in hand
    np.testing.assert_array_equal(found, SyntheticPairs("made-up", 600, 8).images(np.arange(600)))
