"""`bench features extract`: the numbers are those of the model itself, and a killed extraction ends with its bytes."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pyarrow
import pyarrow.parquet
import pytest
import timm
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image
from safetensors.torch import save_file
from typer.testing import CliRunner

from bench.catalogue.architectures import CLIP_CHANNELS
from bench.cli import app
from bench.data import evaluation_captions, prompt_templates, shards
from bench.data import load_dataset as embedded
from bench.data.features import FeaturePairs, verify_feature_set
from bench.data.noise.shuffled import shuffled_captions
from bench.data.shards import indexing
from bench.data.shards.sources import expand_sources
from bench.errors import UserError
from bench.evaluation import zero_shot
from bench.models import extract_features
from bench.models.encoders import ImagePreparation, image_encoder, text_encoder
from bench.models.extract_features import Extraction, ExtractionRequest, extract_sets
from bench.models.feature_targets import evaluation_target
from bench.store import Store, writing
from bench.store.claim import Claim
from bench.store.fence import Busy
from bench.suite.run import Run
from bench.suite.settings import DataSettings
from bench.towers.build import OpenClipTowers
from bench.training.checkpoint import save_weights
from bench.training.inputs import InputsReader
from bench.training.job import build_model, prepare_model

from ..towers.small import bert_folder, run_on

MODEL = {
    "embed_dim": 8,
    "vision_cfg": {"image_size": 16, "layers": 1, "width": 16, "head_width": 8, "patch_size": 8},
    "text_cfg": {"context_length": 12, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}
CHANNELS = {"mean": [0.5, 0.4, 0.6], "std": [0.3, 0.2, 0.25]}
N, BLOCK, BATCH = 12, 4, 2
CLASSES, TEMPLATES = ("cat", "red dog"), ("a photo of a {c}.", "a drawing of a {c}.")
CPU = torch.device("cpu")


def picture(row: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(row).integers(0, 255, (20, 28, 3), dtype=np.uint8))


def caption(row: int) -> str:
    return f"a photo of the {'cat' if row % 3 else 'dog'} {row % 5}"  # some rows share a caption


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `bench export` and open_clip write it."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    folder.mkdir()
    torch.manual_seed(0)
    save_file(open_clip.model.CustomTextCLIP(**MODEL).state_dict(), folder / "open_clip_model.safetensors")
    config = {"model_cfg": {**MODEL, "custom_text": True}, "preprocess_cfg": {"size": 16, **CHANNELS}}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def data(webdataset_folder: Callable[..., Path], tmp_path: Path) -> Path:
    """A folder of indexed shards with keys s0000000 to s0000011."""
    folder = webdataset_folder(
        tmp_path / "pairs", [{"png": picture(row), "txt": caption(row)} for row in range(N)], split="train", shards=2
    )
    found = expand_sources([str(folder / "train")])
    indexing.build_index(found, workers=1)
    return folder / "train"


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extract_features, "BLOCK_ROWS", BLOCK)
    monkeypatch.setattr(extract_features, "IMAGE_BATCH", BATCH)
    monkeypatch.setattr(extract_features, "TEXT_BATCH", BATCH)


def request(data: Path, out: Path, model: Path, **more: Any) -> ExtractionRequest:
    own = {"images": str(model), "texts": str(model), "dtype": "float32"}
    return ExtractionRequest(str(data), out, **{**own, **more})


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_features_are_those_of_open_clip_itself(data: Path, model: Path, tmp_path: Path) -> None:
    (line,) = extract_sets(request(data, tmp_path / "out", model))
    assert f"{N} rows" in line
    assert not (tmp_path / "out.work").exists()
    verify_feature_set(tmp_path / "out")
    pairs = FeaturePairs(tmp_path / "out")
    peer = open_clip.create_model(f"local-dir:{model}").eval()
    transform = image_transform_v2(PreprocessCfg(16, **CHANNELS), is_train=False)
    texts = [caption(row) for row in range(N)]
    with torch.no_grad():
        images = peer.encode_image(torch.stack([transform(picture(row)) for row in range(N)]))
        words = peer.encode_text(open_clip.get_tokenizer(f"local-dir:{model}")(texts))
    assert np.allclose(pairs.images(np.arange(N)), images.numpy(), atol=1e-5)
    assert pairs.texts is not None
    assert np.allclose(pairs.texts.array[pairs.texts.rows(texts)], words.numpy(), atol=1e-5)
    assert len(pairs.about.image.weights) == 64
    assert "crop 16 px" in pairs.about.image.transform


def test_rows_and_noise_are_those_of_the_pixels(data: Path, model: Path, tmp_path: Path) -> None:
    extract_sets(request(data, tmp_path / "out", model, texts=None))
    features, pixels = (
        FeaturePairs(tmp_path / "out"),
        shards.load_shard_pairs(DataSettings(name="train", shards=str(data), size=16)),
    )
    assert features.name == pixels.name
    assert list(features.keys) == list(pixels.keys)
    assert shuffled_captions(features, 0.5, 1).content_hash == shuffled_captions(pixels, 0.5, 1).content_hash


def killed_after(parts: int, asked: ExtractionRequest) -> None:
    """Extract in a process that kills itself as soon as so many parts are there."""
    store = Extraction._store

    def counted(self: Any, part: Any, blocks: Any) -> None:
        store(self, part, blocks)
        if len(list(self.work.glob("*.npy"))) == parts:
            os.kill(os.getpid(), signal.SIGKILL)

    Extraction._store = counted  # type: ignore[method-assign]  # in the process that dies
    extract_sets(asked)


@pytest.mark.promise("an extraction that is killed goes on to the same bytes")
@pytest.mark.parametrize("parts", [1, 4])
def test_an_extraction_that_is_killed_goes_on_to_the_same_bytes(
    data: Path, model: Path, tmp_path: Path, parts: int
) -> None:
    whole, again = request(data, tmp_path / "whole", model), request(data, tmp_path / "again", model)
    extract_sets(whole)
    process = multiprocessing.get_context("fork").Process(target=killed_after, args=(parts, again))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not again.out.exists()
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "again.work").rglob("*.npy")}
    assert len(made) == parts
    encoded: list[Any] = []
    store = Extraction._store
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Extraction, "_store", lambda *given: (encoded.append(given[1]), store(*given))[1])
        extract_sets(again)
    texts = len({caption(row) for row in range(N)})
    assert len(encoded) == N // BLOCK + -(-texts // BLOCK) - parts  # what was there is not encoded again
    assert content(again.out) == content(whole.out)


def test_the_folder_that_is_to_be_made_has_a_name(data: Path, model: Path) -> None:
    with pytest.raises(UserError, match=r"^\.: already exists; name a new folder"):
        extract_sets(request(data, Path(), model))


def test_evaluation_sets_lie_with_the_pairs_and_hold_their_prompts(
    data: Path, model: Path, evaluation_folder: Path, webdataset_folder: Callable[..., Path], tmp_path: Path
) -> None:
    samples = [{"png": picture(50 + row), "cls": row % 2} for row in range(5)]
    webdataset_folder(evaluation_folder / "wds_pets", samples, classes=CLASSES, templates=TEMPLATES)
    extract_sets(request(data, tmp_path / "out", model))
    lines = extract_sets(request(data, tmp_path / "out", model, evaluation=("pets",)))
    assert "already exists" in lines[0]
    assert len(verify_feature_set(tmp_path / "out")) == 2
    pets = FeaturePairs(tmp_path / "out").evaluation("pets")
    assert pets.labels["class"].tolist() == [0, 1, 0, 1, 0]
    assert pets.classes["class"] == CLASSES
    assert pets.templates == ("a photo of a {}.", "a drawing of a {}.")
    assert pets.texts is not None
    prompted = pets.texts.rows(["a photo of a cat.", "a drawing of a red dog.", "red dog"])
    assert pets.texts.array[prompted].shape == (3, 8)
    (tmp_path / "prompts.txt").write_text("a photo of a horse\n")
    for other in ({"dtype": "float16"}, {"views": 2}, {"texts": None}, {"prompts": tmp_path / "prompts.txt"}):
        with pytest.raises(UserError, match="holds features of other pairs, prompts or encoders"):
            extract_sets(request(data, tmp_path / "out", model, **other))


def test_a_set_of_the_package_brings_all_texts_that_its_evaluation_asks_for(tmp_path: Path) -> None:
    target = evaluation_target("digits/test", tmp_path, ImagePreparation(12, 12, CLIP_CHANNELS))
    pairs = embedded("digits/test", 12)
    texts = {text for row in target.captions.to_pylist() for text in row} | set(target.prompts)
    assert texts >= {text for row in evaluation_captions(pairs) for text in row}
    assert texts >= set(zero_shot.class_prompts(pairs.classes["digit"], prompt_templates(pairs)))
    assert target.pairs.labels["digit"].tolist() == pairs.labels["digit"].tolist()
    pictures = target.pictures(ImagePreparation(12, 12, CLIP_CHANNELS), 0)
    assert [len(batch) for batch in pictures.batches(np.arange(5), 2)] == [2, 2, 1]
    assert (next(pictures.batches(np.arange(9), 3)) == pairs.images(np.arange(3))).all()


def test_views_after_the_first_are_augmented(data: Path, model: Path, tmp_path: Path) -> None:
    extract_sets(request(data, tmp_path / "out", model, texts=None, views=3))
    extract_sets(request(data, tmp_path / "one", model, texts=None))
    array = FeaturePairs(tmp_path / "out").image_array
    assert array.shape == (N, 3, 8)
    assert (array[:, 0] == FeaturePairs(tmp_path / "one").images(np.arange(N))).all()
    for one, other in ((0, 1), (0, 2), (1, 2)):
        same = np.isclose(array[:, one], array[:, other]).all(1)
        assert same.sum() < N // 2  # crops of tiny pictures may agree


def test_a_timm_model_sees_its_own_transform(tmp_path: Path) -> None:
    from timm.data import create_transform, resolve_model_data_config

    torch.manual_seed(0)
    made = timm.create_model("test_vit").eval()
    save_file(made.state_dict(), tmp_path / "vit.safetensors")  # with its classifier, as timm publishes them
    encoder = image_encoder(f"timm:test_vit@{tmp_path / 'vit.safetensors'}", tmp_path, CPU)
    transform = create_transform(**resolve_model_data_config(made), is_training=False)
    from bench.data.photo import evaluation_pixels

    preparation = encoder.preparation
    size, resize = preparation.scaled, preparation.resize
    pixels = np.stack([evaluation_pixels(picture(row), size, resize) for row in range(2)])
    with torch.no_grad():
        expected = made.forward_head(
            made.forward_features(torch.stack([transform(picture(row)) for row in range(2)])), pre_logits=True
        )
    assert np.allclose(encoder.features(pixels), expected.numpy(), atol=1e-4)
    with pytest.raises(UserError, match="timm has no such model; did you mean 'test_vit'"):
        image_encoder("timm:test_vitt", tmp_path, CPU)
    save_file({"other": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(UserError, match=r"--images timm:test_vit@.*: cannot be built"):
        image_encoder(f"timm:test_vit@{tmp_path / 'other.safetensors'}", tmp_path, CPU)


@pytest.mark.parametrize("mode", ["squash", "border"])
def test_a_timm_model_that_squashes_is_cropped_after_it_and_borders_are_refused(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from timm.data import config as timm_config
    from timm.data import create_transform

    from bench.data.photo import evaluation_pixels

    made = timm.create_model("test_vit").eval()
    save_file(made.state_dict(), tmp_path / "vit.safetensors")
    config = {**timm_config.resolve_model_data_config(made), "crop_mode": mode, "crop_pct": 0.9}
    monkeypatch.setattr(timm_config, "resolve_model_data_config", lambda _: config)
    if mode == "border":
        with pytest.raises(UserError, match=r"crop_mode border\), which is not supported"):
            image_encoder(f"timm:test_vit@{tmp_path / 'vit.safetensors'}", tmp_path, CPU)
        return
    encoder = image_encoder(f"timm:test_vit@{tmp_path / 'vit.safetensors'}", tmp_path, CPU)
    pixels = np.stack([evaluation_pixels(picture(1), encoder.preparation.scaled, encoder.preparation.resize)])
    with torch.no_grad():
        image = create_transform(**config, is_training=False)(picture(1))[None]
        expected = made.forward_head(made.forward_features(image), pre_logits=True)
    assert np.allclose(encoder.features(pixels), expected.numpy(), atol=1e-4)


def test_a_transformers_folder_gives_the_mean_of_its_tokens(tmp_path: Path) -> None:
    import transformers

    folder = bert_folder(tmp_path / "bert")
    encoder = text_encoder(f"transformers:{folder}", tmp_path, CPU)
    texts = ["a red apple", "a photo of the black cat"]
    model, tokenizer = (kind.from_pretrained(folder) for kind in (transformers.AutoModel, transformers.AutoTokenizer))
    for row, text in enumerate(texts):  # one by one, so that there is no padding
        with torch.no_grad():
            layer = model.eval()(**tokenizer([text], return_tensors="pt")).last_hidden_state[0]
        assert np.allclose(encoder.features(texts)[row], layer.mean(0).numpy(), atol=1e-5)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    first = text_encoder(f"transformers:{folder}", tmp_path, CPU)
    assert "first token" in first.words
    assert np.allclose(first.features(texts)[1], layer[0].numpy(), atol=1e-5)


def test_a_model_of_the_hub_is_pooled_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are in the hub's cache, not below its name."""
    folder = bert_folder(tmp_path / "models--some--bert" / "snapshots" / "0123")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    (tmp_path / "models--some--bert" / "refs").mkdir()
    (tmp_path / "models--some--bert" / "refs" / "main").write_text("0123")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for place in ("huggingface_hub.constants.HF_HUB_CACHE", "transformers.utils.hub.constants.HF_HUB_CACHE"):
        monkeypatch.setattr(place, str(tmp_path))
    assert "first token" in text_encoder("transformers:some/bert", tmp_path, CPU).words


