"""RCL: its forms, what they have in common, and single precision where a negative takes all the mass.

Its values: bench/checks/oracles/losses.py.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.clip import Clip
from methods.rcl import FORMS, Rcl


def phi(form, p, q, floor):
    """What a negative of probability p costs."""
    rest = 1 - p + floor
    return {"log": -math.log(rest), "tan": math.tan(p), "abs": p, "exp": math.exp(p - 1), "gce": (1 - rest**q) / q}[
        form
    ]


def printed(z, form, temperature, q, floor):
    """The loss with loops over plain numbers."""
    s, loss = (z["image"] @ z["text"].T).tolist(), 0.0
    for rows in (s, [list(column) for column in zip(*s, strict=True)]):
        for i, row in enumerate(rows):
            weights = [math.exp(x / temperature) for x in row]
            shares = [x / (sum(weights) + floor) for x in weights]
            loss += sum(phi(form, p, q, floor) for j, p in enumerate(shares) if j != i)
    return loss / len(s)


def softmaxes(z, temperature):
    s = z["image"] @ z["text"].T / temperature
    return s.softmax(1), s.softmax(0)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(FORMS),
    st.sampled_from([0.2, 1.0]),
    st.floats(0.05, 1),
    st.sampled_from([0.0, 1e-10, 0.01]),
    st.sampled_from(["A", "B", "C"]),
)
def test_the_formula_as_printed(lab, form, temperature, q, floor, name):
    z = {key: x.detach() for key, x in lab.oracle_inputs(name).items()}
    method = lab.build_adapter(Rcl, form=form, temperature=temperature, q=q, floor=floor)
    lab.assert_close(lab.step_loss(method, z, cuts=(1,)), printed(z, form, temperature, q, floor))


@pytest.mark.parametrize("temperature", [0.01, 0.07, 1.0])
def test_two_pairs_in_the_form_log_are_clip_twice(lab, case, temperature, assert_same_gradients):
    z = {name: x.detach()[:2].requires_grad_() for name, x in case("A").items()}
    loss = lab.step_loss(lab.build_adapter(Rcl, temperature=temperature), z)
    clip = 2 * lab.step_loss(lab.build_adapter(Clip, temperature=temperature, learnable_scale=False), z)
    lab.assert_close(loss, clip)
    assert_same_gradients(loss, clip, z.values())


def test_the_form_abs_is_the_mean_absolute_error_and_bounded(lab, case):
    z = case("B")
    loss = lab.step_loss(lab.build_adapter(Rcl, form="abs", temperature=0.3), z)
    lab.assert_close(loss, sum((1 - p.diagonal()).mean() for p in softmaxes(z, 0.3)))
    opposite = {"image": z["image"], "text": -z["image"]}
    assert 1.9 < lab.step_loss(lab.build_adapter(Rcl, form="abs", temperature=0.01), opposite) <= 2
    assert lab.step_loss(lab.build_adapter(Rcl, form="log", temperature=0.01), opposite) > 20
    flat = lab.step_loss(lab.build_adapter(Rcl, form="abs", temperature=1e9), z)
    lab.assert_close(flat, 2 * (1 - 1 / 6), rtol=1e-8)


def test_forms_agree_to_first_order_where_negatives_are_improbable(lab, case):
    z = {"image": case("C")["image"], "text": case("C")["image"]}
    losses = {form: lab.step_loss(lab.build_adapter(Rcl, form=form, temperature=0.05), z) for form in FORMS}
    assert losses["abs"] < 0.02
    for form in ("tan", "log", "gce"):
        lab.assert_close(losses[form], losses["abs"], rtol=0.02)
    lab.assert_close(losses["exp"], (2 * 7 + losses["abs"]) / math.e, rtol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_symmetric_in_modalities_and_in_the_order_of_pairs(lab, case, form):
    z, method = case("B"), lab.build_adapter(Rcl, form=form)
    loss = lab.step_loss(method, z)
    lab.assert_close(lab.step_loss(method, {"image": z["text"], "text": z["image"]}), loss)
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    lab.assert_close(lab.step_loss(method, {name: x[order] for name, x in z.items()}), loss)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("floor", [0.0, 1e-10])
def test_single_precision_where_a_negative_takes_all_the_mass(lab, case, form, floor):
    z = case("C")
    exchanged = {"image": z["image"], "text": z["image"][[1, 0, *range(2, 8)]]}
    double = {name: x.detach().float().double().requires_grad_() for name, x in exchanged.items()}
    single = {name: x.detach().float().requires_grad_() for name, x in double.items()}
    config = {"form": form, "floor": floor, "temperature": 0.01}
    shares, _ = softmaxes(single, 0.01)
    assert float(shares[0, 1].detach()) == 1.0
    exact = lab.step_loss(lab.build_adapter(Rcl, **config), double)
    loss = lab.step_loss(lab.build_adapter(Rcl, **config).float(), single)
    assert loss.dtype == torch.float32
    lab.assert_close(loss, exact, rtol=1e-4)
    pairs = zip(*(torch.autograd.grad(x, list(y.values())) for x, y in ((loss, single), (exact, double))), strict=True)
    for one, other in pairs:
        lab.assert_close(one, other, rtol=1e-3, atol=1e-3 * float(other.abs().max()) + 1e-5)


def test_the_official_floor_caps_what_a_negative_costs(lab, case):
    z = case("C")
    exchanged = {"image": z["image"], "text": z["image"][[1, 0, *range(2, 8)]]}
    exchanged = {name: x.detach() for name, x in exchanged.items()}
    free, capped = (
        lab.step_loss(lab.build_adapter(Rcl, temperature=0.01, floor=floor), exchanged) for floor in (0.0, 1e-10)
    )
    assert float(capped) == pytest.approx(2 * 2 / 8 * -math.log(1e-10), rel=0.02)
    assert free > 1.5 * capped
