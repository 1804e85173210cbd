"""Towers on stored features: heads, runs from the suite to the tables, views, and equality over micro-batches."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from bench import dry_run, export, run_suite
from bench.data.features import FeaturePairs
from bench.data.noise.shuffled import shuffled_captions
from bench.data.noise.targeted import Targeted
from bench.errors import UserError
from bench.evaluation import EvaluationPlan
from bench.evaluation.pixels import batches
from bench.planning.planner import Planner, plan
from bench.store import RunStore, RunWriter, Store
from bench.suite import needs
from bench.suite.noise_settings import NoiseSettings
from bench.suite.settings import DataSettings, EvaluateSettings, TowerSettings
from bench.suite.suite import Suite, load_suite
from bench.towers.heads import Head
from bench.training.inputs import InputsReader
from bench.training.job import make_job
from bench.training.loop import TrainingJob, train
from bench.training.schedule import ResolvedSteps
from reports.results import load
from reports.tables.suite_tables import family_table

from . import stored

CPU = torch.device("cpu")
Writer = Callable[[RunStore], RunWriter]


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = stored.with_evaluation(tmp_path_factory.mktemp("features") / "toys", views=2)
    return folder


def suite_of(folder: Path, features: Path, **changes: Any) -> Suite:
    path = folder / "toys.yaml"
    path.write_text(yaml.safe_dump(stored.suite(features, **changes)))
    return load_suite(path)


def job_of(suite: Suite, out: RunWriter, steps: int = 5) -> TrainingJob:
    (run,) = suite.runs()
    resolved = ResolvedSteps((("train", steps),), {"train": 1}, run.train.batch, 4)
    return make_job(run, InputsReader().inputs(run), resolved, out, None, CPU)


def test_heads_are_their_formulas() -> None:
    x = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    linear = Head(6, 4, "linear", 9, 1, 0.0)
    weights = linear.layers.state_dict()
    torch.testing.assert_close(linear(x), x @ weights["weight"].T + weights["bias"])
    assert torch.equal(linear.pooled(x), linear(x))
    mlp = Head(6, 4, "mlp", 9, 2, 0.0)
    own: Any = mlp.layers
    first = torch.nn.functional.gelu(own[0](x))
    torch.testing.assert_close(mlp(x), own[6](torch.nn.functional.gelu(own[3](first))))
    assert [own[0].out_features, own[3].out_features, own[6].out_features] == [9, 9, 4]
    wide, same = Head(6, 4, "residual", 9, 1, 0.0), Head(6, 6, "residual", 9, 1, 0.0)
    inner: Any = wide.first(x)
    torch.testing.assert_close(wide(x), inner + wide.layers(inner))
    torch.testing.assert_close(same(x), x + same.layers(x))
    assert wide(x.half()).dtype == torch.float32, "features of another type are read in the head's"
    dropping = Head(6, 4, "mlp", 50, 1, 0.5)
    assert not torch.equal(dropping(x), dropping(x))


TOWERS = {"image": "features", "text": "features", "dim": 8}
DATASETS = {
    **{name: ["shapes"] for name in ("zero_shot", "class_ranking", "shift", "linear_probe", "adamw_probe")},
    "retrieval": ["albums"],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, features: Path) -> tuple[Suite, Store]:
    """A suite of three heads, all of whose runs are trained and measured."""
    folder = tmp_path_factory.mktemp("made")
    heads = [{"kind": "linear"}, {"kind": "mlp", "hidden": 16}, {"kind": "residual", "hidden": 16, "dropout": 0.1}]
    suite = suite_of(
        folder,
        features,
        towers=[{**TOWERS, "label": str(head["kind"]), "head": head} for head in heads],
        evaluate={"tasks": [*DATASETS, "noise_detection"], "datasets": DATASETS},
        budget={"epochs": 10},
        methods=["clip", "ncu", {"method": "cyclip", "config": {"in_modal": False}}],
    )
    summary = run_suite(suite, folder / "out", only=["clip"])
    assert (len(summary.done), summary.failed) == (3, [])
    return suite, Store(folder / "out")


def test_a_suite_on_features_trains_and_measures(made: tuple[Suite, Store]) -> None:
    _, store = made
    assert len(list(store.runs())) == 3
    for run in store.runs():
        records = {(one.task, one.metric): one for one in run.records()}
        assert {task.split("/")[0] for task, _ in records} == {*DATASETS, "noise_detection"}
        assert records["zero_shot/class", "top1"].value > 0.6, "patterns of eight classes are easily told apart"
        assert records["linear_probe/class", "accuracy"].value > 0.8
        assert [records["retrieval", metric].n for metric in ("i2t_r1", "t2i_r1")] == [16, 32]
        assert records["noise_detection", "auroc"].value > 0.6
        assert records["retrieval", "i2t_r1"].data, "the records name the data that they were measured on"
        losses = [line["loss"] for line in run.metrics()]
        assert losses[-1] < losses[0]


def test_a_method_that_features_do_not_suit_has_cells_that_say_so(made: tuple[Suite, Store]) -> None:
    suite, store = made
    assert [run.label for run in suite.runs()] == ["clip", "cyclip"] * 3
    (written,) = [one for one in (store.plan("toys") or {})["methods"] if one["label"] == "ncu"]
    reason = "ncu needs tokens (it changes captions or reads token ids), but towers.text reads stored features"
    assert set(written["inapplicable"]) == {"linear", "mlp", "residual"}
    assert written["inapplicable"]["mlp"].startswith(reason)
    assert [one["label"] for one in (store.plan("toys") or {})["methods"] if "inapplicable" in one] == ["ncu"]
    results = load("toys", store)
    table = family_table(results, "retrieval", [("albums", "retrieval", "mean_recall")])
    cells = {(row.method, row.group): row.cells[0].state for row in table.rows if row.method}
    assert cells["ncu", "mlp, 25 % shuffled captions"] == "not applicable"
    assert cells["clip", "mlp, 25 % shuffled captions"] == "value"
    assert cells["cyclip", "mlp, 25 % shuffled captions"] == "missing"
    assert any(reason in note for note in table.footnotes)
    assert any(
        "images by made up (12 dimensions), texts by made up (10 dimensions)" in note for note in table.footnotes
    )
    assert any("further views of an image: 2 stored views" in note for note in table.footnotes)
    assert any(line.startswith(f"not applicable: {reason}") for line in dry_run(suite, store.root))


def test_what_nothing_can_be_trained_on_is_a_mistake(tmp_path: Path, features: Path) -> None:
    with pytest.raises(UserError, match=r"methods: no method can be trained on these features: ncu needs tokens"):
        suite_of(tmp_path, features, methods=["ncu"])
    with pytest.raises(UserError, match=r"baseline: ncu is not applicable: ncu needs tokens .*; name another entry"):
        suite_of(tmp_path, features, methods=["ncu", "clip"], baseline="ncu")
    data = {"name": "toys", "features": str(features)}
    with pytest.raises(UserError, match=r"towers\.image: 'tiny-resnet' reads pixels, but data.features has none"):
        suite_of(tmp_path, features, towers={"image": "tiny-resnet", "text": "features"})
    with pytest.raises(UserError, match=r"data\.features: towers.image reads stored features; name their folder"):
        suite_of(tmp_path, features, data={"name": "toys"})
    with pytest.raises(UserError, match=r"data\.shards: images are the stored features of data.features"):
        suite_of(tmp_path, features, data={**data, "shards": "x.tar"})
    with pytest.raises(UserError, match=r"data\.feature_dropout: is of stored features"):
        suite_of(tmp_path, features, data={"name": "toys", "feature_dropout": 0.1})
    with pytest.raises(UserError, match=r"towers\.head\.hidden: a linear head has no hidden layers"):
        suite_of(tmp_path, features, towers={**TOWERS, "head": {"hidden": 5}})
    with pytest.raises(UserError, match=r"towers\.head: is of towers on stored features"):
        suite_of(tmp_path, features, towers={"head": {"kind": "linear"}})
    with pytest.raises(UserError, match="toys, stored features: not found"):
        plan(suite_of(tmp_path, features, data={**data, "features": "nowhere"}).runs(), Store(tmp_path))


def test_costs_are_known_without_the_features(tmp_path: Path, features: Path) -> None:
    here = plan(suite_of(tmp_path, features).runs(), Store(tmp_path))[0]
    data = {"name": "toys", "features": "nowhere", "rows": 64}
    gone = suite_of(tmp_path, features, data={**data, "widths": [stored.P, stored.Q]})
    (expected,) = Planner(Store(tmp_path), here=False).plan(gone.runs())
    assert (expected.resolved.steps, expected.resolved.flops) == (here.resolved.steps, here.resolved.flops)
    with pytest.raises(UserError, match=r"data\.widths: toys is not there and its widths are not stated"):
        Planner(Store(tmp_path), here=False).plan(suite_of(tmp_path, features, data=data).runs())


@pytest.mark.promise("the id of a run on features follows from what the features hold")
def test_an_id_follows_from_what_the_features_hold(tmp_path: Path, features: Path) -> None:
    ids = {}
    for name, folder in (("here", features), ("copied", tmp_path / "copy"), ("other", tmp_path / "other")):
        if name == "copied":
            shutil.copytree(features, folder)
        elif name == "other":
            stored.training_set(folder, seed=6)
        ids[name] = plan(suite_of(tmp_path, folder).runs(), Store(tmp_path))[0].id
    assert ids["here"] == ids["copied"] != ids["other"]
    dropped = {"name": "toys", "features": str(features), "feature_dropout": 0.1}
    assert plan(suite_of(tmp_path, features, data=dropped).runs(), Store(tmp_path))[0].id != ids["here"]
    written = {**TOWERS, "head": {"kind": "linear"}}
    assert plan(suite_of(tmp_path, features, towers=written).runs(), Store(tmp_path))[0].id == ids["here"]


def test_dropped_numbers_follow_from_seed_row_epoch_and_view(features: Path) -> None:
    pairs, whole = FeaturePairs(features, dropout=0.25), FeaturePairs(features)
    rows = np.array([3, 40, 7])
    sampled = pairs.sampled(rows, 1, 0, 0, "none")
    zero = sampled == 0
    assert 0.05 < zero.mean() < 0.5
    plain = whole.sampled(rows, 1, 0, 0, "none").astype(np.float32)
    np.testing.assert_allclose(sampled[~zero], (plain / 0.75)[~zero], rtol=1e-6)
    np.testing.assert_array_equal(pairs.sampled(rows[::-1], 1, 0, 0, "none")[::-1], sampled)
    for other in ((2, 0, 0), (1, 1, 0), (1, 0, 1)):
        assert not np.array_equal(pairs.sampled(rows, *other, "none") == 0, zero)
    np.testing.assert_array_equal(pairs.images(rows), whole.images(rows))


def test_noise_and_order_are_those_of_the_keys_alone(features: Path, tmp_path: Path) -> None:
    own = shuffled_captions(FeaturePairs(features), 0.4, 3)
    other = shuffled_captions(FeaturePairs(stored.training_set(tmp_path / "one", seed=9)), 0.4, 3)
    assert own.content_hash == other.content_hash


def test_micro_batches_change_nothing(tmp_path: Path, features: Path, writer: Writer) -> None:
    recipe = {"batch": 16, "threads": 1, "precision": "fp64", "lr": 10.0, "eps": 1e3, "weight_decay": 0.0}
    data = {"name": "toys", "features": str(features), "feature_dropout": 0.2}
    states = {}
    for micro in (None, 4):
        train_settings = {**recipe, "bn_group": 4, "micro_batch": micro}
        job = job_of(
            suite_of(tmp_path, features, data=data, train=train_settings), writer(RunStore(tmp_path / str(micro)))
        )
        train(job)
        states[micro] = job.towers.state_dict()
    for name, x in states[None].items():
        torch.testing.assert_close(states[4][name], x, rtol=1e-9, atol=1e-12, msg=name)


def test_a_text_without_features_is_named(tmp_path: Path, features: Path, writer: Writer) -> None:
    towers = job_of(suite_of(tmp_path, features), writer(RunStore(tmp_path / "run"))).towers
    both = towers.tokenize(["apple number 0", "a photo of a fox"])
    assert both.shape == (2, stored.Q)
    with pytest.raises(UserError, match=r"text\.npy: has no feature of the text 'a dog'"):
        towers.tokenize(["a dog", "apple number 0"])


def test_towers_of_stored_features_are_not_exported(made: tuple[Suite, Store], tmp_path: Path) -> None:
    _, store = made
    for run in store.runs():  # one of each kind of head, built again from its stored settings
        with pytest.raises(UserError, match=r"towers.image and towers.text read stored features, for which open_clip"):
            export(run.id, tmp_path / "out", store.root)


def test_a_text_tower_is_trained_from_captions_beside_stored_images(tmp_path: Path) -> None:
    images = stored.with_evaluation(tmp_path / "images", texts=False)
    datasets = {"zero_shot": ["shapes"], "retrieval": ["albums"]}
    suite = suite_of(
        tmp_path,
        images,
        towers={"image": "features", "text": "tiny-transformer", "dim": 8, "vocabulary": 300},
        evaluate={"tasks": list(datasets), "datasets": datasets},
        budget={"samples": 128},
        methods=["clip", "ncu", "prolip"],
    )
    assert [entry.label for entry in suite.applicable] == ["clip", "ncu"], "captions are read, pixels are not there"
    summary = run_suite(suite, tmp_path / "out", only=["clip"])
    assert (len(summary.done), summary.failed) == (1, [])
    (run,) = Store(tmp_path / "out").runs()
    assert {one.task.split("/")[0] for one in run.records()} == set(datasets)
    with pytest.raises(UserError, match="has no text features; extract the set again with --texts MODEL"):
        plan(suite_of(tmp_path, images).runs(), Store(tmp_path))


def test_features_of_the_emoji_have_the_tasks_of_the_emoji(tmp_path: Path) -> None:
    folder = stored.feature_set(tmp_path / "emoji", "emoji/train", [["apple"], ["boat"], ["cat"]])
    data = DataSettings.model_validate({"name": "emoji", "features": str(folder)})
    pixels = EvaluationPlan(DataSettings(), EvaluateSettings())
    vectors = EvaluationPlan(data, EvaluateSettings())
    names = [(task.name, task.dataset) for task in pixels.chosen if task.name != "noise_detection"]
    assert [(task.name, task.dataset) for task in vectors.chosen if task.name != "noise_detection"] == names
    assert len(vectors.load(vectors.training)) == 3
    with pytest.raises(UserError, match=r"emoji/iid, stored features: not found; looked in .*emoji/iid/features"):
        vectors.load("emoji/iid")
    parts = {part for task in vectors.chosen for part in (task.dataset, task.train, task.validation)}
    assert {one.what.split(",")[0] for one in vectors.missing()} == parts - {vectors.training, ""}
    stored.feature_set(folder / "evaluation" / "emoji" / "iid", "emoji/iid", [["fox"], ["hat"]], labelled=True)
    assert vectors.load("emoji/iid").name == "emoji/iid"
    texts = vectors.captions(vectors.load("emoji/iid"))
    assert [(len(own), own[0]) for own in texts] == [(5, "fox"), (5, "hat")], "as many as retrieval on pixels has"
    (task, *_) = vectors.chosen
    assert vectors.content(task) == vectors.load(task.dataset).content_hash[:16]


def test_as_many_views_are_stored_as_a_method_reads(features: Path) -> None:
    FeaturePairs(features).refuse_fewer_views(2)
    FeaturePairs(features, dropout=0.5).refuse_fewer_views(3)
    with pytest.raises(UserError, match=r"data\.features: 2 stored views of an image, and the method reads 3; store"):
        FeaturePairs(features).refuse_fewer_views(3)


def test_a_second_view_is_stored_or_dropped(tmp_path: Path, features: Path) -> None:
    towers = TowerSettings.model_validate(TOWERS)
    one = stored.training_set(tmp_path / "one")

    def unmet(folder: Path, **more: Any) -> list[tuple[str, str]]:
        data = DataSettings.model_validate({"name": "toys", "features": str(folder), **more})
        return list(needs.unmet({"second_view"}, towers, data))

    ((word, reason),) = unmet(one)
    assert (word, reason) == (
        "second_view",
        "data.features has one view of an image; store several, or set data.feature_dropout",
    )
    assert unmet(one, feature_dropout=0.1) == unmet(features) == []
    assert unmet(tmp_path / "nowhere") == [], "what is not here may have several"


# --- targeted poison --------------------------------------------------------------------------------------------------

ATTACK = {"kind": "poison", "rates": [0.25], "options": {"attack": "targeted", "images": "shapes", "targets": 3}}
TRAINED_TEXTS = {"image": "features", "text": "tiny-transformer", "dim": 8, "vocabulary": 300}
SHAPES = {"tasks": ["attack_success", "noise_detection"], "datasets": {"attack_success": ["shapes"]}}


def attacked(features: Path, **data: Any) -> tuple[Targeted, FeaturePairs]:
    settings = NoiseSettings.model_validate(ATTACK)
    pairs = FeaturePairs(features, **data)
    manifest = settings.entry.make(pairs, settings, 0.25, 7)
    assert isinstance(manifest, Targeted)
    return manifest, pairs


def test_poisoned_rows_have_the_features_of_the_images_that_are_attacked(features: Path) -> None:
    manifest, pairs = attacked(features)
    tests, seen, rows = pairs.evaluation("shapes"), manifest.applied(pairs), np.arange(len(pairs))
    assert (len(manifest.rows), len(manifest.targets)) == (16, 3)
    assert (manifest.classes != tests.labels["class"][manifest.targets]).all()
    roles = [f"target {tests.keys[row]}" for row in manifest.targets.tolist()]
    shown = [roles.index(role) for role in manifest.roles.to_pylist()]
    assert np.bincount(shown).min() >= 5, "rows show the targets in turn"
    expected = tests.images(manifest.targets[shown])
    for view in (0, 1):
        made = seen.sampled(rows, 4, 2, view, "none")
        np.testing.assert_array_equal(made[manifest.rows], expected)
        clean = np.setdiff1d(rows, manifest.rows)
        np.testing.assert_array_equal(made[clean], pairs.sampled(clean, 4, 2, view, "none"))
    for turn, (text,) in zip(shown, manifest.texts(pairs, manifest.rows), strict=True):
        assert tests.classes["class"][manifest.classes[turn]] in text
    dropping = FeaturePairs(features, dropout=0.5)
    made = manifest.applied(dropping).sampled(rows, 4, 2, 1, "none")[manifest.rows]
    assert 0.3 < (made == 0).mean() < 0.7
    np.testing.assert_allclose(made[made != 0], 2 * expected.astype(np.float32)[made != 0])


def test_features_are_never_copied_as_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pixels of other pairs than those in memory are decoded by processes, into bytes; features have no bytes."""
    monkeypatch.setattr("bench.evaluation.pixels.worker_count", lambda *_: 2)
    folder = stored.training_set(tmp_path / "many", rows=600)
    stored.feature_set(folder / "evaluation" / "shapes", "shapes", [["fox"], ["hat"], ["cat"]], labelled=True)
    manifest, pairs = attacked(folder)
    rows, seen = np.arange(600), manifest.applied(pairs)
    found = np.concatenate(list(batches(seen, rows, 256)))
    np.testing.assert_array_equal(found, seen.images(rows))
    assert found.dtype == np.float16


