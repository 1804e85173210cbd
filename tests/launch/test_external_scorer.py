"""Rows whose pairs an external model scores: what is kept, charged, and refused before anything trains."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

import bench
from bench.board.retrain import _restored
from bench.errors import UserError
from bench.models import stored_run
from bench.models.scored_pairs import Scoring
from bench.planning import requirements
from bench.planning.planner import Planner, plan
from bench.store import RunStore, Store
from bench.store.incoming import refuse_run
from bench.store.writer import KEPT_FILE
from bench.suite.run import Run, run_of_settings
from bench.suite.suite import Suite, load_suite
from bench.training import external_scorer
from bench.training.inputs import InputsReader
from reports.results import load
from reports.tables.suite_tables import spent, tables

SUITE = """\
name: external
noise: {rates: [0.4]}
budget: {samples: 96000}
towers: {dim: 8, vocabulary: 300, context: 12}
train: {batch: 32, bn_group: 16, threads: 1, lr: 3.0e-3}
evaluate: {tasks: [noise_detection]}
methods:
- clip
- {method: clip, label: filtered, keep: {kind: score, share: 0.6}}
"""
SMALL = ("budget.samples=96", "budget_rule=additional")
CPU = torch.device("cpu")


def suite_in(folder: Path, weights: Path | str = "", *overrides: str, more: str = "") -> Suite:
    """The suite, with a row whose pairs are scored by `weights` if there are any; `more`: other keys of its `keep`."""
    file = folder / "external.yaml"
    row = f"- {{method: clip, label: outside, keep: {{kind: score, share: 0.6, weights: '{weights}'{more}}}}}\n"
    file.write_text(SUITE + row * bool(weights))
    return load_suite(file, overrides)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A baseline, a row that it filtered, and a row that its weights filtered as a file."""
    folder = tmp_path_factory.mktemp("external")
    assert not bench.run_suite(suite_in(folder, "", *SMALL), folder / "out").failed
    weights = run_in(Store(folder / "out"), "clip").path("weights-100.safetensors")
    assert not bench.run_suite(suite_in(folder, weights, *SMALL), folder / "out").failed
    return Store(folder / "out")


def run_in(store: Store, label: str) -> RunStore:
    return next(run.stored for run in load("external", store).runs if run.method == label)


@pytest.fixture
def weights(made: Store, tmp_path: Path) -> Path:
    """The baseline's weights with its settings, in a folder of their own."""
    folder = tmp_path / "given"
    folder.mkdir()
    for name in ("weights-100.safetensors", "settings.json", "hashes.json"):
        shutil.copy(run_in(made, "clip").path(name), folder / name)
    return folder / "weights-100.safetensors"


def ids(suite: Suite, folder: Path) -> dict[str, str]:
    return {one.run.label: one.id for one in plan(suite.runs(), Store(folder / "ids"))}


def refused(suite: Suite) -> str:
    with pytest.raises(UserError) as caught:
        requirements.missing_inputs(suite)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_reference_runs_own_weights_keep_the_same_pairs(made: Store) -> None:
    run, other = run_in(made, "outside"), run_in(made, "filtered")
    outside, filtered = pq.read_table(run.path(KEPT_FILE)), pq.read_table(other.path(KEPT_FILE))
    assert outside["key"].to_pylist() == filtered["key"].to_pylist()
    assert outside["score"].to_pylist() == filtered["score"].to_pylist()
    assert run.path("weights-100.safetensors").read_bytes() == other.path("weights-100.safetensors").read_bytes()
    assert run.id != other.id
    for stored in (run, other):
        refuse_run(stored)  # `bench store import` takes it


