"""Bundles for the board: a good one is accepted, forged ones are refused by name; a run is trained once more."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from typer.testing import CliRunner

from bench.board.bundle import check_bundle, check_folder
from bench.board.outcomes import recompute_scores
from bench.board.retrain import rerun_bundle, retrain_run, write_submission
from bench.catalogue.families.random_guess import with_means
from bench.cli import app
from bench.errors import UserError
from bench.hashing import digest
from bench.models import stored_run
from bench.store import Store, files
from reports.site.board import site

from .conftest import Members, members, packed

COMMITTED = Path(__file__).parents[2] / "results" / "board"


@pytest.fixture(autouse=True, scope="module")
def _without_disk() -> Iterator[None]:
    with mock.patch.object(files, "sync"):
        yield


@pytest.fixture(scope="module")
def bundle(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of a real tiny suite, alone in its folder; not to be changed."""
    path = tmp_path_factory.mktemp("board") / "tiny.tar.xz"
    assert write_submission("tiny", Store(finished), path)[1].problems == []
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


def rehash(content: Members, folder: str) -> None:
    edit(content, f"{folder}/hashes.json", lambda hashes: hashes.update(rehashed(content, folder)))


def changed_metric(content: Members) -> None:
    """The score, and every hash of it."""
    folder = run_of(content, "clip")
    name = max(name for name in content if name.startswith(folder) and name.endswith("records.json"))
    edit(content, name, lambda lines: lines[0].update(value=lines[0]["value"] + 0.1))
    rehash(content, folder)


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
    edit(content, "tiny/plan.json", lambda plan: [cell.update(steps=2 * cell["steps"]) for cell in plan["cells"]])


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


def part_of(content: Members, folder: str, file: str) -> str:
    """The path of a file of the last evaluation of a run."""
    return max(name for name in content if name.startswith(f"{folder}/evaluations/") and name.endswith(file))


def with_records(content: Members, change: Callable[[Any], None]) -> None:
    folder = run_of(content, "clip")
    edit(content, part_of(content, folder, "records.json"), change)
    rehash(content, folder)


def with_arrays(content: Members, change: Callable[[Any], Any]) -> None:
    folder = run_of(content, "clip")
    name, buffer = part_of(content, folder, "outcomes.npz"), io.BytesIO()
    np.savez_compressed(buffer, **change(dict(np.load(io.BytesIO(content[name])))))
    content[name] = buffer.getvalue()
    rehash(content, folder)


def interrupted(content: Members) -> None:
    """A run that is not done, with scores of 98.8 %."""
    edit(content, f"{run_of(content, 'clip')}/status.json", lambda status: status.update(state="interrupted"))
    with_records(content, lambda lines: lines[0].update(value=0.988))


def no_arrays(content: Members) -> None:
    with_arrays(content, lambda _: {})
    with_records(content, lambda lines: lines[0].update(value=0.988))


def other_arrays(content: Members) -> None:
    with_arrays(content, lambda arrays: {f"my_{name}": array for name, array in arrays.items()})
    with_records(content, lambda lines: lines[0].update(value=0.988))


def other_metric(content: Members) -> None:
    with_records(content, lambda lines: lines.append({**lines[0], "metric": "best", "value": 0.988}))


def twice(content: Members) -> None:
    with_records(content, lambda lines: lines.append({**lines[0]}))


def omitted(content: Members) -> None:
    """A seed with a bad score."""
    with_records(content, lambda lines: lines.pop(0))


def other_family(content: Members) -> None:
    with_records(content, lambda lines: [line.update(task="my_task/concept") for line in lines])


def other_task(content: Members) -> None:
    with_records(content, lambda lines: [line.update(dataset="emoji/other") for line in lines])


def other_direction(content: Members) -> None:
    with_records(content, lambda lines: lines[0].update(higher_is_better=False))


def more_examples(content: Members) -> None:
    with_records(content, lambda lines: lines[0].update(n=10 * lines[0]["n"]))


def of_settings(section: str, **fields: Any) -> Callable[[Members], None]:
    """What a run's settings say of it beyond its address, which stays."""

    def change(content: Members) -> None:
        name = f"{run_of(content, 'clip')}/settings.json"
        if section:
            edit(content, name, lambda settings: settings[section].update(fields))
        else:
            edit(content, name, lambda settings: settings.update(fields))

    return change


