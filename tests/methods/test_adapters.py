"""What every adapter must keep, whatever it does; run on what it encodes itself with tiny real towers."""

from __future__ import annotations

import copy
import dataclasses
import random

import numpy as np
import pytest
import torch

from methods.protocol import Batch, Facts, Method

TOTAL = 40  # more than a block of 32 anchors, and no multiple of it


@pytest.fixture
def prepared(lab, any_method):
    """(method in fp64, its leaves of every phase's batch)."""
    torch.manual_seed(0)
    towers = lab.TinyTowers()
    config = {"masked_share": 0.2} if any_method.score == "csd" else {}
    method = any_method(any_method.Config(**config), Facts(rows=50, batch=TOTAL, dim=16, seed=0))
    method.prepare(towers)
    z = method.encode(towers, lab.some_rows(towers, TOTAL))
    noise = torch.Generator().manual_seed(1)
    leaves = {}
    for name, x in z.items():
        moved = x.detach().double() + 0.2 * torch.randn(x.shape, generator=noise, dtype=torch.float64)
        unit = torch.nn.functional.normalize(moved, dim=1)
        leaves[name] = (moved if "logvar" in name else unit).requires_grad_()
    return method.double(), leaves


def steps(method):
    return [(phase.name, step) for phase in method.phases() for step in (0, 1)]


def test_is_a_method_with_a_complete_card(any_method):
    assert isinstance(any_method(any_method.Config(), Facts(rows=8, batch=8, dim=4, seed=0)), Method)
    about = any_method.about
    assert any_method.name == any_method.__module__.rpartition(".")[2]
    for field in ("title", "summary", "paper", "equations", "bibtex", "state"):
        assert getattr(about, field)
    assert about.bibtex.startswith("@")
    assert about.fidelity in ("official-checked", "formula-checked", "derived", "reconstructed")
    assert "paper" in any_method.presets
    for preset in any_method.presets.values():
        assert any_method.Config(**preset)