def test_scoring_is_charged_and_training_elsewhere_is_not(made: Store) -> None:
    """The ledger, the tables and the plan say so; the row has no reference run."""
    results = load("external", made)
    run = next(run for run in results.runs if run.method == "outside")
    ledger, settings = run.stored.ledger(), run.stored.settings()
    assert run.reference is None
    assert ledger["reference"] is None
    rows = len(InputsReader().inputs(run_of_settings(settings, Path("s"))).pairs)
    known = settings["address"]["keep"]["weights"]
    assert ledger["scoring"]["image_forwards"] == ledger["scoring"]["text_forwards"] == rows
    assert ledger["scoring"]["flops"] == settings["resolved"]["scoring_flops"] > 0
    assert (ledger["scoring"]["scorer"], ledger["scoring"]["scorer_training"]) == (known, "not charged")
    assert spent(ledger, "flops") == ledger["flops"] + ledger["scoring"]["flops"]
    (said,) = {note for table in tables(results) for note in table.footnotes if note.startswith("outside: ")}
    assert f"under an external model (weights-100.safetensors, sha256 {known[:12]}), whose training is in no" in said


def test_the_budget_pays_for_the_scores_alone(weights: Path, tmp_path: Path) -> None:
    """Under `budget_rule: total`; half of the budget would be a reference run's."""
    resolved = {one.run.label: one.resolved for one in plan(suite_in(tmp_path, weights).runs(), Store(tmp_path / "s"))}
    outside, clip = resolved["outside"], resolved["clip"]
    assert outside.scoring_flops == resolved["filtered"].scoring_flops
    assert outside.flops + outside.scoring_flops == pytest.approx(clip.flops, rel=0.01)
    assert clip.steps / 2 < outside.steps < clip.steps


def test_an_id_holds_what_the_weights_are_and_not_where(made: Store, weights: Path, tmp_path: Path) -> None:
    first = ids(suite_in(tmp_path, weights, *SMALL), tmp_path)
    stored = run_in(made, "clip").path("weights-100.safetensors")
    assert first == ids(suite_in(tmp_path, stored, *SMALL), tmp_path)
    assert first["outside"] == run_in(made, "outside").id
    moved = tmp_path / "moved.safetensors"
    shutil.copy(weights, moved)
    shutil.copy(weights.parent / "settings.json", tmp_path / "settings.json")
    assert ids(suite_in(tmp_path, moved, *SMALL), tmp_path) == first
    tensors = load_file(moved)
    name = next(name for name in tensors if name.startswith("towers.visual"))
    save_file({**tensors, name: tensors[name] + 1}, tmp_path / "changed.safetensors")
    changed = ids(suite_in(tmp_path, tmp_path / "changed.safetensors", *SMALL), tmp_path)
    assert changed.pop("outside") != first["outside"]
    assert changed.items() < first.items(), "other rows keep their ids"


def test_images_are_made_as_large_as_a_stored_run_saw_them(made: Store, tmp_path: Path) -> None:
    weights = run_in(made, "clip").path("weights-100.safetensors")
    run = suite_in(tmp_path, weights, *SMALL, "data.size=64").runs()[-1]
    pairs, rows = InputsReader().inputs(run).pairs, np.arange(2)
    assert pairs.images(rows).shape == (2, 64, 64, 3)
    assert external_scorer.images_seen(run, pairs).images(rows).shape == (2, 32, 32, 3)
    external_scorer.build_external_scorer(run, CPU)


def test_weights_of_open_clip_are_read_by_the_architecture_that_is_named(tmp_path: Path) -> None:
    """A state dict with open_clip's names: its cosine is that of open_clip's own model."""
    import open_clip

    architecture = "ViT-S-32-alt"
    torch.manual_seed(0)
    model = open_clip.create_model(architecture).eval()
    torch.save(model.state_dict(), tmp_path / "clip.pt")
    run = suite_in(tmp_path, tmp_path / "clip.pt", *SMALL, more=f", towers: {architecture}").runs()[-1]
    assert run.scorer is not None
    assert run.scorer.run.data.size == 224
    towers, method = external_scorer.build_external_scorer(run, CPU)
    inputs = InputsReader().inputs(run)
    pixels = external_scorer.images_seen(run, inputs.pairs).images(np.arange(2))
    from bench.evaluation.features import evaluation_mode
    from bench.towers.build import normalise

    texts = ["a red apple", "a blue car"]
    with evaluation_mode(towers):
        images = normalise(pixels, CPU, towers.channels)
        ours = [method.image_features(towers, images), method.text_features(towers, towers.tokenize(texts))]
        theirs = [
            model.encode_image(images, normalize=True),
            model.encode_text(open_clip.get_tokenizer(architecture)(texts), normalize=True),
        ]
    for own, other in zip(ours, theirs, strict=True):
        assert torch.allclose(own["embedding"], other, atol=1e-5)
    read = run.content()["keep"]["read"]
    assert read["size"] == 224
    assert read["towers"]["image"] == architecture


