"""The recipe: which parameters train, decay and at what rate, and the schedule of a phase."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from bench.suite.settings import TrainSettings
from bench.towers.batchnorm import grouped_norms
from bench.training.optimizer import make_optimiser, named_parameters, set_learning_rate, set_trainable
from methods.clip import Clip
from methods.protocol import Facts, Phase

from ..towers.small import fresh_towers

FACTS = Facts(rows=64, batch=8, dim=16, seed=0)
COUNTS = st.integers(1, 400)
quick = settings(deadline=None, max_examples=40)


class WithScalars(Clip):
    """CLIP with two parameters of its own: one with options, one that takes the suite's."""

    def __init__(self, config: Clip.Config, facts: Facts) -> None:
        super().__init__(config, facts)
        self.own = nn.Parameter(torch.zeros(3, 4))
        self.plain = nn.Parameter(torch.zeros(3, 4))

    def options(self, name: str) -> dict[str, float]:
        return {"lr": 0.5, "weight_decay": 0.25} if name == "method.own" else {}


def schedule(train: TrainSettings, steps: int, base_lr: float | None = None) -> list[float]:
    """Learning rate of every step of a phase."""
    base = train.lr if base_lr is None else base_lr
    optimiser = torch.optim.AdamW([{"params": [nn.Parameter(torch.zeros(1))], "lr": base, "base_lr": base}])
    found = []
    for step in range(steps):
        set_learning_rate(optimiser, step, steps, train)
        found.append(optimiser.param_groups[0]["lr"])
    return found


@quick
@given(COUNTS, st.floats(0.0, 0.99), st.floats(0.0, 1e-3))
def test_a_phase_warms_up_in_equal_steps_reaches_the_rate_and_falls_to_the_last_one(
    steps: int, warmup: float, final: float
) -> None:
    train = TrainSettings(batch=8, lr=1e-3, warmup=warmup, final_lr=final)
    rates = schedule(train, steps)
    warm = int(min(warmup * steps, 0.1 * steps))
    assert warm <= steps / 10, "at most a tenth of the steps"
    for step in range(warm):
        assert rates[step] == pytest.approx(1e-3 * (step + 1) / warm)
    assert max(rates) == pytest.approx(1e-3)
    assert rates[warm] == pytest.approx(1e-3), "the cosine begins at the suite's rate"
    falling = rates[warm:]
    assert falling == sorted(falling, reverse=True)
    count = len(falling)
    last = final + (1e-3 - final) * (1 + math.cos(math.pi * (count - 1) / count)) / 2
    assert falling[-1] == pytest.approx(last), "the end of the phase is the end of the cosine"


@quick
@given(st.integers(1, 200))
def test_the_cosine_is_half_way_down_in_its_middle(half: int) -> None:
    train = TrainSettings(batch=8, lr=1e-2, warmup=0.0, final_lr=2e-3)
    rates = schedule(train, 2 * half)
    assert rates[half] == pytest.approx((1e-2 + 2e-3) / 2)
    for step, rate in enumerate(rates):
        mirrored = rates[2 * half - step] if step else 2e-3
        assert rate + mirrored == pytest.approx(1e-2 + 2e-3), "symmetric about its middle"


@quick
@given(st.integers(20, 300), st.integers(0, 60))
def test_warm_up_in_steps_takes_the_place_of_its_share(steps: int, asked: int) -> None:
    train = TrainSettings(batch=8, lr=1e-3, warmup=0.05, warmup_steps=asked)
    rates = schedule(train, steps)
    warm = min(asked, int(0.1 * steps))
    assert rates.index(max(rates)) == max(0, warm - 1)
    if warm:
        assert rates[0] == pytest.approx(1e-3 / warm)


def test_a_learning_rate_of_its_own_keeps_its_ratio() -> None:
    train = TrainSettings(batch=8, lr=1e-3, final_lr=1e-4)
    suites, own = schedule(train, 50), schedule(train, 50, base_lr=0.25)
    for ours, theirs in zip(suites, own, strict=True):
        assert theirs / ours == pytest.approx(250.0)


def test_a_phase_of_one_step_has_the_whole_rate() -> None:
    assert schedule(TrainSettings(batch=8, lr=1e-3), 1) == [pytest.approx(1e-3)]