def test_every_tiling_gives_the_same_loss_and_gradient(lab, prepared):
    method, z = prepared
    cuts = [(), (32,), (8, 16, 24, 32), (7, 39)]
    for phase, step in steps(method):
        found = []
        for cut in [()] if method.whole_batch else cuts:
            fresh = copy.deepcopy(method)
            loss = lab.objective(fresh, z, torch.arange(TOTAL), lab.clock(step, phase), cut)
            inputs = [*z.values(), *fresh.parameters()]
            grads = torch.autograd.grad(loss, inputs, allow_unused=True)
            found.append([loss.detach(), *(torch.zeros(()) if g is None else g for g in grads)])
        for other in found[1:]:
            for a, b in zip(found[0], other, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_gradient_is_that_of_the_value_with_constants_held(lab, prepared):
    method, z = prepared
    if hasattr(method, "scale"):
        with torch.no_grad():
            method.scale.rho.fill_(0.5)  # small logits: finite differences are exact enough
    rows = 6
    small = {name: x.detach()[:rows].clone().requires_grad_() for name, x in z.items()}
    for phase in method.phases():
        fresh = copy.deepcopy(method)
        whole = slice(0, rows)
        with torch.no_grad():
            observed = fresh.observe(small, Batch(torch.arange(rows), lab.clock(1, phase.name)))
            constants = fresh.draw(small, observed, whole)

        def value(*tensors, fresh=fresh, constants=constants, whole=whole):
            z = dict(zip(small, tensors, strict=True))
            return torch.stack(list(fresh.loss(z, constants, whole).values())).sum()

        assert torch.autograd.gradcheck(value, tuple(small.values()), fast_mode=True)


def test_neither_uses_nor_moves_global_generators(lab, prepared):
    method, z = prepared
    found = []
    for poison in (0, 1):
        torch.manual_seed(poison)
        np.random.seed(poison)  # noqa: NPY002
        random.seed(poison)
        before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
        fresh = copy.deepcopy(method)
        loss = [lab.objective(fresh, z, torch.arange(TOTAL), lab.clock(s, p)).detach() for p, s in steps(fresh)]
        found.append(torch.stack(loss))
        assert torch.equal(torch.get_rng_state(), before[0])
        assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002
        assert random.getstate() == before[2]
    assert torch.equal(found[0], found[1])


def test_encoding_neither_uses_nor_moves_the_global_generator(lab, any_method):
    torch.manual_seed(0)
    towers = lab.TinyTowers()
    method = any_method(any_method.Config(), Facts(rows=50, batch=16, dim=16, seed=0))
    method.prepare(towers)
    found = []
    for poison in (3, 4):
        torch.manual_seed(poison)
        before = torch.get_rng_state()
        found.append(method.encode(towers, lab.some_rows(towers, 16)))
        assert torch.equal(torch.get_rng_state(), before)
    for name, x in found[0].items():
        assert x.shape[0] == 16
        assert torch.equal(x, found[1][name])


def test_encodes_in_mixed_precision(lab, any_method):
    torch.manual_seed(0)
    towers = lab.TinyTowers()
    method = any_method(any_method.Config(), Facts(rows=50, batch=16, dim=16, seed=0))
    method.prepare(towers)
    with torch.autocast("cpu", torch.bfloat16):
        z = method.encode(towers, lab.some_rows(towers, 16))
    plain = method.encode(towers, lab.some_rows(towers, 16))
    for name, x in z.items():
        assert "logvar" not in name or x.dtype == torch.float32
        torch.testing.assert_close(x.float(), plain[name], rtol=0.05, atol=0.1)


def test_micro_batches_encode_as_the_whole_batch(lab, any_method):
    torch.manual_seed(0)
    towers = lab.TinyTowers()
    method = any_method(any_method.Config(), Facts(rows=50, batch=16, dim=16, seed=0))
    method.prepare(towers)
    whole = method.encode(towers, lab.some_rows(towers, 16))
    parts = [method.encode(towers, lab.some_rows(towers, 16, slice(a, a + 4))) for a in range(0, 16, 4)]
    for name, x in whole.items():
        lab.assert_close(torch.cat([part[name] for part in parts]), x, rtol=1e-4, atol=1e-5)


def test_state_travels_in_the_state_dict(lab, prepared):
    method, z = prepared
    fresh = copy.deepcopy(method)
    ids = torch.arange(TOTAL).flip(0)
    for phase, step in steps(method):
        lab.objective(method, z, ids, lab.clock(step, phase))
    saved = {name: x.clone() for name, x in method.state_dict().items()}
    fresh.load_state_dict(saved)
    rolled = {name: x.roll(1, 0) for name, x in z.items()}
    phase = method.phases()[-1].name
    losses = [lab.objective(m, rolled, ids, lab.clock(9, phase)) for m in (method, fresh)]
    assert torch.equal(losses[0], losses[1])
    for name, x in method.state_dict().items():
        assert torch.equal(x, fresh.state_dict()[name])
        if not x.is_floating_point():
            continue
        assert bool(x.isfinite().all())


def test_loss_is_pure(lab, prepared):
    method, z = prepared
    whole = slice(0, TOTAL)
    for phase, step in steps(method):
        with torch.no_grad():
            observed = method.observe(z, Batch(torch.arange(TOTAL), lab.clock(step, phase)))
            first = method.draw(z, observed, whole)
            second = method.draw(z, observed, whole)
        state = {name: x.clone() for name, x in method.state_dict().items()}
        losses = [torch.stack(list(method.loss(z, drawn, whole).values())).sum() for drawn in (first, second, first)]
        assert torch.equal(losses[0], losses[1])
        assert torch.equal(losses[0], losses[2])
        assert not any(x.requires_grad for x in first.values())
        assert all(torch.equal(x, state[name]) for name, x in method.state_dict().items())


@pytest.mark.parametrize("kind", ["equal", "opposite", "aligned"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finite_at_extreme_embeddings(lab, prepared, kind, dtype):
    method, z = prepared
    method = method.to(dtype)
    if hasattr(method, "scale"):
        with torch.no_grad():
            method.scale.rho.fill_(4.6052)
    one = torch.nn.functional.normalize(torch.randn(TOTAL, 16, generator=torch.Generator().manual_seed(0)), dim=1)
    image = one[:1].expand(TOTAL, -1) if kind == "equal" else one
    text = -image if kind == "opposite" else image
    extreme = {}
    for name, x in z.items():
        value = x.detach() if "logvar" in name else text if "text" in name else image
        extreme[name] = value.to(dtype).clone().requires_grad_()
    for phase, step in steps(method):
        loss = lab.objective(method, extreme, torch.arange(TOTAL), lab.clock(step, phase))
        grads = torch.autograd.grad(loss, list(extreme.values()), allow_unused=True)
        assert loss.dtype == dtype
        assert bool(loss.isfinite())
        assert all(g is None or bool(g.isfinite().all()) for g in grads)


def test_half_precision_embeddings_give_single_precision_losses(lab, prepared):
    method, z = prepared
    half = {name: x.detach().bfloat16().requires_grad_() for name, x in z.items()}
    for phase, step in steps(method):
        loss = lab.objective(method.float(), half, torch.arange(TOTAL), lab.clock(step, phase))
        assert loss.dtype == torch.float32
        assert bool(loss.isfinite())


def test_scalars_stay_in_their_range(lab, any_method):
    method = any_method(any_method.Config(), Facts(rows=8, batch=8, dim=4, seed=0))
    if not hasattr(method, "scale"):
        pytest.skip("has no logit scale")
    for value, expected in ((99.0, 100.0), (-5.0, 1.0)):
        with torch.no_grad():
            method.scale.rho.fill_(value)
        method.after_step(lab.clock(0, method.phases()[-1].name))
        lab.assert_close(method.scale(), expected, rtol=1e-5)


def test_a_value_out_of_range_is_refused_by_name(any_method):
    for field in dataclasses.fields(any_method.Config):
        default = getattr(any_method.Config(), field.name)
        bad = "nonsense" if isinstance(default, str) else float("nan") if type(default) is float else None
        if bad is None:
            continue
        with pytest.raises(ValueError, match=rf"Config\.{field.name} = .*, but it must be "):
            any_method.Config(**{field.name: bad})
