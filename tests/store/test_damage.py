"""Damaged files: each is named, costs its own run alone, is moved aside by `bench run` and made again."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bench.errors import UserError
from bench.store import Damaged, RunStore, Store, files, reading
from bench.store.jobs import submitted_jobs
from bench.store.run import find_run
from bench.store.verify import repair_run, run_problems, verify_store
from reports.results import load
from reports.tables.suite_tables import cost

from .conftest import flip

BIG = 2**70


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def loop(path: Path) -> None:
    """A link to itself: nobody can read it, the superuser neither."""
    path.unlink()
    path.symlink_to(path.name)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


def changed(field: str, value: object) -> Callable[[Path], object]:
    """Give a field of a JSON file another value; of a list, to its first entry."""

    def change(path: Path) -> None:
        content = json.loads(path.read_bytes())
        (content[0] if isinstance(content, list) else content)[field] = value
        path.write_text(json.dumps(content))

    return change


RECORDS, OUTCOMES = "evaluations/*/records.json", "evaluations/*/outcomes.npz"
WEIGHTS = "weights-100.safetensors"
#: (file, what happens to it, what is said of it); all are seen by the look that `bench status` takes
CASES: list[tuple[str, Callable[[Path], object], str]] = [
    ("status.json", empty, "is empty"),
    ("status.json", text("[]"), "should be an object"),
    ("status.json", changed("state", "finished"), "state: "),
    ("status.json", changed("step", "8"), "step: "),
    ("status.json", changed("error", {"message": 3}), r"error\.message: "),
    ("status.json", text("[" * 5000 + "]" * 5000), "is nested"),
    ("status.json", text('{"state": "done", "step": NaN}'), "NaN"),
    ("status.json", text('{"state": "done", "updated": 1e999}'), "infinite"),
    ("status.json", changed("steps", BIG), "more than 64 bits"),
    ("status.json", text('{"state": "done", "stage": "\\ud800"}'), "half of a surrogate pair"),
    ("status.json", text('{"state": "done", "x": ' + "[" * 40 + "]" * 40 + "}"), "nested more than"),
    ("status.json", folder, "it is a folder, not a file"),
    ("status.json", loop, "cannot be read: Too many levels"),
    ("status.json", pipe, "it is a FIFO, not a file"),
    ("settings.json", changed("id", "0" * 64), "belongs to another run, 0000"),
    ("settings.json", changed("resolved", {"phases": [["train"]]}), r"resolved\.phases: "),
    ("ledger.json", cut, "is not JSON"),
    ("ledger.json", changed("flops", "many"), "flops: "),
    ("environment.json", changed("packages", ["torch"]), "packages: "),
    ("diagnostics.json", changed("diagnostics", [{"source": "training"}]), r"diagnostics\.0\.name: "),
    ("hashes.json", changed(WEIGHTS, "0"), "safetensors: "),
    ("train_seconds", folder, "it is a folder, not a file"),
    (RECORDS, Path.unlink, "is missing"),
    (RECORDS, empty, "is empty"),
    (RECORDS, text("{}"), "is not a list of records"),
    (RECORDS, text("[3]"), "something else than records"),
    (RECORDS, changed("value", "0.5"), "value of a record is of the wrong type"),
    (RECORDS, changed("n", True), "n of a record is of the wrong type"),
    (RECORDS, lambda path: path.write_text(path.read_text().replace('"at": 0.5', '"at": 1e999')), "is not finite"),
    (RECORDS, changed("extra", 1), "other fields"),
]


def damage(run: RunStore, name: str, how: Callable[[Path], object]) -> Path:
    path = min(run.folder.glob(name))
    how(path)
    return path


def named(store: Path, method: str, tiny: SimpleNamespace) -> RunStore:
    """The run of the suite's row of this method, not the one that another starts from."""
    runs = tiny.planned(store)
    starts = {one.reference for one in runs}
    (one,) = [one for one in runs if one.run.method == method and one.id not in starts]
    return Store(store).run(one.id)


