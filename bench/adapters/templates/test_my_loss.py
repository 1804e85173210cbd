"""my_loss keeps what every method must keep, and is CLIP where nothing is smoothed."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from bench.adapters import registry
from bench.checks import lab
from methods.clip import Clip

FILE = Path(__file__).with_name("my_loss.py")


def test_passes_every_check() -> None:
    done = subprocess.run([sys.executable, "-m", "bench", "check", str(FILE)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_smoothing_it_is_clip() -> None:
    registry.add_plugin(FILE)
    kind: Any = registry.find("my_loss")
    claim = kind.identities[0]  # names the hyper-parameters beside the Config; the others keep their defaults
    own, clip = lab.build(kind, **claim.config), lab.build(Clip, **claim.other)
    z = lab.inputs("A")
    torch.testing.assert_close(lab.objective(own, z), lab.objective(clip, z), rtol=1e-12, atol=0.0)
