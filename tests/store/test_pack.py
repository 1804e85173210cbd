"""`bench store pack`: a suite's runs as one archive without weights, the same bytes each time, and its import."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.errors import UserError
from bench.hashing import digest
from bench.store import Store
from bench.store.files import write_json
from bench.store.incoming import unpack_incoming
from bench.store.merge import merge_store
from bench.store.pack import pack_runs
from bench.store.verify import verify_store

from .conftest import Members, members, packed


@pytest.fixture(scope="module")
def archive(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of a real tiny suite; not to be changed."""
    path = tmp_path_factory.mktemp("packed") / "runs.tar.xz"
    pack_runs("tiny", Store(finished), path)
    return path


def numbers(store: Store) -> dict[str, Any]:
    return {run.id: (run.records(), run.ledger(), run.environment(), run.diagnostics()) for run in store.runs()}


@pytest.mark.promise("no archive holds runs of a changed tree")
def test_runs_of_code_with_uncommitted_changes_are_refused(store: Path, tmp_path: Path) -> None:
    run = next(iter(Store(store).runs()))
    write_json(run.path("environment.json"), {**run.environment(), "commit": "1" * 40 + "+"})
    with pytest.raises(UserError, match="suite tiny: 1 of its 2 finished runs were made by code with uncommitted"):
        pack_runs("tiny", Store(store), tmp_path / "a.tar.xz")
    assert not (tmp_path / "a.tar.xz").exists()


@pytest.mark.promise("the same runs give the same archive, without weights and times")
def test_the_same_runs_give_the_same_bytes_without_weights_and_times(
    finished: Path, archive: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(finished, tmp_path / "copy"))
    for path in copy.rglob("*"):
        os.utime(path, (0, 0))
    outcome = pack_runs("tiny", Store(copy), tmp_path / "deep" / "runs.tar.xz")
    assert (tmp_path / "deep" / "runs.tar.xz").read_bytes() == archive.read_bytes()
    assert outcome.bytes == archive.stat().st_size < 100_000
    assert (outcome.runs, outcome.unfinished, outcome.damaged) == (2, (), ())
    names = list(members(archive))
    assert {Path(name).name for name in names} == {
        "store.json", "plan.json", "settings.json", "status.json", "ledger.json", "environment.json",
        "diagnostics.json", "records.json", "packed.json",
    }  # fmt: skip
    with tarfile.open(archive) as tar:
        assert {(one.mtime, one.uid, one.gid, one.uname, one.mode) for one in tar} == {(0, 0, 0, "", 0o644)}


def test_an_import_takes_the_runs_as_records_alone_and_nothing_is_damaged(
    finished: Path, archive: Path, tmp_path: Path, tiny: SimpleNamespace
) -> None:
    here = tmp_path / "here"
    result = tiny.bench(here, "store", "import", str(archive))
    assert (result.exit_code, result.stderr) == (0, "")
    assert "runs: 2 new" in result.stdout
    assert "tiny: 2 of the 2 runs of its tables" in result.stdout
    assert verify_store(Store(here)) == ([], [])
    known = numbers(Store(finished))
    assert {run: known[run] for run in numbers(Store(here))} == numbers(Store(here))
    assert (here / "tiny" / "plan.json").read_bytes() == (finished / "tiny" / "plan.json").read_bytes()
    assert not list(here.rglob("*.safetensors"))
    lines = tiny.bench(here, "run", "SUITE", "--dry-run").stdout.splitlines()
    assert [line.split()[1] for line in lines if "seed 0" in line and "reference" not in line] == ["done"] * 2
    assert merge_store(archive, Store(here)).known == sorted(numbers(Store(here)))


def test_runs_that_are_not_finished_are_named_and_left_out(store: Path, tmp_path: Path, tiny: SimpleNamespace) -> None:
    plan = json.loads((store / "tiny" / "plan.json").read_text())
    first, second = (Store(store).run(cell["run"]) for cell in plan["cells"])
    status = json.loads(first.path("status.json").read_text())
    first.path("status.json").write_text(json.dumps({**status, "state": "interrupted"}))
    result = tiny.bench(store, "store", "pack", "SUITE", "--out", str(tmp_path / "a.tar.xz"))
    assert result.exit_code == 0
    assert "omitted: clip, 40 % shuffled captions, seed 0: interrupted" in result.stdout
    assert "a.tar.xz: 1 runs" in result.stdout
    shutil.rmtree(second.path("evaluations"))
    for path in second.folder.glob("weights-*"):
        path.unlink()
    with pytest.raises(UserError, match=r"none of its runs in .* is finished and whole"):
        pack_runs("tiny", Store(store), tmp_path / "b.tar.xz")
    assert not (tmp_path / "b.tar.xz").exists()