@pytest.mark.promise("every damaged file is named, and the other runs are shown")
@pytest.mark.parametrize(("name", "how", "said"), CASES)
def test_a_damaged_file_is_named(store: Path, name: str, how: Callable[[Path], object], said: str) -> None:
    run, other, _ = Store(store).runs()
    path = damage(run, name, how)
    (found,) = run_problems(run)
    assert found.path == path
    assert str(found).startswith(f"{path}: ")
    assert "\n" not in str(found)
    with pytest.raises(Damaged, match=said):
        raise found
    assert run_problems(other) == []
    assert run_problems(run, thorough=True)


@pytest.mark.parametrize("how", [cut, flip, empty, folder, loop, pipe])
@pytest.mark.parametrize("name", [WEIGHTS, "checkpoint.pt", "noise.parquet", RECORDS, OUTCOMES])
def test_a_changed_file_is_found_by_the_thorough_look(store: Path, name: str, how: Callable[[Path], object]) -> None:
    run = next(one for one in Store(store).runs() if one.path("noise.parquet").exists())
    path = damage(run, name, how)
    assert {error.path for error in run_problems(run, thorough=True)} == {path}


def test_what_is_no_part_of_a_store_is_ignored(store: Path, tiny: SimpleNamespace) -> None:
    run = next(Store(store).runs())
    for name in (".DS_Store", "evaluations/.DS_Store", "evaluations/Thumbs.db", "notes.txt", "../.DS_Store", "../x"):
        run.path(name).write_text("mine")
    run.path("evaluations/old.damaged-1").mkdir()
    (run.folder.parent / f"{run.id}.damaged-1").mkdir()
    assert len(list(Store(store).runs())) == 3
    assert run_problems(run, thorough=True) == []
    assert tiny.bench(store, "store", "gc").exit_code == 0
    assert "nothing to do: all 3 runs are done" in tiny.bench(store, "run", "SUITE").stdout


def test_every_verb_shows_the_others(store: Path, tiny: SimpleNamespace) -> None:
    run = named(store, "clip", tiny)
    path = damage(run, RECORDS, Path.unlink)
    status = tiny.bench(store, "status", "SUITE")
    lines = {line.split()[0]: line for line in status.stdout.splitlines()[1:3]}
    assert status.exit_code == 1
    assert f"damaged: {path}: is missing; `bench run` moves it aside" in lines["clip"]
    assert " done " in lines["ncu"]
    report = tiny.bench(store, "report", "SUITE")
    assert report.exit_code == 1
    assert f"CLIP, 40 % shuffled captions, seed 0, is damaged: {path}: is missing" in report.stderr
    table = (store / "tiny" / "tables" / "overview.tex").read_text()
    assert r"\textit{damaged}" in table or "damaged" in table.split("ncu")[0]
    assert f'<span class="damaged">damaged</span>: damaged: {path}' in (store / "tiny" / "report.html").read_text()
    compare = tiny.bench(store, "compare", "SUITE", "ncu")
    assert compare.exit_code == 1
    assert f"note: CLIP, 40 % shuffled captions, seed 0, is damaged: {path}" in compare.stdout
    show = tiny.bench(store, "show", run.id)
    assert show.exit_code == 1
    assert f"  {path}: is missing" in show.stdout
    assert "state: done" in show.stdout
    before = tiny.contents(run.folder)
    gc = tiny.bench(store, "store", "gc", "--yes")
    assert gc.exit_code == 1
    assert f"left alone: {path}: is missing" in gc.stderr
    assert tiny.contents(run.folder) == before
    assert len(list(store.rglob("checkpoint.pt"))) == 1  # those of the other two went
    assert "damaged" in tiny.bench(store, "run", "SUITE", "--dry-run").stdout