def test_parameters_are_named_by_their_owner_each_once() -> None:
    towers, method = fresh_towers(dim=16), WithScalars(Clip.Config(learnable_scale=True), FACTS)
    named = dict(named_parameters(method, towers))
    assert {name.split(".")[0] for name in named} == {"towers", "method"}
    assert named["method.own"] is method.own
    assert len(named) == len(list(named_parameters(method, towers)))
    every = {id(parameter) for parameter in (*towers.parameters(), *method.parameters())}
    assert {id(parameter) for parameter in named.values()} == every


def test_only_weights_with_two_dimensions_decay_and_a_methods_own_options_hold() -> None:
    towers, method = fresh_towers(dim=16), WithScalars(Clip.Config(), FACTS)
    train = TrainSettings(batch=8, lr=1e-3, weight_decay=0.2, betas=(0.8, 0.9), eps=1e-5)
    phase = Phase(lr_scale=0.1)
    set_trainable(method, towers, phase)
    optimiser = make_optimiser(method, towers, phase, train)
    group_of = {id(p): group for group in optimiser.param_groups for p in group["params"]}
    for name, parameter in named_parameters(method, towers):
        group = group_of[id(parameter)]
        if name == "method.own":
            assert (group["lr"], group["weight_decay"]) == (0.5, 0.25)
        else:
            assert group["lr"] == pytest.approx(1e-4), name
            assert group["weight_decay"] == (0.2 if parameter.ndim >= 2 else 0.0), name
        assert group["base_lr"] == group["lr"]
        assert (group["betas"], group["eps"]) == ((0.8, 0.9), 1e-5)
    assert any(parameter.ndim < 2 for _, parameter in named_parameters(method, towers))


def test_one_step_of_the_recipe_is_adamws_equation() -> None:
    """w <- w (1 - lr * decay) - lr * m / (sqrt(v) + eps) with bias-corrected moments, which are g and g^2 at first."""
    towers, method = fresh_towers("tiny-vit", dim=16), WithScalars(Clip.Config(), FACTS)
    train = TrainSettings(batch=8, lr=1e-2, weight_decay=0.3, eps=1e-4)
    set_trainable(method, towers, Phase())
    before = {name: p.detach().double().clone() for name, p in named_parameters(method, towers)}
    generator = torch.Generator().manual_seed(1)
    for _, parameter in named_parameters(method, towers):
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    make_optimiser(method, towers, Phase(), train).step()
    for name, parameter in named_parameters(method, towers):
        lr, decay = (0.5, 0.25) if name == "method.own" else (1e-2, 0.3 if parameter.ndim >= 2 else 0.0)
        assert parameter.grad is not None
        gradient = parameter.grad.double()
        expected = before[name] * (1 - lr * decay) - lr * gradient / (gradient.abs() + 1e-4)
        torch.testing.assert_close(parameter.detach().double(), expected, rtol=1e-5, atol=1e-6, msg=name)


def test_what_a_phase_freezes_gets_no_optimiser_and_a_frozen_tower_evaluates() -> None:
    towers, method = fresh_towers(dim=16), WithScalars(Clip.Config(), FACTS)
    phase = Phase(trainable=lambda name: not name.startswith("towers.visual.") and name != "method.plain")
    towers.eval()
    method.eval()
    set_trainable(method, towers, phase)
    optimiser = make_optimiser(method, towers, phase, TrainSettings(batch=8))
    held = {id(p) for group in optimiser.param_groups for p in group["params"]}
    for name, parameter in named_parameters(method, towers):
        assert parameter.requires_grad == phase.trainable(name), name
        assert (id(parameter) in held) == phase.trainable(name), name
    assert not any(module.training for module in towers.visual.modules())
    assert all((towers.training, towers.text.training, method.training))
    set_trainable(method, towers, Phase())
    assert all(parameter.requires_grad for _, parameter in named_parameters(method, towers))
    assert all(module.training for module in towers.visual.modules())


def test_a_norm_with_frozen_weights_uses_its_running_statistics_wherever_it_stands() -> None:
    towers, method = fresh_towers(dim=16), Clip(Clip.Config(), FACTS)
    norms = grouped_norms(towers.visual)
    first = next(name for name, module in towers.visual.named_modules() if module is norms[0])
    set_trainable(method, towers, Phase(trainable=lambda name: name != f"towers.visual.{first}.weight"))
    assert towers.visual.training
    assert [norm.training for norm in norms] == [False] + [True] * (len(norms) - 1)
