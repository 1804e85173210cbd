"""Bayesian weighted CL: identities, draws, memory of u; its values stand in bench/checks/oracles/bayes.py."""

from __future__ import annotations

import math

import pytest
import torch

from methods.bayes import Bayes
from methods.clip import Clip
from methods.gamma import log_gamma_draws


def given_weights(method, z, image, text):
    return torch.stack(
        list(method.loss(z, {"image": image.log(), "text": text.log()}, slice(0, len(image))).values())
    ).sum()


def test_a_constant_on_a_row_changes_nothing(lab, oracles, case):
    method, z = lab.build_adapter(Bayes), case("A")
    weights = torch.tensor(oracles["bayes_weighted_cl"]["fixed_weights"]["A"]["W_image_anchor"], dtype=torch.float64)
    rows = torch.tensor([[0.1], [3.0], [7.0], [1.0]], dtype=torch.float64)
    plain = given_weights(method, z, weights, weights)
    lab.assert_close(given_weights(method, z, weights * rows, weights * rows), plain)


def test_permuting_the_batch_with_its_weights_changes_nothing(lab, case):
    method, z, order = lab.build_adapter(Bayes), case("B"), torch.tensor([3, 1, 5, 0, 2, 4])
    weights = method.draw(z, {"step": torch.tensor(0)}, slice(0, 6))
    moved = {name: w[order][:, order] for name, w in weights.items()}
    permuted = method.loss({name: x[order] for name, x in z.items()}, moved, slice(0, 6))
    lab.assert_close(permuted["weighted_contrastive"], method.loss(z, weights, slice(0, 6))["weighted_contrastive"])


def test_large_shapes_with_equal_rates_are_clip(lab, case):
    method = lab.build_adapter(Bayes, a_positive=1e9, a_negative=1e9)
    lab.assert_close(lab.step_loss(method, case("B")), lab.step_loss(lab.build_adapter(Clip), case("B")), rtol=1e-3)


@pytest.mark.parametrize(("shape", "below_one"), [(0.3, True), (1.0, False), (6.0, False), (6.0, True)])
def test_gamma_draws_have_mean_and_variance_of_their_shape(shape, below_one):
    generator = torch.Generator().manual_seed(0)
    draws = log_gamma_draws(torch.full((200_000,), shape, dtype=torch.float64), generator, below_one).exp()
    assert abs(float(draws.mean()) - shape) < 5 * math.sqrt(shape / 200_000)
    assert abs(float(draws.var()) / shape - 1) < 0.05


def test_draws_are_keyed_by_seed_step_and_direction(lab, case):
    z = {name: x.detach() for name, x in case("B").items()}

    def draw(seed, step):
        return lab.build_adapter(Bayes, seed=seed).draw(z, {"step": torch.tensor(step)}, slice(0, 6))

    assert torch.equal(draw(0, 1)["image"], draw(0, 1)["image"])
    assert not torch.equal(draw(0, 1)["image"], draw(0, 2)["image"])
    assert not torch.equal(draw(0, 1)["image"], draw(1, 1)["image"])
    same = {"image": z["image"], "text": z["image"]}
    found = lab.build_adapter(Bayes).draw(same, {"step": torch.tensor(0)}, slice(0, 6))
    assert not torch.equal(found["image"], found["text"])


def test_ema_mixes_u_with_its_old_value_and_first_touch_takes_it_whole(lab, case):
    z, ids, whole = {name: x.detach() for name, x in case("B").items()}, torch.arange(10, 16), slice(0, 6)
    # With one sweep the fresh u of a step depends on its draws alone, so that another adapter shows it.
    method, other, plain = (lab.build_adapter(Bayes, sweeps=1, ema_u=memory) for memory in (0.9, 0.5, None))
    seen = lab.observe(method, z, ids=ids)
    assert torch.equal(method.draw(z, seen, whole)["image"], plain.draw(z, {"step": torch.tensor(0)}, whole)["image"])
    assert method.seen.nonzero().flatten().tolist() == ids.tolist()
    first = {name: getattr(method, f"log_u_{name}")[ids].exp() for name in ("image", "text")}
    seen = lab.observe(method, z, ids=ids, when=lab.a_clock(1))
    lab.observe(other, z, ids=ids, when=lab.a_clock(1))
    for name, old in first.items():
        fresh = getattr(other, f"log_u_{name}")[ids].exp()
        lab.assert_close(getattr(method, f"log_u_{name}")[ids].exp(), 0.9 * old + 0.1 * fresh)
        drawn = plain.draw(z, {"step": torch.tensor(1)}, whole)[name]
        assert not torch.equal(method.draw(z, seen, whole)[name], drawn)


def test_weights_carry_no_gradient(lab, case):
    z = case("B")
    weights = lab.build_adapter(Bayes).draw(z, {"step": torch.tensor(0)}, slice(0, 6))
    assert not any(x.requires_grad for x in weights.values())


def test_the_report_sees_a_bounded_number_of_the_weights_that_trained(lab):
    draws, total = torch.Generator().manual_seed(0), 300
    image = torch.nn.functional.normalize(torch.randn(total, 8, generator=draws, dtype=torch.float64), dim=1)
    z, observed = {"image": image, "text": image.roll(1, 0)}, {"step": torch.tensor(3)}
    method = lab.build_adapter(Bayes)
    with torch.no_grad():
        (shown,) = method.diagnostics(z, observed)
        weights = method.draw(z, observed, slice(0, 256))
    assert shown.log
    positive, negative = shown.series["positive pairs"], shown.series["negative pairs"]
    lab.assert_close(positive, torch.cat([weights[name].diagonal() for name in ("image", "text")]).exp())
    assert 10_000 <= len(negative) < 20_000
    eye = torch.eye(256, total, dtype=torch.bool)
    everyone = torch.cat([weights[name][~eye] for name in ("image", "text")]).exp()
    assert abs(float(negative.log().mean() - everyone.log().mean())) < 0.02
