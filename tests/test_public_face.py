"""`import bench`: what Python users call. Each name is used for what it says, on real runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import bench
from bench.launch.worker import queue_suite
from bench.store import Store
from bench.store.jobs import note_job

SUITE = """\
name: face
noise: {rates: [0.4]}
budget: {samples: 32}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16, threads: 1}
evaluate: {tasks: [zero_shot, noise_detection]}
methods: [clip, {method: label_permutation, label: permuted}]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("face")
    (folder / "face.yaml").write_text(SUITE)
    summary = bench.run_suite(folder / "face.yaml", folder / "out")
    assert len(summary.done) == 2
    assert [*summary.failed, *summary.interrupted, *summary.busy, *summary.skipped] == []
    return folder


def test_importing_loads_nothing_heavy_and_lists_the_public_names() -> None:
    code = (
        "import sys, bench; "
        "heavy = {'torch', 'pandas', 'numpy', 'pydantic', 'matplotlib', 'open_clip'} & set(sys.modules); "
        "assert not heavy, heavy; assert set(bench.__all__) <= set(dir(bench)); "
        "from bench import Results; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=1200)
    for name in bench.__all__:
        assert getattr(bench, name).__name__ in (name, "evaluate_checkpoint")
    with pytest.raises(AttributeError, match="has no attribute 'run_suit'"):
        bench.run_suit  # noqa: B018


def test_a_second_call_finds_everything_done_and_a_selection_selects(folder: Path) -> None:
    suite = bench.load_suite(folder / "face.yaml")
    summary = bench.run_suite(suite, folder / "out", only=["permuted"])
    assert (len(summary.skipped), summary.done) == (1, [])
    with pytest.raises(bench.UserError, match="no entry of suite face; did you mean 'permuted'"):
        bench.run_suite(suite, folder / "out", only=["permute"])
    with pytest.raises(bench.UserError, match=r"--launcher 'slrum' should be .*; did you mean 'slurm'"):
        bench.run_suite(suite, folder / "out", launcher="slrum")


def test_results_are_frames_that_say_what_the_store_holds(folder: Path) -> None:
    results = bench.Results(folder / "out")
    assert results.suites == ["face"]
    records = results.records()
    assert isinstance(records, pd.DataFrame)
    stored = [record for run in Store(folder / "out").runs() for record in run.records()]
    assert len(records) == len(stored) > 0
    assert sorted(records["value"]) == sorted(record.value for record in stored)
    overview = results.table("overview")
    assert list(overview["row"])[:2] == ["clip", "permuted"]
    assert "overview" in results.tables()
    top1 = records[(records["metric"] == "top1") & (records["dataset"] == "emoji/iid") & (records["at"] == 1.0)]
    concept = top1[(top1["task"] == "zero_shot/concept") & (top1["label"] == "clip")]["value"].item()
    assert overview.loc[0, "Zero-shot emoji/iid top-1"] == pytest.approx(concept)
    with pytest.raises(bench.UserError, match="did you mean 'overview'"):
        results.table("overvew")


def test_a_report_is_written_and_two_suites_have_to_be_told_apart(folder: Path, tmp_path: Path) -> None:
    page = bench.Results(folder / "out").report()
    assert page == folder / "out" / "face" / "report.html"
    assert page.is_file()
    with pytest.raises(bench.UserError, match="no suite was planned or run here"):
        bench.Results(tmp_path).records()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "plan.json").write_text("{}")
    with pytest.raises(bench.UserError, match="choose a suite: one, two"):
        bench.Results(tmp_path).records()


def test_a_checkpoint_is_evaluated_without_training(folder: Path) -> None:
    run = next(Store(folder / "out").runs())
    found = bench.evaluate(run.path("weights-100.safetensors"), folder / "face.yaml", folder / "out")
    own = {(record.dataset, record.task, record.metric): record.value for record in run.records() if record.at == 1.0}
    assert {(one.dataset, one.task, one.metric): one.value for one in found.records} == own


def test_a_dry_run_lists_the_runs_and_what_is_left_and_trains_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    lines = bench.dry_run(folder / "face.yaml", tmp_path, only=["permuted"])
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == ["looking for data: emoji", "planning 1 of 1: permuted, 40 % shuffled captions, seed 0"]
    assert said[-1] == "estimating: 1 runs"
    assert len([line for line in lines if "missing" in line and "permuted" in line]) == 1
    assert not any(" clip" in line for line in lines[1:])
    assert any(line.startswith("to do: 1 runs, ") for line in lines)
    bench.dry_run(folder / "face.yaml", tmp_path)
    assert not [*tmp_path.iterdir()]
    queue_suite(bench.load_suite(folder / "face.yaml"), tmp_path)
    assert list(Store(tmp_path).runs()) == []
    plan = Store(tmp_path).plan("face")
    assert plan is not None
    note_job(Store(tmp_path).run(plan["cells"][1]["run"]), "17", tmp_path / "17.out")
    monkeypatch.setattr("bench.store.jobs.shutil.which", lambda _: None)
    status = bench.Results(tmp_path).status()
    assert status["state"].tolist() == ["missing", "missing"]
    assert status["note"].tolist() == ["", "job 17 unknown (no squeue here)"]
    done = bench.dry_run(folder / "face.yaml", folder / "out")
    assert [line.split()[1] for line in done] == ["stored", "done", "done"]
    for options, message in (({"utilisation": 0.3}, "--utilisation 0.3: applies to a GPU"),):
        with pytest.raises(bench.UserError, match=message):
            bench.dry_run(folder / "face.yaml", tmp_path, **options)


def test_a_run_is_exported_by_the_beginning_of_its_id(folder: Path, tmp_path: Path) -> None:
    run = next(Store(folder / "out").runs())
    bench.export(run.id[:12], tmp_path / "model", folder / "out")
    assert (tmp_path / "model" / "open_clip_config.json").is_file()
    with pytest.raises(bench.UserError, match=r"no run in .* has an id that starts like this"):
        bench.export("none", tmp_path / "other", folder / "out")
    assert not (tmp_path / "other").exists()


def test_an_adapter_is_checked_by_name_file_or_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.adapters import registry
    from bench.checks import suite
    from methods.clip import Clip

    few = tuple(check for check in suite.CHECKS if check.name in ("card", "tiles"))
    examine = suite.run_checks
    monkeypatch.setattr(suite, "run_checks", lambda subject, pool, **more: examine(subject, pool, few, **more))
    monkeypatch.setattr(registry, "_plugins", {})
    file = tmp_path / "mine.py"
    file.write_text('from methods.clip import Clip\n\n\nclass Mine(Clip):\n    name = "mine"\n')
    said: list[str] = []
    for adapter, name in (("clip", "clip"), (file, "mine"), (Clip, "clip")):
        results = bench.check(adapter, said.append)
        assert [(one.method, one.check, one.outcome) for one in results] == [
            (name, "card", "passed"),
            (name, "tiles", "passed"),
        ]
    assert len(said) == 9
    with pytest.raises(bench.UserError, match="has no source file"):
        bench.check(type("Nowhere", (Clip,), {"__module__": "nowhere"}))
    registry.clear_caches()
