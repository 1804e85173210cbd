"""The second pair of towers that a method may hold: frozen reference weights, or an average of the trained ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.optim.swa_utils import get_ema_multi_avg_fn

from bench.towers.build import OpenClipTowers
from bench.towers.state_dicts import load_tensors
from methods.protocol import Clock, Method


def hold_reference(method: Method, towers: OpenClipTowers, weights: Path | None) -> None:
    """Called before `prepare`: hold the reference run's towers at `weights` (None if only costs are counted)."""
    if method.side == "reference":
        side = towers.copied()
        if weights is not None:
            load_tensors(weights, {"towers": side})
        towers.hold_side(side)


def hold_average(method: Method, towers: OpenClipTowers) -> None:
    """Called after `prepare`: hold a copy of the initial towers, including the parts that the method added."""
    if method.side == "ema":
        towers.hold_side(towers.copied())


@torch.no_grad()
def update_average(method: Method, towers: OpenClipTowers, clock: Clock) -> None:
    """After an optimiser step: side <- m * side + (1 - m) * towers for parameters; buffers are copied."""
    if method.side != "ema":
        return
    decay = method.side_decay(clock)
    if not 0 <= decay <= 1:
        raise ValueError(f"{method.name}.side_decay gives {decay} at step {clock.step}, but it must lie in [0, 1]")
    held, own = (list[torch.Tensor](pair.parameters()) for pair in (towers.side, towers))
    get_ema_multi_avg_fn(decay)(held, own, None)
    for mine, buffer in zip(towers.side.buffers(), towers.buffers(), strict=True):
        mine.copy_(buffer)


def side_state(method: Method, towers: OpenClipTowers) -> dict[str, Any]:
    """The side towers' part of a checkpoint. Only an average has one; a reference's weights are stored with its run."""
    return {"side": towers.side.state_dict()} if method.side == "ema" else {}


def restore_side(method: Method, towers: OpenClipTowers, saved: dict[str, Any]) -> None:
    """The inverse of `side_state`."""
    if method.side == "ema":
        towers.side.load_state_dict(saved["side"])
