"""NUCLR: identities of its popularities, their schedule, and when they move."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from methods.nuclr import Nuclr
from methods.sogclr import Sogclr


def at(lab, epoch, epochs=30, step=0):
    """The first moment of an epoch of the schedule."""
    return dataclasses.replace(lab.a_clock(step), progress=epoch / epochs)


def trajectory(lab, case, method, steps=4):
    """Losses and gradients of some steps, rows and pairings changing."""
    found = []
    for step in range(steps):
        z = {name: x.detach().clone() for name, x in case("C").items()}
        z = {"image": z["image"].requires_grad_(), "text": z["text"].roll(step % 2, 0).requires_grad_()}
        loss = lab.step_loss(method, z, torch.arange(8).roll(step), at(lab, 10 + step, step=step))
        found += [loss.detach(), *torch.autograd.grad(loss, list(z.values()))]
        method.end_epoch(step)
    return found


PAIRS = {
    "frozen popularities without the positive are SogCLR": (
        (Nuclr, {"eta": 0.0, "zeta_init": 0.0, "xi_init": math.inf, "floor": 0.0}),
        (Sogclr, {"floor": 0.0}),
    ),
    "equal popularities cancel": (
        (Nuclr, {"eta": 0.0, "zeta_init": 0.03, "xi_init": 0.03, "floor": 0.0}),
        (Nuclr, {"eta": 0.0, "zeta_init": -0.2, "xi_init": -0.2, "floor": 0.0}),
    ),
    "a common start of popularities cancels while they are learned": (
        (Nuclr, {"eta": 1e-3, "zeta_init": 0.03, "xi_init": 0.03, "floor": 0.0}),
        (Nuclr, {"eta": 1e-3, "zeta_init": -0.2, "xi_init": -0.2, "floor": 0.0}),
    ),
    "equal popularities need no largest one": (
        (Nuclr, {"eta": 0.0, "zeta_init": 0.03, "vanilla": True}),
        (Nuclr, {"eta": 0.0, "zeta_init": 0.03, "xi_init": 0.03}),
    ),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_two_forms_agree_step_by_step(lab, case, pair):
    found = [trajectory(lab, case, lab.build_adapter(kind, temperature=0.05, **config)) for kind, config in PAIRS[pair]]
    for a, b in zip(*found, strict=True):
        lab.assert_close(a, b)


def test_the_largest_popularity_matters_once_popularities_differ(lab, case):
    losses = [
        trajectory(lab, case, lab.build_adapter(Nuclr, temperature=0.5, eta=0.1, vanilla=vanilla, zeta_init=0.0))[9]
        for vanilla in (False, True)
    ]
    assert abs(float(losses[0] - losses[1])) > 1e-4


@pytest.mark.parametrize("gamma", [0.8, 1.0])
def test_weights_sum_to_less_than_one(lab, case, gamma):
    method, z = lab.build_adapter(Nuclr, gamma=gamma, temperature=0.05), case("B")
    for step in range(1 if gamma < 1 else 3):  # at first touch, or where nothing is remembered
        moved = {"image": z["image"].detach(), "text": z["text"].detach().roll(step, 0)}
        observed = lab.observe(method, moved, when=lab.a_clock(step))
        for weights in method.draw(moved, observed, slice(0, 6)).values():
            assert float(weights.sum(1).max()) < 1


def test_more_rows_take_the_positive_out(lab, case):
    def loss(rows, xi):
        return float(
            lab.step_loss(lab.build_adapter(Nuclr, rows=rows, temperature=0.1, xi_init=xi), case("B")).detach()
        )

    limit = loss(6, math.inf)
    gaps = [abs(loss(rows, 0.0) - limit) for rows in (1001, 100_001)]
    assert gaps[0] > 0
    assert gaps[0] / gaps[1] == pytest.approx(100, rel=0.01)


@pytest.mark.parametrize("floor", [0.0, 0.3])
def test_denominators_after_a_hard_visit_and_the_slope_they_give(lab, case, floor):
    """SPEC 7, items 3 and 4, written out; no trace of the official code reaches its floor."""
    tau, b, n, zeta, xi = 0.1, 8, 11, -0.02, 0.03
    method = lab.build_adapter(
        Nuclr, rows=n, temperature=tau, zeta_init=zeta, xi_init=xi, gamma=1.0, floor=floor, theta=1.0
    )
    z = {name: x.detach() for name, x in case("C").items()}
    lab.observe(method, {"image": z["image"], "text": z["text"].roll(1, 0)}, when=at(lab, 0))
    observed = lab.observe(method, z, when=at(lab, 7))
    weights = method.draw(z, observed, slice(0, b))["image"]
    s = z["image"] @ z["text"].T
    q = ((s - s.diagonal()[:, None] - zeta) / tau).exp()
    wrong = z["image"] @ z["text"].roll(1, 0).T
    least = floor * ((wrong.amax(1) - wrong.diagonal()) / tau).exp()
    others = q - q.diagonal().diag()
    u = others.sum(1)
    denominator = u + (b - 1) / (n - 1) * math.exp(-xi / tau)
    partition = u / (b - 1) + math.exp(-zeta / tau) / (n - 1)
    assert bool((least > denominator).any()) == (floor > 0)
    lab.assert_close(weights, others / torch.maximum(denominator, least)[:, None])
    slope = 1 - n / (n - 1) * (q / torch.maximum(partition, least)[:, None]).mean(0)
    lab.assert_close(method.momentum_text[:b], slope)


def test_equal_embeddings_are_a_fixed_point(lab):
    one = torch.nn.functional.normalize(torch.randn(1, 16, generator=torch.Generator().manual_seed(0)).double(), dim=1)
    z = {"image": one.expand(8, -1), "text": one.expand(8, -1)}
    method = lab.build_adapter(Nuclr, rows=11, zeta_init=0.0, eta=1.0, epochs=6, start_epochs=0)
    observed = lab.observe(method, z)
    assert bool(method.moved[:8].all())
    for name in ("image", "text"):
        lab.assert_close(getattr(method, f"zeta_{name}"), torch.zeros(11), atol=1e-9)
    # Then u/(B-1) = e^{-zeta/tau}, so that zeta leaves the objective.
    lab.assert_close(method.monitor(z, observed)["objective"], 2 * 0.01 * math.log(11 / 10))


def test_the_peak_of_a_row_that_is_its_own_nearest_is_zero_in_single_precision(lab):
    draws = torch.Generator().manual_seed(0)
    image, noise = torch.randn(2, 256, 96, generator=draws)
    z = {"image": torch.nn.functional.normalize(image, dim=1)}
    z["text"] = torch.nn.functional.normalize(image + 0.3 * noise, dim=1)
    method = lab.build_adapter(Nuclr, rows=256).float()
    lab.observe(method, z)
    for name in ("image", "text"):
        assert torch.equal(getattr(method, f"peak_{name}"), torch.zeros(256))


def test_popularities_stand_still_until_their_start(lab, case):
    method = lab.build_adapter(Nuclr, zeta_init=-0.05, eta=1e-3)
    for epoch in (0, 4.99):
        lab.step_loss(method, case("C"), when=at(lab, epoch))
        assert bool((method.zeta_text == -0.05).all())
        assert not bool(method.moved.any())
    lab.step_loss(method, case("C"), when=at(lab, 5))
    for zeta in (method.zeta_text, method.zeta_image):
        assert bool((zeta[:8] != -0.05).all())
        assert bool((zeta[8:] == -0.05).all())


@pytest.mark.parametrize(("epoch", "drop"), [(5, 1.0), (14, 1.0), (15, 0.1), (22, 0.01), (28, 0.01), (29, 0.0)])
def test_step_sizes_follow_a_cosine_with_drops(lab, case, epoch, drop):
    method = lab.build_adapter(Nuclr, zeta_init=0.0, eta=2e-3, image_ratio=0.25)
    lab.step_loss(method, case("C"), when=at(lab, epoch))
    eta = drop * 1e-3 * (1 + math.cos(math.pi * (epoch - 5) / 24))
    for name, ratio in (("text", 1.0), ("image", 0.25)):
        momentum = getattr(method, f"momentum_{name}")[:8]
        assert float(momentum.abs().min()) > 1e-3
        lab.assert_close(getattr(method, f"zeta_{name}")[:8], -ratio * eta * momentum, atol=1e-15)


def test_the_largest_popularity_moves_between_epochs_and_never_below_its_start(lab, case):
    method = lab.build_adapter(Nuclr, rows=6, temperature=0.5, zeta_init=-0.05, eta=0.3)
    lab.step_loss(method, case("B"), when=at(lab, 6))
    assert float(method.xi_text) == 0.0
    highest = {name: float(getattr(method, f"zeta_{name}").max()) for name in ("image", "text")}
    assert highest["text"] > 0 > highest["image"]
    method.end_epoch(0)
    assert float(method.xi_text) == highest["text"]
    assert float(method.xi_image) == 0.0


@pytest.mark.parametrize("bad", [{"start_epochs": 29}, {"start_epochs": 30}, {"epochs": 6}, {"start_epochs": -1}])
def test_popularities_that_never_move_are_refused(bad):
    with pytest.raises(ValueError, match=r"NuclrConfig\.start_epochs = .*, but it must be .* never move"):
        Nuclr.Config(**bad)


def test_shows_popularities_of_rows_that_were_seen(lab, case):
    method, ids = lab.build_adapter(Nuclr, eta=0.01), torch.tensor([9, 4, 30, 7])
    observed = lab.observe(method, case("A"), ids=ids, when=at(lab, 6))
    (shown,) = method.diagnostics(case("A"), observed)
    assert torch.equal(shown.series["images"], method.zeta_image[ids.sort().values])
    assert torch.equal(shown.series["texts"], method.zeta_text[ids.sort().values])
    assert len(shown.series["texts"].unique()) == 4
