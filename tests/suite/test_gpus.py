"""GPUs by name, and hours from FLOPs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.errors import UserError
from bench.estimate import Training, calibrated, on_gpu
from bench.gpus import Gpu, find, gpu_hours
from bench.steps import forecast, plan
from bench.store import Store
from bench.suite import load_suite

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
    assert find(asked).name == name


def test_an_unknown_card_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"--gpu h300: no known GPU; did you mean 'H[12]00'"):
        find("h300")


def test_hours_are_flops_over_the_reached_rate() -> None:
    assert gpu_hours(3600 * 312e12, find("a100"), 1.0) == pytest.approx(1.0)
    assert gpu_hours(3600 * 312e12, find("a100"), 0.5) == pytest.approx(2.0)
    for share in (0.0, -0.1, 1.01):
        with pytest.raises(UserError, match="--utilisation"):
            gpu_hours(1.0, find("a100"), share)


def test_peaks_are_those_of_datasheets() -> None:
    peaks = {name: find(name).peak for name in ("v100", "a100", "h100", "h200", "rtx 4090")}
    assert peaks == {"v100": 125e12, "a100": 312e12, "h100": 989e12, "h200": 989e12, "rtx 4090": 165.2e12}
    assert find("v100").precision == "fp16"  # it has no bf16


def test_runs_whose_data_is_missing_have_hours_and_disk(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(TWO_TOWERS)
    expected = forecast(load_suite(file).runs(), Store(tmp_path))
    card = Gpu("card", 1e12, "bf16", 8, "none")
    found = on_gpu(expected, card, 0.5)
    assert isinstance(found, Training)
    assert (found.runs, found.steps, found.samples) == (2, 2 * 2 * 15, 2 * 2 * 15 * 64)
    assert found.hours == pytest.approx(found.flops / 0.5e12 / 3600)
    alone = [on_gpu([one], card).disk_bytes for one in expected]
    assert found.disk_bytes == sum(alone)
    assert 0 < alone[0] < alone[1]  # the second towers are wider
    assert "one card at 50% of 1 TFLOP/s bf16" in found.text


def test_calibration_times_real_steps_of_every_towers(tmp_path: Path) -> None:
    planned = plan(load_suite("smoke").runs(), Store(tmp_path))
    found = calibrated(planned, steps=4)
    assert 0 < found.hours < 1
    assert "4 timed steps of clip, clean, seed 0" in found.source


def test_cards_need_no_torch() -> None:
    code = "import sys, bench.gpus; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
