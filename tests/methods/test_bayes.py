"""Bayesian weighted CL: fixed-weight oracles, moments of the sampler, closed forms."""

from __future__ import annotations

import math

import pytest
import torch

from methods.bayes import Bayes, log_gamma_draws
from methods.clip import Clip
from methods.protocol import Batch


def given_weights(method, z, image, text):
    return torch.stack(
        list(method.loss(z, {"image": image.log(), "text": text.log()}, slice(0, len(image))).values())
    ).sum()


@pytest.mark.parametrize("name", ["A", "C"])
@pytest.mark.parametrize("section", ["fixed_weights", "fixed_weights_no_temperature"])
def test_loss_for_given_weights(lab, oracles, case, name, section):
    given = oracles["bayes_weighted_cl"]["fixed_weights"][name]
    expected = oracles["bayes_weighted_cl"][section][name]
    image, text = (torch.tensor(given[f"W_{key}_anchor"], dtype=torch.float64) for key in ("image", "text"))
    method, z = lab.build(Bayes), case(name)
    torch.nn.init.constant_(method.scale.rho, math.log(expected["logit_scale"]))
    loss = given_weights(method, z, image, text)
    lab.assert_close(loss, expected["loss"])
    loss.backward()
    lab.assert_close(z["image"].grad, expected["grad_image"])
    lab.assert_close(z["text"].grad, expected["grad_text"])


def test_ones_are_clip_and_a_constant_on_a_row_changes_nothing(lab, oracles, case):
    method, z = lab.build(Bayes, sweeps=0), case("A")
    lab.assert_close(lab.objective(method, z), lab.objective(lab.build(Clip), z))
    weights = torch.tensor(oracles["bayes_weighted_cl"]["fixed_weights"]["A"]["W_image_anchor"], dtype=torch.float64)
    rows = torch.tensor([[0.1], [3.0], [7.0], [1.0]], dtype=torch.float64)
    plain = given_weights(method, z, weights, weights)
    lab.assert_close(given_weights(method, z, weights * rows, weights * rows), plain)


def test_permuting_the_batch_with_its_weights_changes_nothing(lab, case):
    method, z, order = lab.build(Bayes), case("B"), torch.tensor([3, 1, 5, 0, 2, 4])
    weights = method.draw(z, {"step": torch.tensor(0)}, slice(0, 6))
    moved = {name: w[order][:, order] for name, w in weights.items()}
    permuted = method.loss({name: x[order] for name, x in z.items()}, moved, slice(0, 6))
    lab.assert_close(permuted["weighted_contrastive"], method.loss(z, weights, slice(0, 6))["weighted_contrastive"])


def test_large_shapes_with_equal_rates_are_clip(lab, case):
    method = lab.build(Bayes, a_positive=1e9, a_negative=1e9)
    lab.assert_close(lab.objective(method, case("B")), lab.objective(lab.build(Clip), case("B")), rtol=1e-3)


@pytest.mark.parametrize(("shape", "below_one"), [(0.3, True), (1.0, False), (6.0, False), (6.0, True)])
def test_gamma_draws_have_mean_and_variance_of_their_shape(shape, below_one):
    generator = torch.Generator().manual_seed(0)
    draws = log_gamma_draws(torch.full((200_000,), shape, dtype=torch.float64), generator, below_one).exp()
    assert abs(float(draws.mean()) - shape) < 5 * math.sqrt(shape / 200_000)
    assert abs(float(draws.var()) / shape - 1) < 0.05


def chains(lab, z, steps, **config):
    """Log weights of `steps` independent Gibbs chains, [steps, B, B] for each direction."""
    method, observed = lab.build(Bayes, temperature=0.07, **config), []
    torch.nn.init.constant_(method.scale.rho, -math.log(0.07))
    whole = slice(0, len(z["image"]))
    for step in range(steps):
        with torch.no_grad():
            seen = method.observe(z, Batch(torch.arange(len(z["image"])), lab.clock(step)))
            observed.append(method.draw(z, seen, whole))
    return method, {name: torch.stack([weights[name] for weights in observed]) for name in ("image", "text")}


def test_weights_given_u_have_the_posterior_moments(lab):
    # One image whose positive has e^m = 2 and negative has e^m = 1.5, u held at 0.3 by a Gamma prior like a spike.
    spike = 1e8
    method = lab.build(Bayes, a_u=0.3 * spike, b_u=spike, sweeps=1, temperature=1.0)
    logits = torch.tensor([[2.0, 1.5], [1.5, 2.0]], dtype=torch.float64).log()
    z = {"image": torch.eye(2, dtype=torch.float64), "text": logits.T.contiguous()}
    draws = []
    for step in range(2500):
        with torch.no_grad():
            draws.append(method.draw(z, {"step": torch.tensor(step)}, slice(0, 2))["image"])
    weights = torch.stack(draws).exp()
    positive, negative = weights.diagonal(dim1=1, dim2=2).flatten(), weights[:, [0, 1], [1, 0]].flatten()
    for found, mean, variance in ((positive, 1.0714285714, 0.1913265306), (negative, 0.9569377990, 0.0915729951)):
        assert abs(float(found.mean()) - mean) < 5 * math.sqrt(variance / 5000)
        assert abs(float(found.var()) / variance - 1) < 0.1