def of_plan(change: Callable[[Any], None]) -> Callable[[Members], None]:
    return lambda content: edit(content, "tiny/plan.json", change)


def of_ledger(**fields: Any) -> Callable[[Members], None]:
    return lambda content: edit(content, f"{run_of(content, 'clip')}/ledger.json", lambda one: one.update(fields))


def large_arrays(content: Members) -> None:
    """Zeros that would take 128 MiB unpacked."""
    with_arrays(content, lambda arrays: {**arrays, "label": np.zeros(1 << 27, np.uint8)})


def many_examples(content: Members) -> None:
    with_records(content, lambda lines: [line.update(n=1 << 40) for line in lines])


def test_a_good_bundle_is_accepted(bundle: Path) -> None:
    (check,) = check_folder([bundle])
    assert (check.problems, check.runs, check.noisy, check.drawn, check.shared) == ([], 2, 2, 2, 0)
    assert check.recomputed == check.scores > 0
    assert check.counted == check.done == 2
    names = members(bundle)
    assert not any("weights" in name or "checkpoint" in name for name in names)
    assert any(name.endswith("outcomes.npz") for name in names)


FORGED = [
    (changed_metric, r"score: .* top1 is 0\.\d+, and its per-example results give 0"),
    (changed_settings, "the run's id is not the digest of its address"),
    (over_budget, "ledger: over budget: 256 samples of 128 were spent"),
    (more_flops, "ledger: flops: is .* and its steps take"),
    (other_manifest, "noise: the manifest of its settings have the hash .* and it says eeeeeeeeeeee"),
    (renamed_run, "duplicate: has the weights of run .* under another name"),
    (renamed_cell, "method: the plan says .* and the run's settings say"),
    (no_outcomes, "score: .* does not follow from its per-example results"),
    (interrupted, "status: is interrupted, but it has records"),
    (no_arrays, "score: .* does not follow from its per-example results"),
    (other_arrays, "score: .* does not follow from its per-example results"),
    (other_metric, "score: .* best does not follow from its per-example results"),
    (twice, "evaluations/.*: emoji.* is a duplicate"),
    (omitted, "score: .* has no top1 cosine, which its per-example results give"),
    (other_family, "its records belong to no family of tasks that this version knows"),
    (other_task, "evaluations/.*: holds emoji/other .*, which has another key"),
    (other_direction, "evaluations/.*: higher_is_better of .* is false"),
    (more_examples, r"n: .* says [0-9,]+ examples, and its per-example results have"),
    (of_settings("towers", image="ViT-B-32"), "towers: differs from the address"),
    (of_settings("towers", image_start="a.pt"), "towers: differs from the address"),
    (of_settings("", start="weights.safetensors"), "start: differs from the address"),
    (of_settings("", untrained=True), "untrained: differs from the address"),
    (of_settings("resolved", extra=1), "settings.json: resolved.extra: is unknown to this version"),
    (of_settings("resolved", step_flops={"train": 1}), "ledger: flops: is"),
    (of_settings("evaluate", tasks=[None]), "is not a run's settings of this version"),
    (of_plan(lambda plan: plan["methods"][0].update(config={"tau": 1})), "config: the plan says"),
    (of_plan(lambda plan: plan["noises"][0].update(towers="ViT-B-32")), "towers: the plan says ViT-B-32"),
    (of_plan(lambda plan: plan["cells"][0].update(steps=1)), "steps: the plan says 1, and"),
    (of_plan(lambda plan: plan["budget"].update(value=1)), "budget: the plan states less than 128 samples"),
    (of_plan(lambda plan: plan["primary"].update(metric="top5")), "plan: primary: is .*top5"),
    (of_plan(lambda plan: plan["datasets"]["emoji/iid"].update(n=7)), "plan: datasets: emoji/iid has"),
    (of_plan(lambda plan: plan["datasets"]["emoji/iid"]["chance"].update({"zero_shot/concept/top1": 0})), "chance: of"),
    (of_plan(lambda plan: plan["cells"][0].pop("seed")), "plan.json: cells.0.seed: is missing"),
    (of_ledger(image_forwards=1.0), "ledger: image_forwards: is 1, and its steps take 128"),
    (of_ledger(train_seconds=0.0), "ledger: train_seconds: is 0, and 8 steps take time"),
    (of_ledger(spent_share=0.5), "ledger: spent_share: is 0.5, and its steps take 1"),
    (large_arrays, r"outcomes.npz: .*its parts take 134,\d+,\d+ bytes unpacked, but at most [0-9,]+ are allowed"),
    (many_examples, r"n: is 1,099,511,627,776; an evaluation has 1 to"),
]


