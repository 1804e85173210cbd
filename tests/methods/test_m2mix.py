"""m2-Mix: points on arcs, lambda's draws, the weight over the run, and pairs that coincide or oppose each other.

Its values: bench/checks/oracles/finetuning.py.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.clip import Clip
from methods.m2mix import M2mix, M2mixConfig, between
from methods.protocol import Clock

shares = st.floats(0, 1)


def fixed(lab, share, weight=1.0):
    return {
        "image_share": lab.exact_tensor(share),
        "mix_weight": lab.exact_tensor(weight),
    }


def mixed_term(lab, z, share, **config):
    method = lab.build_adapter(M2mix, **config)
    return method.loss(z, fixed(lab, share), slice(0, len(z["image"])))["mixed"]


def observed(lab, step=0, progress=0.0, seed=0, **config):
    method = lab.build_adapter(M2mix, seed=seed, **config)
    return lab.observe(method, {"image": torch.zeros(2, 2).double()}, when=Clock(step, "train", progress, 0))


def points(lab, name, share):
    z = {key: x.detach() for key, x in lab.oracle_inputs(name).items()}
    return z, between(z["image"], z["text"], (z["image"] * z["text"]).sum(1), lab.exact_tensor(share))


@settings(max_examples=50, deadline=None)
@given(shares, st.sampled_from("ABC"))
def test_points_divide_the_arc_in_lambdas_ratio(lab, share, name):
    z, mixed = points(lab, name, share)
    lab.assert_close(mixed.norm(dim=1), torch.ones(len(mixed)))
    whole = (z["image"] * z["text"]).sum(1).arccos()
    lab.assert_close((z["text"] * mixed).sum(1).clamp(max=1).arccos(), share * whole, rtol=1e-6, atol=1e-6)
    lab.assert_close((z["image"] * mixed).sum(1).clamp(max=1).arccos(), (1 - share) * whole, rtol=1e-6, atol=1e-6)


def test_points_of_near_pairs_lie_on_the_sphere(lab, case):
    image, other = (x.detach() for x in case("C").values())
    text = F.normalize(image + 0.03 * other, dim=1)
    mixed = between(image, text, (image * text).sum(1), lab.exact_tensor(0.5))
    lab.assert_close(mixed.norm(dim=1), torch.ones(8), rtol=1e-6)


def test_a_batch_by_hand(lab):
    """Two pairs, each a quarter turn apart; halfway the points lie at 45 degrees."""
    axes = torch.eye(4).double()
    z = {"image": axes[:2], "text": axes[2:]}
    half = math.sqrt(0.5)
    # <v_i, m_j> is sqrt(1/2) for j = i, which the pair's own cosine 0 replaces, and 0 for the other pair.
    lab.assert_close(mixed_term(lab, z, 0.5, mix_temperature=0.5), 2 * math.log(2))
    z = {"image": axes[:2], "text": axes[[2, 0]]}  # the second text is the first image
    # Image 1 meets m_2 at sqrt(1/2), text 2 meets m_1 at sqrt(1/2); the other two meet nothing.
    rows = [math.log(1 + math.exp(half / 0.5)), math.log(2), math.log(2), math.log(1 + math.exp(half / 0.5))]
    lab.assert_close(mixed_term(lab, z, 0.5, mix_temperature=0.5), sum(rows) / 2)
    third = [math.sin(math.pi / 6), math.cos(math.pi / 6)]  # lambda 1/3: image, text
    rows = [math.log(1 + math.exp(third[1] / 0.5)), math.log(2), math.log(2), math.log(1 + math.exp(third[0] / 0.5))]
    lab.assert_close(mixed_term(lab, z, 1 / 3, mix_temperature=0.5), sum(rows) / 2)


@settings(max_examples=20, deadline=None)
@given(shares, st.sampled_from("ABC"), st.sampled_from(["script", "readme"]))
def test_exchanging_the_modalities_and_lambda_changes_nothing(lab, share, name, form):
    z = {key: x.detach() for key, x in lab.oracle_inputs(name).items()}
    other = {"image": z["text"], "text": z["image"]}
    lab.assert_close(mixed_term(lab, z, share, form=form), mixed_term(lab, other, 1 - share, form=form), atol=1e-9)


def test_at_the_ends_one_direction_is_clips(lab, case):
    z = {key: x.detach() for key, x in case("C").items()}
    images, texts = z["image"], z["text"]
    cross = F.cross_entropy(texts @ images.T / 0.2, torch.arange(8))
    within = images @ images.T / 0.2
    within = within.diagonal_scatter((images * texts).sum(1) / 0.2)
    wanted = cross + F.cross_entropy(within, torch.arange(8))
    lab.assert_close(mixed_term(lab, z, 1.0, mix_temperature=0.2), wanted)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_single_pair_teaches_nothing(lab, case, share):
    z = {key: x.detach()[:1].requires_grad_() for key, x in case("A").items()}
    loss = sum(lab.build_adapter(M2mix).loss(z, fixed(lab, share), slice(0, 1)).values())
    assert float(loss.detach()) == 0
    assert all(bool((x.abs() < 1e-12).all()) for x in torch.autograd.grad(loss, list(z.values())))


def test_the_scale_is_fixed_unless_it_is_to_be_learned(lab):
    assert not list(lab.build_adapter(M2mix).parameters())
    assert len(list(lab.build_adapter(M2mix, learnable_scale=True).parameters())) == 1


def test_both_forms_agree_at_one_scale_but_for_the_half(lab, case):
    z = case("B")
    script = mixed_term(lab, z, 0.4, temperature=0.2, mix_temperature=None)
    readme = mixed_term(lab, z, 0.4, temperature=0.2, mix_temperature=0.2, form="readme")
    lab.assert_close(script, 2 * readme)
    assert float(mixed_term(lab, z, 0.4, form="readme", mix_temperature=0.5).detach()) != pytest.approx(
        float(mixed_term(lab, z, 0.4, mix_temperature=0.5).detach()) / 2
    )


def test_a_shared_scale_is_learned_through_both_losses(lab, case):
    z = case("B")
    method = lab.build_adapter(M2mix, mix_temperature=None, learnable_scale=True, temperature=0.1)
    terms = method.loss(z, fixed(lab, 0.5), slice(0, 6))
    (both,) = torch.autograd.grad(sum(terms.values()), [method.scale.rho], retain_graph=True)
    (one,) = torch.autograd.grad(terms["contrastive"], [method.scale.rho])
    assert float((both - one).abs()) > 1e-3
    lab.assert_close(terms["contrastive"], lab.step_loss(lab.build_adapter(Clip, temperature=0.1), z))


def test_lambda_is_drawn_from_beta_by_seed_and_step(lab):
    for beta in (0.5, 3.0):
        drawn = torch.stack([observed(lab, step, beta=beta)["image_share"] for step in range(1500)])
        assert bool(((drawn >= 0) & (drawn <= 1)).all())
        assert float(drawn.mean()) == pytest.approx(0.5, abs=0.03)
        assert float(drawn.var()) == pytest.approx(1 / (4 * (2 * beta + 1)), rel=0.08)
    assert observed(lab, 3) == observed(lab, 3)
    assert observed(lab, 3)["image_share"] != observed(lab, 3, seed=1)["image_share"]


def test_the_weight_falls_by_ninths_of_the_run(lab):
    at = [float(observed(lab, progress=part / 9)["mix_weight"]) for part in range(9)]
    assert at == pytest.approx([0.01 / part for part in range(1, 10)])
    assert float(observed(lab, progress=0.999)["mix_weight"]) == pytest.approx(0.01 / 9)
    assert float(observed(lab, progress=0.999, stages=1, weight=0.3)["mix_weight"]) == pytest.approx(0.3)


@pytest.mark.parametrize("gap", [0.0, 1e-7, 1e-4, 3e-3, 1e-2])
@pytest.mark.parametrize("sign", [1, -1])
def test_pairs_that_coincide_or_oppose_have_a_gradient_also_in_single_precision(lab, case, gap, sign):
    z = {key: x.detach() for key, x in case("C").items()}
    z["text"] = F.normalize(sign * z["image"] + gap * z["text"], dim=1)
    found = []
    for dtype in (torch.float64, torch.float32):
        leaves = {key: x.float().to(dtype).requires_grad_() for key, x in z.items()}
        method = lab.build_adapter(M2mix, mix_temperature=0.2).to(dtype)
        loss = method.loss(leaves, {key: x.to(dtype) for key, x in fixed(lab, 0.3).items()}, slice(0, 8))["mixed"]
        assert loss.dtype == dtype
        found.append((loss.detach(), torch.cat(torch.autograd.grad(loss, list(leaves.values())))))
    assert bool(found[0][1].isfinite().all())
    if sign > 0:  # where they oppose each other, no arc is the shortest
        lab.assert_close(found[1][0], found[0][0], rtol=1e-4, atol=1e-5)
        lab.assert_close(found[1][1], found[0][1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "bad",
    [{"weight": -0.1}, {"stages": 0}, {"stages": 1.5}, {"beta": 0.0}, {"mix_temperature": 0.0}, {"form": "main"}],
)
def test_values_without_meaning_are_refused(bad):
    (field,) = bad
    with pytest.raises(ValueError, match=rf"Config\.{field} = "):
        M2mixConfig(**bad)
