"""`bench store import`: real runs of one store arrive in another, whole, once, and never over what is complete."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bench.errors import UserError
from bench.store import RunStore, Store
from bench.store.files import write_json
from bench.store.merge import merge_store
from bench.store.verify import run_problems, sha256


def ids(store: Path) -> list[str]:
    return [run.id for run in Store(store).runs()]


def without_reports(contents: dict[str, str]) -> dict[str, str]:
    return {name: digest for name, digest in contents.items() if name.startswith("runs/") or name.endswith("plan.json")}


def interrupt(run: RunStore) -> None:
    """Forge the status of a finished run, which no writer changes."""
    write_json(run.path("status.json"), {"state": "interrupted", "step": 1})


def archived(store: Path, to: Path) -> Path:
    with tarfile.open(to, "w:gz") as tar:
        tar.add(store, arcname="results")
    return to


@pytest.mark.parametrize("packed", [False, True])
def test_everything_arrives_and_is_complete(finished: Path, here: Path, packed: bool, tiny: SimpleNamespace) -> None:
    source = archived(finished, here.with_name("a.tar.gz")) if packed else finished
    result = tiny.bench(here, "store", "import", str(source))
    assert "runs: 3 new\n" in result.stdout
    assert "1 plans" in result.stdout
    assert without_reports(tiny.contents(here)) == without_reports(tiny.contents(finished))
    assert not list(here.rglob("claim"))
    assert not list(here.rglob(".tmp-*"))
    assert "nothing to do: all 3 runs are done" in tiny.bench(here, "run", "SUITE").stdout
    before = tiny.contents(here)
    assert "runs: 3 here already\n" in tiny.bench(here, "store", "import", str(source)).stdout
    assert tiny.contents(here) == before


def test_a_dry_run_says_the_same_and_changes_nothing(finished: Path, here: Path, tiny: SimpleNamespace) -> None:
    packed = archived(finished, here.with_name("a.tar.gz"))
    for source in (finished, packed):
        result = tiny.bench(here, "store", "import", str(source), "--dry-run")
        assert "runs: 3 new\n" in result.stdout
        assert "nothing was changed" in result.stdout
        assert not here.exists()


def test_an_interrupted_run_goes_on_here_to_the_same_weights(
    finished: Path, here: Path, tmp_path: Path, tiny: SimpleNamespace
) -> None:
    there = tmp_path / "there" / "results"
    there.parent.mkdir()
    one = tiny.planned(there)[0]
    tiny.interrupted(one, there, after=5)
    assert merge_store(there, Store(here)).new == [one.id]
    assert Store(here).run(one.id).status()["step"] == 5
    assert "runs: 1 done" in tiny.bench(here, "run", "SUITE", "--only", "clip").stdout
    name = f"runs/{one.id}/weights-100.safetensors"
    assert tiny.contents(here)[name] == tiny.contents(finished)[name]
    assert len(Store(here).run(one.id).metrics()) == len(Store(finished).run(one.id).metrics())


def test_the_run_that_is_further_wins(finished: Path, here: Path, tmp_path: Path, tiny: SimpleNamespace) -> None:
    one = tiny.planned(here)[0]
    tiny.interrupted(one, here, after=3)
    behind = Path(shutil.copytree(here, tmp_path / "behind"))
    tiny.interrupted(one, here, after=2)  # two steps more
    assert merge_store(behind, Store(here)).known == [one.id]
    assert Store(here).run(one.id).status()["step"] == 5
    found = merge_store(finished, Store(here))
    assert found.advanced == [one.id]
    assert len(found.new) == 2
    assert without_reports(tiny.contents(here)) == without_reports(tiny.contents(finished))
    before = tiny.contents(here)
    assert merge_store(behind, Store(here)).known == [one.id]
    assert tiny.contents(here) == before
    assert not list(here.rglob(".tmp-*"))


@pytest.mark.promise("one id has one result: a run with other numbers is refused by name, with both machines")
def test_other_numbers_are_one_line_with_both_machines_and_ours_stay(
    finished: Path, store: Path, tiny: SimpleNamespace
) -> None:
    keys = sorted(path.name for path in next(iter(Store(store).runs())).path("evaluations").iterdir())
    run = next(iter(Store(store).runs()))
    for path in (run.path(f"evaluations/{key}/records.json") for key in keys):
        path.write_text(path.read_text().replace('"value": 0.', '"value": 0.9'))
    there = run.environment()["hardware"]["device"]
    write_json(run.path("environment.json"), {**run.environment(), "hardware": {"device": "another CPU"}})
    before = tiny.contents(store)
    result = tiny.bench(store, "store", "import", str(finished))
    assert result.exit_code == 1
    machines = f"(another CPU here, {there} there)"
    said = f"run {run.id}: has other numbers there {machines} in {', '.join(keys)}; ours are kept"
    assert result.stderr.splitlines() == [said]
    assert "skipped: 1, see above" in result.stdout
    assert tiny.contents(store) == before


def test_an_unfinished_run_that_contradicts_is_kept_too(finished: Path, store: Path, tiny: SimpleNamespace) -> None:
    path = min(store.glob("runs/*/evaluations/*/records.json"))
    path.write_text(path.read_text().replace('"value": 0.', '"value": 0.9'))
    run = Store(store).run(path.parents[2].name)
    interrupt(run)
    before = tiny.contents(store)
    assert len(merge_store(finished, Store(store)).problems) == 1
    assert tiny.contents(store) == before


def test_outcomes_with_other_bytes_there_stay_and_keep_their_hash(finished: Path, store: Path) -> None:
    """Those of another type of machine."""
    path = min(store.glob("runs/*/evaluations/*/outcomes.npz"))
    run = Store(store).run(path.parents[2].name)
    with np.load(path) as stored:
        np.savez(path, **stored)
    write_json(run.path("hashes.json"), {**run.hashes(), str(path.relative_to(run.folder)): sha256(path)})
    interrupt(run)
    assert merge_store(finished, Store(store)).advanced == [run.id]
    assert run_problems(run, thorough=True) == []


def test_what_somebody_works_on_is_left_out(finished: Path, store: Path, here: Path) -> None:
    run = ids(store)[0]
    with Store(store).run(run).claim():
        assert merge_store(store, Store(here)).busy == [run]
        assert ids(here) == ids(store)[1:]
        assert merge_store(finished, Store(store)).busy == [run]


def test_calibrations_and_plans_come_along_but_ours_stay(finished: Path, store: Path, tmp_path: Path) -> None:
    there = Path(shutil.copytree(finished, tmp_path / "there"))
    for folder, names in ((there, ("a", "b")), (store, ("b",))):
        (folder / "calibrations").mkdir()
        for name in names:
            write_json(folder / "calibrations" / f"{name}.json", {"train": len(folder.name)})
    (there / "other").mkdir()
    plan = (store / "tiny" / "plan.json").read_bytes()
    (there / "other" / "plan.json").write_bytes(plan.replace(b'"tiny"', b'"other"'))
    (there / "tiny" / "plan.json").write_text('{"suite": "changed"}')
    found = merge_store(there, Store(store))
    assert (found.calibrations, found.plans) == (1, ["other"])
    assert found.problems == ["calibration b: has other numbers in the source; ours are kept"]
    assert (store / "calibrations" / "a.json").read_bytes() == (there / "calibrations" / "a.json").read_bytes()
    assert (store / "tiny" / "plan.json").read_bytes() == plan


def test_a_run_that_is_not_what_its_name_says_is_left_out(store: Path, here: Path) -> None:
    one, two, three = ids(store)
    (store / "runs" / one).rename(store / "runs" / ("0" * 64))
    (store / "runs" / two / "status.json").write_text('{"state": "do')
    (store / "runs" / "note").mkdir()
    found = merge_store(store, Store(here))
    assert found.new == [three]
    assert len(found.problems) == 2  # "note" is no id, so it is no run
    assert ids(here) == [three]


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    "member",
    [
        entry("../evil"),
        entry("runs/../../evil"),
        entry("/tmp/evil"),
        entry("runs/link", tarfile.SYMTYPE, "/etc/passwd"),
        entry("runs/link", tarfile.LNKTYPE, "../../evil"),
        entry("runs/device", tarfile.CHRTYPE),
    ],
    ids=lambda info: info.name,
)
def test_an_archive_that_reaches_out_is_refused(store: Path, here: Path, member: tarfile.TarInfo) -> None:
    path = here.with_name("evil.tar")
    with tarfile.open(path, "w") as tar:
        tar.add(store / "runs", arcname="runs")
        tar.addfile(member, io.BytesIO())
    with pytest.raises(UserError, match="a store holds only files and folders below it"):
        merge_store(path, Store(here))
    assert sorted(file.name for file in here.parent.iterdir()) == ["evil.tar"]


def test_what_is_no_store_is_said(finished: Path, here: Path, tmp_path: Path) -> None:
    (tmp_path / "text.tar.gz").write_text("no archive")
    small = tmp_path / "small"  # packing a whole store takes long, and these archives are damaged anyway
    (small / "runs").mkdir(parents=True)
    (small / "runs" / "noise").write_bytes(os.urandom(100_000))
    cut = archived(small, tmp_path / "cut.tar.gz")
    cut.write_bytes(cut.read_bytes()[:20_000])
    with tarfile.open(tmp_path / "spoiled.tar.xz", "w:xz", preset=0) as tar:
        tar.add(small, arcname="results")
    spoiled = bytearray((tmp_path / "spoiled.tar.xz").read_bytes())
    spoiled[len(spoiled) // 2] ^= 255
    (tmp_path / "spoiled.tar.xz").write_bytes(spoiled)
    with tarfile.open(tmp_path / "empty.tar", "w"):
        pass
    for source, said in (
        (tmp_path / "none", "no such folder or archive"),
        (finished / "runs", "is not a store: it has no folder runs/"),
        (tmp_path / "text.tar.gz", "cannot be unpacked as a tar archive"),
        (cut, "cannot be unpacked as a tar archive"),
        (tmp_path / "spoiled.tar.xz", "cannot be unpacked as a tar archive"),
        (tmp_path / "empty.tar", "holds no store"),
    ):
        with pytest.raises(UserError, match=said):
            merge_store(source, Store(here))
    with pytest.raises(UserError, match="is this store itself"):
        merge_store(finished, Store(finished))
    assert not here.exists()