@pytest.mark.parametrize("name", ["A", "C"])
def test_published_rates_make_the_loss_independent_of_the_embeddings(lab, oracles, case, name):
    expected = oracles["bayes_weighted_cl"]["gibbs_statistics"][f"{name}_b0"]
    z = {key: x.detach() for key, x in case(name).items()}
    method, weights = chains(lab, z, 1500, variant="b=0")
    total = len(z["image"])
    weighted = weights["image"] + method.scale().detach() * (z["image"] @ z["text"].T)
    share = weighted.softmax(2).mean(0)
    a_plus, a_minus = 5.0, 10.0
    everything = 1 + a_plus + (total - 1) * a_minus
    closed = torch.digamma(torch.tensor(everything)) - torch.digamma(torch.tensor(1 + a_plus))
    lab.assert_close(closed, expected["closed_form_mean_loss"], rtol=1e-5)
    losses = (weighted.logsumexp(2) - weighted.diagonal(dim1=1, dim2=2)).mean(1).detach()
    assert abs(float(losses.mean() - closed)) < 5 * float(losses.std()) / math.sqrt(1500)
    assert abs(expected["mean_loss"] - float(closed)) < 5 * expected["sem"]
    negative = share[~torch.eye(total, dtype=torch.bool)].mean()
    assert abs(float(negative) - a_minus / everything) < 0.005


@pytest.mark.parametrize("name", ["A", "C"])
def test_proper_rates_have_the_statistics_of_the_oracle(lab, oracles, case, name):
    expected = oracles["bayes_weighted_cl"]["gibbs_statistics"][f"{name}_b_equals_a"]
    z = {key: x.detach() for key, x in case(name).items()}
    method, weights = chains(lab, z, 2000)
    # The oracle's numbers are of the image-anchored direction.
    with torch.no_grad():
        weighted = weights["image"] + method.scale() * (z["image"] @ z["text"].T)
    loss = (weighted.logsumexp(2) - weighted.diagonal(dim1=1, dim2=2)).mean(1)
    error = math.hypot(float(loss.std()) / math.sqrt(2000), expected["sem"])
    assert abs(float(loss.mean()) - expected["mean_loss"]) < 4 * error
    lab.assert_close(weighted.softmax(2).mean(0), expected["mean_posterior_share"], rtol=0.05, atol=0.01)
    eye = torch.eye(len(z["image"]), dtype=torch.bool)
    for key, found in (("median_w_plus", weights["image"][:, eye]), ("median_w_minus", weights["image"][:, ~eye])):
        assert abs(float(found.exp().median()) / expected[key] - 1) < 0.03


def test_draws_are_keyed_by_seed_step_and_direction(lab, case):
    z = {name: x.detach() for name, x in case("B").items()}

    def draw(seed, step):
        return lab.build(Bayes, seed=seed).draw(z, {"step": torch.tensor(step)}, slice(0, 6))

    assert torch.equal(draw(0, 1)["image"], draw(0, 1)["image"])
    assert not torch.equal(draw(0, 1)["image"], draw(0, 2)["image"])
    assert not torch.equal(draw(0, 1)["image"], draw(1, 1)["image"])
    same = {"image": z["image"], "text": z["image"]}
    found = lab.build(Bayes).draw(same, {"step": torch.tensor(0)}, slice(0, 6))
    assert not torch.equal(found["image"], found["text"])


def test_ema_mixes_u_with_its_old_value_and_first_touch_takes_it_whole(lab, case):
    z, ids, whole = {name: x.detach() for name, x in case("B").items()}, torch.arange(10, 16), slice(0, 6)
    # With one sweep the fresh u of a step depends on its draws alone, so that another adapter shows it.
    method, other, plain = (lab.build(Bayes, sweeps=1, ema_u=memory) for memory in (0.9, 0.5, None))
    seen = method.observe(z, Batch(ids, lab.clock(0)))
    assert torch.equal(method.draw(z, seen, whole)["image"], plain.draw(z, {"step": torch.tensor(0)}, whole)["image"])
    assert method.seen.nonzero().flatten().tolist() == ids.tolist()
    first = {name: getattr(method, f"log_u_{name}")[ids].exp() for name in ("image", "text")}
    seen = method.observe(z, Batch(ids, lab.clock(1)))
    other.observe(z, Batch(ids, lab.clock(1)))
    for name, old in first.items():
        fresh = getattr(other, f"log_u_{name}")[ids].exp()
        lab.assert_close(getattr(method, f"log_u_{name}")[ids].exp(), 0.9 * old + 0.1 * fresh)
        drawn = plain.draw(z, {"step": torch.tensor(1)}, whole)[name]
        assert not torch.equal(method.draw(z, seen, whole)[name], drawn)


def test_weights_carry_no_gradient(lab, case):
    z = case("B")
    weights = lab.build(Bayes).draw(z, {"step": torch.tensor(0)}, slice(0, 6))
    assert not any(x.requires_grad for x in weights.values())
