"""Decomposable CL: draws and memory of the auxiliary rates, the sum over pairs.

Its values: bench/checks/oracles/losses.py.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from methods.clip import Clip
from methods.decomposable_cl import DecomposableCl


def rates(method, lab, z, step=0, ids=None):
    """u of every image and every text, [B] each."""
    observed = lab.observe(method, z, ids=ids, when=lab.a_clock(step))
    return {name: observed[f"log_u_{name}"].exp() for name in ("image", "text")}


def pairs(total, dim=4):
    draws = torch.Generator().manual_seed(0)
    image, text = (torch.randn(total, dim, generator=draws, dtype=torch.float64) for _ in range(2))
    return {"image": F.normalize(image, dim=1), "text": F.normalize(text, dim=1)}


@pytest.mark.parametrize(("a_u", "b_u"), [(1.0, 0.0), (3.0, 50.0), (0.5, 0.0)])
def test_rates_are_draws_from_their_posterior(lab, a_u, b_u):
    z = pairs(600)
    sampled, mean = (
        lab.build_adapter(DecomposableCl, rows=600, a_u=a_u, b_u=b_u, alpha=0.0, u=u) for u in ("sampled", "mean")
    )
    normaliser = (z["image"] @ z["text"].T / 0.07).exp()
    expected = {"image": a_u / (b_u + normaliser.sum(1)), "text": a_u / (b_u + normaliser.sum(0))}
    for name, u in rates(mean, lab, z).items():
        lab.assert_close(u, expected[name])
    drawn = [rates(sampled, lab, z, step) for step in range(10)]
    for name in ("image", "text"):
        ratio = torch.cat([one[name] / expected[name] for one in drawn])  # Gamma(a_u, rate a_u)
        assert abs(float(ratio.mean()) - 1) < 5 * math.sqrt(1 / a_u / len(ratio))
        assert abs(float(ratio.var()) * a_u - 1) < 0.2


def test_draws_are_keyed_by_seed_step_direction_and_place(lab):
    z, same = pairs(70), {"image": pairs(70)["image"], "text": pairs(70)["image"]}
    first = rates(lab.build_adapter(DecomposableCl, rows=70), lab, z)
    for name, u in rates(lab.build_adapter(DecomposableCl, rows=70), lab, z).items():
        assert torch.equal(u, first[name])
    assert not torch.equal(rates(lab.build_adapter(DecomposableCl, rows=70), lab, z, step=1)["image"], first["image"])
    assert not torch.equal(rates(lab.build_adapter(DecomposableCl, rows=70, seed=1), lab, z)["image"], first["image"])
    both = rates(lab.build_adapter(DecomposableCl, rows=70), lab, same)
    assert not torch.equal(both["image"], both["text"])
    mean = rates(lab.build_adapter(DecomposableCl, rows=70, u="mean"), lab, same)
    assert len(set((both["image"] / mean["image"]).tolist())) == 70


def test_the_average_keeps_its_share_of_the_old_rate_and_starts_at_the_first_visit(lab):
    z, ids = pairs(6), torch.arange(10, 16)
    method, plain = lab.build_adapter(DecomposableCl, alpha=0.7), lab.build_adapter(DecomposableCl, alpha=0.0)
    first = rates(method, lab, z, 0, ids)
    for name, u in rates(plain, lab, z, 0, ids).items():
        assert torch.equal(first[name], u)
    assert method.seen.nonzero().flatten().tolist() == ids.tolist()
    second, fresh = rates(method, lab, z, 1, ids.flip(0)), rates(plain, lab, z, 1, ids)
    for name, u in second.items():
        expected = 0.7 * first[name].flip(0) + 0.3 * fresh[name]
        lab.assert_close(u, expected)
        lab.assert_close(getattr(method, f"log_u_{name}")[ids.flip(0)].exp(), expected)


def test_given_the_rates_the_loss_is_a_sum_over_pairs(lab):
    z, method = pairs(5), lab.build_adapter(DecomposableCl)
    u = rates(method, lab, z)
    loss = lab.sum_of_tiles(method, z, {f"log_u_{name}": x.log() for name, x in u.items()})
    total = 0.0
    for i in range(5):
        for j in range(5):
            logit = float(z["image"][i] @ z["text"][j]) / 0.07
            total += float(u["image"][i] + u["text"][j]) * math.exp(logit) - (2 * logit if i == j else 0.0)
    lab.assert_close(loss, total / 10)


def test_rates_carry_no_gradient_to_the_loss(lab, case):
    z = case("A")
    method = lab.build_adapter(DecomposableCl, u="mean", alpha=0.0)
    lab.step_loss(method, z).backward()
    clip, other = lab.build_adapter(Clip), case("A")
    lab.step_loss(clip, other).backward()
    lab.assert_close(z["image"].grad, other["image"].grad)
    lab.assert_close(method.scale.rho.grad, clip.scale.rho.grad)


def test_monitors_what_is_left_when_the_rates_are_integrated_out(lab, case):
    z = case("B")
    method = lab.build_adapter(DecomposableCl)
    observed = lab.observe(method, z)
    lab.assert_close(method.monitor(z, observed)[DecomposableCl.monitored], lab.step_loss(lab.build_adapter(Clip), z))
