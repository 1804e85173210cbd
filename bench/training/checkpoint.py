"""Checkpoints, from which training resumes to the same bytes, and the weights that evaluation reads."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from bench.errors import one_line
from bench.store import Damaged, RunStore, RunWriter
from bench.store.run import weights_name as weights_name
from bench.towers.build import OpenClipTowers
from bench.training import side_towers
from bench.training.ledger import Ledger
from methods.protocol import Method

CHECKPOINT = "checkpoint.pt"
_PARTS = {"towers", "method", "optimiser", "ledger"}


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
    """Return the last checkpoint, or None if there is none. Raises Damaged for a file that is none."""
    return _loaded(out, map_location=device)


def checkpoint_step(out: RunStore) -> int | None:
    """Return the step of the last checkpoint without reading its tensors; errors as in `load_checkpoint`."""
    state = _loaded(out, map_location="cpu", mmap=True)
    return None if state is None else int(state["step"])


def _loaded(out: RunStore, **how: Any) -> dict[str, Any] | None:
    path = out.path(CHECKPOINT)
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True, **how)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # the unpickler raises whatever the bytes lead it to
        raise Damaged(path, f"is no checkpoint: {one_line(error, 120)}") from error
    if not isinstance(state, dict) or type(state.get("step")) is not int or not state.keys() >= _PARTS:
        raise Damaged(path, f"is no checkpoint: it should hold step, {', '.join(sorted(_PARTS))}")
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
    """Put stored weights into towers and method; every name must match. Raises Damaged for a file of no weights."""
    assert isinstance(method, nn.Module)
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise Damaged(path, f"cannot be read: {one_line(error, 120)}") from error
    for prefix, module in (("towers", towers), ("method", method)):
        own = {name[len(prefix) + 1 :]: x for name, x in tensors.items() if name.startswith(f"{prefix}.")}
        module.load_state_dict(own)