def test_a_folder_without_a_bundle_is_not_called_consistent(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["board", "check", str(tmp_path)])
    assert isinstance(result.exception, UserError)
    assert str(result.exception) == f"{tmp_path}: holds no bundle; `bench board submit` writes them"


@pytest.mark.promise("a forged bundle is refused by name")
@pytest.mark.parametrize(
    ("forge", "reason"), FORGED, ids=[f"{forge.__name__}-{n}" for n, (forge, _) in enumerate(FORGED)]
)
def test_a_forged_bundle_is_refused_by_name(
    bundle: Path, tmp_path: Path, forge: Callable[[Members], None], reason: str
) -> None:
    content = members(bundle)
    forge(content)
    (check,) = check_folder([packed(tmp_path / "forged.tar.xz", content)])
    with pytest.raises(UserError, match=reason):
        raise UserError(*check.problems)
    assert all("forged.tar.xz: " in problem for problem in check.problems)


def test_the_same_bundle_twice_and_other_scores_of_one_run_are_duplicates(bundle: Path, tmp_path: Path) -> None:
    shutil.copy(bundle, tmp_path / "a.tar.xz")
    shutil.copy(bundle, tmp_path / "b.tar.xz")
    first, second = check_folder([tmp_path])
    assert first.problems == []
    assert second.problems == [f"{second.path}: duplicate: every finished run of it is already in other bundles"]
    content = members(bundle)
    changed_metric(content)
    packed(tmp_path / "b.tar.xz", content)
    (alone,) = check_folder([tmp_path / "b.tar.xz"])
    assert any("per-example results give" in problem for problem in alone.problems)


@pytest.mark.promise("no change of a bundle changes its rows on the board")
def test_what_is_changed_in_a_bundle_is_refused_or_shows_nothing_else(bundle: Path, tmp_path: Path) -> None:
    """One value of one file becomes another, and all hashes with it. BENCH_HOSTILE_EXAMPLES tries as many."""

    def rows(path: Path) -> str:
        site([path], tmp_path / "site", check_bundle)
        return (tmp_path / "site" / "board.csv").read_text()

    shown, counts = rows(bundle), Counter[str]()
    start = int(os.environ.get("BENCH_HOSTILE_SEED", "0")) * 10**6
    for number in range(start, start + int(os.environ.get("BENCH_HOSTILE_EXAMPLES", "6"))):
        draw, content = random.Random(number), members(bundle)
        stated = ("store.json", "environment.json", "diagnostics.json", "hashes.json")
        name = draw.choice([one for one in content if one.endswith(".json") and not one.endswith(stated)])
        edit(content, name, partial(change_one, draw))
        if (folder := name.split("/evaluations/")[0]) != name:
            rehash(content, folder)
        try:
            assert rows(packed(tmp_path / "tiny.tar.xz", content)) == shown, f"example {number}: {name}"
            counts["same"] += 1
        except UserError:
            counts["refused"] += 1
    print(dict(counts))


def change_one(draw: random.Random, tree: Any) -> None:
    """Change or remove one value of a tree of JSON."""
    every = [(tree, key) for key in (tree if isinstance(tree, dict) else range(len(tree)))]
    for place, key in every:
        if isinstance(place[key], dict | list):
            inner = place[key]
            every += [(inner, one) for one in (inner if isinstance(inner, dict) else range(len(inner)))]
    place, key = draw.choice(every)
    if draw.random() < 0.8:
        place[key] = draw.choice([0, 1, -1, 0.988, 1e9, None, True, "x", "OUR METHOD", "\u202e", 2**70, [], {}, [[]]])
    else:
        del place[key]


