"""A row whose weights a rule chose, from a run whose best weights are planted in the middle of its curve."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import bench
from bench import data
from bench.data.noise.shuffled import shuffled_captions
from bench.evaluation.retrieval import retrieve
from bench.launch import execute
from bench.store import Store
from bench.training.checkpoint import load_weights, weights_name
from methods.protocol import Method
from reports.compare import compare
from reports.results import load
from reports.statistics import validity
from reports.statistics.contrasts import headline_contrasts
from reports.tables.suite_tables import tables

from ..command import call_bench

SUITE = """\
name: NAME
data: {name: emoji, size: 32}
noise: {rates: [0.4]}
seeds: SEEDS
budget: {samples: SAMPLES}
towers: {dim: 32, vocabulary: 300}
train: {batch: 64, lr: 3.0e-3, threads: 1}
methods: [clip]
evaluate: {tasks: [retrieval]}
"""
ROWS = "methods=[clip, {method: clip, label: early, select: noisy_validation}, \
{method: clip, label: told, select: clean_validation}]"
MEASURED = "evaluate={tasks: [retrieval, memorisation, noise_detection, noisy_validation, clean_validation], \
curve: [0.25, 0.5], along: [retrieval, memorisation, noisy_validation, clean_validation]}"
HEADLINE = ("emoji/iid", "retrieval", "mean_recall", "cosine")


def run(folder: Path, name: str, samples: int, seeds: str, *overrides: str) -> Store:
    text = SUITE.replace("NAME", name).replace("SAMPLES", str(samples)).replace("SEEDS", seeds)
    (folder / f"{name}.yaml").write_text(text)
    sets = [part for one in overrides for part in ("--set", one)]
    call_bench("run", folder / f"{name}.yaml", "--results", folder / "out", *sets)
    return Store(folder / "out")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, unreported: Callable[[Path, str], Path]) -> Store:
    """Short runs, of which the weights of a long one are measured at half of their budget."""
    folder = tmp_path_factory.mktemp("selection")
    for suite in ("long", "tiny"):
        unreported(folder / "out", suite)
    long = run(folder, "long", 14_000, "[0]")
    best = long.run(long.plan("long")["cells"][0]["run"]).path(weights_name(1.0))
    short = {cell["run"] for cell in run(folder, "tiny", 128, "[0, 1, 2]").plan("tiny")["cells"]}

    def planted(path: Path, method: Method, towers: Any) -> None:
        load_weights(best if path.name == weights_name(0.5) else path, method, towers)

    with mock.patch.object(execute, "load_weights", planted):
        again = run(folder, "tiny", 128, "[0, 1, 2]", ROWS, MEASURED)
    assert {cell["run"] for cell in again.plan("tiny")["cells"]} == short, "no further run"
    return again


def test_the_planted_weights_are_those_that_the_row_is_read_at(store: Store) -> None:
    results = load("tiny", store)
    (noise,) = results.noises
    for label in ("early", "told"):
        for own, last in zip(results.of(label, noise), results.of("clip", noise), strict=True):
            assert own.run == last.run
            assert (own.at, last.at) == (0.5, 1.0)
            chosen, end = own.find(*HEADLINE), last.find(*HEADLINE)
            assert (chosen.at, end.at) == (0.5, 1.0)
            assert chosen.value > end.value
            assert own.of_last.find(*HEADLINE) == end


def test_tables_show_it_and_say_what_was_measured_on_last_weights_alone(store: Store) -> None:
    results = load("tiny", store)
    made = {table.name: table for table in tables(results)}
    (noise,) = results.noises
    rows = {row.label: row for row in made["selection"].rows}
    assert list(rows) == ["early", "told"]
    for label, row in rows.items():
        own = [(run.find(*HEADLINE), run.of_last.find(*HEADLINE)) for run in results.of(label, noise)]
        gaps = [a.value - b.value for a, b in own]
        last, chosen, gap, at = row.cells
        assert gap.value == pytest.approx(np.mean(gaps))
        assert gap.value == pytest.approx(chosen.value - last.value)
        assert gap.also["low"] < gap.value < gap.also["high"]
        assert at.value == 0.5
    assert [row.mark for row in rows.values()] == ["", "§"]
    found = {row.label: row.cells[0].state for row in made["noise_detection"].rows}
    assert (found["clip"], found["early"]) == ("value", "not applicable")
    assert list(results.ranked) == ["clip", "early"]
    assert "clean validation pairs" in made["overview"].notes["§"]
    assert any(
        note.startswith("early: of each run, the weights with the highest mean recall")
        for note in made["cost"].footnotes
    )


def test_the_report_is_written_and_two_rows_of_one_run_are_compared(store: Store) -> None:
    folder = store.suite("tiny")
    bench.Results(store.root).report("tiny")
    assert load("tiny", store).states()["done"] == 3, "three rows of three runs"
    with (folder / "tables" / "selection.csv").open() as file:
        assert [line["row"] for line in csv.DictReader(file)] == ["early", "told"]
    assert "Which checkpoint" in (folder / "report.html").read_text()
    text = compare("tiny", store, "early", "clip").text()
    assert "early against CLIP" in text
    (line,) = [one for one in compare("tiny", store, "early", "clip").lines if one.primary]
    assert line.gap > 0


def test_if_the_baseline_is_chosen_by_clean_pairs_rows_alike_are_ranked(store: Store) -> None:
    plan = store.plan("tiny")
    changed, last = json.loads(json.dumps(plan)), validity.validity(load("tiny", store))
    for entry in changed["methods"]:
        entry["select"] = "clean_validation"
    try:
        store.write_plan("tiny", changed)
        results = load("tiny", store)
        assert list(results.ranked) == ["clip", "early", "told"]
        overview = tables(results)[0]
        assert {row.mark for row in overview.rows if row.method} == {"§"}
        assert "unless the baseline uses the same" in overview.notes["§"]
        assert results.directions["emoji/train", "memorisation", "memorised"] is False
        (of_selected,), (of_last,) = validity.validity(results), last
        assert of_selected.checks[0] == of_last.checks[0], "what is memorised at the end, whichever weights count"
    finally:
        store.write_plan("tiny", plan)


def test_whether_training_had_converged_is_read_from_the_run_not_from_the_selected_point(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows are rows of the same runs."""
    monkeypatch.setattr(validity, "QUARTER", 0.5)
    results = load("tiny", store)
    (noise,) = results.noises
    contrasts = {one.noise: one for one in headline_contrasts(results)}
    gains = {label: validity._last_quarter(results, contrasts, noise, label) for label in ("clip", "early", "told")}
    assert gains["early"] == gains["told"] == gains["clip"] is not None