def test_a_finished_run_gets_its_small_files_and_evaluations_again(
    finished: Path, store: Path, tiny: SimpleNamespace
) -> None:
    run = named(store, "clip", tiny)
    before = tiny.contents(finished / "runs" / run.id)
    for name, how in (("status.json", empty), ("settings.json", text("[]")), ("noise.parquet", cut)):
        damage(run, name, how)
    first, second, *_ = run.evaluations()
    run.path(f"evaluations/{first}/records.json").unlink()
    cut(run.path(f"evaluations/{second}/outcomes.npz"))
    result = tiny.bench(store, "run", "SUITE")
    assert "runs: 1 done, 2 done before\n" in result.stdout
    for name in ("status.json", "settings.json", "noise.parquet", f"evaluations/{first}", f"evaluations/{second}"):
        assert f"moved to {Path(name).name}.damaged-1" in result.stderr
        assert run.path(f"{name}.damaged-1").exists()
    after = {name: digest for name, digest in tiny.contents(run.folder).items() if ".damaged-" not in name}
    assert {name for name in before if before[name] != after[name]} <= {"status.json", "ledger.json"}
    assert run.ledger()["train_seconds"] == RunStore(finished / "runs" / run.id).ledger()["train_seconds"]
    assert after.keys() == before.keys()
    assert "nothing to do" in tiny.bench(store, "run", "SUITE").stdout
    assert tiny.bench(store, "store", "verify").exit_code == 0


def test_a_finished_run_without_its_weights_keeps_its_records(store: Path, tiny: SimpleNamespace) -> None:
    """Those that suites share with others, `records-only`: valid, and not trained again for nothing."""
    run = named(store, "clip", tiny)
    for name in (WEIGHTS, "checkpoint.pt", "ledger.json"):
        damage(run, name, cut)
    result = tiny.bench(store, "run", "SUITE")
    assert "runs: 1 done, 2 done before\n" in result.stdout
    assert f"moved to {WEIGHTS}.damaged-1" in result.stderr
    assert not run.path(WEIGHTS).exists()
    assert not run.ledger()
    assert run.records()
    for path in [*store.glob("runs/*/weights-*"), *store.glob("runs/*/checkpoint.pt")]:
        path.unlink()
    assert "nothing to do: all 3 runs are done" in tiny.bench(store, "run", "SUITE").stdout
    assert tiny.bench(store, "status", "SUITE").exit_code == 0
    assert "only its records" in tiny.bench(store, "show", run.id).stdout
    assert tiny.bench(store, "store", "verify").exit_code == 0
    empty(run.path("status.json"))
    assert "runs: 1 done" in tiny.bench(store, "run", "SUITE").stdout
    assert not run.path(WEIGHTS).exists()


@pytest.mark.parametrize("how", [cut, flip, text("no archive"), folder])
def test_a_damaged_checkpoint_fails_no_retry(
    finished: Path, store: Path, tiny: SimpleNamespace, how: Callable[[Path], object]
) -> None:
    """Training starts from the beginning and gives the same weights."""
    run = named(store, "clip", tiny)
    for path in [*run.folder.glob("weights-*"), run.path("ledger.json"), run.path("hashes.json")]:
        path.unlink()
    files.write_json(run.path("status.json"), {"state": "interrupted", "step": 6, "steps": 8})
    with run.path("metrics.jsonl").open("a") as file:
        file.write('{"step": 8, "lo\n{"step": 9, "loss": 1.0}\n')
    damage(run, "checkpoint.pt", how)
    result = tiny.bench(store, "run", "SUITE")
    assert "runs: 1 done, 2 done before\n" in result.stdout
    assert "checkpoint.pt.damaged-1" in result.stderr
    said = result.stderr.splitlines()
    (first,) = (number for number, line in enumerate(said) if "checkpoint.pt.damaged-1" in line and "done" not in line)
    assert any(line.endswith(": train") for line in said[first:]), "it is said before training goes on"
    before, after = (tiny.contents(root / "runs" / run.id) for root in (finished, store))
    assert {name: after[name] for name in (WEIGHTS, "metrics.jsonl", "weights-050.safetensors")} == {
        name: before[name] for name in (WEIGHTS, "metrics.jsonl", "weights-050.safetensors")
    }