def test_what_one_bundle_holds_does_not_end_the_check_of_others(bundle: Path, tmp_path: Path) -> None:
    shutil.copy(bundle, tmp_path / "b.tar.xz")
    content = members(bundle)
    with mock.patch("bench.board.follows.run_with_method", side_effect=AttributeError("of what strangers write")):
        (alone,) = check_folder([tmp_path / "b.tar.xz"])
    assert all("cannot be checked: AttributeError: of what strangers write" in line for line in alone.problems)
    of_settings("resolved", extra=1)(content)
    first, second = check_folder([packed(tmp_path / "a.tar.xz", content), tmp_path / "b.tar.xz"])
    assert len(first.problems) == 1
    assert second.problems == []


def test_only_a_bundle_that_passes_is_shown_and_what_was_recomputed_is_said(bundle: Path, tmp_path: Path) -> None:
    site([bundle], tmp_path / "a", check_bundle)
    rows = list(csv.DictReader((tmp_path / "a" / "board.csv").read_text().splitlines()))
    assert {(row["basis"], row["of"]) for row in rows} == {("recomputed", "")}
    assert {row["fidelity"] for row in rows} == {"official-checked"}
    site([bundle], tmp_path / "b")
    assert "stated by the author" in (tmp_path / "b" / "index.html").read_text()
    content = members(bundle)
    interrupted(content)
    with pytest.raises(UserError, match="but it has records"):
        site([packed(tmp_path / "forged.tar.xz", content)], tmp_path / "c", check_bundle)
    assert not (tmp_path / "c").exists()


def test_a_failed_run_is_packed_without_records(store: Path, tmp_path: Path) -> None:
    run = next(run for run in Store(store).runs() if run.settings()["method"] == "ncu")
    run.path("status.json").write_text('{"state": "failed", "error": {"message": "the disk is full"}}')
    _, check = write_submission("tiny", Store(store), tmp_path / "x.tar.xz")
    assert (check.problems, check.runs, check.done) == ([], 2, 1)


def test_submit_refuses_what_is_there_and_writes_nothing_that_does_not_pass(
    finished: Path, store: Path, bundle: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="already exists; --out FILE"):
        write_submission("tiny", Store(finished), bundle)
    run = next(run for run in Store(store).runs() if run.settings()["method"] == "ncu")
    ledger = json.loads(run.path("ledger.json").read_text())
    run.path("ledger.json").write_text(json.dumps({**ledger, "flops": 1}))
    _, check = write_submission("tiny", Store(store), tmp_path / "x.tar.xz")
    assert any("ledger: flops" in problem for problem in check.problems)
    assert not (tmp_path / "x.tar.xz").exists()


def test_a_bundle_is_rerun_and_the_outcome_noted(bundle: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(bundle, tmp_path / "tiny.tar.xz"))
    verified = rerun_bundle(path, "cheapest")
    assert verified.consistent
    note = json.loads((tmp_path / "tiny.rerun.json").read_text())
    assert (note["run"], note["consistent"]) == (verified.run, True)
    assert note["environment"]["hardware"]["device"]


def test_a_stored_run_is_verified_with_the_run_it_starts_from(finished: Path) -> None:
    run = next(run for run in Store(finished).runs() if run.settings()["method"] == "ncu")
    verified = retrain_run(Store(finished), run.id[:16])
    assert verified.consistent
    assert "the weights have the same bytes, and all" in verified.text


def test_a_finished_run_gets_back_weights_that_it_lost(store: Path, tiny: SimpleNamespace) -> None:
    run = next(run for run in Store(store).runs() if run.settings()["method"] == "ncu")
    weights = run.path("weights-100.safetensors")
    content, numbers = weights.read_bytes(), run.records()
    weights.unlink()
    reference = Store(store).run(run.settings()["address"]["reference"])
    reference.path("weights-100.safetensors").unlink()
    fix = rf"train it again for them: bench store retrain {run.id[:16]} --weights --results"
    with pytest.raises(UserError, match=fix):
        stored_run.load_run(Store(store), run.id)
    result = tiny.bench(store, "store", "retrain", run.id[:16], "--weights")
    assert result.exit_code == 0
    assert "consistent: " in result.stdout
    assert "the weights are those that were measured" in result.stdout
    assert (weights.read_bytes(), run.records()) == (content, numbers)
    assert not run.path("again").exists()


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
    result = tiny.bench(store, "store", "retrain", run.id)
    assert result.exit_code == 1
    assert "NOT consistent: the weights differ on the same type of machine" in result.stdout
    environment = run.environment()
    environment["hardware"]["device"] = "another CPU"
    run.path("environment.json").write_text(json.dumps(environment))
    verified = retrain_run(Store(store), run.id)
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


