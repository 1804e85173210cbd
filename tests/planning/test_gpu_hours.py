"""GPUs by name, and hours from FLOPs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bench.catalogue.gpus import Gpu, find_gpu, gpu_hours
from bench.console.progress import duration
from bench.errors import UserError
from bench.evaluation import EvaluationPlan, evaluate_features
from bench.evaluation.features import Features
from bench.evaluation.workload import evaluation_workload
from bench.planning import estimate
from bench.planning.estimate import on_gpu, on_this_machine
from bench.planning.planner import Planner, plan
from bench.store import Store, writing
from bench.suite.suite import load_suite
from bench.training.inputs import InputsReader
from bench.training.job import build_model

TWO_TOWERS = """\
name: two
data: {name: photographs, size: 32, rows: 1_000}
budget: {epochs: 2}
towers:
  - {label: small, dim: 32, vocabulary: 512}
  - {label: large, dim: 64, vocabulary: 512}
train: {batch: 64, augment: none, threads: 1}
evaluate: {tasks: [zero_shot], datasets: {zero_shot: [cifar10]}}
methods: [clip]
"""


@pytest.mark.parametrize(("asked", "name"), [
    ("a100", "A100"),
    ("A100", "A100"),
    ("rtx-4090", "RTX 4090"),
    ("4090", "RTX 4090"),
    ("NVIDIA H100 PCIe", "H100 PCIe"),
    ("h200", "H200"),
])  # fmt: skip
def test_a_card_is_found_however_it_is_written(asked: str, name: str) -> None:
    assert find_gpu(asked).name == name


def test_an_unknown_card_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"--gpu h300: no known GPU; did you mean 'H[12]00'"):
        find_gpu("h300")


def test_hours_are_flops_over_the_reached_rate() -> None:
    assert gpu_hours(3600 * 312e12, find_gpu("a100"), 1.0) == pytest.approx(1.0)
    assert gpu_hours(3600 * 312e12, find_gpu("a100"), 0.5) == pytest.approx(2.0)
    for share in (0.0, -0.1, 1.01):
        with pytest.raises(UserError, match="--utilisation"):
            gpu_hours(1.0, find_gpu("a100"), share)


def test_peaks_are_those_of_datasheets() -> None:
    peaks = {name: find_gpu(name).peak for name in ("v100", "a100", "h100", "h200", "rtx 4090")}
    assert peaks == {"v100": 125e12, "a100": 312e12, "h100": 989e12, "h200": 989e12, "rtx 4090": 165.2e12}
    assert find_gpu("v100").precision == "fp16"  # it has no bf16


def test_runs_whose_data_is_missing_have_hours_and_disk(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(TWO_TOWERS)
    expected = Planner(Store(tmp_path), here=False).plan(load_suite(file).runs())
    card = Gpu("card", 1e12, "bf16", "none")
    cost = on_gpu(expected, card, 0.5)
    assert (cost.runs, cost.steps, cost.samples) == (2, 2 * 2 * 15, 2 * 2 * 15 * 64)
    assert cost.hours == pytest.approx(cost.flops / 0.5e12 / 3600)
    alone = [on_gpu([one], card).disk_bytes for one in expected]
    assert cost.disk_bytes == sum(alone)
    assert 0 < alone[0] < alone[1]  # the second towers are wider
    assert "card at 50% of 1 TFLOP/s bf16" in "\n".join(cost.lines)
    eight = on_gpu(expected, card, 0.5 / 1e8, devices=8)
    days = 1e8 * (cost.hours + (cost.evaluate_hours or 0)) / 24 / 8
    assert f"in total {days:,.1f} days on 8 card, {days / 2:,.1f} days per run" in "\n".join(eight.lines)


EXACT = """\
name: exact
data: {name: photographs, size: 32, rows: 1_000}
noise: {rates: [0.0, 0.4]}
budget: {epochs: 2}
towers: {image: tiny-vit, dim: 32, vocabulary: 512}
train: {batch: 64, augment: none, threads: 1}
evaluate:
  tasks: [zero_shot, shift, linear_probe, retrieval, noise_detection]
  curve: [0.5]
  datasets:
    {zero_shot: [cifar10, imagenet1k], shift: [imagenetv2], linear_probe: [cifar10], retrieval: [flickr30k, winogavil]}
