"""`bench export`: what open_clip loads from the folder is the run's model, and it scores the same."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import open_clip
import pytest
import torch
from clip_benchmark.metrics.zeroshot_classification import evaluate as peer
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from typer.testing import CliRunner

from bench import data
from bench.catalogue.architectures import CLIP_CHANNELS
from bench.cli import app
from bench.errors import UserError
from bench.evaluation.features import extract_images, extract_texts
from bench.models import export, open_clip_models
from bench.store import RunStore, Store
from bench.training.inputs import InputsReader
from bench.training.job import build_model, prepare_model

from ..towers.small import bert_folder

SUITE = """\
name: exported
budget: {samples: 512}
noise: {rates: [0.4]}
train: {batch: 16, threads: 1, lr: 2.0e-3}
evaluate: {tasks: [zero_shot], datasets: {zero_shot: [emoji/iid]}}
towers:
  - {label: small, dim: 16, vocabulary: 300}
  - {label: bert, image: tiny-rn50, text: %s, dim: 16, context: 24}
methods: [clip]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, unreported: Callable[[Path, str], Path]) -> Path:
    """Two trained runs, the folder of each exported under its label."""
    folder = tmp_path_factory.mktemp("export")
    unreported(folder / "out", "exported")
    (folder / "suite.yaml").write_text(SUITE % bert_folder(folder / "distilled", "distilbert"))
    assert bench("run", str(folder / "suite.yaml"), "--results", str(folder / "out")) == 0
    for label in ("small", "bert"):
        assert bench("export", run_of(folder, label).id, str(folder / label), "--results", str(folder / "out")) == 0
    return folder


def bench(*arguments: str) -> int:
    return CliRunner().invoke(app, [*arguments], catch_exceptions=False).exit_code


def run_of(folder: Path, label: str) -> RunStore:
    runs = Store(folder / "out").runs()
    return next(run for run in runs if run.settings()["towers"]["label"] == label)


class Drawings(Dataset[tuple[torch.Tensor, int]]):
    """Held-out emoji as a program that only knows images and labels sees them."""

    def __init__(self, transform: object) -> None:
        self.pairs, self.transform = data.load_dataset("emoji/iid", 32), transform
        self.classes = list(self.pairs.classes["subgroup"])

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        image = Image.fromarray(self.pairs.images(torch.tensor([row]).numpy())[0])
        return self.transform(image), int(self.pairs.labels["subgroup"][row])  # type: ignore[operator]


@pytest.mark.promise("an exported model gives open_clip the same embeddings")
@pytest.mark.parametrize("label", ["small", "bert"])
def test_open_clip_gives_the_embeddings_of_the_evaluation(folder: Path, label: str) -> None:
    from bench.suite.run import run_of_settings
    from bench.training.checkpoint import load_weights

    out, pairs = run_of(folder, label), data.load_dataset("emoji/iid", 32)
    run = run_of_settings(out.settings(), out.path("settings.json"))
    towers, method = build_model(run, InputsReader().inputs(run))
    prepare_model(method, towers, run, torch.device("cpu"), None)
    load_weights(out.path("weights-100.safetensors"), method, towers)
    model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{folder / label}")
    tokenizer, texts = open_clip.get_tokenizer(f"local-dir:{folder / label}"), ["a photo of a red apple", "cat face"]
    images = torch.stack([Drawings(preprocess)[row][0] for row in range(8)])
    with torch.no_grad():
        found = model.eval().encode_image(images, normalize=True), model.encode_text(tokenizer(texts), normalize=True)
    expected = extract_images(method, towers, pairs)["embedding"][:8], extract_texts(method, towers, texts)["embedding"]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true:UserWarning")
@pytest.mark.filterwarnings("ignore:Conversion of an array with ndim:DeprecationWarning")  # clip-benchmark's
def test_clip_benchmark_finds_the_benchs_numbers(folder: Path) -> None:
    model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{folder / 'small'}")
    tokenizer, pairs = open_clip.get_tokenizer(f"local-dir:{folder / 'small'}"), data.load_dataset("emoji/iid", 32)
    templates = [template.replace("{}", "{c}") for template in data.TEMPLATES["emoji"]]
    drawings = Drawings(preprocess)
    loader = DataLoader(drawings, batch_size=64)
    found = peer(model.eval(), loader, tokenizer, drawings.classes, templates, "cpu", amp=False)
    records = {
        (one.task, one.dataset, one.metric): one.value for one in run_of(folder, "small").records() if one.at == 1
    }
    for ours, theirs in (("top1", "acc1"), ("top5", "acc5")):
        value = records["zero_shot/subgroup", "emoji/iid", ours]
        assert found[theirs] == pytest.approx(value, abs=1.01 / len(pairs)), "a tie may fall either way"
    assert found["acc5"] > 0.08, "chance is 5 of 65 classes"


@pytest.mark.parametrize("label", ["small", "bert"])
def test_bench_eval_of_the_folder_gives_the_runs_numbers(folder: Path, label: str) -> None:
    suite, results = str(folder / "suite.yaml"), str(folder / "out")
    assert bench("eval", str(folder / label), "--suite", suite, "--results", results) == 0
    evaluated = [RunStore(path) for path in (folder / "out" / "exported" / "evaluated").iterdir()]
    own = next(one for one in evaluated if one.settings()["file"].startswith(str(folder / label)))
    found = {(one.task, one.dataset, one.metric): one.value for one in own.records()}
    for one in run_of(folder, label).records():
        if one.at == 1:
            assert found[one.task, one.dataset, one.metric] == pytest.approx(one.value, abs=1.01 / one.n)
    assert found


