"""The whole evaluation of a checkpoint on the real emoji, killed and resumed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bench import data
from bench.data.noise.manifest import NoiseManifest
from bench.data.noise.shuffled import shuffled_captions
from bench.evaluation import PROTOCOL, EvaluationPlan, evaluate_features
from bench.evaluation.features import IMAGE_BATCH, Features, extract_images, extract_texts
from bench.evaluation.measures import held_back
from bench.store import Record, RunStore, RunWriter
from bench.suite.settings import DataSettings, EvaluateSettings
from bench.towers.build import OpenClipTowers
from methods.protocol import Method

from .conftest import build

Model = tuple[Method, OpenClipTowers]
Writer = Callable[[RunStore], RunWriter]
FAST = ("zero_shot", "retrieval", "noise_detection")


def manifest() -> NoiseManifest:
    return shuffled_captions(data.load_dataset("emoji/train", 32), 0.4, 0)


def plan_of(*families: str) -> EvaluationPlan:
    return EvaluationPlan(DataSettings(), EvaluateSettings.model_validate({"tasks": families}))


def run(model: Model, out: RunWriter, families: tuple[str, ...], at: float = 1.0, **changed: object) -> int:
    """Evaluate into `out`; how many records that added."""
    before = len(out.records())
    arguments = {
        "at": at,
        "run": out.id,
        "manifest": manifest(),
        "done": out.has_records,
        "publish": out.write_records,
    }
    features = Features(*model, "c" * 64, PROTOCOL, out.path("features"))
    evaluate_features(features, plan_of(*families), **{**arguments, **changed})  # type: ignore[arg-type]
    return len(out.records()) - before


def evaluations(out: RunStore) -> dict[str, bytes]:
    return {
        str(path.relative_to(out.folder)): path.read_bytes()
        for path in out.folder.rglob("*")
        if path.is_file() and "claim" not in str(path)
    }


def test_a_killed_evaluation_goes_on_to_the_same_bytes(tmp_path: Path, writer: Writer) -> None:
    whole, broken = writer(RunStore(tmp_path / "a" / "run")), writer(RunStore(tmp_path / "b" / "run"))
    assert run(build(), whole, FAST)
    left = 3

    def publish(key: str, records: list[Record], outcomes: dict[str, np.ndarray]) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise KeyboardInterrupt
        broken.write_records(key, records, outcomes)

    with pytest.raises(KeyboardInterrupt):
        run(build(), broken, FAST, publish=publish)
    assert len(broken.records()) == 4
    assert any(broken.path("features").iterdir())
    model = build()
    seen: list[int] = []
    model[1].visual.register_forward_hook(lambda _module, inputs, _output: seen.append(len(inputs[0])))
    assert run(model, broken, FAST)
    assert 466 % IMAGE_BATCH not in seen  # the last batch of emoji/iid: its features were kept
    assert evaluations(broken) == evaluations(whole)
    assert not any("features" in name for name in evaluations(whole))  # cleared away in the end
    assert not run(build(), broken, FAST)  # nothing is left to do
    plan = plan_of(*FAST)
    assert all(whole.has_records(key) for key in plan.keys((1.0,), manifest().summary))
    assert len(plan.keys((1.0,), manifest().summary)) == len(set(plan.keys((0.25, 0.5, 1.0), manifest().summary))) - 4


def test_records_say_what_was_measured(model: Model, tmp_path: Path, writer: Writer) -> None:
    method, towers = model
    out = writer(RunStore(tmp_path / "run"))
    run(model, out, ("zero_shot",))
    records = {(r.dataset, r.task, r.metric): r for r in out.records()}
    assert len(records) == 8
    top1 = records["emoji/iid", "zero_shot/concept", "top1"]
    assert (top1.run, top1.at, top1.score, top1.checkpoint) == ("run", 1.0, "cosine", "c" * 64)
    assert (top1.protocol, top1.n, top1.higher_is_better) == (PROTOCOL, 466, True)
    assert top1.low is not None
    assert top1.high is not None
    pairs = data.load_dataset("emoji/iid", 32)
    images = extract_images(method, towers, pairs)["embedding"]
    names, templates = pairs.classes["subgroup"], data.TEMPLATES["emoji"]
    prompts = [extract_texts(method, towers, [t.replace("{}", n) for t in templates])["embedding"] for n in names]
    classes = F.normalize(torch.stack([F.normalize(p, dim=-1).mean(0) for p in prompts]), dim=-1)
    labels = torch.from_numpy(pairs.labels["subgroup"])
    expected = ((images @ classes.T).topk(5).indices == labels[:, None]).any(1).double().mean()
    found = records["emoji/iid", "zero_shot/subgroup", "top5"]
    assert found.value == pytest.approx(float(expected), abs=0.005)  # batches of texts round differently
    assert found.low <= found.value <= found.high  # type: ignore[operator]


def test_detection_scores_the_pairs_as_training_saw_them(model: Model, tmp_path: Path, writer: Writer) -> None:
    method, towers = model
    out = writer(RunStore(tmp_path / "run"))
    run(model, out, ("noise_detection",))
    (key,) = plan_of("noise_detection").keys((1.0,), manifest().summary)
    kept, noise, pairs = out.outcomes(key), manifest(), data.load_dataset("emoji/train", 32)
    np.testing.assert_array_equal(np.flatnonzero(kept["noisy"]), noise.rows)
    images = extract_images(method, towers, pairs)["embedding"]
    for place in (0, 100, 1000):
        row, donor = noise.rows[place], noise.donors[place]
        text = extract_texts(method, towers, [pairs.captions(donor)[0]])["embedding"]
        assert kept["confidence"][row] == pytest.approx(float(images[row] @ text[0]), abs=1e-5)
    clean = int(np.flatnonzero(~kept["noisy"])[7])
    text = extract_texts(method, towers, [pairs.captions(clean)[0]])["embedding"]
    assert kept["confidence"][clean] == pytest.approx(float(images[clean] @ text[0]), abs=1e-5)
    assert {record.metric for record in out.records()} == {"auroc", "average_precision"}


def test_detection_is_left_out_where_nothing_can_be_told_apart() -> None:
    plan, noise = plan_of(*FAST), manifest()
    clean = shuffled_captions(data.load_dataset("emoji/train", 32), 0.0, 0)
    everything = replace(noise, rows=np.arange(noise.n), donors=np.roll(np.arange(noise.n), 1))
    for none in (None, clean, everything):
        assert "noise_detection" not in {task.family for task in plan.tasks(1.0, none and none.summary)}
    assert "noise_detection" in {task.family for task in plan.tasks(1.0, noise.summary)}


def test_a_point_of_the_curve_is_zero_shot_on_held_out_pairs(model: Model, tmp_path: Path, writer: Writer) -> None:
    out = writer(RunStore(tmp_path / "run"))
    run(model, out, FAST, at=0.25)
    assert {(r.dataset, r.task) for r in out.records()} == {
        ("emoji/iid", "zero_shot/concept"),
        ("emoji/iid", "zero_shot/subgroup"),
    }
    assert {r.at for r in out.records()} == {0.25}


def test_a_probabilistic_method_is_scored_both_ways(tmp_path: Path, writer: Writer) -> None:
    out = writer(RunStore(tmp_path / "run"))
    run(build("prolip"), out, ("zero_shot", "retrieval"))
    both = {(r.dataset, r.task, r.metric) for r in out.records() if r.score == "csd"}
    assert both == {(r.dataset, r.task, r.metric) for r in out.records() if r.score == "cosine"}
    assert len(both) == 4 * 2 + 2 * 9
    assert all(r.low <= r.value <= r.high for r in out.records())  # type: ignore[operator]


def test_probes_learn_something_even_from_untrained_towers(model: Model, tmp_path: Path, writer: Writer) -> None:
    out = writer(RunStore(tmp_path / "run"))
    run(model, out, ("linear_probe",), done=lambda key: "subgroup" in key)
    chance = plan_of("linear_probe").datasets()
    found = {record.task: record for record in out.records()}
    assert {task: record.dataset for task, record in found.items()} == {
        "linear_probe/style": "emoji/iid",
        "linear_probe/digit": "digits/test",
    }
    for record in found.values():
        assert record.value > 1.5 * chance[record.dataset]["chance"][f"{record.task}/accuracy"]


def test_chance_is_what_a_random_guess_scores() -> None:
    facts = plan_of("shift", "retrieval").datasets()["emoji/openmoji"]
    assert facts["n"] == 877
    assert facts["chance"]["shift/concept/top5"] == pytest.approx(5 / 877)
    own = np.random.default_rng(0).hypergeometric(5, 876 * 5, 10, size=1_000_000)  # own captions among ten drawn texts
    assert facts["chance"]["retrieval/i2t_r10"] == pytest.approx((own > 0).mean(), rel=0.03)
    assert facts["chance"]["retrieval/t2i_r1"] == pytest.approx(1 / 877)


def test_broken_weights_fail_rather_than_score(model: Model, tmp_path: Path, writer: Writer) -> None:
    torch.nn.init.constant_(next(model[1].visual.parameters()), torch.nan)
    with pytest.raises(FloatingPointError):
        run(model, writer(RunStore(tmp_path / "run")), ("zero_shot",))


def test_held_back_rows_hang_on_keys_alone() -> None:
    keys = [f"key-{i}" for i in range(100)]
    mask = held_back(keys, 0.2)
    assert mask.sum() == 20
    np.testing.assert_array_equal(held_back(keys[::-1], 0.2), mask[::-1])