methods: [clip]
"""


def test_evaluation_is_the_forwards_on_the_catalogues_counts(tmp_path: Path, evaluation_folder: Path) -> None:
    """A tiny ViT and a one-layer text tower, by hand; nothing of the data is there."""
    assert not evaluation_folder.exists()
    (tmp_path / "exact.yaml").write_text(EXACT)
    expected = Planner(Store(tmp_path), here=False).plan(load_suite(tmp_path / "exact.yaml").runs())
    cost = on_gpu(expected, Gpu("card", 1e12, "bf16", "none"), 0.5)
    tests = 10_000 + 50_000 + 10_000 + 1_000 + 3_563  # ImageNet-V2 is scored by ImageNet's prompts
    half, end, noise = 10_000, tests + 50_000 + 10_000, 1_000  # the probe reads both splits before the projection
    prompts, names = 18 * 10, 80 * 1000
    texts = prompts + (prompts + names + 1_000 * 5 + 3_563)
    assert cost.evaluation is not None
    assert cost.evaluate_hours is not None
    assert cost.evaluation.read.images == 2 * (half + end) + noise  # one run of two has noise
    assert cost.evaluation.read.texts == 2 * texts + noise
    layer = lambda tokens, width: 24 * tokens * width**2 + 4 * tokens**2 * width  # noqa: E731
    image = 4 * layer(17, 128) + 2 * 16 * (3 * 8 * 8) * 128 + 2 * 128 * 32
    text = layer(24, 64) + 2 * 64 * 32
    assert cost.evaluation.flops == cost.evaluation.read.images * image + cost.evaluation.read.texts * text
    assert cost.evaluate_hours == pytest.approx(cost.evaluation.flops / 0.5e12 / 3600)
    pairs, images = (
        of / hours / 3600
        for of, hours in (
            (cost.samples, cost.hours),
            (cost.evaluation.read.images, cost.evaluate_hours),
        )
    )
    last = cost.lines[-1]
    assert last.startswith("hours exclude reading")
    assert f"{pairs:,.0f} pairs/s are decoded in training and {images:,.0f} images/s in evaluation" in last


def test_what_an_evaluation_encodes_is_what_was_counted(tmp_path: Path) -> None:
    """A real run on emoji: forwards of its towers. Equal texts are encoded once, so texts are at most as counted."""
    suite = load_suite("smoke")
    (one, *_) = plan(suite.runs(), Store(tmp_path))
    towers, method = build_model(one.run, InputsReader().inputs(one.run))
    seen = {"images": 0, "texts": 0}
    for name, part in (("images", towers.visual), ("texts", towers.text)):
        part.register_forward_hook(
            lambda _part, given, _out, name=name: seen.update({name: seen[name] + len(given[0])})
        )
    tasks = ("zero_shot", "shift", "retrieval")
    asked = EvaluationPlan(one.run.data, one.run.evaluate.model_copy(update={"tasks": tasks}))
    with writing(Store(tmp_path).run("out")) as out:
        evaluate_features(
            Features(method, towers, "c" * 64, asked.protocol.label, None, asked.channels),
            asked,
            at=1.0,
            run="run",
            manifest=None,
            done=out.has_records,
            publish=out.write_records,
        )
    counted = evaluation_workload(asked, 1.0)
    assert counted.images == seen["images"] > 0
    assert counted.texts >= seen["texts"] > 0.5 * counted.texts


def test_seconds_of_several_ranks_are_divided_among_them(tmp_path: Path) -> None:
    changes = (("{name: photographs, size: 32, rows: 1_000}", "{size: 32}"), ("datasets: {zero_shot: [cifar10]}", ""))
    text = f"{TWO_TOWERS}seeds: [0, 1]\n".replace("{epochs: 2}", "{samples: 640}").replace(", augment: none", "")
    for old, new in changes:
        text = text.replace(old, new)
    (tmp_path / "two.yaml").write_text(text)
    store = Store(tmp_path / "results")
    planned = plan(load_suite(tmp_path / "two.yaml").runs(), store)
    made, waiting = (one for one in planned if one.run.towers.label == "small")
    with writing(store.run(made.id)) as out:
        out.write_settings(made.run.settings())
        out.write_json("environment.json", {"ranks": {"world": 2}})
        out.write_json("ledger.json", {"flops": 600, "train_seconds": 60.0, "evaluate_seconds": 8.0})
        out.set_status("done")
    found = on_this_machine([waiting], store)
    assert found.source == "1 finished runs of these towers"
    assert found.evaluate_hours == 4.0 / 3600
    assert 3600 * found.hours == pytest.approx(waiting.resolved.flops / (2 * 600 / 60.0))


def test_a_large_batch_is_timed_in_part_where_there_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (one, *_) = plan(load_suite("smoke").runs(), Store(tmp_path))
    (flops,) = one.resolved.step_flops.values()
    monkeypatch.setattr(estimate, "MAX_TIMED_FLOPS", flops / 4)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    batch = one.run.train.batch // 4
    found = on_this_machine([one], Store(tmp_path))
    assert found.source == f"{estimate.TIMED_STEPS} timed steps of {one.run.label} with {batch} pairs"
    assert f"training {duration(3600 * found.hours)}, evaluation not known yet; in total " in "\n".join(found.lines)
    monkeypatch.setattr(estimate, "MAX_TIMED_FLOPS", flops)
    assert estimate._affordable(one) is one.run


def test_cards_need_no_torch() -> None:
    code = "import sys, bench.catalogue.gpus; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