def test_missing_weights_are_listed_and_costs_are_still_counted(tmp_path: Path) -> None:
    suite = suite_in(tmp_path, tmp_path / "gone.safetensors", *SMALL)
    (gone,) = requirements.missing_inputs(suite)
    assert (gone.what, gone.looked) == ("weights to score the pairs of outside", (str(tmp_path / "gone.safetensors"),))
    with pytest.raises(UserError, match=r"keep\.weights: .*gone\.safetensors: cannot be read: No such file"):
        plan(suite.runs(), Store(tmp_path / "s"))
    assert Planner(Store(tmp_path / "s"), here=False).plan(suite.runs())[-1].resolved.scoring_flops > 0
    said = bench.dry_run(suite, tmp_path / "out")
    assert "missing: weights to score the pairs of outside" in said


def test_damaged_weights_are_refused_before_anything_trains(weights: Path, tmp_path: Path) -> None:
    content = bytearray(weights.read_bytes())
    content[-9] ^= 64
    weights.write_bytes(content)
    with pytest.raises(
        UserError, match=r"^keep\.weights of outside: .*weights-100\.safetensors: differs from the sha256"
    ):
        bench.dry_run(suite_in(tmp_path, weights, *SMALL), tmp_path / "out")
    (weights.parent / "hashes.json").unlink()
    weights.write_bytes(content[:1000])
    assert "weights-100.safetensors: neither safetensors nor a state dict" in refused(
        suite_in(tmp_path, weights, *SMALL)
    )
    assert not (tmp_path / "out" / "runs").exists()


def test_towers_that_do_not_fit_are_named(weights: Path, tmp_path: Path) -> None:
    path = weights.parent / "settings.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps({**settings, "towers": {**settings["towers"], "dim": 16}}))
    said = refused(suite_in(tmp_path, weights, *SMALL))
    assert said.startswith(f"keep.weights of outside: {weights}: does not fit: ")
    assert "[8" in said
    assert "[16" in said
    (weights.parent / "hashes.json").unlink()
    said = refused(suite_in(tmp_path, weights, *SMALL, more=", towers: ViT-S-32-alt"))
    assert said.startswith(f"keep.weights of outside: {weights}: does not fit: lacks ")


def test_another_vocabulary_is_refused(weights: Path, tmp_path: Path) -> None:
    """Ids of tokens follow from the captions that a vocabulary was learned from; shapes do not show them."""
    bare = tmp_path / "bare.safetensors"
    shutil.copy(weights, bare)
    said = refused(suite_in(tmp_path, bare, *SMALL))
    assert said.startswith(
        f"keep.weights of outside: {bare}: does not say which vocabulary it was trained with; put sett"
    )
    path = weights.parent / "settings.json"
    settings = json.loads(path.read_text())
    settings["address"]["pairs"] = "0" * 64
    path.write_text(json.dumps(settings))
    said = refused(suite_in(tmp_path, weights, *SMALL))
    assert "was trained on other pairs than those of emoji here: its vocabulary cannot be rebuilt" in said


def test_weights_that_changed_after_the_plan_are_refused(weights: Path, tmp_path: Path) -> None:
    planned = plan(suite_in(tmp_path, weights, *SMALL).runs(), Store(tmp_path / "s"))[-1]
    tensors = load_file(weights)
    save_file({name: x + 0 if x.is_floating_point() else x for name, x in tensors.items()}, weights, {"by": "another"})
    with pytest.raises(UserError, match="changed since planning; start again: the run then gets another id"):
        Scoring(planned.run, planned.scorer, None).model(InputsReader().inputs(planned.run).pairs)


