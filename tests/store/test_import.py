"""`bench store import` trusts nobody: what is forged, damaged or cannot be checked is named and left out."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.errors import UserError
from bench.hashing import digest
from bench.store import RunStore, Store, archive
from bench.store.files import write_json
from bench.store.merge import merge_store
from bench.store.run import HASHES
from bench.store.verify import sha256
from bench.tars import MAX_HEADER_BYTES

LINK = "links are not followed"


def change(path: Path, **fields: Any) -> None:
    write_json(path, {**json.loads(path.read_text()), **fields})


def rehash(path: Path, run: RunStore) -> None:
    change(run.path(HASHES), **{str(path.relative_to(run.folder)): sha256(path)})


def other_setting(run: RunStore) -> None:
    change(run.path("settings.json"), seed=7)


def other_address(run: RunStore) -> None:
    address = {**run.settings()["address"], "seed": 7}
    change(run.path("settings.json"), seed=7, address=address)


def other_run(run: RunStore) -> None:
    """The hash that is stored of the records is forged as well."""
    path = run.path(f"evaluations/{run.evaluations()[-1]}/records.json")
    write_json(path, [{**one, "run": "0" * 64} for one in json.loads(path.read_text())])
    rehash(path, run)


def changed_byte(run: RunStore) -> Path:
    path = max(run.folder.glob("weights-*.safetensors"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    return path


def other_weights(run: RunStore) -> None:
    rehash(changed_byte(run), run)


def no_hashes(run: RunStore) -> None:
    run.path(HASHES).unlink()


def odd_records(run: RunStore) -> None:
    path = run.path(f"evaluations/{run.evaluations()[0]}/records.json")
    path.write_text('[{"at": 1.0}, 5, null]')


def unknown_steps(run: RunStore) -> None:
    change(run.path("settings.json"), resolved={**run.settings()["resolved"], "extra": 1})


def beyond_the_end(run: RunStore) -> None:
    change(run.path("status.json"), state="interrupted", step=10**15)


def done_without_end(run: RunStore) -> None:
    shutil.rmtree(run.path("evaluations"))
    max(run.folder.glob("weights-*.safetensors")).unlink()


def link_in_it(run: RunStore) -> None:
    run.path("noise.txt").symlink_to("/etc/passwd")


def pipe_in_it(run: RunStore) -> None:
    run.path("status.json").unlink()
    os.mkfifo(run.path("status.json"))


def pipe_as_claim(run: RunStore) -> None:
    os.mkfifo(run.path("claim-99"))


def link_as_run(run: RunStore) -> None:
    aside = run.folder.with_name("aside")
    run.folder.rename(aside)
    run.folder.symlink_to(aside)


FORGERIES: dict[Callable[[RunStore], object], str] = {
    other_setting: "settings.json: seed: differs from the address, of which the run's id is the digest",
    other_address: "settings.json: the run's id is not the digest of its address",
    other_run: "holds records of another run",
    other_weights: "has another sha256 than the weights that its records were measured on",
    changed_byte: "differs from the sha256 that was stored when it was made",
    no_hashes: "hashes.json: holds no hash of",
    odd_records: "records.json: ",
    unknown_steps: "settings.json: resolved.extra: is unknown to this version",
    beyond_the_end: "step 1000000000000000 is beyond the",
    done_without_end: "says done, but there are neither final weights nor records",
    link_in_it: LINK,
    pipe_in_it: "is neither a file nor a folder",
    pipe_as_claim: "is neither a file nor a folder",
    link_as_run: LINK,
}


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_a_run_that_cannot_be_believed_is_named_and_left_out(
    store: Path, here: Path, forge: Callable[[RunStore], object], tiny: SimpleNamespace
) -> None:
    one, *others = [run.id for run in Store(store).runs() if run.records()]
    forge(Store(store).run(one))
    there = tiny.contents(store)
    for dry_run in (True, False):
        outcome = merge_store(store, Store(here), dry_run)
        assert set(others) <= {*outcome.new}
        assert one not in outcome.new
        (problem,) = outcome.problems
        assert problem.startswith(f"run {one}: ")
        assert FORGERIES[forge] in problem
    assert not Store(here).run(one).folder.exists()
    assert not list(here.rglob(".tmp-*"))
    assert tiny.contents(store) == there


def test_the_id_of_a_stored_run_is_the_digest_of_its_address(finished: Path) -> None:
    for run in Store(finished).runs():
        assert digest(run.settings()["address"]) == run.id


@pytest.mark.parametrize(
    ("name", "fields", "reason"),
    [
        ("tiny", {"cells": 5}, "cells: should be a list"),
        ("tiny", {"suite": "other"}, "suite: is not tiny, as its folder says"),
        ("tiny", {"run": "../../../etc"}, "'../../../etc' should be 64 hex digits"),
        ("runs", {}, ""),
    ],
)
def test_a_plan_is_validated_before_it_is_taken(
    store: Path, here: Path, name: str, fields: dict[str, Any], reason: str
) -> None:
    path = store / "tiny" / "plan.json"
    plan = json.loads(path.read_text())
    if "run" in fields:
        plan["cells"][0] |= fields
    else:
        plan |= fields
    path.unlink()
    write_json(store / name / "plan.json", plan)
    outcome = merge_store(store, Store(here))
    assert outcome.plans == []
    assert [reason in line for line in outcome.problems] == ([True] if reason else [])
    assert not list(here.glob("*/plan.json"))


def test_links_and_odd_files_beside_the_runs_are_left_out(store: Path, here: Path) -> None:
    (store / "calibrations").mkdir()
    (store / "calibrations" / "a.json").write_text('{"train": "fast"}')
    (store / "calibrations" / "b.json").symlink_to("/etc/passwd")
    os.mkfifo(store / "calibrations" / "c.json")
    (store / "tiny" / "plan.json").rename(store / "elsewhere")
    (store / "tiny" / "plan.json").symlink_to(store / "elsewhere")
    outcome = merge_store(store, Store(here))
    assert (outcome.calibrations, outcome.plans, len(outcome.new)) == (0, [], 3)
    assert [line.split(":")[0] for line in outcome.problems] == [
        "calibration a",
        "calibration b",
        "calibration c",
        "plan tiny",
    ]
    (store / "runs").rename(store / "others")
    (store / "runs").symlink_to(store / "others")
    with pytest.raises(UserError, match=f"runs is a link; {LINK}"):
        merge_store(store, Store(here))


def packed(path: Path, *members: tuple[str, int], fill: int = 0) -> Path:
    """An archive of members with these names, that claim these sizes; each has `fill` bytes."""
    with gzip.open(path, "wb") as file:
        for name, size in members:
            info = tarfile.TarInfo(name)
            info.size = size
            file.write(info.tobuf(tarfile.GNU_FORMAT))
            file.write(b"\0" * (-(-fill // 512) * 512))
        file.write(b"\0" * 1024)
    return path


@pytest.mark.promise("an import takes no archive beyond its bounds")
@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ([("runs/a", 1 << 60)], "the free disk allow"),
        ([("runs/a", 3 << 30)], "its size and the free disk allow"),
        ([("runs/a", -1024)], "cannot be unpacked|the free disk allow"),
        ([("runs/a", 0), ("runs/a", 0)], "runs/a: appears twice in it"),
        ([("runs/" + "a" * 300, 0)], "the name is longer than any name in a store"),
        ([("runs/" + "a/" * 20, 0)], "the name is longer than any name in a store"),
    ],
)
def test_an_archive_is_bounded(here: Path, tmp_path: Path, members: list[tuple[str, int]], reason: str) -> None:
    path = packed(tmp_path / "a.tar.gz", *members)
    with pytest.raises(UserError, match=reason):
        merge_store(path, Store(here))
    assert not here.exists()


def test_a_header_that_claims_much_memory_is_refused(here: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        info = tarfile.TarInfo("././@LongLink")
        info.type, info.size = tarfile.GNUTYPE_LONGNAME, MAX_HEADER_BYTES + 512
        tar.addfile(info, io.BytesIO(b"a" * info.size))
    with pytest.raises(UserError, match="has a name or attributes of"):
        merge_store(tmp_path / "a.tar", Store(here))


def test_an_archive_of_too_many_files_is_refused(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_MEMBERS", 30)
    path = packed(tmp_path / "a.tar.gz", *((f"runs/{number}", 0) for number in range(50)))
    with pytest.raises(UserError, match=r"has more than [34]\d files and folders"):
        merge_store(path, Store(here))


def test_folders_that_no_member_names_are_counted(here: Path, tmp_path: Path) -> None:
    path = packed(tmp_path / "a.tar.gz", *((f"runs/{number}/a/b/c/d/e/f", 0) for number in range(2000)))
    with pytest.raises(UserError, match=r"has more than 1\d,\d+ files and folders"):
        merge_store(path, Store(here))
