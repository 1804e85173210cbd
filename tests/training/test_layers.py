"""`train.layer_decay` and `train.freeze`: settings of the recipe that hold for every row alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bench.errors import UserError
from bench.planning.flops import step_prices
from bench.store import Store
from bench.suite.run import Run
from bench.suite.settings import TowerSettings, TrainSettings
from bench.suite.suite import load_suite
from bench.towers.build import OpenClipTowers, build_towers
from bench.towers.tokenization import SmallVocabulary
from bench.training.inputs import InputsReader
from bench.training.job import build_model, prepare_model
from bench.training.optimizer import layer_factors, make_optimiser, named_parameters, set_trainable

from ..command import call_bench

SUITE = """\
name: layered
data: {name: emoji, size: 32}
noise: {rates: [0.0]}
budget: {samples: 64}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16, threads: 1}
start: start.pt
evaluate: {tasks: [zero_shot], datasets: {zero_shot: [emoji/iid]}}
methods: [clip, prolip, ncu]
"""


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Run]]:
    """Runs of a suite whose rows start from weights, with changes; the file is not read here."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "layered.yaml").write_text(SUITE)

    def made(*changes: str) -> list[Run]:
        return [replace(run, start=None) for run in load_suite(tmp_path / "layered.yaml", changes).cells()]

    return made


def towers_of(image: str, text: str) -> OpenClipTowers:
    vocabulary = SmallVocabulary(["a red apple", "two dogs"], 64, 16)
    with torch.device("meta"):
        return build_towers(TowerSettings(image=image, text=text, dim=16), vocabulary, 224, 1)


@pytest.mark.parametrize("name", ["ViT-B-32-quickgelu", "RN50"])
def test_the_rate_falls_by_one_factor_a_block_from_the_projection_to_the_embedding(name: str) -> None:
    factors = layer_factors(towers_of(name, name), 0.5)
    last = {
        "towers.text.text_projection": 0,
        "towers.text.ln_final.weight": 0,
        "towers.text.token_embedding.weight": 13,
    }
    last |= {f"towers.text.transformer.resblocks.{i}.ln_1.weight": 12 - i for i in range(12)}
    if name == "RN50":
        last |= {"towers.visual.conv1.weight": 17, "towers.visual.layer1.0.conv1.weight": 16}
        last |= {"towers.visual.layer4.2.conv3.weight": 1, "towers.visual.attnpool.c_proj.weight": 0}
    else:
        last |= {"towers.visual.proj": 0, "towers.visual.ln_post.bias": 0, "towers.visual.conv1.weight": 13}
        last |= {"towers.visual.class_embedding": 13, "towers.visual.transformer.resblocks.11.mlp.c_fc.weight": 1}
    assert {name: factors[name] for name in last} == {name: 0.5**depth for name, depth in last.items()}
    assert len(factors) == len(list(towers_of(name, name).parameters()))


def test_the_optimiser_has_these_rates_beside_those_of_the_method(runs: Callable[..., list[Run]]) -> None:
    run = runs("train.layer_decay=0.5")[0]
    towers, method = build_model(run, InputsReader().for_model(run))
    prepare_model(method, towers, run, None, None)
    set_trainable(method, towers, method.phases()[0])
    groups = make_optimiser(method, towers, method.phases()[0], run.train).param_groups
    rate = {id(x): group["lr"] / run.train.lr for group in groups for x in group["params"]}
    named = dict(named_parameters(method, towers))
    assert rate[id(named["method.scale.rho"])] == rate[id(named["towers.text.text_projection"])] == 1
    assert rate[id(named["towers.text.token_embedding.weight"])] == 0.25  # below its one block
    assert rate[id(named["towers.visual.head.proj.weight"])] == 1


@pytest.mark.parametrize(("kind", "tower"), [("image", "visual"), ("text", "text")])
def test_a_frozen_tower_stays_and_costs_no_backward_pass(kind: str, tower: str, runs: Callable[..., list[Run]]) -> None:
    free, frozen = (runs(*more)[:2] for more in ((), (f"train.freeze={kind}",)))
    for run, other in zip(frozen, free, strict=True):
        inputs = InputsReader().for_model(run)
        assert step_prices(run, inputs).flops["train"] < step_prices(other, inputs).flops["train"]
        towers, method = build_model(run, inputs)
        prepare_model(method, towers, run, None, None)
        set_trainable(method, towers, method.phases()[0])
        for name, parameter in named_parameters(method, towers):
            assert parameter.requires_grad != name.startswith(f"towers.{tower}."), name


def test_a_phase_that_has_nothing_left_to_train_is_refused(runs: Callable[..., list[Run]]) -> None:
    run = runs("train.freeze=text")[0]
    inputs = InputsReader().for_model(run)
    towers, method = build_model(run, inputs)
    prepare_model(method, towers, run, None, None)
    phase = replace(method.phases()[0], trainable=lambda name: name.startswith("towers.text."))
    with pytest.raises(
        UserError, match=r"train.freeze: nothing left to train in phase 'train' of clip; omit the entry"
    ):
        set_trainable(method, towers, phase)


FEATURES = "towers={image: features, text: tiny-transformer, dim: 8}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            ["train.freeze=image", "start=null"],
            "train.freeze: the image tower would stay random; give start, or",
        ),
        (
            ["towers={dim: 8, text_start: t.pt}"],
            "towers.text_start: every entry begins at start, which has",
        ),
        (["train.freeze=both"], "train.freeze: 'both' should be 'image' or 'text'"),
        (["train.layer_decay=0"], "train.layer_decay: 0 should be greater than 0"),
        (["train.layer_decay=0.9", FEATURES, "data.features=f"], "train.layer_decay: towers.image is a head on stored"),
        (
            ["train.freeze=image", FEATURES, "data.features=f"],
            "train.freeze: towers.image is a head on stored features",
        ),
    ],
)
def test_what_cannot_be_is_one_line(changes: list[str], message: str, runs: Callable[..., list[Run]]) -> None:
    with pytest.raises(UserError, match=message):
        runs(*changes)


def test_the_defaults_are_no_part_of_an_id() -> None:
    assert not {"layer_decay", "freeze"} & TrainSettings().content().keys()
    assert TrainSettings(layer_decay=0.9, freeze="image").content()["freeze"] == "image"


def test_the_logged_rate_is_the_suites(tmp_path: Path, unreported: Callable[[Path, str], Path]) -> None:
    """Not that of the lowest block, which comes first."""
    (tmp_path / "layered.yaml").write_text(SUITE.replace("start: start.pt\n", "").replace("prolip, ncu", ""))
    store = Store(unreported(tmp_path / "out", "layered"))
    call_bench("run", tmp_path / "layered.yaml", "--results", store.root, "--set", "train.layer_decay=0.5")
    (run,) = store.runs()
    assert [line["lr"] for line in run.metrics()][-1:] == [
        pytest.approx(TrainSettings().lr * 0.5 * (1 + math.cos(math.pi * 3 / 4)))
    ]