def values(outcomes: dict[str, np.ndarray]) -> dict[tuple[str, str], float]:
    return {key: value for key, (value, _) in recompute_scores(outcomes).items()}


def test_scores_of_every_kind_follow_from_outcomes() -> None:
    better = np.array([0, 2, 7], np.int32)
    one, none = np.ones(3, np.int32), np.zeros(3, np.int32)
    ranks = {"better": better, "tied_wrong": none, "tied_right": one}
    sides = {f"cosine_{side}_{name}": part for side in ("i2t", "t2i") for name, part in ranks.items()}
    got = values({**sides, "cosine_owner": np.arange(3, dtype=np.int32)})
    wanted = {f"{side}_r{k}": hits / 3 for side in ("i2t", "t2i") for k, hits in ((1, 1), (5, 2), (10, 3))}
    assert got == pytest.approx({(name, "cosine"): value for name, value in with_means(wanted).items()})
    classes = {f"cosine_{name}": part for name, part in ranks.items()} | {"label": np.array([4, 4, 2])}
    logs = np.log(np.array([0.5, 0.25, 0.5], np.float32))
    ranked = values({**classes, "cosine_log_likelihood": logs})
    assert ranked["mrr", "cosine"] == pytest.approx((1 + 1 / 3 + 1 / 8) / 3)
    assert ranked["likelihood", "cosine"] == pytest.approx((0.5 * 0.25 * 0.5) ** (1 / 3))
    assert ranked["mean_per_class_recall", "cosine"] == 0.25
    found = values({"confidence": np.array([0.1, 0.9, 0.8]), "noisy": np.array([True, False, False])})
    assert found == {("auroc", ""): 1.0, ("average_precision", ""): 1.0}
    puzzles = {"candidates": np.array([5, 12]), "cosine_jaccard": np.array([0.5, 1.0])}
    assert values(puzzles)["jaccard", "cosine"] == 0.75
    assert recompute_scores({"correct": np.array([True, False])}) == {("accuracy", ""): (0.5, 2)}
    noisy = {"row": np.arange(3), "noisy": np.array([True, False, False]), "cosine_corrected": np.array([1.0])}
    shares = recompute_scores({**classes, **noisy})
    assert shares == {
        ("memorised", "cosine"): (1.0, 1),
        ("learned", "cosine"): (0.0, 2),
        ("corrected", "cosine"): (1.0, 1),
    }
    attack = {"label": np.array([0, 1, 1]), "cosine_clean": np.array([0, 1, 0])}
    assert values(attack) == {("clean_accuracy", "cosine"): pytest.approx(2 / 3)}
    targeted = values({**attack, "target": np.array([2]), "wrong_class": np.array([0])})
    assert targeted == {("attack_success", "cosine"): 1.0, ("clean_accuracy", "cosine"): 1.0}


@pytest.mark.parametrize(
    "outcomes",
    [
        {"correct": np.array([2.0])},
        {"correct": np.array([np.nan])},
        {"label": np.zeros(1, int), "cosine_better": -np.ones(1), "cosine_tied_wrong": np.zeros(1)},
        {"confidence": np.array([np.inf, 1]), "noisy": np.array([True, False])},
        {
            **{"label": np.zeros(9, int), "cosine_better": np.zeros(9), "cosine_log_likelihood": np.zeros(9)},
            **{"cosine_tied_wrong": np.full(9, 2**30), "cosine_tied_right": np.full(9, 2**30)},
        },
        {
            **{"label": np.zeros(1, int), "cosine_better": np.zeros(1)},
            **{"cosine_tied_wrong": np.zeros(1), "cosine_tied_right": np.array([-(2**63)])},
        },
        {
            **{"label": np.zeros(1, int), "cosine_better": np.array([2**31])},
            **{"cosine_tied_wrong": np.zeros(1), "cosine_tied_right": np.ones(1)},
        },
    ],
)
def test_arrays_that_are_no_outcomes_are_refused(outcomes: dict[str, np.ndarray]) -> None:
    with pytest.raises((ValueError, KeyError, FloatingPointError)):
        recompute_scores(outcomes)
