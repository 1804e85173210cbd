"""Losses written once more as their papers print them, with loops over plain numbers, at drawn hyper-parameters."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.checks import lab
from methods.clip import Clip
from methods.cyclip import Cyclip
from methods.dcl import Dcl
from methods.isogclr import Isogclr
from methods.rince import Rince
from methods.siglip import Siglip
from methods.softclip_fallback import SoftclipFallback
from methods.sogclr import Sogclr

SEEDS, SIZES = st.integers(0, 10_000), st.integers(2, 6)
BOTH = (("image", "text"), ("text", "image"))
few = settings(max_examples=25, deadline=None)


def leaves(seed, total, dim=4):
    draws = torch.Generator().manual_seed(seed)
    x = torch.randn(2, total, dim, generator=draws, dtype=torch.float64)
    return dict(zip(("image", "text"), torch.nn.functional.normalize(x, dim=2), strict=True))


def cosine(z, one, i, other, j):
    return math.fsum((z[one][i] * z[other][j]).tolist())


def table(z, one, other):
    total = len(z["image"])
    return [[cosine(z, one, i, other, j) for j in range(total)] for i in range(total)]


def found(method, z, cut):
    return float(lab.step_loss(method, z, cuts=(cut,) if 0 < cut < len(z["image"]) else ()).detach())


def clip_of(z, scale):
    total, loss = len(z["image"]), 0.0
    for one, other in BOTH:
        s = table(z, one, other)
        loss += sum(math.log(sum(math.exp(scale * (x - s[i][i])) for x in s[i])) for i in range(total))
    return loss / (2 * total)


@few
@given(SEEDS, SIZES, st.sampled_from([0.05, 0.3, 2.0]), st.integers(0, 5))
def test_clip(seed, total, temperature, cut):
    z = leaves(seed, total)
    assert found(lab.build_adapter(Clip, temperature=temperature), z, cut) == pytest.approx(clip_of(z, 1 / temperature))


@few
@given(SEEDS, SIZES, st.floats(0.5, 20), st.floats(-10, 10), st.integers(0, 5))
def test_siglip(seed, total, scale, bias, cut):
    z = leaves(seed, total)
    s = table(z, "image", "text")
    expected = sum(
        math.log1p(math.exp(-(1 if i == j else -1) * (scale * s[i][j] + bias)))
        for i in range(total)
        for j in range(total)
    )
    assert found(lab.build_adapter(Siglip, scale=scale, bias=bias), z, cut) == pytest.approx(expected / total)


@few
@given(SEEDS, SIZES, st.floats(0.01, 1), st.floats(0.001, 3), st.booleans(), st.integers(0, 5))
def test_rince(seed, total, q, lam, in_modal, cut):
    z, tau, expected = leaves(seed, total), 0.5, 0.0
    for one, other in BOTH:
        s, own = table(z, one, other), table(z, one, one)
        for i in range(total):
            positive = math.exp(s[i][i] / tau)
            everything = sum(math.exp(x / tau) for x in s[i])
            if in_modal:
                everything += sum(math.exp(own[i][j] / tau) for j in range(total) if j != i)
            expected += (-(positive**q) + (lam * everything) ** q) / q
    method = lab.build_adapter(Rince, q=q, lam=lam, temperature=tau, in_modal_negatives=in_modal)
    assert found(method, z, cut) == pytest.approx(expected / (2 * total), rel=1e-9, abs=1e-9)


@few
@given(SEEDS, SIZES, st.floats(0, 0.9), st.sampled_from([0.2, 0.5, 1.0]), st.booleans(), st.integers(0, 5))
def test_dcl(seed, total, tau_plus, tau, in_modal, cut):
    z, expected = leaves(seed, total), 0.0
    for one, other in BOTH:
        s, own = table(z, one, other), table(z, one, one)
        for i in range(total):
            negatives = [math.exp(s[i][j] / tau) for j in range(total) if j != i]
            if in_modal:
                negatives += [math.exp(own[i][j] / tau) for j in range(total) if j != i]
            n, positive = len(negatives), math.exp(s[i][i] / tau)
            debiased = max((sum(negatives) - tau_plus * n * positive) / (1 - tau_plus), n * math.exp(-1 / tau))
            expected += math.log(positive + debiased) - s[i][i] / tau
    method = lab.build_adapter(Dcl, tau_plus=tau_plus, temperature=tau, in_modal_negatives=in_modal)
    assert found(method, z, cut) == pytest.approx(expected / (2 * total), rel=1e-9, abs=1e-9)


@few
@given(SEEDS, SIZES, st.floats(0, 2), st.floats(0, 2), st.integers(0, 5))
def test_cyclip(seed, total, within, across, cut):
    z = leaves(seed, total)
    images, texts, mixed = table(z, "image", "image"), table(z, "text", "text"), table(z, "image", "text")
    cells = [(i, j) for i in range(total) for j in range(total)]
    expected = clip_of(z, 1 / 0.2)
    expected += within / total * sum((images[i][j] - texts[i][j]) ** 2 for i, j in cells)
    expected += across / total * sum((mixed[i][j] - mixed[j][i]) ** 2 for i, j in cells)
    method = lab.build_adapter(Cyclip, lambda_in_modal=within, lambda_cross_modal=across, temperature=0.2)
    assert found(method, z, cut) == pytest.approx(expected)


def softmax(values):
    peak = max(values)
    powers = [math.exp(x - peak) for x in values]
    return [x / sum(powers) for x in powers]


def divergence(p, q):
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


@few
@given(SEEDS, SIZES, st.floats(0, 1), st.floats(0, 2), st.sampled_from([None, 0.1, 1.0]), st.integers(0, 5))
def test_softclip(seed, total, beta, lam, own_temperature, cut):
    z, tau, expected = leaves(seed, total), 0.3, 0.0
    for one, other in BOTH:
        s, guide = table(z, one, other), table(z, one, one)
        for i in range(total):
            rest = [j for j in range(total) if j != i]
            soft = softmax([x / (own_temperature or tau) for x in guide[i]])
            target = [beta * x + (1 - beta) * (j == i) for j, x in enumerate(soft)]
            expected += divergence(target, softmax([x / tau for x in s[i]]))
            among = softmax([guide[i][j] / (own_temperature or tau) for j in rest])
            expected += lam * divergence(among, softmax([s[i][j] / tau for j in rest]))
    method = lab.build_adapter(
        SoftclipFallback, beta=beta, lam=lam, target_temperature=own_temperature, temperature=tau
    )
    assert found(method, z, cut) == pytest.approx(expected / (2 * total), rel=1e-8, abs=1e-8)


VISITS = st.lists(st.lists(st.integers(0, 7), min_size=2, max_size=5, unique=True), min_size=1, max_size=4)


@few
@given(SEEDS, VISITS, st.floats(0.1, 1), st.sampled_from([0.0, 1e-10, 0.1]), st.sampled_from(["touch", "epoch"]))
def test_sogclr_over_several_visits(seed, visits, gamma, floor, start):
    """u and the running maximum kept in dictionaries, the loss as Algorithm 1 weighs it."""
    tau, u, peak = 0.3, {}, {}
    method = lab.build_adapter(Sogclr, rows=8, gamma=gamma, temperature=tau, floor=floor, start=start)
    for step, ids in enumerate(visits):
        z, expected, epoch = leaves(seed + step, len(ids)), 0.0, step // 2
        for one, other in BOTH:
            s = table(z, one, other)
            for i, row in enumerate(ids):
                d = [s[i][j] - s[i][i] for j in range(len(ids)) if j != i]
                g, key = sum(math.exp(x / tau) for x in d), (one, row)
                anew = epoch == 0 if start == "epoch" else key not in u
                u[key] = g if anew else (1 - gamma) * u.get(key, 0.0) + gamma * g
                peak[key] = max(peak.get(key, 0.0), *(x / tau for x in d))
                weights = [math.exp(x / tau) / (u[key] + floor * math.exp(peak[key])) for x in d]
                expected += sum(weight * x for weight, x in zip(weights, d, strict=True))
        loss = lab.step_loss(method, z, torch.tensor(ids), lab.a_clock(step, epoch=epoch))
        assert float(loss) == pytest.approx(expected / len(ids), rel=1e-9, abs=1e-12)
    for one, row in u:
        assert float(getattr(method, f"log_u_{one}")[row]) == pytest.approx(math.log(u[one, row]))
    assert method.seen.nonzero().flatten().tolist() == sorted({row for ids in visits for row in ids})


@few
@given(SEEDS, VISITS, st.floats(0, 8), st.floats(0, 0.2), st.floats(0.1, 1), st.sampled_from([0.0, 1e-3]))
def test_isogclr_moves_temperatures_over_several_visits(seed, visits, rho, eta, beta, floor):
    """The slope of each row's temperature from weights that are written out, its momentum and its range."""
    low, high, gamma = 0.1, 0.6, 0.7
    settings_of = {"temperature_min": low, "temperature_max": high, "temperature_init": 0.3, "gamma": gamma}
    method = lab.build_adapter(Isogclr, rows=8, rho=rho, eta=eta, beta=beta, floor=floor, **settings_of)
    u, peak, tau, momentum = {}, {}, {}, {}
    for step, ids in enumerate(visits):
        z = leaves(seed + step, len(ids))
        lab.observe(method, z, ids=torch.tensor(ids), when=lab.a_clock(step, epoch=step))
        for one, other in BOTH:
            s = table(z, one, other)
            for i, row in enumerate(ids):
                key = (one, row)
                t = tau.setdefault(key, 0.3)
                x = [(s[i][j] - s[i][i]) / t for j in range(len(ids)) if j != i]
                g = sum(map(math.exp, x))
                u[key] = (1 - gamma) * u[key] + gamma * g if key in u else g
                peak[key] = max(peak.get(key, 0.0), *x)
                weighted = sum(math.exp(a) / (u[key] + floor * math.exp(peak[key])) * a for a in x)
                slope = math.log(u[key] / (len(ids) - 1)) + rho - weighted
                momentum[key] = (1 - beta) * momentum.get(key, 0.0) + beta * max(-5.0, min(5.0, slope))
                tau[key] = max(low, min(high, t - eta * momentum[key]))
    for one, row in tau:
        assert float(getattr(method, f"tau_{one}")[row]) == pytest.approx(tau[one, row], rel=1e-9)
        assert float(getattr(method, f"momentum_{one}")[row]) == pytest.approx(momentum[one, row], rel=1e-9, abs=1e-12)
