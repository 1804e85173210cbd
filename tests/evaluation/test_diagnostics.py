"""What a method learned is stored beside its run: whole, the same bytes after a stop, and no record changes by it."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from bench import data
from bench.console.progress import Progress
from bench.evaluation.diagnostics import pair_similarities
from bench.launch.execute import execute_run
from bench.planning.planned import Planned
from bench.planning.planner import plan
from bench.store import RunStore, RunWriter, Store, writing
from bench.store.histograms import BINS, STORED_DIGITS, histogram, store_diagnostics
from bench.suite.settings import Budget, EvaluateSettings, TowerSettings, TrainSettings
from bench.training.loop import Interrupted
from methods.protocol import Diagnostic

from ..towers.small import a_run


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_a_histogram_counts_every_number_or_says_that_it_dropped_it() -> None:
    series = {"a": numbers(0.0, 1.0, 1.0, math.nan, math.inf), "b": numbers(4.0, -math.inf), "none": numbers()}
    found = histogram(Diagnostic("x", "title", "axis", series))
    assert (found["edges"][0], found["edges"][-1], len(found["edges"])) == (0.0, 4.0, BINS + 1)
    assert np.diff(found["edges"]) == pytest.approx(np.full(BINS, 0.1))
    a, b, none = (found["series"][name] for name in ("a", "b", "none"))
    assert (a["n"], a["dropped"], a["mean"]) == (3, 2, pytest.approx(2 / 3))
    assert (a["counts"][0], a["counts"][10], sum(a["counts"])) == (1, 2, 3)
    assert (a["quantiles"]["0.5"], b["quantiles"]["0.5"]) == (1.0, 4.0)
    assert (b["n"], b["dropped"], b["counts"][-1]) == (1, 1, 1)
    assert (none["n"], none["mean"], none["quantiles"]) == (0, None, {})


def test_a_logarithmic_histogram_drops_what_has_no_logarithm() -> None:
    found = histogram(Diagnostic("x", "", "", {"a": numbers(1e-3, 1e5, 0.0, -1.0)}, log=True))
    assert np.diff(np.log10(found["edges"])) == pytest.approx(np.full(BINS, 8 / BINS), rel=10.0 ** (1 - STORED_DIGITS))
    assert (found["series"]["a"]["n"], found["series"]["a"]["dropped"]) == (2, 2)


@pytest.mark.parametrize(("log", "value"), [(False, 2.0), (True, 2.0), (False, 1e300), (False, -5.0)])
def test_equal_numbers_have_a_bin_around_them(log: bool, value: float) -> None:
    found = histogram(Diagnostic("x", "", "", {"a": numbers(value, value)}, log))
    assert found["series"]["a"]["counts"] == [2]
    assert found["edges"][0] <= value <= found["edges"][1]
    assert found["edges"][0] < found["edges"][1]


def test_sources_do_not_overwrite_each_other_and_broken_diagnostics_are_named(
    tmp_path: Path, writer: Callable[[RunStore], RunWriter]
) -> None:
    out = writer(RunStore(tmp_path / "run"))
    assert out.diagnostics() == []  # as of a run that is older than diagnostics
    store_diagnostics(out, "training", [])
    assert not out.path("diagnostics.json").exists()
    one, two = Diagnostic("x", "", "", {"a": numbers(1.0)}), Diagnostic("x", "", "", {"a": numbers(2.0)})
    store_diagnostics(out, "training", [one])
    store_diagnostics(out, "evaluation", [two])
    store_diagnostics(out, "training", [one])
    assert sorted(entry["source"] for entry in out.diagnostics()) == ["evaluation", "training"]
    with pytest.raises(ValueError, match="names of their own"):
        store_diagnostics(out, "training", [one, one])
    with pytest.raises(ValueError, match=r"'x': 'a' should be 1-D, not of shape \[1, 1\]"):
        store_diagnostics(out, "training", [Diagnostic("x", "", "", {"a": torch.ones(1, 1)})])


def test_a_negative_pair_is_one_whose_captions_differ() -> None:
    found = pair_similarities(torch.eye(3), torch.eye(3)[[0, 1, 1]], ["a", "b", "b"])
    assert found["positive"].tolist() == [1.0, 1.0, 0.0]
    assert sorted(found["negative"].tolist()) == [0.0, 0.0, 0.0, 0.0]
    many = pair_similarities(torch.ones(5000, 1), torch.ones(5000, 1), [str(i) for i in range(5000)])
    assert (len(many["positive"]), len(many["negative"])) == (1024, 1024 * 1023)


TASKS = ("zero_shot", "retrieval", "noise_detection")


def planned(method: str, store: Store) -> Planned:
    run = a_run(
        method,
        noise="shuffled_captions",
        rate=0.4,
        budget=Budget(samples=128),
        towers=TowerSettings(dim=16, vocabulary=300),
        train=TrainSettings(batch=32, threads=1),
        evaluate=EvaluateSettings(tasks=TASKS, curve=()),
    )
    return plan([run], store)[0]


def go(one: Planned, store: Store, should_stop: Callable[[], bool] = lambda: False) -> RunStore:
    with writing(store.run(one.id)) as out:
        execute_run(one, store, out, Progress(io.StringIO()), should_stop)
    return store.run(one.id)


def records(out: RunStore) -> dict[str, bytes]:
    return {str(path.relative_to(out.folder)): path.read_bytes() for path in out.folder.glob("evaluations/*/*")}


@pytest.fixture(scope="module")
def bayes(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    store = Store(tmp_path_factory.mktemp("whole"))
    return go(planned("bayes", store), store)


def test_a_run_stores_what_its_method_and_its_features_show(bayes: RunStore) -> None:
    found = {(entry["source"], entry["name"]): entry for entry in bayes.diagnostics()}
    assert {name for source, name in found if source == "evaluation"} == {"similarity", "training_similarity"}
    weights = found["training", "weights"]["series"]
    assert all(series["n"] > 0 for series in weights.values())
    similarity = found["evaluation", "similarity"]["series"]
    pairs = data.load_dataset("emoji/iid", 32)
    assert similarity["positive"]["n"] == len(pairs)
    assert len(pairs) ** 2 - similarity["negative"]["n"] >= len(pairs)
    training = found["evaluation", "training_similarity"]["series"]
    assert training["corrupted"]["n"] == round(0.4 * len(data.load_dataset("emoji/train", 32)))
    (key,) = [folder.name for folder in bayes.path("evaluations").iterdir() if "noise_detection" in folder.name]
    kept = bayes.outcomes(key)  # Bayes' confidence is the cosine similarity
    assert training["clean"]["mean"] == pytest.approx(kept["confidence"][~kept["noisy"]].mean(), abs=1e-6)
    assert not bayes.path("features").exists() or not any(bayes.path("features").iterdir())


def test_a_stopped_run_resumes_to_the_same_bytes(bayes: RunStore, tmp_path: Path) -> None:
    store = Store(tmp_path)
    one = planned("bayes", store)
    wanted = (bayes.folder / "diagnostics.json").read_bytes()
    for calls in (1, 3, 5, 7):  # training asks after each of its four steps, evaluation before each task
        left = calls

        def soon() -> bool:
            nonlocal left
            left -= 1
            return left <= 0

        with pytest.raises(Interrupted):
            go(one, store, soon)
    assert go(one, store).path("diagnostics.json").read_bytes() == wanted
    assert records(store.run(one.id)) == records(bayes)


def test_no_record_hangs_on_diagnostics(bayes: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.launch.execute.diagnose", lambda *_: None)
    store = Store(tmp_path)
    out = go(planned("bayes", store), store)
    assert {entry["source"] for entry in out.diagnostics()} == {"training"}
    assert records(out) == records(bayes)


def test_variances_are_shown_by_side_length_and_level(tmp_path: Path) -> None:
    store = Store(tmp_path)
    out = go(planned("prolip", store), store)
    found = {entry["name"]: entry for entry in out.diagnostics() if entry["source"] == "evaluation"}
    rows = len(data.load_dataset("emoji/iid", 32))
    assert [found["uncertainty"]["series"][side]["n"] for side in ("images", "texts")] == [rows, 5 * rows]
    assert found["uncertainty"]["log"]
    # the log-variances start at -10 and four steps do not move them far
    assert found["uncertainty"]["series"]["images"]["quantiles"]["0.5"] == pytest.approx(16 * math.exp(-10), rel=0.5)
    by_length = found["uncertainty_by_length"]["series"]
    assert len(by_length) == 3
    assert sum(series["n"] for series in by_length.values()) == 5 * rows
    assert list(found["uncertainty_by_level"]["series"]) == ["group", "subgroup", "concept"]
