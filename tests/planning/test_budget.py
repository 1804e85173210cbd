"""A budget comes to steps before the first one, and the ledger says whether it was kept."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from bench.errors import UserError
from bench.planning.flops import count_step_flops
from bench.planning.planner import resolve_budget
from bench.suite.settings import TowerSettings
from bench.towers.build import OpenClipTowers, build_towers
from bench.towers.tokenization import SmallVocabulary
from bench.training.ledger import Ledger
from bench.training.schedule import ResolvedSteps
from methods.clip import Clip
from methods.protocol import Facts, Phase

TWO = (Phase("learn", 0.2), Phase("unlearn", 0.8))
FLOPS = {"train": 1000, "learn": 1000, "unlearn": 2000}


def resolved(kind: str, value: float, phases: tuple[Phase, ...] = (Phase(),), **more: object) -> ResolvedSteps:
    return resolve_budget(kind, value, rows=1000, batch=100, phases=phases, step_flops=FLOPS, **more)


def test_a_batch_of_more_than_all_pairs_says_how_many_there_are() -> None:
    with pytest.raises(UserError, match="batch is 8, but there are 5 training pairs; it must lie between 1 and 5"):
        resolve_budget("epochs", 1, rows=5, batch=8, phases=(Phase(),), step_flops=FLOPS)


def test_epochs_drop_the_last_partial_batch() -> None:
    assert resolve_budget("epochs", 3, rows=1050, batch=100, phases=(Phase(),), step_flops=FLOPS).steps == 30


def test_a_dearer_step_means_fewer_of_them_under_a_flop_budget() -> None:
    assert resolved("flops", 100_000, TWO).phases == (("learn", 20), ("unlearn", 40))
    assert resolved("samples", 6000, TWO).phases == (("learn", 12), ("unlearn", 48))


def test_device_seconds_buy_steps_at_their_calibrated_price() -> None:
    assert resolved("device_seconds", 10, step_seconds={"train": 0.5}).steps == 20


def test_a_phase_that_never_starts_is_an_error() -> None:
    with pytest.raises(UserError, match="'learn'"):
        resolved("samples", 200, (Phase("learn", 0.01), Phase("unlearn", 0.99)))


@given(st.lists(st.floats(0.05, 1.0), min_size=1, max_size=5), st.integers(200, 5000))
def test_phases_share_all_steps_in_proportion(shares: list[float], steps: int) -> None:
    phases = tuple(Phase(str(i), share / sum(shares)) for i, share in enumerate(shares))
    resolved = resolve_budget(
        "samples", steps * 10, rows=100, batch=10, phases=phases, step_flops={p.name: 1 for p in phases}
    )
    assert resolved.steps == steps
    for phase, (_, count) in zip(phases, resolved.phases, strict=True):
        assert abs(count - phase.share * steps) < 1


def tiny(image: str = "tiny-vit") -> tuple[Clip, OpenClipTowers]:
    vocabulary = SmallVocabulary(["a red apple", "two dogs"], 64, 24)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        towers = build_towers(TowerSettings(image=image, dim=32), vocabulary, 32, 8)
    return Clip(Clip.Config(), Facts(rows=64, batch=8, dim=32, seed=0)), towers


def test_flops_of_a_step_equal_those_of_a_real_one() -> None:
    method, towers = tiny()
    images, tokens = torch.zeros(8, 3, 32, 32), towers.tokenize(["a red apple"] * 8)
    # the CPU's fused attention has no entry in torch's counter
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        image, text = towers.encode_image(images), towers.encode_text(tokens)
        method.loss({"image": image, "text": text}, {}, slice(0, 8))["contrastive"].backward()
    assert count_step_flops(method, towers.copied().to("meta"), 8, 32, {})["train"] == counter.get_total_flops()


def test_counting_leaves_towers_and_random_numbers_as_they_were() -> None:
    method, towers = tiny()
    before = {name: x.clone() for name, x in towers.state_dict().items()}
    state = torch.get_rng_state()
    count_step_flops(method, towers.copied().to("meta"), 8, 32, {})
    assert torch.equal(state, torch.get_rng_state())
    for name, x in towers.state_dict().items():
        assert torch.equal(x, before[name]), name
        assert x.device.type == "cpu"


def test_ledger_books_frozen_towers_without_a_backward_and_marks_a_blown_budget() -> None:
    method, towers = tiny()
    for parameter in towers.visual.parameters():
        parameter.requires_grad_(False)
    ledger, plan = Ledger(), resolved("samples", 1000)
    for _ in range(plan.steps):
        ledger.charge(method, towers, "train", 100, 1000)
    assert (ledger.image_forwards, ledger.image_backwards) == (1000, 0)
    assert (ledger.text_forwards, ledger.text_backwards) == (1000, 1000)
    assert ledger.flops == plan.flops
    assert not ledger.statement("samples", 1000, plan, None)["over_budget"]
    assert ledger.statement("samples", 980, plan, None)["over_budget"]
    assert ledger.statement("epochs", 1.0, plan, None)["spent_share"] == 1.0


def test_resolved_survives_json() -> None:
    plan = resolved("flops", 100_000, TWO)
    assert ResolvedSteps.from_json(plan.to_json()) == plan