def test_a_checkpoint_of_another_run_is_moved_aside(finished: Path, store: Path, tiny: SimpleNamespace) -> None:
    """Its method and its towers are the same, so that it could be loaded."""
    run = named(store, "clip", tiny)
    other = next(one for one in tiny.planned(store, "seeds=[7]") if one.run.method == "clip" and one.run.seed == 7)
    tiny.interrupted(other, store, 4)
    for path in [*run.folder.glob("weights-*"), run.path("ledger.json"), run.path("hashes.json")]:
        path.unlink()
    files.write_json(run.path("status.json"), {"state": "interrupted", "step": 4, "steps": 8})
    shutil.copy(store / "runs" / other.id / "checkpoint.pt", run.path("checkpoint.pt"))
    result = tiny.bench(store, "run", "SUITE")
    assert f"checkpoint.pt: is of another run, {other.id[:16]}; moved to checkpoint.pt.damaged-1" in result.stderr
    assert tiny.contents(run.folder)[WEIGHTS] == tiny.contents(finished / "runs" / run.id)[WEIGHTS]


def test_a_checkpoint_is_not_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "checkpoint.pt", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("data.pkl", bytes(1 << 20))
    with pytest.raises(Damaged, match=r"its parts take [0-9,]+ bytes unpacked, but at most"):
        reading.refuse_bad_archive(tmp_path / "checkpoint.pt")


def test_lost_costs_are_said(store: Path, tiny: SimpleNamespace) -> None:
    run = named(store, "clip", tiny)
    damage(run, "ledger.json", cut)
    assert tiny.bench(store, "run", "SUITE").exit_code == 0
    lines = [line for line in tiny.bench(store, "status", "SUITE").stdout.splitlines() if run.id[:16] in line]
    assert all("its costs are lost: its ledger was damaged" in line for line in lines)
    assert lines
    table = cost(load("tiny", Store(store)))
    assert any("The costs of 1 runs are unknown" in note for note in table.footnotes)


def test_a_flipped_bit_of_an_unfinished_run_is_found_before_it_goes_on(
    finished: Path, store: Path, tiny: SimpleNamespace
) -> None:
    """Kept weights are made again, those beyond the last checkpoint too; so are those of a finished run."""
    run = named(store, "clip", tiny)
    before = tiny.contents(finished / "runs" / run.id)
    files.write_json(run.path("status.json"), {"state": "interrupted", "step": 8, "steps": 8})
    shutil.rmtree(run.path("evaluations"))
    damage(run, "weights-050.safetensors", flip)
    result = tiny.bench(store, "run", "SUITE")
    assert "weights-050.safetensors: differs from the sha256 that was stored when it was made; moved" in result.stderr
    after = tiny.contents(run.folder)
    ignored = ("status.json", "ledger.json", "environment.json", "train_seconds", "checkpoint.pt")
    assert {name: after[name] for name in before if name not in ignored} == {
        name: digest for name, digest in before.items() if name not in ignored
    }
    run.path("again").mkdir()
    shutil.copy(run.path("checkpoint.pt"), run.path("again"))
    damage(run, "again/checkpoint.pt", flip)
    verified = tiny.bench(store, "store", "verify")
    assert verified.exit_code == 1
    assert f"{run.path('again/checkpoint.pt')}: " in verified.stdout + verified.stderr
    with run.claim() as claim:
        (line,) = repair_run(claim)
    assert "again/checkpoint.pt: " in line
    assert not run.path("again").exists()