def test_the_files_are_those_that_open_clip_reads(folder: Path) -> None:
    assert sorted(path.name for path in (folder / "small").iterdir()) == [
        "open_clip_config.json",
        "open_clip_model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    written = json.loads((folder / "bert" / "open_clip_config.json").read_text())
    assert written["model_cfg"]["text_cfg"]["hf_model_name"] == str(folder / "bert")
    assert written["preprocess_cfg"] == {
        "size": 32,
        "mode": "RGB",
        "mean": list(CLIP_CHANNELS[0]),
        "std": list(CLIP_CHANNELS[1]),
        "interpolation": "bicubic",
        "resize_mode": "shortest",
        "fill_color": 0,
    }


def test_what_cannot_be_exported_is_said(folder: Path, tmp_path: Path, unreported: Callable[[Path, str], Path]) -> None:
    with pytest.raises(UserError, match="is not an empty folder"):
        bench("export", run_of(folder, "small").id, str(folder / "small"), "--results", str(folder / "out"))
    (tmp_path / "tokens.yaml").write_text(
        "name: tokens\nbudget: {samples: 16}\ntrain: {batch: 16, threads: 1}\n"
        "evaluate: {tasks: [zero_shot], datasets: {zero_shot: [emoji/iid]}}\n"
        "towers: {image: tiny-vit, dim: 16, vocabulary: 300}\nmethods: [prolip]\n"
    )
    results = ("--results", str(unreported(tmp_path / "out", "tokens")))
    assert bench("run", str(tmp_path / "tokens.yaml"), *results) == 0
    (run,) = Store(tmp_path / "out").runs()
    with pytest.raises(UserError, match="prolip: its embeddings of images are not those of the towers alone"):
        bench("export", run.id, str(tmp_path / "model"), *results)
    assert not (tmp_path / "model").exists()


def test_a_file_of_an_open_clip_architecture_is_read_by_its_name(tmp_path: Path) -> None:
    model = open_clip.create_model("ViT-S-32-alt", force_image_size=32).eval()
    torch.save({"state_dict": {f"module.{name}": x for name, x in model.state_dict().items()}}, tmp_path / "small.pt")
    found = open_clip_models.find_open_clip_model(str(tmp_path / "small.pt"), "ViT-S-32-alt")
    assert found is not None
    assert found.content()["open_clip"] == "ViT-S-32-alt"
    towers, images, texts = (
        open_clip_models.build_open_clip(found, 32).eval(),
        torch.randn(2, 3, 32, 32),
        ["a cat", "red apple"],
    )
    with torch.no_grad():
        torch.testing.assert_close(towers.encode_image(images), model.encode_image(images))
        expected = model.encode_text(open_clip.get_tokenizer("ViT-S-32-alt")(texts))
        torch.testing.assert_close(towers.encode_text(towers.tokenize(texts)), expected)
    assert open_clip_models.find_open_clip_model(str(tmp_path / "small.pt"), None) is None, (
        "without its name it is a file of the suite's towers"
    )


def test_names_and_folders_that_are_none_are_said(folder: Path, tmp_path: Path) -> None:
    common = ("--suite", str(folder / "suite.yaml"), "--results", str(tmp_path / "out"))
    cases = [
        (("ViT-B-32/laion2b_s34b_b79",), "open_clip knows no such weights.*ViT-B-32/laion2b_s34b_b79k"),
        (("open_clip:ViT-B-23/openai",), "open_clip knows no such weights"),
        ((str(tmp_path),), "is a folder without open_clip_config.json"),
        (("x.pt", "--towers", "tiny-vit"), "--towers tiny-vit: is not an architecture of open_clip"),
        (("x.pt", "--towers", "ViT-B-32"), "x.pt: no such file"),
        ((str(folder / "small"), "--towers", "ViT-B-32"), "open_clip_config.json says what the folder holds; omit it"),
        ((str(folder / "small"), "--method", "prolip"), "--method prolip: adds to the towers"),
    ]
    for given, said in cases:
        with pytest.raises(UserError, match=said):
            bench("eval", *given, *common)


def test_an_export_that_cannot_be_written_to_its_end_leaves_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> str:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(export, "_same_as_open_clip", full)
    with pytest.raises(OSError, match="full"):
        bench("export", run_of(folder, "small").id, str(tmp_path / "model"), "--results", str(folder / "out"))
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "tokenizer_config.json").unlink(), "does not have a padding token"),
        (lambda folder: change_id(folder / "tokenizer.json"), "it has the id 99999, and the tower"),
    ],
)
def test_a_tokenizer_that_does_not_fit_the_tower_is_said_at_once(
    folder: Path, tmp_path: Path, damage: Callable[[Path], object], said: str
) -> None:
    model = Path(shutil.copytree(folder / "small", tmp_path / "model"))
    damage(model)
    with pytest.raises(UserError, match=rf"local-dir:{model}: its tokenizer does not fit its text tower: .*{said}"):
        bench("eval", str(model), "--suite", str(folder / "suite.yaml"), "--results", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def change_id(path: Path) -> None:
    """Give one word an id that the tower does not have."""
    content = json.loads(path.read_text())
    words = content["model"]["vocab"]
    words[max(words, key=words.get)] = 99_999
    path.write_text(json.dumps(content))
