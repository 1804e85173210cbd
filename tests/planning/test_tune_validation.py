"""Trials are measured under the suite's protocol on its validation sets, which must be there before any starts."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from PIL import Image
from typer.testing import CliRunner

from bench.cli import app
from bench.errors import UserError
from bench.evaluation import EvaluationPlan
from bench.planning import tune
from bench.planning.planner import Planner
from bench.store import Store
from bench.suite.suite import load_suite

SUITE = """\
name: tuned
budget: {samples: 32}
towers: {dim: 8, vocabulary: 300, context: 12}
train: {batch: 16, threads: 1}
evaluate: {tasks: [retrieval], protocol: nuclr, curve: [0.5], datasets: {validation: %s}}
tune: {trials: 2}
methods: [clip]
"""


def written(folder: Path, sets: str) -> Path:
    path = folder / "tuned.yaml"
    path.write_text(SUITE % sets)
    return path


def bench(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--results", str(folder / "out")])


def photographs(seed: int) -> list[dict[str, object]]:
    samples: list[dict[str, object]] = []
    for number in range(12 + 8 * seed):
        file = io.BytesIO()
        drawn = np.random.default_rng((seed, number)).integers(0, 255, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(drawn).save(file, "PNG")
        samples.append({"png": file.getvalue(), "txt": f"picture {seed} number {number}"})
    return samples


def test_trials_have_the_suites_protocol_and_validation_sets(tmp_path: Path) -> None:
    suite = load_suite(written(tmp_path, "[flickr30k]"))
    asked = tune.trial_suite(suite, {"clip": {0: {}, 1: {"lr": 0.01}}}, {}).evaluate
    assert (asked.tasks, asked.protocol, asked.curve) == (("validation",), "nuclr", ())
    assert [(task.dataset, task.protocol) for task in EvaluationPlan(suite.data, asked).chosen] == [
        ("flickr30k/validation", "nuclr-1")
    ]


def test_missing_validation_data_is_refused_before_anything_starts(tmp_path: Path, evaluation_folder: Path) -> None:
    suite = str(written(tmp_path, "[flickr30k]"))
    result = bench(tmp_path, "run", suite)
    assert isinstance(result.exception, UserError)
    message = str(result.exception)
    assert message.startswith("suite tuned lacks these inputs:\nmissing: Flickr30k")
    assert f"looked in {evaluation_folder}" in message
    assert not (tmp_path / "out").exists()
    dry = bench(tmp_path, "run", suite, "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "clip, trial 1" in dry.stdout
    assert message.partition("\n")[2] in dry.stdout


def test_a_trials_score_is_the_mean_over_all_validation_sets(
    tmp_path: Path,
    evaluation_folder: Path,
    webdataset_folder: Callable[..., Path],
    unreported: Callable[[Path, str], Path],
) -> None:
    for seed, name in enumerate(("first", "second")):
        webdataset_folder(evaluation_folder / f"wds_{name}", photographs(seed), split="validation")
    path, store = written(tmp_path, "[first, second]"), Store(unreported(tmp_path / "out", "tuned"))
    result = bench(tmp_path, "run", str(path))
    assert result.exit_code == 0, result.output
    suite = load_suite(path)
    trials = [one for one in tune.follow_trials(suite, Planner(store)).choices["clip"].trials if one.rung == 0]
    for trial in trials:
        records = {one.dataset: one for one in store.run(trial.run).records() if one.metric == "mean_recall"}
        values = [records[f"{name}/validation"].value for name in ("first", "second")]
        assert {one.protocol for one in records.values()} == {"nuclr-1"}
        assert trial.score == pytest.approx(sum(values) / 2, rel=1e-12)
        assert values[0] != values[1]
    # one that lacks a set has no score, even if it claims to be evaluated
    (folder,) = store.run(trial.run).path("evaluations").glob("*second-validation")
    (folder / "records.json").write_text("[]")
    (again,) = [one for one in tune.follow_trials(suite, Planner(store)).choices["clip"].trials if one.run == trial.run]
    assert again.score is None


def test_trials_without_a_validation_set_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"datasets.validation: trials are scored on it; name one set at least"):
        load_suite(written(tmp_path, "[]"))


def test_trials_of_a_row_with_a_rule_are_scored_by_it(tmp_path: Path, unreported: Callable[[Path, str], Path]) -> None:
    """Both rows have the same runs as trials: of one the last weights count, of the other the best along the run."""
    path, store = tmp_path / "tuned.yaml", Store(unreported(tmp_path / "out", "tuned"))
    path.write_text(
        """\
name: tuned
data: {name: emoji, size: 32}
noise: {rates: [0.4]}
budget: {samples: 96}
towers: {dim: 8, vocabulary: 300, context: 12}
train: {batch: 16, threads: 1}
evaluate: {tasks: [retrieval, clean_validation], curve: [0.25, 0.5], along: [retrieval, clean_validation]}
tune: {trials: 2, by: noisy_validation, seeds: [7, 8, 9]}
methods: [clip, {method: clip, label: early, select: clean_validation}, siglip]
"""
    )
    result = bench(tmp_path, "run", str(path))
    assert result.exit_code == 0, result.output
    choices = tune.follow_trials(load_suite(path), Planner(store)).choices
    assert [one.run for one in choices["clip"].trials] == [one.run for one in choices["early"].trials]
    for last, early in zip(choices["clip"].trials, choices["early"].trials, strict=True):
        found = {(one.task, one.at): one.value for one in store.run(last.run).records() if one.metric == "mean_recall"}
        assert last.score == found["noisy_validation", 1.0]
        assert early.score == max(found["clean_validation", at] for at in (0.25, 0.5, 1.0))
        assert ("noisy_validation", 0.5) not in found
    others = [record for one in choices["siglip"].trials for record in store.run(one.run).records()]
    assert {record.at for record in others} == {1.0}, "no rule of its own: nothing is measured along its trials"


def test_noisy_validation_needs_a_noise_that_held_out_pairs_can_have(tmp_path: Path) -> None:
    path = written(tmp_path, "[flickr30k]")
    with pytest.raises(UserError, match=r"tune.by: held-out pairs cannot have noise of kind resampled_positives"):
        load_suite(path, ["tune.by=noisy_validation", "noise={kind: resampled_positives, rates: [0.4]}"])
