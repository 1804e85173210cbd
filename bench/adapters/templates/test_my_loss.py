"""my_loss keeps what every method must keep, and is CLIP where nothing is smoothed."""

from pathlib import Path
from typing import Any

import torch

import bench
from bench.adapters import registry
from bench.checks import lab
from methods.clip import Clip

FILE = Path(__file__).with_name("my_loss.py")


def test_passes_every_check() -> None:
    failed = [f"{one.check}: {one.reason}" for one in bench.check(FILE) if one.outcome == "failed"]
    assert failed == []


def test_without_smoothing_it_is_clip() -> None:
    registry.add_plugin(FILE)
    kind: Any = registry.find_method("my_loss")
    claim = kind.identities[0]  # names the hyper-parameters beside the Config; the others keep their defaults
    own, clip = lab.build_adapter(kind, **claim.config), lab.build_adapter(Clip, **claim.other)
    z = lab.oracle_inputs("A")
    torch.testing.assert_close(lab.step_loss(own, z), lab.step_loss(clip, z), rtol=1e-12, atol=0.0)
