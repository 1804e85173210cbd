"""DECL (Qin): divergence of evidence, its limits, the hinge, the flags of pairs, single precision.

Its values: bench/checks/oracles/correspondence.py.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import bernoulli
from torch.distributions import Dirichlet, kl_divergence

from methods import dirichlet
from methods.decl_evidential import DeclEvidential, DeclEvidentialConfig
from methods.dirichlet import SERIES, divergence_from_uniform
from methods.protocol import Clock

LATE = Clock(9, "train", 0.9, 9)


def evidence(seed, total, size):
    draws = torch.Generator().manual_seed(seed)
    return size * torch.rand(3, total, generator=draws, dtype=torch.float64) ** 4


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 9), st.sampled_from([1e-3, 1.0, 30.0, 1e3]))
def test_the_divergence_is_the_formula(seed, total, size):
    e = evidence(seed, total, size)
    wanted = kl_divergence(Dirichlet(1 + e), Dirichlet(torch.ones_like(e)))
    torch.testing.assert_close(divergence_from_uniform(e), wanted, rtol=1e-8, atol=1e-9)
    assert bool((divergence_from_uniform(e) >= -1e-12).all())


def test_the_divergence_of_no_evidence_is_zero_and_its_slope_the_formula():
    total = 6
    assert torch.equal(
        divergence_from_uniform(torch.zeros(1, total, dtype=torch.float64)).abs() < 1e-12, torch.tensor([True])
    )
    near = torch.tensor([SERIES - 1 - 1e-9, SERIES - 1 + 1e-9, 3.0, 1e4, 0.0, 0.1], dtype=torch.float64)[
        None
    ].requires_grad_()
    (slope,) = torch.autograd.grad(divergence_from_uniform(near).sum(), near)
    x, strength = 1 + near.detach(), total + near.detach().sum()
    wanted = (x - 1) * torch.polygamma(1, x) - (strength - total) * torch.polygamma(1, strength)
    torch.testing.assert_close(slope, wanted, rtol=1e-9, atol=1e-12)
    assert torch.autograd.gradcheck(
        lambda e: divergence_from_uniform(e).sum(), near.detach().clamp(0.01, 40).requires_grad_()
    )


def test_the_series_have_bernoullis_numbers():
    """By Stirling's series: psi(x) = ln x - 1/2x - sum B_2k / 2k x^2k, lnG(x) its integral, psi'(x) its derivative."""
    numbers = bernoulli(10)
    value, slope = {1: 1 / 2}, {1: -1 / 2, 2: -1 / 2}
    for two_k in range(2, 11, 2):
        own = numbers[two_k]
        value[two_k - 1] = value.get(two_k - 1, 0) - own / two_k - own / two_k / (two_k - 1)
        value[two_k] = own / two_k
        slope[two_k] = slope.get(two_k, 0) + own
        slope[two_k + 1] = -own
    assert pytest.approx([value[k] for k in range(1, 9)], rel=1e-12) == dirichlet._VALUE
    assert pytest.approx([slope[k] for k in range(1, 10)], rel=1e-12) == dirichlet._SLOPE


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("size", [1e6, 1e12, 1e30])
def test_large_evidence_cancels_nothing(size, dtype):
    """One large e among B: KL -> (B - 1) (ln e - 1) - lnG(B), and e times its slope -> B - 1."""
    total = 8
    logs = torch.full((1, total), -math.inf, dtype=dtype)
    logs[0, 3] = math.log(size)
    logs.requires_grad_()
    value = divergence_from_uniform(logs.exp())
    (slope,) = torch.autograd.grad(value.sum(), logs)
    limit = (total - 1) * (math.log(size) - 1) - math.lgamma(total)
    torch.testing.assert_close(value.double(), torch.tensor([limit], dtype=torch.float64), rtol=1e-4, atol=0)
    assert float(slope[0, 3]) == pytest.approx(total - 1, rel=1e-3)


def test_a_batch_of_512_in_single_precision(lab):
    draws = torch.Generator().manual_seed(0)
    image, other = (torch.randn(512, 32, generator=draws, dtype=torch.float64) for _ in range(2))
    unit = torch.nn.functional.normalize
    z = {"image": unit(image, dim=1), "text": unit(image + 0.5 * other, dim=1)}
    losses = []
    for dtype in (torch.float64, torch.float32):
        method = lab.build_adapter(DeclEvidential, rows=512).to(dtype)
        leaves = {name: x.to(dtype).requires_grad_() for name, x in z.items()}
        loss = lab.step_loss(method, leaves, cuts=(256,))
        assert loss.dtype == dtype
        losses.append((loss.detach(), *torch.autograd.grad(loss, list(leaves.values()))))
    for exact, single in zip(*losses, strict=True):
        torch.testing.assert_close(single.double(), exact, rtol=1e-4, atol=1e-4 * float(exact.abs().max()))


def terms(lab, z, method=None, clean=True, when=LATE, **config):
    total = len(z["image"])
    method = method or lab.build_adapter(DeclEvidential, rows=total, warm=0.0, **config)
    method.clean[:] = clean
    return method.loss(z, lab.observe(method, z, when=when), slice(0, total))


def test_without_evidence_the_shares_are_uniform(lab, case):
    image, total = case("B")["image"][:1].expand(6, -1), 6
    z = {"image": image, "text": -image}
    config = {"temperature": 0.01, "kl_weight": 0.0}
    spread = (1 - 1 / total) / (total + 1)
    clean, noisy = (terms(lab, z, clean=flag, **config)["evidential"] for flag in (True, False))
    lab.assert_close(clean, 2 * ((1 - 1 / total) + spread))
    lab.assert_close(clean, 2 * (1 - 1 / total) * (total + 2) / (total + 1))
    lab.assert_close(noisy, 2 * (1 / total + spread))


def violations(z, margin):
    s = z["image"] @ z["text"].T
    own, off = s.diagonal(), ~torch.eye(len(s), dtype=torch.bool)
    return [torch.relu(margin + x - own[:, None])[off].reshape(len(s), -1) for x in (s, s.T)]


def test_the_hinge_goes_from_the_mean_of_negatives_to_the_hardest(lab, case):
    z = case("A")
    mean = sum(x.mean(1).mean() for x in violations(z, 0.2))
    hardest = sum(x.amax(1).mean() for x in violations(z, 0.2))
    start = terms(lab, z, negatives=1, when=lab.a_clock())["hinge"]
    lab.assert_close(start, 0.8 * 128 * mean)
    lab.assert_close(terms(lab, z, negatives=1)["hinge"], 0.8 * 128 * hardest)
    lab.assert_close(terms(lab, z, negatives=1, hinge="sum")["hinge"], 0.8 * 4 * hardest)


def test_the_number_of_negatives_falls_to_its_end(lab):
    method = lab.build_adapter(DeclEvidential, negatives=5, anneal=0.1)
    counts = [method._negatives(128, progress / 1000) for progress in range(0, 1000, 5)]
    assert counts[:3] == [127, 121, 115]
    assert counts == sorted(counts, reverse=True)
    assert counts[20:] == [5] * 180
    assert [method._negatives(total, 0.5) for total in (2, 4, 6, 7)] == [1, 3, 5, 5]


def test_a_dropped_pair_that_leads_its_row_is_pushed_apart(lab, case):
    z, method = {name: x.detach() for name, x in case("C").items()}, lab.build_adapter(DeclEvidential)
    assert float(terms(lab, z, clean=False)["hinge"]) == 0
    s, own = z["image"] @ z["text"].T, torch.arange(8)[:, None]
    assert bool((s.argmax(1) == own[:, 0]).all())
    for clean in (False, True):
        leaf = s.clone().requires_grad_()
        (slope,) = torch.autograd.grad(method._evidential(leaf, own, torch.full((8, 1), clean)), leaf)
        assert bool((slope.diagonal() < 0).all()) is clean
        assert bool((slope.diagonal() > 0).all()) is not clean


def test_flags_are_those_of_the_previous_visit(lab, case):
    aligned = case("C")["image"].detach()
    wrong = {"image": aligned, "text": aligned[[1, 0, *range(2, 8)]]}
    right = {"image": aligned, "text": aligned}
    method = lab.build_adapter(DeclEvidential, rows=20, warm=0.5)
    ids, expected = torch.arange(8) + 7, torch.tensor([False, False, *[True] * 6])

    def visit(z, progress):
        return lab.observe(method, z, ids=ids, when=Clock(1, "train", progress, 0))["clean"]

    assert bool(visit(wrong, 0.4).all()), "in the warm-up all pairs are clean"
    assert torch.equal(method.clean[7:15], expected), "but flags are recorded"
    assert bool(method.clean[:7].all())
    assert bool(method.clean[15:].all())
    assert torch.equal(visit(right, 0.5), expected)
    assert bool(visit(right, 0.6).all())


def test_flags_of_equal_embeddings_keep_every_pair(lab, case):
    image = case("B")["image"][:1].detach().expand(6, -1)
    method = lab.build_adapter(DeclEvidential, rows=6)
    lab.observe(method, {"image": image, "text": image})
    assert bool(method.clean.all())


def test_symmetric_in_modalities_and_in_the_order_of_pairs(lab, case):
    z, order = case("B"), torch.tensor([3, 1, 5, 0, 2, 4])
    loss = sum(terms(lab, z).values())
    lab.assert_close(sum(terms(lab, {"image": z["text"], "text": z["image"]}).values()), loss)
    lab.assert_close(sum(terms(lab, {name: x[order] for name, x in z.items()}).values()), loss)


def test_evidence_that_overflows_is_refused():
    DeclEvidentialConfig(temperature=0.002)
    with pytest.raises(ValueError, match=r"Config\.temperature = 0\.001, but it must be >= 0\.002, or e\^\(1/tau\)"):
        DeclEvidentialConfig(temperature=0.001)
