"""The second pair of towers: an average that follows the trained one, or a reference that stays."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

import pytest
import torch
from safetensors.torch import save_file

from bench.towers.build import OpenClipTowers
from bench.training import side_towers
from methods.clip import Clip
from methods.protocol import Clock, Facts

from ..towers.small import fresh_towers

FACTS = Facts(rows=64, batch=8, dim=8, seed=0)


class Averaged(Clip):
    side: ClassVar[Literal["none", "reference", "ema"]] = "ema"
    decay = 0.75

    def side_decay(self, clock: Clock) -> float:
        return self.decay + (0.125 if clock.step else 0.0)


class Beside(Clip):
    side: ClassVar[Literal["none", "reference", "ema"]] = "reference"


def state(towers: OpenClipTowers) -> dict[str, torch.Tensor]:
    return {name: x.detach().clone() for name, x in towers.state_dict().items()}


def clock(step: int) -> Clock:
    return Clock(step=step, phase="train", progress=0.0, epoch=0)


def moved(towers: OpenClipTowers, by: float) -> None:
    with torch.no_grad():
        for x in (*towers.parameters(), *(buffer for buffer in towers.buffers() if buffer.is_floating_point())):
            x.add_(by)


def test_an_average_follows_parameters_by_its_decay_and_takes_buffers_as_they_are() -> None:
    towers, method = fresh_towers(), Averaged(Averaged.Config(), FACTS)
    side_towers.hold_average(method, towers)
    start = state(towers)
    moved(towers, 1.0)
    side_towers.update_average(method, towers, clock(0))
    parameters = {name for name, _ in towers.named_parameters()}
    floating = [name for name, x in start.items() if x.is_floating_point()]
    assert set(floating) - parameters, "these towers have running statistics"
    once = state(towers.side)
    for name in floating:
        expected = start[name] + (0.25 if name in parameters else 1.0)
        torch.testing.assert_close(once[name], expected, rtol=1e-5, atol=1e-5, msg=name)
    side_towers.update_average(method, towers, clock(1))
    for name in sorted(parameters):
        expected = start[name] + (1.0 - 0.75 * 0.875)
        torch.testing.assert_close(state(towers.side)[name], expected, rtol=1e-5, atol=1e-5, msg=name)


def test_the_average_is_a_copy_and_no_part_of_the_trained_towers() -> None:
    towers, method = fresh_towers(), Averaged(Averaged.Config(), FACTS)
    own = set(towers.state_dict())
    side_towers.hold_average(method, towers)
    assert set(towers.state_dict()) == own
    moved(towers, 1.0)
    before = state(towers.side)
    assert not torch.equal(next(towers.parameters()), next(towers.side.parameters()))
    assert not any(parameter.requires_grad for parameter in towers.side.parameters())
    assert not any(module.training for module in towers.side.modules())
    for name, x in state(towers.side).items():
        assert torch.equal(x, before[name])


@pytest.mark.parametrize(("decay", "same"), [(1.0, "side"), (0.0, "own")])
def test_the_ends_of_the_decay_are_no_average(decay: float, same: str) -> None:
    towers, method = fresh_towers(), Averaged(Averaged.Config(), FACTS)
    side_towers.hold_average(method, towers)
    before = state(towers.side)
    moved(towers, 0.5)
    method.decay = decay
    side_towers.update_average(method, towers, clock(0))
    expected = before if same == "side" else state(towers)
    for name, parameter in towers.side.named_parameters():
        torch.testing.assert_close(parameter, expected[name], rtol=1e-6, atol=1e-6, msg=name)


@pytest.mark.parametrize("decay", [-0.01, 1.01])
def test_a_decay_outside_the_unit_interval_is_the_methods_mistake(decay: float) -> None:
    towers, method = fresh_towers(), Averaged(Averaged.Config(), FACTS)
    side_towers.hold_average(method, towers)
    method.decay = decay
    with pytest.raises(ValueError, match=rf"side_decay gives {decay} at step 0, but it must lie in \[0, 1\]"):
        side_towers.update_average(method, towers, clock(0))


def test_a_reference_has_the_weights_of_its_run_and_stays(tmp_path: Path) -> None:
    towers, method, trained = fresh_towers(), Beside(Beside.Config(), FACTS), fresh_towers(seed=1)
    file = tmp_path / "weights-100.safetensors"
    save_file({f"towers.{name}": x for name, x in state(trained).items()}, file)
    own = state(towers)
    side_towers.hold_reference(method, towers, file)
    for name, x in state(towers.side).items():
        assert torch.equal(x, state(trained)[name]), name
    for name, x in state(towers).items():
        assert torch.equal(x, own[name]), "the trained towers do not begin there"
    moved(towers, 1.0)
    side_towers.update_average(method, towers, clock(0))
    for name, x in state(towers.side).items():
        assert torch.equal(x, state(trained)[name]), name


def test_checkpoints_hold_an_average_but_no_reference() -> None:
    towers, method = fresh_towers(), Averaged(Averaged.Config(), FACTS)
    side_towers.hold_average(method, towers)
    moved(towers, 1.0)
    side_towers.update_average(method, towers, clock(0))
    saved, wanted = side_towers.side_state(method, towers), state(towers.side)
    again = fresh_towers(seed=3)
    side_towers.hold_average(method, again)
    side_towers.restore_side(method, again, saved)
    for name, x in state(again.side).items():
        assert torch.equal(x, wanted[name]), name
    beside = Beside(Beside.Config(), FACTS)
    side_towers.hold_reference(beside, towers, None)
    assert side_towers.side_state(beside, towers) == {}


def test_a_method_without_a_side_has_none() -> None:
    towers, method = fresh_towers(), Clip(Clip.Config(), FACTS)
    side_towers.hold_reference(method, towers, None)
    side_towers.hold_average(method, towers)
    side_towers.update_average(method, towers, clock(0))
    side_towers.restore_side(method, towers, {})
    assert side_towers.side_state(method, towers) == {}
    with pytest.raises(RuntimeError, match=r"towers\.side: the method declares none"):
        _ = towers.side
