"""`bench store verify`: hashes of what is finished, problems a line each, and their repair."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import bench
from bench.console.progress import Progress
from bench.errors import UserError
from bench.launch.claimed import work_on_run
from bench.store import Damaged, RunStore, Store, files, writing
from bench.store.run import HASHES
from bench.store.verify import run_problems, sha256

from .conftest import flip

WEIGHTS = "weights-100.safetensors"


def test_a_finished_run_has_the_hashes_of_its_weights_and_records(finished: Path) -> None:
    cells = {cell["run"] for cell in Store(finished).plan("tiny")["cells"]}  # type: ignore[index]
    for run in Store(finished).runs():
        stored = run.hashes()
        names = {name for name in stored if name.startswith("weights-")}
        assert names == {path.name for path in run.folder.glob("weights-*")}
        assert {name.split("/")[1] for name in stored.keys() - names - {"noise.parquet"}} == set(run.evaluations())
        checkpoints = {record.checkpoint for record in run.records() if record.at == 1.0}
        assert checkpoints == ({stored[WEIGHTS]} if run.id in cells else set())
        assert all(stored[name] == sha256(run.path(name)) for name in stored)


def test_all_is_well(finished: Path, tiny: SimpleNamespace) -> None:
    before = tiny.contents(finished)
    for arguments in (["store", "verify"], ["store", "verify", "--fix"]):
        result = tiny.bench(finished, *arguments)
        assert result.exit_code == 0
        assert result.stdout == "problems: 0\n"
    assert tiny.contents(finished) == before


def test_a_store_that_is_not_there_is_not_called_whole(tmp_path: Path, tiny: SimpleNamespace) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(UserError, match=r"plain: is not a store; name the folder that holds runs/"):
        tiny.bench(tmp_path / "plain", "store", "verify")
    with pytest.raises(UserError, match=r"nothing: no such folder; name the folder of a store"):
        tiny.bench(tmp_path / "nothing", "store", "verify")


def test_changed_bytes_are_listed_moved_aside_and_measured_again(store: Path, tiny: SimpleNamespace) -> None:
    run = next(Store(store).runs())
    records = min(run.folder.glob("evaluations/*/records.json"))
    before = records.read_text()
    records.write_text(before.replace('"value": 0.', '"value": 0.1'))
    flip(run.path("weights-025.safetensors"))
    (store / "tiny" / "trials.json").write_text("[3]")
    (store / "calibrations").mkdir()
    (store / "calibrations" / "a.json").write_text('{"train": -1}')
    shown = tiny.bench(store, "store", "verify")
    assert shown.exit_code == 1
    lines = shown.stdout.splitlines()
    assert lines[-1] == "problems: 4"
    for name, said in (
        (f"{records}", "differs from the sha256"),
        (f"{run.path('weights-025.safetensors')}", "differs from the sha256"),
        (f"{store / 'tiny' / 'trials.json'}", "0: "),
        (f"{store / 'calibrations' / 'a.json'}", "train: "),
    ):
        (line,) = [line for line in lines if line.startswith(f"{name}: ")]
        assert said in line
        assert "; " in line
    fixed = tiny.bench(store, "store", "verify", "--fix")
    assert fixed.exit_code == 0
    assert fixed.stdout.endswith("problems: 0, moved aside: 4\n")
    assert not records.exists()
    assert "nothing to do" not in tiny.bench(store, "run", "SUITE").stdout
    assert records.read_text() == before
    assert sha256(records) == run.hashes()[str(records.relative_to(run.folder))]
    assert tiny.bench(store, "store", "verify").exit_code == 0


def test_records_of_a_run_that_was_stopped_while_it_was_measured_are_not_believed_if_they_changed(
    finished: Path, tmp_path: Path, tiny: SimpleNamespace
) -> None:
    (one, *_), store = tiny.planned(tmp_path / "results"), tmp_path / "results"
    asked = iter(range(10**6))
    state, _ = work_on_run(one, Store(store), Progress(), lambda: next(asked) >= one.resolved.steps + 2)
    run = Store(store).run(one.id)
    assert state == "interrupted"
    key, *_ = run.evaluations()
    names = [f"evaluations/{key}/{name}" for name in ("records.json", "outcomes.npz")]
    assert {name: sha256(run.path(name)) for name in names}.items() <= run.hashes().items()
    records = run.path(names[0])
    records.write_text(records.read_text().replace('"value": 0.', '"value": 0.1'))
    assert "records.json: differs from the sha256" in tiny.bench(store, "store", "verify").stdout
    state, message = work_on_run(one, Store(store), Progress(), lambda: False)
    assert state == "done"
    assert f"evaluations/{key}/records.json: differs from the sha256" in message
    before = tiny.contents(finished / "runs" / one.id)
    for name in (*names, HASHES):
        assert sha256(run.path(name)) == before[name]


def test_a_kill_between_the_hash_of_an_evaluation_and_its_folder_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunStore(tmp_path / ("a" * 64))
    with writing(run) as out:
        with monkeypatch.context() as patch:
            patch.setattr(files, "publish_folder", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                out.write_records("k", [], {})
        assert run.hashes().keys() == {"evaluations/k/records.json", "evaluations/k/outcomes.npz"}
        assert run_problems(run, thorough=True) == []
        assert out.write_records("k", [], {"top1": np.ones(2)})
    assert run_problems(run, thorough=True) == []


def test_a_link_in_place_of_the_evaluations_is_moved_and_what_it_leads_to_is_not(
    store: Path, tiny: SimpleNamespace
) -> None:
    run = next(Store(store).runs())
    shutil.rmtree(run.path("evaluations"))
    run.path("evaluations").symlink_to("..")
    assert tiny.bench(store, "store", "verify").exit_code == 1
    assert "moved to evaluations.damaged-1" in tiny.bench(store, "store", "verify", "--fix").stdout
    assert run.path("evaluations.damaged-1").is_symlink()
    assert run.path("settings.json").is_file()
    assert tiny.bench(store, "store", "verify").stdout == "problems: 0\n"


def test_a_run_at_work_is_left_alone(store: Path, tiny: SimpleNamespace) -> None:
    run = next(Store(store).runs())
    run.path("status.json").write_text("")
    with run.claim():
        assert tiny.bench(store, "store", "verify", "--fix").exit_code == 0
        assert run.path("status.json").read_text() == ""
    assert tiny.bench(store, "store", "verify").exit_code == 1


def test_a_store_of_an_unknown_format_is_not_touched(store: Path, tiny: SimpleNamespace) -> None:
    (store / "store.json").write_text("{")
    for arguments in (["store", "verify"], ["store", "verify", "--fix"]):
        result = tiny.bench(store, *arguments)
        assert result.exit_code == 1
        assert "store.json: cannot be read" in result.stdout
        assert "delete the file" in result.stdout


def test_weights_that_changed_are_not_exported(store: Path, tmp_path: Path) -> None:
    run = next(Store(store).runs())
    flip(run.path(WEIGHTS))
    with pytest.raises(Damaged, match=r"weights-100\.safetensors: differs from the sha256"):
        bench.export(run.id, tmp_path / "model", store)
    assert not (tmp_path / "model").exists()


def test_hashes_are_those_of_the_last_bytes_and_in_one_order(tmp_path: Path) -> None:
    """So that a run that was killed ends with the bytes of one that was not; a finished run adds its own as well."""
    run = RunStore(tmp_path / ("a" * 64))
    with writing(run) as out:
        for name, content in ((WEIGHTS, b"one"), ("weights-050.safetensors", b"two"), (WEIGHTS, b"three")):
            out.write_bytes(name, content)
            assert run.hashes()[name] == sha256(run.path(name))
        out.set_status("done")
        out.write_records("k", [], {})
    names = ["evaluations/k/outcomes.npz", "evaluations/k/records.json", "weights-050.safetensors", WEIGHTS]
    assert list(run.hashes()) == names
    assert run_problems(run, thorough=True) == []
