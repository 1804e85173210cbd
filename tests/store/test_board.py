"""Bundles for the board: a good one is accepted, forged ones are refused by name; a run is trained once more."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from typer.testing import CliRunner

from bench.board.bundle import check_folder, recomputed
from bench.board.retrain import rerun_of, retrain, submit
from bench.catalogue.families.random_guess import with_means
from bench.cli import app
from bench.errors import UserError
from bench.hashing import digest
from bench.store import Store, files

COMMITTED = Path(__file__).parents[2] / "results" / "board"
Members = dict[str, bytes]


@pytest.fixture(autouse=True, scope="module")
def _without_disk() -> Iterator[None]:
    with mock.patch.object(files, "sync"):
        yield


@pytest.fixture(scope="module")
def bundle(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of a real tiny suite, alone in its folder; not to be changed."""
    path = tmp_path_factory.mktemp("board") / "tiny.tar.xz"
    assert submit("tiny", Store(finished), path)[1].problems == []
    return path


def members(archive: Path) -> Members:
    with tarfile.open(archive) as tar:
        return {one.name: tar.extractfile(one).read() for one in tar}  # type: ignore[union-attr]


def written(path: Path, content: Members) -> Path:
    """A bundle of these members."""
    with tarfile.open(path, "w:xz") as tar:
        for name, part in content.items():
            info = tarfile.TarInfo(name)
            info.size = len(part)
            tar.addfile(info, io.BytesIO(part))
    return path


def run_of(content: Members, method: str) -> str:
    """The folder of the one run of a method."""
    settings = {name: json.loads(part) for name, part in content.items() if name.endswith("/settings.json")}
    return next(name for name, one in settings.items() if one["method"] == method).removesuffix("/settings.json")


def edit(content: Members, name: str, change: Callable[[Any], None]) -> None:
    value = json.loads(content[name])
    change(value)
    content[name] = json.dumps(value).encode()


def moved(content: Members, folder: str, change: Callable[[Any], None]) -> None:
    """Change a run's address, and rename the run, its records and its cell so that everything agrees."""
    edit(content, f"{folder}/settings.json", change)
    old, new = Path(folder).name, digest(json.loads(content[f"{folder}/settings.json"])["address"])
    edit(content, f"{folder}/settings.json", lambda settings: settings.update(id=new))
    for name in [name for name in content if name.startswith(folder)]:
        content[name.replace(old, new)] = content.pop(name).replace(old.encode(), new.encode())
    content["tiny/plan.json"] = content["tiny/plan.json"].replace(old.encode(), new.encode())
    edit(content, f"runs/{new}/hashes.json", lambda hashes: hashes.update(rehashed(content, f"runs/{new}")))


def rehashed(content: Members, folder: str) -> dict[str, str]:
    known = json.loads(content[f"{folder}/hashes.json"])
    return {
        name: hashlib.sha256(content[f"{folder}/{name}"]).hexdigest() for name in known if f"{folder}/{name}" in content
    }


def changed_metric(content: Members) -> None:
    """The score, and every hash of it."""
    folder = run_of(content, "clip")
    name = max(name for name in content if name.startswith(folder) and name.endswith("records.json"))
    edit(content, name, lambda lines: lines[0].update(value=lines[0]["value"] + 0.1))
    edit(content, f"{folder}/hashes.json", lambda hashes: hashes.update(rehashed(content, folder)))


def changed_settings(content: Members) -> None:
    def change(settings: Any) -> None:
        settings["train"]["lr"] = settings["address"]["train"]["lr"] = 0.5

    edit(content, f"{run_of(content, 'clip')}/settings.json", change)


def over_budget(content: Members) -> None:
    """Twice the samples, and settings that agree with it."""
    folder = run_of(content, "clip")

    def more(settings: Any) -> None:
        settings["resolved"]["phases"] = [[name, 2 * steps] for name, steps in settings["resolved"]["phases"]]

    edit(content, f"{folder}/settings.json", more)
    edit(content, f"{folder}/ledger.json", lambda ledger: ledger.update(samples=2 * ledger["samples"]))


