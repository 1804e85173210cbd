"""The ledger: what a step is charged, and when a budget was kept."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from bench.catalogue.budget_kinds import BUDGET_KINDS
from bench.training.ledger import Ledger
from bench.training.schedule import ResolvedSteps
from methods.clip import Clip
from methods.protocol import Cost, Facts

PLAN = ResolvedSteps((("train", 10),), {"train": 1000}, batch=32, epoch_steps=5)
quick = settings(deadline=None, max_examples=40)


class Pair(nn.Module):
    """Two towers, as far as a ledger looks at them."""

    def __init__(self) -> None:
        super().__init__()
        self.visual, self.text = nn.Linear(2, 2), nn.Linear(2, 2)


class Dear(Clip):
    """CLIP that declares other costs."""

    def cost(self, phase: str) -> Cost:
        return Cost(image=2.0, text=1.5, side_image=1.0, side_text=0.5) if phase == "late" else Cost(image=3.0)


@pytest.fixture
def method() -> Dear:
    return Dear(Clip.Config(), Facts(rows=64, batch=8, dim=4, seed=0))


def test_a_step_is_charged_by_its_phase_and_side_towers_go_forward_alone(method: Dear) -> None:
    ledger, towers = Ledger(), Pair()
    ledger.charge(method, towers, "early", 8, 100)
    assert (ledger.image_forwards, ledger.text_forwards) == (24.0, 8.0)
    assert (ledger.image_backwards, ledger.text_backwards) == (24.0, 8.0)
    ledger.charge(method, towers, "late", 8, 70)
    assert (ledger.image_forwards, ledger.text_forwards) == (24.0 + 8 * 3.0, 8.0 + 8 * 2.0)
    assert (ledger.image_backwards, ledger.text_backwards) == (24.0 + 8 * 2.0, 8.0 + 8 * 1.5)
    assert (ledger.samples, ledger.flops) == (16, 170)


@pytest.mark.parametrize("frozen", ["visual", "text"])
def test_a_tower_goes_backward_if_any_of_its_parameters_trains(method: Dear, frozen: str) -> None:
    towers = Pair()
    tower = getattr(towers, frozen)
    tower.weight.requires_grad_(False)
    ledger = Ledger()
    ledger.charge(method, towers, "early", 1, 0)
    assert (ledger.image_backwards, ledger.text_backwards) == (3.0, 1.0), "its bias still trains"
    tower.bias.requires_grad_(False)
    ledger.charge(method, towers, "early", 1, 0)
    expected = (3.0, 2.0) if frozen == "visual" else (6.0, 1.0)
    assert (ledger.image_backwards, ledger.text_backwards) == expected


@quick
@given(st.integers(1, 50), st.integers(1, 512), st.integers(1, 10**12))
def test_equal_steps_cost_equally(count: int, batch: int, flops: int) -> None:
    method = Clip(Clip.Config(), Facts(rows=64, batch=8, dim=4, seed=0))
    ledger, towers = Ledger(), Pair()
    for _ in range(count):
        ledger.charge(method, towers, "train", batch, flops)
    assert ledger.samples == ledger.image_forwards == ledger.text_backwards == count * batch
    assert ledger.flops == count * flops


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("samples", 320.0), ("flops", 9000.0), ("device_seconds", 7.5), ("epochs", 320 / (5 * 32))],
)
def test_what_was_spent_is_said_in_the_budgets_unit(kind: str, expected: float) -> None:
    ledger = Ledger(samples=320, flops=9000, train_seconds=7.5, evaluate_seconds=99.0, repeated_seconds=50.0)
    assert ledger.spent(kind, PLAN) == expected
    statement = ledger.statement(kind, 2 * expected, PLAN, None)
    assert statement["spent_share"] == 0.5
    assert statement["budget"] == {"kind": kind, "value": 2 * expected}
    assert statement["planned"] == {"steps": 10, "flops": 10_000}


def test_an_epoch_of_a_treated_run_is_as_long_as_its_budget_counts_it() -> None:
    """A run that sees half of the rows for the same samples has spent the same epochs."""
    treated = ResolvedSteps((("train", 10),), {"train": 1}, batch=32, epoch_steps=2, budget_epoch_steps=5)
    assert Ledger(samples=320).spent("epochs", treated) == Ledger(samples=320).spent("epochs", PLAN) == 2.0


@pytest.mark.parametrize("kind", BUDGET_KINDS.names())
def test_a_budget_is_kept_up_to_its_tolerance_and_not_beyond(kind: str) -> None:
    tolerance = {"device_seconds": 0.05}.get(kind, 0.01)
    field, unit = {
        "samples": ("samples", 1),
        "flops": ("flops", 1),
        "device_seconds": ("train_seconds", 1),
        "epochs": ("samples", PLAN.epoch_steps * PLAN.batch),
    }[kind]
    for share, over in ((0.5, False), (1.0, False), (1 + 0.9 * tolerance, False), (1 + 1.1 * tolerance, True)):
        ledger = Ledger(**{field: round(100_000 * share) * unit})
        assert ledger.statement(kind, 100_000, PLAN, None)["over_budget"] is over, (kind, share)


def test_the_reference_runs_ledger_is_stated_beside_the_own() -> None:
    paid = Ledger(samples=640, peak_memory_bytes=7).statement("samples", 640, PLAN, None)
    stated = Ledger(samples=320).statement("samples", 320, PLAN, paid)
    assert stated["reference"] == paid
    assert stated["samples"] == 320, "what the reference spent is not added to it"
    assert torch.tensor(stated["spent_share"]).item() == 1.0