def test_weights_that_another_run_starts_from_are_trained_again(
    finished: Path, store: Path, tiny: SimpleNamespace
) -> None:
    """The last checkpoint lies beyond them, so training starts from the beginning; changed weights are no start."""
    (start,) = {one.reference for one in tiny.planned(store)} - {None}
    late = named(store, "ncu", tiny)
    flip(Store(store).run(start).path(WEIGHTS))
    assert "nothing to do" in tiny.bench(store, "run", "SUITE").stdout  # nobody needs them now
    for path in [*late.folder.glob("*.*"), *late.folder.glob("evaluations/*/*")]:
        path.unlink()
    result = tiny.bench(store, "run", "SUITE")
    assert "runs: 2 done, 1 done before\n" in result.stdout
    for identity in (start, late.id):
        name = f"runs/{identity}/{WEIGHTS}"
        assert tiny.contents(store)[name] == tiny.contents(finished)[name]
    assert tiny.bench(store, "store", "verify").exit_code == 0


def test_a_file_in_the_place_of_a_run_is_moved_aside(tmp_path: Path) -> None:
    run = Store(tmp_path).run("a" * 64)
    run.folder.parent.mkdir()
    run.folder.write_text("mine")
    assert [error.reason for error in run_problems(run)] == ["is not a folder"]
    assert run.status()["state"] == "damaged"
    (line,) = verify_store(Store(tmp_path), fix=True)[1]
    assert f"moved to {run.id}.damaged-1" in line
    assert run.folder.with_name(f"{run.id}.damaged-1").read_text() == "mine"


def test_a_damaged_plan_names_its_remedy(store: Path, tiny: SimpleNamespace) -> None:
    path = store / "tiny" / "plan.json"
    plan = json.loads(path.read_text())
    for content, said in (
        ("", "is empty"),
        ("[]", "should be an object"),
        (json.dumps({**plan, "cells": [{"run": 3}]}), r"cells\.0\.run: "),
        (json.dumps({name: value for name, value in plan.items() if name != "noises"}), "noises: is missing"),
    ):
        path.write_text(content)
        with pytest.raises(UserError, match=rf"plan\.json: .*{said}.*`bench run tiny --plan-only` writes"):
            tiny.bench(store, "status", "SUITE")


def test_a_damaged_job_costs_its_own_run_alone(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # no squeue here
    one, two, _ = Store(store).runs()
    one.path("job.json").write_text('{"job": 3}')
    two.path("job.json").write_text('{"job": "17", "log": "x"}')
    assert list(submitted_jobs([one, two])) == [two.id]
    assert "job: " in str(run_problems(one)[0])


def test_the_error_is_one_line_and_travels_between_processes() -> None:
    error = Damaged("/a\x1b[2J/b", "is\nodd")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "/a?[2J/b: is?odd; `bench run` moves it aside and recomputes what it can"
    assert isinstance(again, UserError)


def test_arrays_are_bounded_and_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, a=np.arange(4), b=np.array([True]))
    assert {name: array.tolist() for name, array in reading.read_arrays(path).items()} == {
        "a": [0, 1, 2, 3],
        "b": [True],
    }
    assert reading.read_arrays(tmp_path / "none.npz") == {}
    with pytest.raises(Damaged, match="but at most 100 are allowed"):
        reading.read_arrays(path, 100)
    np.savez(path, a=np.array([{}], dtype=object))
    with pytest.raises(Damaged, match="is not a readable archive"):
        reading.read_arrays(path)
    path.write_bytes(b"")
    with pytest.raises(Damaged, match="is not a readable archive"):
        reading.read_arrays(path)


def test_an_array_is_not_larger_than_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    header = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000,), }".ljust(
        117
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", header + b"\n" + bytes(8))
    with pytest.raises(Damaged, match="does not fit its bytes"):
        reading.read_arrays(path)


def test_a_file_above_its_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "big.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a hole, which takes no disk
    with pytest.raises(Damaged, match="it has more than"):
        reading.read_json(path)


def test_a_run_is_found_beside_a_damaged_one(store: Path) -> None:
    one, two, _ = Store(store).runs()
    empty(one.path("status.json"))
    assert find_run(Store(store), one.id[:16]).status()["state"] == "damaged"
    assert find_run(Store(store), two.id[:16]).status()["state"] == "done"
