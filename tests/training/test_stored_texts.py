"""Stored texts beside images that are pixels: from the extraction to the tables, and what is refused before."""

from __future__ import annotations

import json
import pickle
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import open_clip
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import save_file
from typer.testing import CliRunner

from bench import dry_run, export, run_suite
from bench.cli import app
from bench.data.features import load
from bench.data.features.lookup import TextLookup
from bench.data.shards import indexing
from bench.data.shards.sources import expand
from bench.errors import UserError
from bench.evaluation import EvaluationPlan
from bench.planning.availability import of_suite
from bench.planning.planner import forecast, plan
from bench.store import RunStore, RunWriter, Store
from bench.suite.settings import DataSettings
from bench.suite.suite import Suite, load_suite
from bench.training.inputs import InputsReader
from bench.training.job import make_job
from bench.training.loop import Interrupted, Job, train
from bench.training.schedule import Resolved
from reports.results import load as load_results
from reports.tables.suite_tables import family_table

STORED = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("stored.py"))))
TOWERS = {"image": "tiny-resnet", "text": "features", "dim": 8}
MODEL = {
    "embed_dim": 8,
    "vision_cfg": {"image_size": 16, "layers": 1, "width": 16, "head_width": 8, "patch_size": 8},
    "text_cfg": {"context_length": 12, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}
CPU = torch.device("cpu")
Writer = Callable[[RunStore], RunWriter]


def suite_of(folder: Path, texts: Path | str | None, **changes: Any) -> Suite:
    """A suite that trains a few steps on half of the emoji's concepts; `changes` replace whole sections."""
    asked = {
        "name": "lit",
        "data": {"name": "emoji-b", **({"texts": str(texts)} if texts else {})},
        "noise": {"rates": [0.4]},
        "budget": {"samples": 64},
        "towers": TOWERS,
        "train": {"batch": 16, "threads": 1},
        "evaluate": {"tasks": ["zero_shot", "retrieval", "noise_detection"]},
        "methods": ["clip", "prolip"],
        **changes,
    }
    (folder / "lit.yaml").write_text(yaml.safe_dump(asked))
    return load_suite(folder / "lit.yaml")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `bench features extract --texts MODEL --for SUITE` makes with a text encoder of random weights."""
    folder = tmp_path_factory.mktemp("texts")
    (model := folder / "encoder").mkdir()
    torch.manual_seed(0)
    save_file(open_clip.model.CustomTextCLIP(**MODEL).state_dict(), model / "open_clip_model.safetensors")
    config = {"model_cfg": {**MODEL, "custom_text": True}, "preprocess_cfg": {"size": 16}}
    (model / "open_clip_config.json").write_text(json.dumps(config))
    out = folder / "texts"
    suite_of(folder, out)
    command = ["features", "extract", "emoji-b", str(out), "--texts", str(model), "--for", str(folder / "lit.yaml")]
    done = CliRunner().invoke(app, [*command, "--device", "cpu"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return out


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, texts: Path) -> tuple[Suite, Store]:
    """The suite on two pairs of towers, trained and measured: texts that are stored, and texts that are trained."""
    folder = tmp_path_factory.mktemp("made")
    trained = {"image": "tiny-resnet", "text": "tiny-transformer", "dim": 8, "vocabulary": 300, "label": "trained"}
    suite = suite_of(folder, texts, towers=[{**TOWERS, "label": "stored"}, trained])
    summary = run_suite(suite, folder / "out", only=["clip"])
    assert (len(summary.done), summary.failed) == (2, [])
    return suite, Store(folder / "out")


def cell(store: Store, towers: str, method: str = "clip") -> Any:
    (found,) = [
        one for one in (store.plan("lit") or {})["cells"] if one["method"] == method and one["noise"].startswith(towers)
    ]
    return store.run(found["run"])


def test_texts_without_images_are_what_a_suite_reads(texts: Path) -> None:
    assert not list(texts.rglob("image.npy"))
    sets = {str(path.parent.relative_to(texts / "evaluation")) for path in texts.glob("evaluation/*/*/text.npy")}
    assert sets == {"emoji-b/iid", "emoji-b/novel", "emoji-b/openmoji"}


def test_a_suite_trains_and_measures_beside_stored_texts(made: tuple[Suite, Store], texts: Path) -> None:
    suite, store = made
    run = cell(store, "stored")
    records = {(one.task, one.dataset, one.metric): one for one in run.records()}
    assert {task.split("/")[0] for task, _, _ in records} == {"zero_shot", "retrieval", "noise_detection"}
    hashes = {one.data for (_, dataset, _), one in records.items() if dataset == "emoji-b/iid"}
    assert hashes == {load(texts / "evaluation/emoji-b/iid").about.texts_hash[:16]} != {""}
    assert {one.data for one in cell(store, "trained").records()} == {""}
    assert all(line["loss"] > 0 for line in run.metrics())
    results = load_results("lit", store)
    notes = " ".join(family_table(results, "retrieval", [("emoji-b/iid", "retrieval", "mean_recall")]).footnotes)
    assert "Texts are stored features by " in notes
    assert "(8 numbers); images are pixels." in notes
    reason = "prolip needs tokens (it changes captions or reads token ids), but towers.text reads stored features"
    assert f"Not applicable: {reason}" in notes
    assert "measured on different data" not in notes, "towers are not compared with each other"
    lines = dry_run(suite, store.root)
    assert any(line.startswith(f"not applicable: {reason}") for line in lines)
    assert any(line.startswith("emoji-b") and line.endswith(str(texts)) for line in of_suite(suite))


def test_the_towers_are_not_exported(made: tuple[Suite, Store], tmp_path: Path) -> None:
    _, store = made
    with pytest.raises(UserError, match=r"towers\.text reads stored features, for which open_clip has no towers"):
        export(cell(store, "stored").id, tmp_path / "out", store.root)
    assert not (tmp_path / "out").exists()


def test_an_id_follows_from_the_texts_and_their_numbers_alone(
    made: tuple[Suite, Store], texts: Path, tmp_path: Path
) -> None:
    _, store = made

    def of(folder: Path | None, label: str = "stored", **towers: Any) -> str:
        suite = suite_of(tmp_path, folder, towers={**TOWERS, "label": label, **towers}, methods=["clip"])
        return plan(suite.runs(), Store(tmp_path))[0].id

    shutil.copytree(texts, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "evaluation")
    assert of(tmp_path / "copy") == of(texts) == cell(store, "stored").id
    about = json.loads((tmp_path / "copy" / "features.json").read_text())
    about["files"]["text.npy"]["sha256"] = "0" * 64
    (tmp_path / "other").mkdir()
    for file in (tmp_path / "copy").iterdir():
        shutil.copy(file, tmp_path / "other")
    (tmp_path / "other" / "features.json").write_text(json.dumps(about))
    assert of(tmp_path / "other") != of(texts)
    plain = of(None, "trained", text="tiny-transformer", vocabulary=300)
    assert plain == cell(store, "trained").id, "the other towers' texts are no part of it"


def test_a_text_that_is_not_stored_is_found_before_anything_trains(texts: Path, tmp_path: Path) -> None:
    half = STORED.training_set(tmp_path / "few")
    first = r"data\.texts: emoji-b/train: .*few/text\.npy: has no feature of the text '.+'; extract the set again"
    suite = suite_of(tmp_path, half)
    for command in (run_suite, dry_run):
        with pytest.raises(UserError, match=first):
            command(suite, tmp_path / "out")
    assert not list(Store(tmp_path / "out").runs())
    assert any("broken: data.texts: emoji-b/train" in line for line in of_suite(suite))
    shutil.copytree(texts, tmp_path / "some")
    shutil.rmtree(tmp_path / "some" / "evaluation" / "emoji-b")
    own = r"data\.texts: emoji-b/iid, zero_shot: .* text '.+'; .*`--evaluation emoji-b/iid` of the extraction adds"
    with pytest.raises(UserError, match=own):
        dry_run(suite_of(tmp_path, tmp_path / "some"), tmp_path / "out")


def test_noise_that_writes_texts_needs_them_stored(texts: Path, tmp_path: Path) -> None:
    edited = {"kind": "edited_captions", "rates": [0.4], "options": {"op": "swap", "strength": 4.0}}
    suite = suite_of(tmp_path, texts, noise=edited, methods=["clip"])
    with pytest.raises(UserError, match=r"noise\.kind: edited_captions: writes new texts: .* no feature of the text '"):
        run_suite(suite, tmp_path / "out")
    assert not list(Store(tmp_path / "out").runs())


def test_costs_are_known_without_the_texts(texts: Path, tmp_path: Path) -> None:
    here = plan(suite_of(tmp_path, texts).runs(), Store(tmp_path))[0]
    data = {"name": "emoji-b", "texts": "{data}/nowhere", "get": "make {data}/nowhere"}
    gone = suite_of(tmp_path, None, data={**data, "widths": [None, 8]})
    (expected,) = forecast(gone.runs(), Store(tmp_path))
    assert (expected.resolved.steps, expected.resolved.flops) == (here.resolved.steps, here.resolved.flops)
    wide = forecast(suite_of(tmp_path, None, data={**data, "widths": [None, 800]}).runs(), Store(tmp_path))
    assert wide[0].resolved.flops > here.resolved.flops
    lines = dry_run(gone, tmp_path / "out")
    assert lines[-1] == "    get it: make data/nowhere"
    assert "missing: emoji-b, stored texts" in lines
    with pytest.raises(UserError, match=r"lit needs what is not here:[\s\S]*emoji-b, stored texts"):
        run_suite(gone, tmp_path / "out")
    with pytest.raises(UserError, match=r"data\.widths: .* width is not stated; add data\.widths: \[null, numbers of"):
        forecast(suite_of(tmp_path, None, data=data).runs(), Store(tmp_path))


def test_settings_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    pixels = {"name": "emoji-b"}
    for message, data, towers in (
        (r"data\.texts: towers\.text reads stored features beside pixels; name the folder", pixels, {}),
        (r"data\.texts: no tower reads stored texts", {**pixels, "texts": "x"}, {"text": "tiny-transformer"}),
        (r"data\.texts: data\.features has the texts of its images", {**pixels, "texts": "x", "features": "x"}, {}),
        (r"towers\.image: 'tiny-resnet' reads pixels.*data\.texts instead", {**pixels, "features": "x"}, {}),
        (r"data\.features: towers\.image reads stored", {**pixels, "texts": "x"}, {"image": "features"}),
        (r"data\.texts: 'synthetic:0' should be synthetic:N", {**pixels, "texts": "synthetic:0"}, {}),
        (r"data\.widths: should be \[null, because images are pixels", {**pixels, "texts": "x", "widths": [4, 4]}, {}),
        (r"data\.feature_dropout: is of stored", {**pixels, "texts": "x", "feature_dropout": 0.1}, {}),
    ):
        with pytest.raises(UserError, match=message):
            suite_of(tmp_path, None, data=data, towers={**TOWERS, **towers})
    with pytest.raises(ValueError, match=r"should be \[numbers of an image; numbers of a text\]"):
        DataSettings.model_validate({"name": "toys", "features": "x", "widths": [None, 4]})


def job_of(suite: Suite, out: RunWriter) -> Job:
    (run,) = [one for one in suite.runs() if one.label == "clip"]
    return make_job(run, InputsReader().inputs(run), Resolved((("train", 4),), {"train": 1}, 16, 4), out, None, CPU)


def test_micro_batches_and_a_stop_change_nothing(texts: Path, tmp_path: Path, writer: Writer) -> None:
    recipe = {"batch": 16, "bn_group": 8, "threads": 1, "precision": "fp64", "lr": 10.0, "eps": 1e3}
    states = {}
    for micro in (None, 8):
        train_as = {**recipe, "micro_batch": micro, "weight_decay": 0.0, "checkpoint_seconds": 0}
        suite, out = suite_of(tmp_path, texts, train=train_as), writer(RunStore(tmp_path / str(micro)))
        if micro:
            stopped = job_of(suite, out)
            stopped.should_stop = iter([False, False, True]).__next__
            with pytest.raises(Interrupted):
                train(stopped)
        train(job := job_of(suite, out))
        states[micro] = job.towers.state_dict()
    moved = job_of(suite, writer(RunStore(tmp_path / "fresh"))).towers.state_dict()
    assert not torch.equal(moved["text.layers.weight"], states[None]["text.layers.weight"])
    for name, x in states[None].items():
        torch.testing.assert_close(states[8][name], x, rtol=1e-9, atol=1e-12, msg=name)


def test_workers_read_stored_texts_beside_shards(
    webdataset_folder: Callable[..., Path], tmp_path: Path, writer: Writer
) -> None:
    names = [f"{STORED.CLASSES[row % 8]} number {row}" for row in range(32)]
    samples = [{"png": Image.new("RGB", (20, 24), (row, 90, 7 * row)), "txt": name} for row, name in enumerate(names)]
    shards = webdataset_folder(tmp_path / "pairs", samples, split="train", shards=2) / "train"
    found = expand([str(shards)])
    indexing.build(found, workers=1)
    folder = STORED.training_set(tmp_path / "texts", 40)
    taken = {}
    for workers in (0, 1):
        data = {"name": "pets", "shards": str(shards), "texts": str(folder), "workers": workers}
        suite = suite_of(tmp_path, None, data=data, evaluate={"tasks": ["noise_detection"]})
        job = job_of(suite, writer(RunStore(tmp_path / str(workers))))
        train(job)
        taken[workers] = [line["loss"] for line in job.out.metrics()]
    assert taken[0] == taken[1]
    assert EvaluationPlan(suite.data, suite.evaluate).with_texts() == []


def test_a_lookup_that_travels_opens_the_same_files(texts: Path) -> None:
    lookup = TextLookup(load(texts))
    packed = pickle.dumps(lookup)
    assert len(packed) < 1000
    again = pickle.loads(packed)
    some = [load(texts).captions(0)[0], load(texts / "evaluation/emoji-b/novel").captions(0)[0]]
    assert torch.equal(again(some), lookup(some))
    with pytest.raises(UserError, match="has no feature of the text"):
        again.check_training(some)