def test_trials_are_packed_as_well(store: Path, archive: Path, tmp_path: Path) -> None:
    path = store / "tiny" / "plan.json"
    plan = json.loads(path.read_text())
    trial = plan["cells"].pop()
    choice = {"chosen": {}, "score": 0.5, "points": 1, "default": None, "edge": []}
    choice |= {"trials": [{"changes": {}, "run": trial["run"], "score": 0.5}]}
    choice |= {"ledger": {"flops": 1, "train_seconds": 1}}
    rung = {"budget": "128 samples", "settings": 1, "seeds": [1000]}
    search = {"rungs": [rung], "rate": 0.4, "lr": [1e-4, 1e-2], "weight_decay": None}
    path.write_text(json.dumps({**plan, "tuning": {**search, "methods": {trial["method"]: choice}}}))
    pack_runs("tiny", Store(store), tmp_path / "a.tar.xz")
    assert members(tmp_path / "a.tar.xz").keys() == members(archive).keys()
    status = Store(store).run(trial["run"]).path("status.json")
    status.write_text(status.read_text().replace('"done"', '"interrupted"'))
    assert pack_runs("tiny", Store(store), tmp_path / "a.tar.xz").unfinished == ("a trial of ncu: interrupted",)


def test_a_failed_run_is_a_result(store: Path, tmp_path: Path) -> None:
    run = Store(store).run(json.loads((store / "tiny" / "plan.json").read_text())["cells"][1]["run"])
    error = {"type": "NotFinite", "message": "the loss is nan", "step": 3}
    run.path("status.json").write_text(json.dumps({"state": "failed", "step": 3, "steps": 8, "error": error}))
    pack_runs("tiny", Store(store), tmp_path / "a.tar.xz")
    with unpack_incoming(tmp_path / "a.tar.xz") as there:
        assert there.run(run.id).status()["error"] == error


def test_a_damaged_run_is_named_and_the_exit_code_is_1(store: Path, tmp_path: Path, tiny: SimpleNamespace) -> None:
    run = Store(store).run(json.loads((store / "tiny" / "plan.json").read_text())["cells"][0]["run"])
    path = run.path(f"evaluations/{run.evaluations()[0]}/records.json")
    path.write_text(path.read_text().replace('"value": 0.', '"value": 0.1', 1))
    result = tiny.bench(store, "store", "pack", "SUITE", "--out", str(tmp_path / "a.tar.xz"))
    assert result.exit_code == 1
    assert "records.json: differs from the sha256 that was stored when it was made" in result.stderr
    assert not any(run.id in name for name in members(tmp_path / "a.tar.xz"))


def test_archives_are_opened_in_memory_if_there_is_room_and_where_tmpdir_says(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, free = tmp_path / "shm", SimpleNamespace(free=1 << 62)
    shared.mkdir()
    monkeypatch.setattr("bench.store.incoming.MEMORY_FOLDER", shared)
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr("bench.store.incoming.shutil.disk_usage", lambda _: free)
    with unpack_incoming(archive) as there:
        assert there.root.is_relative_to(shared)
    assert not list(shared.iterdir())
    free.free = 1 << 27  # more than the files need, less than the archive may claim
    with unpack_incoming(archive) as there:
        assert not there.root.is_relative_to(shared)
    free.free = 1 << 62
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with unpack_incoming(archive) as there:
        assert not there.root.is_relative_to(shared)


def test_what_cannot_be_packed_is_one_line(store: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a.zip: should be a file whose name ends in .tar.xz"):
        pack_runs("tiny", Store(store), tmp_path / "a.zip")
    with pytest.raises(UserError, match=r"other/plan\.json: is not there; run the suite first"):
        pack_runs("other", Store(store), tmp_path / "a.tar.xz")


def other_number(content: Members) -> None:
    name = max(name for name in content if name.endswith("records.json"))
    content[name] = content[name].replace(b'"value": 0.', b'"value": 0.1', 1)


def other_seed(content: Members) -> None:
    name = max(name for name in content if name.endswith("settings.json"))
    content[name] = content[name].replace(b'"seed": 0', b'"seed": 7')


def no_settings(content: Members) -> None:
    del content[max(name for name in content if name.endswith("settings.json"))]


def summed(forge: Callable[[Members], None]) -> Callable[[Members], None]:
    """Forge, and set the sum over all files."""

    def both(content: Members) -> None:
        forge(content)
        hashes = {name: sha256(part).hexdigest() for name, part in content.items() if name != "packed.json"}
        content["packed.json"] = json.dumps({"sha256": digest(hashes)}).encode()

    return both


def odd_plan(content: Members) -> None:
    content["tiny/plan.json"] = json.dumps({**json.loads(content["tiny/plan.json"]), "cells": 5}).encode()


def link_out(content: Members) -> None:
    content["../outside"] = b""


@pytest.mark.parametrize(
    ("forge", "reason"),
    [
        (other_number, "was changed, added or removed since it was packed"),
        (no_settings, "was changed, added or removed since it was packed"),
        (summed(other_seed), "the run's id is not the digest of its address"),
        (summed(no_settings), "is not complete"),
        (summed(odd_plan), "cells: should be a list"),
        (link_out, "only files and folders below it"),
    ],
)
def test_what_an_archive_forges_is_not_shown(
    archive: Path, tmp_path: Path, forge: Callable[[Members], None], reason: str
) -> None:
    content = members(archive)
    forge(content)
    forged = packed(tmp_path / "forged.tar.xz", content)
    with pytest.raises(UserError, match=reason), unpack_incoming(forged):
        pytest.fail("it was opened")