def test_a_stored_row_is_restored_with_its_scorer(made: Store) -> None:
    """`bench store retrain` trains it again: its settings lead to the same content, whoever scored its pairs."""
    for label in ("outside", "filtered"):
        stored = run_in(made, label)
        (planned, *_) = reversed(plan([*_chain(_restored(made, stored.settings(), stored))], made))
        assert planned.id == stored.id


def _chain(run: Run) -> list[Run]:
    return [run.reference, run] if run.reference else [run]


def test_a_model_with_variances_keeps_the_nearest_pairs(made: Store, tmp_path: Path) -> None:
    """By closed-form sampled distance, computed here from the embeddings and variances of every pair."""
    file, out = tmp_path / "external.yaml", tmp_path / "out"
    file.write_text(SUITE.replace("- {method: clip, label: filtered, keep: {kind: score, share: 0.6}}", "- prolip"))
    assert not bench.run_suite(load_suite(file, SMALL), out, only=["prolip"]).failed
    (scorer,) = Store(out).runs()
    keep = f"{{kind: distance, share: 0.3, weights: '{scorer.path('weights-100.safetensors')}'}}"
    file.write_text(SUITE + f"- {{method: clip, label: nearest, keep: {keep}}}\n")
    suite = load_suite(file, SMALL)
    assert not bench.run_suite(suite, out, only=["nearest"]).failed
    (run,) = (one for one in Store(out).runs() if one.settings()["label"] == "nearest")
    stored = stored_run.load_run(Store(out), scorer.id)
    inputs = InputsReader().inputs(next(one for one in suite.runs() if one.label.startswith("nearest")))
    rows = np.arange(len(inputs.pairs))
    images = stored.features.extracted_images(inputs.pairs, rows)
    texts = stored.features.extracted_texts([own[0] for own in inputs.noise.texts(inputs.pairs, rows)])
    apart = (images["embedding"] - texts["embedding"]).double().square().sum(1)
    distance = apart + sum(side["logvar"].double().exp().sum(1) for side in (images, texts))
    kept, n = pq.read_table(run.path(KEPT_FILE))["row"].to_numpy().copy(), len(rows)
    assert len(kept) == math.ceil(0.3 * n)
    others = np.setdiff1d(rows, kept)
    assert distance[torch.from_numpy(kept)].max() <= distance[torch.from_numpy(others)].min() + 1e-5
    plain = run_in(made, "clip").path("weights-100.safetensors")
    file.write_text(SUITE + f"- {{method: clip, label: x, keep: {{kind: distance, share: 0.3, weights: '{plain}'}}}}\n")
    assert refused(load_suite(file, SMALL)).endswith("distance needs a stored run of a method with variances")


@pytest.mark.parametrize(
    ("keep", "said"),
    [
        ("kind: random, share: 0.6, weights: a.pt", "keep.weights: random has none; omit it"),
        ("kind: score, share: 0.6, towers: RN50", "keep.towers: is of keep.weights; name the file, or omit it"),
        (
            "kind: score, share: 0.6, weights: a.pt, towers: RN5",
            "keep.towers: 'RN5' is not an architecture of open_clip; did",
        ),
        (
            "kind: score, share: 0.6, weights: 'open_clip:RN5/x'",
            "keep.weights: 'RN5' is not an architecture of open_clip; did",
        ),
        ("kind: score, share: 0.6, weights: ''", "keep.weights: "),
        ("kind: score, weights: a.pt", "keep.share: score needs it"),
        ("kind: distance, share: 0.6", "keep.weights: distance needs those of a model with variances, such as"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, keep: str, said: str) -> None:
    file = tmp_path / "external.yaml"
    file.write_text(SUITE + f"- {{method: clip, label: outside, keep: {{{keep}}}}}\n")
    with pytest.raises(UserError) as caught:
        load_suite(file)
    assert f"methods.2.{said}" in str(caught.value)
