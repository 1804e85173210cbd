"""`emoji_finetune`: a CLIP of one half of the emoji goes on with the other half, by the words that it knows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bench import data_folder
from bench.errors import UserError
from bench.hashing import weights_identity
from bench.store import RunStore, Store
from bench.suite.suite import load_suite
from bench.training.inputs import InputsReader
from bench.training.job import build_model, prepare_model

from ..command import call_bench

SIZES = "towers={image: tiny-resnet, text: tiny-transformer, dim: 8, vocabulary: 300%s}"
SMALL = [
    "budget={samples: 64}",
    "train={batch: 32, threads: 1}",
    "evaluate.curve=[]",
    "evaluate.along=[]",
    "select=last",
]
ROWS = (
    "methods=[{method: clip, label: zero-shot, untrained: true}, clip, "
    "{method: clip, label: mean, average_with_start: 0.5}]"
)


def changes(*more: str) -> list[str]:
    return [word for one in more for word in ("--set", one)]


def test_what_it_compares() -> None:
    suite, clip = load_suite("emoji_finetune"), load_suite("flickr30k_clip_finetune")
    assert (suite.noise[0].rates, len(suite.seeds)) == ((0.0, 0.4, 0.6), 10)
    plain = [entry.method for entry in suite.methods]
    assert plain == [entry.method for entry in clip.methods]
    assert {entry.select for entry in suite.methods} == {None, "last", "clean_validation"}
    (towers,) = suite.towers
    (encoder,) = load_suite("features_encoder").towers
    assert towers.model_copy(update={"vocabulary_of": None}) == encoder
    assert towers.vocabulary_of == load_suite("features_encoder").data.name


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory, unreported: Callable[[Path, str], Path]) -> Path:
    """A folder with the encoder's store, and a data folder with its exported weights."""
    folder = tmp_path_factory.mktemp("encoder")
    for suite in ("features_encoder", "emoji_finetune"):
        unreported(folder / "out", suite)
    small = changes(
        SIZES % "", *SMALL[:2], "evaluate.tasks=[retrieval]", "evaluate.datasets={retrieval: [emoji-a/iid]}"
    )
    call_bench("run", "features_encoder", "--results", folder / "out", *small)
    call_bench("export", "suite:features_encoder", folder / "data" / "emoji-a-clip", "--results", folder / "out")
    weights_identity.cache_clear()
    return folder


def test_the_untrained_row_is_the_encoder_and_the_others_forget(encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(data_folder.DATA_VARIABLE, str(encoder / "data"))
    small = changes(SIZES % ", vocabulary_of: emoji-a", *SMALL, "evaluate.tasks=[retrieval]", "noise.rates=[0.4]", ROWS)
    assert "3 done" in call_bench("run", "emoji_finetune", "--results", encoder / "out", "--seeds", "0", *small)
    store = Store(encoder / "out")

    def scores(run: str) -> dict[str, float]:
        return {one.metric: one.value for one in store.run(run).records() if one.dataset == "emoji-a/iid"}

    (own,) = (cell["run"] for cell in (store.plan("features_encoder") or {})["cells"])
    rows = {cell["method"]: cell["run"] for cell in (store.plan("emoji_finetune") or {})["cells"] if cell["seed"] == 0}
    assert scores(rows["zero-shot"]) == pytest.approx(scores(own)), "it reads texts by the encoder's words"
    assert scores(rows["clip"]) != scores(rows["mean"]) != scores(own)
    assert json.loads(store.run(rows["clip"]).path("settings.json").read_text())["towers"]["vocabulary_of"] == "emoji-a"


def test_weights_of_other_words_are_refused(encoder: Path, tmp_path: Path) -> None:
    (own,) = (cell["run"] for cell in (Store(encoder / "out").plan("features_encoder") or {})["cells"])
    stored: RunStore = Store(encoder / "out").run(own)
    for name in ("settings.json", "weights-100.safetensors"):
        shutil.copy(stored.path(name), tmp_path / name)
    start = f"start={tmp_path / 'weights-100.safetensors'}"
    run = load_suite("emoji_finetune", [SIZES % "", *SMALL, ROWS, start]).cells()[0]
    towers, method = build_model(run, InputsReader().for_model(run))
    with pytest.raises(
        UserError, match=r"has tokens of the captions of emoji-a, not of emoji-b; set towers.vocabulary_of: emoj"
    ):
        prepare_model(method, towers, run, torch.device("cpu"), None)


@pytest.mark.parametrize(
    ("towers", "message"),
    [
        ("{vocabulary_of: emoji-c}", "towers.vocabulary_of: 'emoji-c' does not come with the package; did you mean"),
        ("{text: ViT-B-32, vocabulary_of: emoji-a}", "towers.text ViT-B-32 brings its own vocabulary; omit it"),
    ],
)
def test_words_of_nothing_are_one_line(towers: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_suite("emoji_finetune", [f"towers={towers}"])
