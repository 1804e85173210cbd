"""Memorisation: ranks of given captions against a plain count, chance, what runs without noise have, curves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score

from bench import data
from bench.catalogue import families
from bench.catalogue.families import DatasetFacts
from bench.data.noise.manifest import NoiseManifest
from bench.data.noise.shuffled import shuffled_captions
from bench.evaluation import EvaluationPlan
from bench.evaluation.features import Features, extract_images, extract_texts
from bench.evaluation.measures import MeasureInputs
from bench.evaluation.noise import memorisation as module
from bench.evaluation.noise.memorisation import memorisation, rank_given, sampled_rows
from bench.evaluation.tasks import Task
from bench.store import Store
from bench.suite.settings import DataSettings, EvaluateSettings
from bench.towers.build import OpenClipTowers
from methods.protocol import Method

from ..command import call_bench

Model = tuple[Method, OpenClipTowers]
TASK = Task("memorisation", "emoji/train")
SUITE = """\
name: tiny
data: {name: emoji, size: 32}
noise: {rates: [0.0, 0.4]}
budget: {samples: 64}
towers: {dim: 8, vocabulary: 300}
train: {batch: 32, threads: 1}
methods: [clip]
evaluate: {tasks: [retrieval, memorisation], curve: [0.5]}
"""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer pairs and distractors than the data has, so that rows inside and outside of both occur."""
    monkeypatch.setattr(module, "MEMORISATION_SAMPLE", 300)
    monkeypatch.setattr(module, "DISTRACTORS", 100)


def bench_of(model: Model, manifest: NoiseManifest | None) -> MeasureInputs:
    plan = EvaluationPlan(DataSettings(), EvaluateSettings.model_validate({"tasks": ["retrieval", "memorisation"]}))
    return MeasureInputs(plan, Features(*model, "c", plan.protocol.label, None, plan.channels), manifest)


def test_values_equal_a_plain_count(model: Model) -> None:
    pairs = data.load_dataset("emoji/train", 32)
    manifest = shuffled_captions(pairs, 0.4, 0)
    numbers, outcomes = memorisation(TASK, bench_of(model, manifest))
    rows, distractors = (part.tolist() for part in sampled_rows(pairs))
    assert outcomes["row"].tolist() == rows == sorted({*rows})
    assert len(rows) == 300
    images = extract_images(*model, pairs)["embedding"]
    first, memorised, learned, corrected, cosines = {}, [], [], [], []
    for row in {*rows, *distractors}:
        text = manifest.texts(pairs, np.array([row]))[0][0]
        first[row] = (text, extract_texts(*model, [text])["embedding"][0])
    for row in rows:
        own = float(images[row] @ first[row][1])
        among = [one for one in distractors if one != row][: module.DISTRACTORS]
        others = [float(images[row] @ first[one][1]) for one in among if first[one][0] != first[row][0]]
        hit = all(other < own - 1e-7 for other in others)
        wrong = row in manifest.rows.tolist()
        (memorised if wrong else learned).append(hit)
        cosines.append(own)
        if wrong:
            true = extract_texts(*model, [pairs.captions(row)[0]])["embedding"][0]
            corrected.append(float(images[row] @ true) > own)
    found = {one.metric: one for one in numbers}
    assert found["memorised"].value == pytest.approx(np.mean(memorised), abs=0.011), "rounding may move a tie"
    assert found["learned"].value == pytest.approx(np.mean(learned), abs=0.011)
    assert found["corrected"].value == pytest.approx(np.mean(corrected), abs=0.011)
    assert found["auroc"].value == pytest.approx(roc_auc_score(outcomes["noisy"], -np.array(cosines)), abs=1e-4)
    assert (found["memorised"].n, found["learned"].n) == (len(memorised), len(learned))
    assert not found["memorised"].higher_is_better
    assert found["corrected"].higher_is_better


def test_a_model_that_knows_its_captions_has_memorised_them_and_one_of_noise_is_at_chance() -> None:
    draw = torch.Generator().manual_seed(0)
    texts = {"embedding": F.normalize(torch.randn(2000, 64, generator=draw), dim=1)}
    others = {"embedding": F.normalize(torch.randn(101, 64, generator=draw), dim=1)}
    skip = torch.zeros(2000, 101, dtype=torch.bool)
    skip[:, -1] = True
    assert rank_given(texts, texts, others, skip, "cosine").hits(1).mean() == 1.0
    images = {"embedding": F.normalize(torch.randn(2000, 64, generator=draw), dim=1)}
    chance = families.chance("memorisation", "", DatasetFacts("", 10_000))
    assert chance == {"memorised": 1 / 1024, "learned": 1 / 1024, "corrected": 0.5, "auroc": 0.5}
    assert rank_given(images, texts, others, skip, "cosine").hits(1).mean() == pytest.approx(1 / 101, abs=0.007)
    same = {"embedding": texts["embedding"][:1].expand(2000, -1)}
    tied = rank_given(images, same, {"embedding": same["embedding"][:101]}, skip, "cosine")
    assert tied.hits(1) == pytest.approx(np.full(2000, 1 / 101)), "a collapsed model is at chance"


def test_without_noise_only_what_was_learned_is_measured(model: Model) -> None:
    numbers, outcomes = memorisation(TASK, bench_of(model, None))
    assert [one.metric for one in numbers] == ["learned"]
    assert not outcomes["noisy"].any()


def test_runs_have_it_at_every_point_of_the_curve_and_reports_show_it(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(SUITE)
    out = tmp_path / "out"
    call_bench("run", tmp_path / "tiny.yaml", "--results", out)
    store = Store(out)
    plan = store.plan("tiny")
    assert plan is not None
    assert plan["primary"]["task"] == "retrieval"
    for cell in plan["cells"]:
        found = {(one.at, one.metric) for one in store.run(cell["run"]).records() if one.task == "memorisation"}
        metrics = {"memorised", "corrected", "learned", "auroc"} if "40 %" in cell["noise"] else {"learned"}
        assert found == {(at, metric) for at in (0.5, 1.0) for metric in metrics}
    lines = (out / "tiny" / "tables" / "memorisation.csv").read_text().splitlines()
    assert any("not applicable" in line for line in lines)
    assert not any("missing" in line for line in lines)
