"""Checkpoints, from which training resumes to the same bytes, and the weights that evaluation reads."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from bench.store import RunStore, RunWriter
from bench.towers.build import OpenClipTowers
from bench.training import side_towers
from bench.training.ledger import Ledger
from methods.protocol import Method

CHECKPOINT = "checkpoint.pt"


def weights_name(at: float) -> str:
    """File of the weights after the share `at` of the budget: weights-025.safetensors ... weights-100.safetensors."""
    return f"weights-{round(at * 100):03d}.safetensors"


def save_checkpoint(
    out: RunWriter, step: int, method: Method, towers: OpenClipTowers, optimiser: torch.optim.Optimizer, ledger: Ledger
) -> None:
    """Replace the checkpoint in one rename. Randomness and order are functions of (seed, step): step is their state."""
    assert isinstance(method, nn.Module)
    state = {
        "step": step,
        "towers": towers.state_dict(),
        "method": method.state_dict(),
        "optimiser": optimiser.state_dict(),
        "ledger": asdict(ledger),
        **side_towers.state(method, towers),
    }
    out.write_path(CHECKPOINT, lambda path: torch.save(state, path))


def load_checkpoint(out: RunStore, device: torch.device) -> dict[str, Any] | None:
    """Returns the last checkpoint, or None if there is none. torch's error is raised for a file that does not load."""
    path = out.path(CHECKPOINT)
    if not path.exists():
        return None
    state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    return state


def save_weights(out: RunWriter, at: float, method: Method, towers: nn.Module) -> None:
    """Keep towers and method as safetensors under the name of `at`."""
    assert isinstance(method, nn.Module)
    tensors = {
        f"{prefix}.{name}": tensor.detach().cpu().contiguous()
        for prefix, module in (("towers", towers), ("method", method))
        for name, tensor in module.state_dict().items()
    }
    out.write_path(weights_name(at), lambda path: save_file(tensors, path))


def load_weights(path: Path, method: Method, towers: nn.Module) -> None:
    """Put stored weights into towers and method; every name must match."""
    assert isinstance(method, nn.Module)
    tensors = load_file(path)
    for prefix, module in (("towers", towers), ("method", method)):
        own = {name[len(prefix) + 1 :]: x for name, x in tensors.items() if name.startswith(f"{prefix}.")}
        module.load_state_dict(own)


def file_hash(path: Path) -> str:
    """sha256 of a weights file: the checkpoint's name in records."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