def store_untrained(run: Run, results: Path) -> OpenClipTowers:
    """Store a run, abab..., at the weights that it begins with; return its towers."""
    built, method = build_model(run, InputsReader().for_model(run))
    prepare_model(method, built, run, CPU, None)
    with writing(Store(results).run("ab" * 32)) as writer:
        writer.write_settings(json.loads(json.dumps(run.settings())))
        save_weights(writer, 1.0, method, built)
    return built


def test_towers_of_a_stored_run(data: Path, tmp_path: Path) -> None:
    towers = {"text": str(bert_folder(tmp_path / "bert"))}
    run = dataclasses.replace(
        run_on(towers, augment="none"), data=DataSettings(name="made", shards="synthetic:64", size=32)
    )
    built = store_untrained(run, tmp_path / "results")
    asked = ExtractionRequest(
        str(data), tmp_path / "out", "run:ab", "run:ab", dtype="float32", results=tmp_path / "results"
    )
    extract_sets(asked)
    pairs = FeaturePairs(tmp_path / "out")
    assert pairs.texts is not None
    with torch.no_grad():
        expected = built.eval().encode_text(built.tokenize([caption(0)]))
    assert np.allclose(pairs.texts.array[pairs.texts.rows([caption(0)])], expected.numpy(), atol=1e-5)
    assert pairs.images(np.arange(N)).shape == (N, 16)