def test_an_unfinished_curve_chooses_nothing(store: Store) -> None:
    cell = next(one for one in store.plan("tiny")["cells"] if one["method"] == "early")
    own = store.run(cell["run"])
    key = next(key for key in own.evaluations() if ".050.noisy_validation" in key)
    path = own.path("evaluations") / key
    try:
        path.rename(store.root / key)
        results = load("tiny", store)
        first = next(one for one in results.runs if one.method == "early" and one.run == cell["run"])
        assert (first.at, first.records, first.find(*HEADLINE)) == (None, {}, None)
        states = {row.label: [state for _, state in row.cells[0].lacking] for row in tables(results)[0].rows}
        assert states["early"] == ["missing"]
        assert states["told"] == []
    finally:
        (store.root / key).rename(path)


def test_noisy_validation_is_retrieval_of_the_captions_that_the_runs_noise_gives(store: Store) -> None:
    """Recomputed from the run's stored weights: the same keyed rule, on the held-out pairs, at the run's seed."""
    from bench.evaluation.features import extract_images, extract_texts
    from bench.suite.run import run_of_settings
    from bench.training.inputs import InputsReader
    from bench.training.job import available_device, rebuilt_model

    cell = next(one for one in store.plan("tiny")["cells"] if one["seed"] == 1)
    own = store.run(cell["run"])
    made = run_of_settings(own.settings(), own.path("settings.json"))
    towers, method = rebuilt_model(
        made, InputsReader().for_model(made), own.path(weights_name(1.0)), available_device()
    )
    pairs = data.load_dataset("emoji/selection", 32)
    donors = shuffled_captions(pairs, 0.4, 1).donors_of(np.arange(len(pairs)))
    assert (donors != np.arange(len(pairs))).sum() == round(0.4 * len(pairs))
    texts = data.evaluation_captions(pairs)
    images = extract_images(method, towers, pairs)
    owner = np.repeat(np.arange(len(pairs)), 5)
    for family, rows in (("noisy_validation", donors), ("clean_validation", np.arange(len(pairs)))):
        captions = extract_texts(method, towers, [text for row in rows.tolist() for text in texts[row]])
        expected = retrieve(images, captions, owner, "cosine").metrics()["mean_recall"]
        (stored,) = [
            one.value
            for one in own.records()
            if (one.task, one.metric, one.at, one.dataset) == (family, "mean_recall", 1.0, "emoji/selection")
        ]
        assert stored == pytest.approx(expected, abs=1e-9), family
