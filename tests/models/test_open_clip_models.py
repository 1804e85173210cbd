"""`bench eval` of models that prepare their images otherwise: the same pixels and numbers as by open_clip's own way."""

from __future__ import annotations

import gc
import io
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import sklearn.datasets
import torch
import torch.nn.functional as F
from clip_benchmark.datasets.builder import build_dataset
from clip_benchmark.metrics.zeroshot_classification import evaluate as peer
from open_clip.push_to_hf_hub import save_for_hf
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image
from torch.utils.data import DataLoader
from typer.testing import CliRunner

from bench import data
from bench.cli import app
from bench.data import evaluation
from bench.data.evaluation import EvaluationPairs
from bench.data.photo import Resize
from bench.errors import UserError
from bench.evaluation import EvaluationPlan
from bench.models import evaluate_checkpoint, open_clip_models
from bench.store import Record, RunStore
from bench.suite.settings import DataSettings, EvaluateSettings
from bench.suite.suite import load_suite
from bench.towers.build import normalise

PHOTOGRAPHS = sorted((Path(sklearn.datasets.__file__).parent / "images").glob("*.jpg"))
CLASSES, TEMPLATES = (
    ("roof", "wall", "tree", "sky", "petal", "leaf", "stem", "shade"),
    ("a photo of a {c}.", "{c}"),
)
HABITS = [(mode, how) for mode in ("shortest", "longest", "squash") for how in ("bicubic", "bilinear", "random")]
MODEL = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 8},
    "text_cfg": {"context_length": 12, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
}
OTHERS = {"mean": [0.5, 0.4, 0.6], "std": [0.3, 0.2, 0.25], "fill_color": 93}
SUITE = """\
name: asked
data: {name: photographs, size: 64, rows: 1000}
budget: {epochs: 1}
towers: {dim: 16, vocabulary: 300}
train: {batch: 16, augment: none, threads: 1}
evaluate: {tasks: [zero_shot], datasets: {zero_shot: [cars]}}
methods: [clip]
"""