def test_towers_to_whose_embedding_a_method_adds_are_no_encoder(data: Path, tmp_path: Path) -> None:
    """ProLIP's embeddings come from tokens of its own."""
    run = dataclasses.replace(
        run_on({"image": "tiny-vit"}, "prolip", augment="none"),
        data=DataSettings(name="made", shards="synthetic:64", size=32),
    )
    store_untrained(run, tmp_path / "results")
    asked = ExtractionRequest(str(data), tmp_path / "out", "run:ab", None, results=tmp_path / "results")
    with pytest.raises(UserError, match="prolip: its embeddings of images are not those of the towers alone"):
        extract_sets(asked)


@pytest.mark.parametrize(
    ("images", "texts", "line"),
    [
        ("transformers:bert", None, "--images transformers:bert: transformers' models are for --texts"),
        ("no-such-model", "timm:resnet50", "--texts timm:resnet50: timm's models are for --images"),
        ("run:00", None, "'00': no run in"),
        ("no-such-model", None, "--images no-such-model: names no model; valid: MODEL/TAG of open_clip"),
        ("no-such-model", "transformers:no/such/model", "--texts transformers:no/such/model: cannot be read"),
    ],
)
def test_models_that_cannot_be_used_are_named_in_one_line(
    images: str, texts: str | None, line: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as error:
        extract_sets(ExtractionRequest("emoji", tmp_path / "out", images, texts, results=tmp_path / "results"))
    assert line in str(error.value)
    assert len(error.value.lines) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_verbs_print_what_they_made(data: Path, model: Path, tmp_path: Path) -> None:
    out, runner = tmp_path / "out", CliRunner()
    options = ["--images", str(model), "--texts", str(model)]
    result = runner.invoke(app, ["features", "extract", str(data), str(out), *options], catch_exceptions=False)
    assert result.exit_code == 0
    assert f"{out}: {N} rows" in result.stdout
    result = runner.invoke(app, ["features", "verify", str(out)], catch_exceptions=False)
    assert result.stdout.strip().endswith("whole")
    assert FeaturePairs(out).images(np.array([0])).dtype == np.float16
    table = pyarrow.table({"key": list("abc"), "caption": list("xyz")})
    pyarrow.parquet.write_table(table, rows := tmp_path / "rows.parquet")
    np.save(tmp_path / "image.npy", np.ones((3, 2), np.float32))
    arguments = ["features", "convert", str(rows), str(tmp_path / "f30k"), "--images", str(tmp_path / "image.npy")]
    result = runner.invoke(app, arguments, catch_exceptions=False)
    assert "f30k: 3 rows, 0 texts" in result.stdout


def test_one_process_at_a_time_extracts_a_set(data: Path, model: Path, tmp_path: Path) -> None:
    """A claim that its holder released is free."""
    asked = request(data, tmp_path / "out", model)
    (work := tmp_path / "out.work").mkdir()
    with Claim(work / "claims"), pytest.raises(Busy):
        extract_sets(asked)
    assert f"{N} rows" in extract_sets(asked)[0]
    assert not work.exists()