def more_flops(content: Members) -> None:
    edit(content, f"{run_of(content, 'clip')}/ledger.json", lambda ledger: ledger.update(flops=ledger["flops"] // 2))


def other_manifest(content: Members) -> None:
    """A manifest that the data and the seed do not give, in settings, id and plan."""
    old = json.loads(content[f"{run_of(content, 'clip')}/settings.json"])["address"]["manifest"]
    moved(content, run_of(content, "clip"), lambda settings: settings["address"].update(manifest="e" * len(old)))
    content["tiny/plan.json"] = content["tiny/plan.json"].replace(old.encode(), b"e" * len(old))


def renamed_run(content: Members) -> None:
    """The runs of two rows have the same weights."""
    clip, ncu = run_of(content, "clip"), run_of(content, "ncu")
    old, new = Path(clip).name, Path(ncu).name
    for name in [name for name in content if name.startswith(f"{ncu}/evaluations/")]:
        content[name] = content[name.replace(ncu, clip)].replace(old.encode(), new.encode())
    edit(content, f"{ncu}/hashes.json", lambda hashes: hashes.update(rehashed(content, ncu)))


def renamed_cell(content: Members) -> None:
    """The plan calls the runs of one method another's."""

    def swap(plan: Any) -> None:
        first, second = plan["cells"]
        first["run"], second["run"] = second["run"], first["run"]

    edit(content, "tiny/plan.json", swap)


def no_outcomes(content: Members) -> None:
    folder = run_of(content, "clip")
    del content[max(name for name in content if name.startswith(folder) and name.endswith("outcomes.npz"))]


def test_a_good_bundle_is_accepted(bundle: Path) -> None:
    (check,) = check_folder([bundle])
    assert (check.problems, check.runs, check.noisy, check.drawn, check.shared) == ([], 2, 2, 2, 0)
    assert check.recomputed == check.scores > 0
    names = members(bundle)
    assert not any("weights" in name or "checkpoint" in name for name in names)
    assert any(name.endswith("outcomes.npz") for name in names)


FORGED = [
    (changed_metric, r"score: .* top1 is 0\.\d+, and its outcomes give 0"),
    (changed_settings, "the run's id is not the digest of its address"),
    (over_budget, "ledger: over budget: 256 samples of 128 were spent"),
    (more_flops, "ledger: flops: is .* and its steps take"),
    (other_manifest, "noise: the manifest of its settings have the hash .* and it says eeeeeeeeeeee"),
    (renamed_run, "duplicate: has the weights of run .* under another name"),
    (renamed_cell, "method: the plan says .* and the run's settings say"),
    (no_outcomes, "has no outcomes of single examples"),
]


def test_a_folder_without_a_bundle_is_not_called_consistent(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["board", str(tmp_path)])
    assert isinstance(result.exception, UserError)
    assert str(result.exception) == f"{tmp_path}: holds no bundle; `bench submit` writes them"


@pytest.mark.promise("a forged bundle is refused by name")
@pytest.mark.parametrize(("forge", "reason"), FORGED, ids=[forge.__name__ for forge, _ in FORGED])
def test_a_forged_bundle_is_refused_by_name(
    bundle: Path, tmp_path: Path, forge: Callable[[Members], None], reason: str
) -> None:
    content = members(bundle)
    forge(content)
    (check,) = check_folder([written(tmp_path / "forged.tar.xz", content)])
    with pytest.raises(UserError, match=reason):
        raise UserError(*check.problems)
    assert all("forged.tar.xz: " in problem for problem in check.problems)


def test_the_same_bundle_twice_and_other_scores_of_one_run_are_duplicates(bundle: Path, tmp_path: Path) -> None:
    shutil.copy(bundle, tmp_path / "a.tar.xz")
    shutil.copy(bundle, tmp_path / "b.tar.xz")
    first, second = check_folder([tmp_path])
    assert first.problems == []
    assert second.problems == [f"{second.path}: duplicate: every run of it is in other bundles already"]
    content = members(bundle)
    changed_metric(content)
    written(tmp_path / "b.tar.xz", content)
    (alone,) = check_folder([tmp_path / "b.tar.xz"])
    assert any("outcomes give" in problem for problem in alone.problems)


def test_submit_refuses_what_is_there_and_writes_nothing_that_does_not_pass(
    finished: Path, store: Path, bundle: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="already exists; --out FILE"):
        submit("tiny", Store(finished), bundle)
    run = next(run for run in Store(store).runs() if run.settings()["method"] == "ncu")
    ledger = json.loads(run.path("ledger.json").read_text())
    run.path("ledger.json").write_text(json.dumps({**ledger, "flops": 1}))
    _, check = submit("tiny", Store(store), tmp_path / "x.tar.xz")
    assert any("ledger: flops" in problem for problem in check.problems)
    assert not (tmp_path / "x.tar.xz").exists()


def test_a_bundle_is_rerun_and_the_outcome_noted(bundle: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(bundle, tmp_path / "tiny.tar.xz"))
    verified = rerun_of(path, "cheapest")
    assert verified.consistent
    note = json.loads((tmp_path / "tiny.rerun.json").read_text())
    assert (note["run"], note["consistent"]) == (verified.run, True)
    assert note["environment"]["hardware"]["device"]


def test_a_stored_run_is_verified_with_the_run_it_starts_from(finished: Path) -> None:
    run = next(run for run in Store(finished).runs() if run.settings()["method"] == "ncu")
    verified = retrain(Store(finished), run.id[:16])
    assert verified.consistent
    assert "the weights have the same bytes, and all" in verified.text


@pytest.mark.parametrize(("factor", "consistent"), [(1.001, True), (1.1, False)])
def test_other_weights_and_losses_are_said(store: Path, tiny: SimpleNamespace, factor: float, consistent: bool) -> None:
    run = next(
        one
        for one in Store(store).runs()
        if one.settings()["method"] == "clip" and one.settings()["address"]["reference"] is None
    )
    lines = run.metrics()
    run.path("metrics.jsonl").write_text(
        "".join(json.dumps({**line, "loss": factor * line["loss"]}) + "\n" for line in lines)
    )
    for key in run.evaluations():
        path = run.path(f"evaluations/{key}/records.json")
        path.write_text(json.dumps([{**one, "checkpoint": "0" * 64} for one in json.loads(path.read_text())]))
    result = tiny.bench(store, "verify", run.id)
    assert result.exit_code == 1
    assert "NOT consistent: the weights have other bytes on the same type of machine" in result.stdout
    environment = run.environment()
    environment["hardware"]["device"] = "another CPU"
    run.path("environment.json").write_text(json.dumps(environment))
    verified = retrain(Store(store), run.id)
    assert verified.consistent == consistent
    assert "losses differ by at most 0." in verified.text


def test_every_bundle_on_the_board_is_consistent_and_so_is_what_was_rerun() -> None:
    outcomes = check_folder([COMMITTED])
    assert outcomes
    assert [problem for one in outcomes for problem in one.problems] == []
    for note in COMMITTED.glob("*.rerun.json"):
        said = json.loads(note.read_text())
        assert said["consistent"]
        bundle = note.with_name(note.name.replace(".rerun.json", ".tar.xz"))
        assert f"runs/{said['run']}/settings.json" in members(bundle)


def test_scores_of_every_kind_follow_from_outcomes() -> None:
    better = np.array([0, 2, 7], np.int32)
    one, none = np.ones(3, np.int32), np.zeros(3, np.int32)
    ranks = {"better": better, "tied_wrong": none, "tied_right": one}
    sides = {f"cosine_{side}_{name}": part for side in ("i2t", "t2i") for name, part in ranks.items()}
    got = recomputed({**sides, "cosine_owner": np.arange(3, dtype=np.int32)})
    wanted = {f"{side}_r{k}": hits / 3 for side in ("i2t", "t2i") for k, hits in ((1, 1), (5, 2), (10, 3))}
    assert got == pytest.approx({(name, "cosine"): value for name, value in with_means(wanted).items()})
    classes = {f"cosine_{name}": part for name, part in ranks.items()}
    logs = np.log(np.array([0.5, 0.25, 0.5], np.float32))
    ranked = recomputed({**classes, "cosine_log_likelihood": logs})
    assert ranked["mrr", "cosine"] == pytest.approx((1 + 1 / 3 + 1 / 8) / 3)
    assert ranked["likelihood", "cosine"] == pytest.approx((0.5 * 0.25 * 0.5) ** (1 / 3))
    found = recomputed({"confidence": np.array([0.1, 0.9, 0.8]), "noisy": np.array([True, False, False])})
    assert found == {("auroc", ""): 1.0, ("average_precision", ""): 1.0}
    puzzles = {"candidates": np.array([5, 12]), "cosine_jaccard": np.array([0.5, 1.0])}
    assert recomputed(puzzles)["jaccard", "cosine"] == 0.75
    assert recomputed({"correct": np.array([True, False])}) == {("accuracy", ""): 0.5}