def crops() -> list[tuple[bytes, int]]:
    """96 crops of two photographs, none of them square, each of the quarter that it is from."""
    draws, found = np.random.default_rng(0), []
    for number in range(96):
        label = number % len(CLASSES)
        with Image.open(PHOTOGRAPHS[label // 4]) as photograph:
            left, top = (label % 2) * 320, (label // 2 % 2) * 213
            width, height = draws.integers(60, 110, 2) + (100, 0)[:: 1 if number % 3 else -1]
            x, y = left + int(draws.integers(0, 320 - width)), top + int(draws.integers(0, 213 - min(height, 212)))
            file = io.BytesIO()
            photograph.crop((x, y, x + int(width), y + int(height))).save(file, "PNG")
        found.append((file.getvalue(), label))
    return found


def learned(model: Any, tokenizer: Callable[[list[str]], torch.Tensor]) -> None:
    """A few steps, so that scores are above chance and depend on pixels."""
    transform = image_transform_v2(PreprocessCfg(32, mean=(0.5, 0.4, 0.6), std=(0.3, 0.2, 0.25)), is_train=False)
    images = torch.stack([transform(Image.open(io.BytesIO(png)).convert("RGB")) for png, _ in crops()])
    labels, tokens = torch.tensor([label for _, label in crops()]), tokenizer([f"a photo of a {c}." for c in CLASSES])
    optimiser = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(12):
        scores = model.encode_image(images, normalize=True) @ model.encode_text(tokens, normalize=True).T
        optimiser.zero_grad()
        F.cross_entropy(scores * 10, labels).backward()
        optimiser.step()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained model as open_clip saves it for the hub."""
    torch.manual_seed(0)
    model, folder = open_clip.model.CustomTextCLIP(**MODEL), tmp_path_factory.mktemp("model") / "plain"
    tokenizer = open_clip.SimpleTokenizer(context_length=12)
    learned(model, tokenizer)
    open_clip.factory.set_model_preprocess_cfg(model, {"size": 32, **OTHERS})
    tokenizer.save_pretrained = lambda _: None
    save_for_hf(model, tokenizer, {**MODEL, "custom_text": True}, str(folder), safe_serialization=True)
    return folder


def habit(saved: Path, folder: Path, **preprocess: object) -> Path:
    """The same weights with other words in their configuration."""
    folder.mkdir(parents=True)
    (folder / "open_clip_model.safetensors").hardlink_to(saved / "open_clip_model.safetensors")
    said = json.loads((saved / open_clip_models.CONFIG).read_text())
    said["preprocess_cfg"] = {**OTHERS, **preprocess}
    (folder / open_clip_models.CONFIG).write_text(json.dumps(said))
    return folder


def bench(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    return found.exit_code, found.stdout


def measured(folder: Path, home: Path, suite: str = SUITE, *more: str) -> RunStore:
    """Where `bench eval` of a folder stores."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "asked.yaml").write_text(suite)
    code, said = bench("eval", str(folder), "--suite", str(home / "asked.yaml"), "--results", str(home / "out"), *more)
    assert code == 0, said
    return RunStore(Path(said.splitlines()[-1].rpartition("stored in ")[2]))


def cars(home: Path, webdataset_folder: Callable[..., Path]) -> Path:
    samples = [{"png": png, "cls": label} for png, label in crops()]
    return webdataset_folder(home / "wds_cars_test", samples, classes=CLASSES, templates=TEMPLATES)


def by_clip_benchmark(home: Path, folder: Path, tokenizer: Any) -> dict[str, float]:
    """clip-benchmark's own evaluation of the folder with the transform that open_clip gives."""
    model, _, transform = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of webdataset, which leaves tars open besides
        found = build_dataset("wds/cars", root=str(home), transform=transform, split="test", download=False)
        items, names, templates = list(found), found.classes, found.templates
        del found
        gc.collect()
    return scored(model, items, tokenizer, names, templates)


class Items(list[Any]):
    """A data set as clip-benchmark asks for it: items of (image, label), and class names."""

    classes: list[str]


def scored(model: Any, items: list[Any], tokenizer: Any, names: list[str], templates: list[str]) -> dict[str, float]:
    """clip-benchmark's "acc1" and "acc5"."""
    given = Items(items)
    given.classes = names
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of scikit-learn, on classes without an image
        loader: Any = DataLoader(given, batch_size=32)  # type: ignore[arg-type]
        return dict(peer(model.eval(), loader, tokenizer, names, templates, "cpu", amp=False))


def values(records: list[Record]) -> dict[str, float]:
    return {one.metric: one.value for one in records}


@pytest.mark.promise("a model of open_clip has clip-benchmark's zero-shot scores, whatever its preprocessing")
@pytest.mark.filterwarnings("ignore:Conversion of an array with ndim:DeprecationWarning")  # in clip-benchmark
def test_zero_shot_is_clip_benchmarks_for_every_habit(
    saved: Path, evaluation_folder: Path, webdataset_folder: Callable[..., Path], tmp_path: Path
) -> None:
    home, found = cars(evaluation_folder, webdataset_folder), {}
    tokenizer = open_clip.get_tokenizer(f"local-dir:{saved}")  # no habit is about words
    for mode, how in HABITS:
        folder = habit(saved, tmp_path / mode / how, resize_mode=mode, interpolation=how)
        own = measured(folder, tmp_path)
        theirs = by_clip_benchmark(home, folder, tokenizer)
        found[mode, how] = values(own.records())
        assert found[mode, how] == pytest.approx({"top1": theirs["acc1"], "top5": theirs["acc5"]}), (mode, how)
        said = own.settings()["towers"]["preprocess"]
        assert (said["size"], said["resize_mode"], said["mean"]) == (32, mode, OTHERS["mean"])
        assert said["interpolation"] == ("bicubic" if how == "random" else how)
    assert len({tuple(one.values()) for one in found.values()}) > 2, "habits that change nothing would prove nothing"
    assert found["shortest", "bicubic"]["top1"] > 2 / len(CLASSES)
    assert found["squash", "random"] == found["squash", "bicubic"]


def test_pixels_are_those_of_open_clips_transform(
    saved: Path, evaluation_folder: Path, webdataset_folder: Callable[..., Path], tmp_path: Path
) -> None:
    cars(evaluation_folder, webdataset_folder)
    suite = tmp_path / "asked.yaml"
    suite.write_text(SUITE)
    for mode, how in HABITS:
        folder = habit(saved, tmp_path / mode / how, resize_mode=mode, interpolation=how)
        model = open_clip_models.find_open_clip_model(str(folder), None)
        assert model is not None
        pairs = evaluate_checkpoint._described(model, load_suite(suite), None).plan(load_suite(suite)).load("cars")
        assert isinstance(pairs, EvaluationPairs)
        _, _, transform = open_clip.create_model_and_transforms(f"local-dir:{folder}")
        expected = torch.stack([transform(pairs.image(row)) for row in range(len(pairs))])
        ours = normalise(
            pairs.images(np.arange(len(pairs))), "cpu", open_clip_models.build_open_clip(model, 32).channels
        )
        torch.testing.assert_close(ours, expected, rtol=0, atol=2e-6)  # of the order of two roundings


def test_features_of_two_habits_are_never_shared(
    saved: Path, evaluation_folder: Path, webdataset_folder: Callable[..., Path], tmp_path: Path
) -> None:
    cars(evaluation_folder, webdataset_folder)
    asked = EvaluateSettings.model_validate({"tasks": ("zero_shot",), "datasets": {"zero_shot": ("cars",)}})
    habits = [Resize(mode, how) for mode in ("shortest", "longest", "squash") for how in ("bicubic", "bilinear")]
    plans = [
        EvaluationPlan(DataSettings(name="photographs"), asked, 32, one) for one in (*habits, Resize("longest", fill=9))
    ]
    assert len({plan.load("cars").content_hash for plan in plans}) == 7
    assert evaluation.load_evaluation_set("cars", 32).content_hash == plans[0].load("cars").content_hash
    stores = [
        measured(habit(saved, tmp_path / name, **words), tmp_path)
        for name, words in {"a": {}, "b": {"mean": [0.1, 0.1, 0.1]}, "c": {"resize_mode": "squash"}}.items()
    ]
    assert len({store.folder for store in stores}) == 3
    assert len({store.records()[0].checkpoint for store in stores}) == 1


def test_the_protocol_may_squash_what_the_model_crops(evaluation_folder: Path, webdataset_folder: Any) -> None:
    captions = [{"png": png, "txt": "one"} for png, _ in crops()[:4]]
    webdataset_folder(evaluation_folder / "wds_flickr30k", captions, kind="retrieval")
    asked = EvaluateSettings.model_validate({"protocol": "nuclr", "tasks": ("retrieval",)})
    plan = EvaluationPlan(DataSettings(name="photographs"), asked, 32, Resize("shortest", "bilinear"))
    expected = evaluation.load_evaluation_set("flickr30k", 32, Resize("squash", "bilinear"))
    np.testing.assert_array_equal(plan.load("flickr30k").images(np.arange(4)), expected.images(np.arange(4)))


def test_drawings_of_another_size_are_resized_as_open_clip_does(saved: Path, tmp_path: Path) -> None:
    """A suite on emoji at 64 px measures a model that sees 32 px, and no setting has to change."""
    folder = habit(saved, tmp_path / "model", resize_mode="squash", interpolation="bilinear")
    emoji = SUITE.replace("{name: photographs, size: 64, rows: 1000}", "{name: emoji, size: 64}").replace(
        ", datasets: {zero_shot: [cars]}", ""
    )
    own = measured(folder, tmp_path, emoji)
    model, _, transform = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    tokenizer, pairs = open_clip.get_tokenizer(f"local-dir:{folder}"), data.load_dataset("emoji/iid", 64)
    images = [transform(Image.fromarray(one)) for one in pairs.images(np.arange(len(pairs)))]
    items = [*zip(images, pairs.labels["subgroup"].tolist(), strict=True)]
    templates = [template.replace("{}", "{c}") for template in data.TEMPLATES["emoji"]]
    theirs = scored(model, items, tokenizer, list(pairs.classes["subgroup"]), templates)
    found = values([one for one in own.records() if (one.task, one.dataset) == ("zero_shot/subgroup", "emoji/iid")])
    assert found["top1"] == pytest.approx(theirs["acc1"], abs=1.01 / len(pairs)), "a tie may fall either way"
    assert found["top5"] == pytest.approx(theirs["acc5"], abs=1.01 / len(pairs))
    assert own.settings()["towers"]["preprocess"]["size"] == 32
    assert own.settings()["data"]["size"] == 64


def test_every_tag_of_open_clip_is_read_as_open_clip_reads_it() -> None:
    from open_clip.pretrained import get_pretrained_cfg
    from open_clip.transform import merge_preprocess_dict

    for name, tag in open_clip.list_pretrained():
        config = get_pretrained_cfg(name, tag)
        size = open_clip_models.native_size(name, name)
        said = PreprocessCfg(**{**merge_preprocess_dict(PreprocessCfg(), config), "size": size})
        ours = open_clip_models.Preprocess.read(config, size, name).to_json()
        theirs = {**said.__dict__, "mean": tuple(said.mean), "std": tuple(said.std)}
        assert ours == {**theirs, "interpolation": "bilinear" if said.interpolation == "bilinear" else "bicubic"}


def test_what_cannot_be_followed_is_named(saved: Path, tmp_path: Path) -> None:
    cases: list[tuple[dict[str, object], str]] = [
        ({"interpolation": "bicubik"}, r"preprocess_cfg.interpolation: 'bicubik'; did you mean 'bicubic'"),
        ({"resize_mode": "squashed"}, r"preprocess_cfg.resize_mode: 'squashed'; did you mean 'squash'"),
        ({"mode": "L"}, r"preprocess_cfg.mode: 'L'; valid: RGB"),
        ({"fill_color": 300}, "preprocess_cfg.fill_color: 300 should be a whole number from 0 to 255"),
        ({"mean": [0.5, 0.5]}, r"preprocess_cfg.mean: \[0.5, 0.5\] should be three numbers"),
        ({"std": [0.5, 0.0, 0.5]}, "preprocess_cfg.std: .* should be three numbers above 0"),
    ]
    for number, (words, said) in enumerate(cases):
        with pytest.raises(UserError, match=rf"{open_clip_models.CONFIG}: {said}"):
            open_clip_models.find_open_clip_model(str(habit(saved, tmp_path / str(number), **words)), None)
    grey = habit(saved, tmp_path / "grey", mean=0.5, std=0.25)
    found = open_clip_models.find_open_clip_model(str(grey), None)
    assert found is not None
    assert found.preprocess.channels == ((0.5,) * 3, (0.25,) * 3)
    for text, said in (("{", "is not JSON"), ("[]", "has no model_cfg")):
        (grey / open_clip_models.CONFIG).write_text(text)
        with pytest.raises(UserError, match=said):
            open_clip_models.find_open_clip_model(str(grey), None)
    (grey / open_clip_models.CONFIG).unlink()
    with pytest.raises(UserError, match=f"is a folder without {open_clip_models.CONFIG}; `bench export`"):
        open_clip_models.find_open_clip_model(str(grey), None)
    oblong = habit(saved, tmp_path / "oblong")
    said_of = json.loads((oblong / open_clip_models.CONFIG).read_text())
    said_of["model_cfg"]["vision_cfg"]["image_size"] = [32, 64]
    (oblong / open_clip_models.CONFIG).write_text(json.dumps(said_of))
    with pytest.raises(UserError, match="sees images of 32 x 64 px; only squares"):
        open_clip_models.find_open_clip_model(str(oblong), None)


UNFETCHED = """
import sys
from pathlib import Path

from bench.cli import main
from bench.models import open_clip_models

hub, suite = sys.argv[1:]
sys.argv = ["bench", "eval", "ViTamin-S/datacomp1b", "--suite", suite]
try:
    main()
except SystemExit as end:
    print("exit code", end.code)
cache = Path(hub) / "hub" / "models--jienengchen--ViTamin-S"
for part in ("refs", "snapshots/abc"):
    (cache / part).mkdir(parents=True)
(cache / "refs" / "main").write_text("abc")
(cache / "snapshots" / "abc" / "pytorch_model.bin").write_bytes(b"weights")
print(open_clip_models.find_open_clip_model("ViTamin-S/datacomp1b", None).weights)
"""


def test_what_cannot_be_fetched_is_named_as_given_and_the_fix_works(tmp_path: Path) -> None:
    """No `start` is involved. The fixes are a folder, as other tests have, and the cache of another machine."""
    (tmp_path / "asked.yaml").write_text(SUITE)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub")}
    command = [sys.executable, "-c", UNFETCHED, str(tmp_path / "hub"), str(tmp_path / "asked.yaml")]
    found = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert found.stderr.startswith("ViTamin-S/datacomp1b: cannot be fetched")
    assert "hf download jienengchen/ViTamin-S pytorch_model.bin) and copy its folder" in found.stderr
    weights = tmp_path / "hub" / "hub" / "models--jienengchen--ViTamin-S" / "snapshots" / "abc" / "pytorch_model.bin"
    assert found.stdout.splitlines() == ["exit code 2", str(weights)], found.stderr

    def gone(config: object) -> None:
        raise OSError(f"no network for {config}")

    fix = r"^ViT-B-32/openai: cannot .*\.openai --local-dir FOLDER\) and give the folder"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("open_clip.pretrained.download_pretrained", gone)
        with pytest.raises(UserError, match=fix):
            open_clip_models.find_open_clip_model("ViT-B-32/openai", None)


def test_a_row_called_clip_does_not_hinder_a_model_of_open_clip(saved: Path, tmp_path: Path) -> None:
    """`--method` was to be omitted where it had not been given."""
    model, suite = open_clip_models.find_open_clip_model(str(saved), None), tmp_path / "asked.yaml"
    assert model is not None
    suite.write_text(SUITE.replace("[clip]", "[{method: prolip, label: clip}]"))
    assert evaluate_checkpoint._described(model, load_suite(suite), None).run.method == "clip"
    with pytest.raises(UserError, match="--method clip: adds to the towers"):
        evaluate_checkpoint._described(model, load_suite(suite), "clip")


def test_the_label_of_a_baseline_is_no_method_for_a_model_of_open_clip(saved: Path, tmp_path: Path) -> None:
    model, suite = open_clip_models.find_open_clip_model(str(saved), None), tmp_path / "asked.yaml"
    assert model is not None
    suite.write_text(SUITE.replace("[clip]", "[{method: clip, label: mine}]") + "baseline: mine\n")
    assert evaluate_checkpoint._described(model, load_suite(suite), None).run.label == "clip"


def test_stored_runs_keep_what_they_had() -> None:
    """Names of what was there before stand in hashes of data."""
    labels = [Resize(mode, how).label for mode in ("shortest", "squash") for how in ("bicubic", "bilinear")]
    assert labels == ["crop", "shortest bilinear", "squash", "squash bilinear"]