def test_a_targeted_attack_on_features_from_its_suite_to_its_records(tmp_path: Path, features: Path) -> None:
    changes = {"noise": ATTACK, "towers": TRAINED_TEXTS, "evaluate": SHAPES}
    methods = ["clip", {"method": "clip", "label": "oracle", "keep": "oracle"}, "roclip", "safeclip", "cleanclip"]
    suite = suite_of(tmp_path, features, **changes, methods=methods, budget={"epochs": 10})
    summary = run_suite(suite, tmp_path / "out")
    assert (len(summary.done), summary.failed) == (6, []), "five rows, and the CLIP that CleanCLIP starts from"
    made = [
        {(one.metric, one.n) for one in run.records() if one.task.startswith("attack_success")}
        for run in Store(tmp_path / "out").runs()
    ]
    assert made.count({("attack_success", 3), ("clean_accuracy", 21)}) == 4, "of 24 images"
    assert made.count(set()) == 2, "the oracle saw no poison, and what CleanCLIP starts from is not measured"


def test_an_attack_that_features_cannot_show_is_refused(tmp_path: Path, features: Path) -> None:
    trigger = {"kind": "poison", "rates": [0.1], "options": {"target": "cat"}}
    suite = suite_of(tmp_path, features, noise=trigger, towers=TRAINED_TEXTS, evaluate=SHAPES)
    with pytest.raises(UserError, match="attack: backdoor: stored features show no trigger; take attack: targeted"):
        dry_run(suite)
    stored_texts = suite_of(tmp_path, features, noise={**ATTACK, "rates": [0.9]}, evaluate=SHAPES)
    with pytest.raises(UserError, match=r"noise.kind: poison: writes new texts: .*this text as a caption or a prompt"):
        dry_run(stored_texts)


def test_a_targeted_attack_is_counted_without_the_features(tmp_path: Path) -> None:
    gone = {"name": "emoji-b", "features": str(tmp_path / "gone"), "rows": 200, "widths": [8, 8]}
    noise = {**ATTACK, "options": {"attack": "targeted", "images": "emoji-b/iid"}}
    suite = suite_of(tmp_path, tmp_path, data=gone, noise=noise, evaluate={"tasks": ["attack_success"]})
    (line,) = [one for one in dry_run(suite) if one.startswith("to do")]
    assert line.startswith("to do: 1 runs, 24 steps"), line
