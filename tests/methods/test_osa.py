"""OSA: its weights, the shift that is measured on noise, and what the estimator takes part in.

Its values: bench/checks/oracles/losses.py.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bench.training import side_towers
from methods.clip import Clip
from methods.osa import Osa, OsaConfig
from methods.protocol import Facts


def estimated(cosines):
    """An estimator that gives these cosines."""
    c = torch.tensor(cosines, dtype=torch.float64)
    first = torch.zeros(len(c), 2, dtype=torch.float64)
    first[:, 0] = 1
    return {"side_image": first, "side_text": torch.stack([c, (1 - c * c).sqrt()], 1)}


def weights(lab, cosines, shift=0.1, **config):
    z = {"image": torch.zeros(len(cosines), 2, dtype=torch.float64), **estimated(cosines)}
    return lab.observe(lab.build_adapter(Osa, shift=shift, **config), z)["weights"]


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=8), st.floats(-1, 0.9), st.sampled_from(["max", "none"]))
def test_weights_lie_between_nothing_and_a_quarter(lab, cosines, shift, normalise):
    found = weights(lab, cosines, shift, normalise=normalise)
    assert bool(((found >= 0) & (found <= 0.25 + 1e-12)).all())
    assert bool((found[torch.tensor(cosines, dtype=torch.float64) <= shift - 1e-9] == 0).all())


def test_the_weight_is_largest_at_half_the_square_and_none_at_the_largest(lab):
    found = weights(lab, [0.1, 0.9, 0.1 + 0.8 / math.sqrt(2), 0.1 + 0.8 * 0.44, 0.1 + 0.8 * 0.9], shift=0.1)
    lab.assert_close(found[:3], [0.0, 0.0, 0.25], atol=1e-9)
    assert float(found[3]) == pytest.approx(float(found[4]), abs=0.003)  # x = 0.9 counts as little as 0.44
    plain = weights(lab, [0.1, 0.9, 0.2, 0.3], shift=0.1, normalise="none")
    lab.assert_close(plain, [0.0, 0.64 * 0.36, 0.01 * 0.99, 0.04 * 0.96], atol=1e-12)


def test_scaling_what_lies_above_the_shift_changes_nothing(lab):
    above = torch.tensor([0.5, -0.2, 0.1, 0.3])
    one, other = (weights(lab, (0.2 + factor * above).tolist(), shift=0.2) for factor in (1.0, 0.37))
    lab.assert_close(one, other, rtol=1e-6)


def test_equal_weights_are_clip_times_the_weight(lab, case):
    z = case("B")
    loss = lab.sum_of_tiles(
        lab.build_adapter(Osa), z, {"weights": torch.full((6,), 0.2, dtype=torch.float64)}, cuts=(2,)
    )
    lab.assert_close(loss, 0.2 * lab.step_loss(lab.build_adapter(Clip), z))


def test_a_pair_below_the_shift_is_no_anchor_but_a_negative(lab, case):
    z, method = case("B"), lab.build_adapter(Osa, shift=0.0)
    seen = estimated([0.5, -0.5, 0.3, 0.2, 0.4, 0.1])
    loss = lab.step_loss(method, {**z, **seen})
    image, text = torch.autograd.grad(loss, [z["image"], z["text"]], retain_graph=True)
    assert bool((image[1].abs() > 1e-6).any())
    # Only as candidate: exactly the gradient of the other anchors, in which it is repelled.
    logits = z["image"] @ z["text"].T / 0.07
    w = lab.observe(method, {**z, **seen})["weights"]
    assert float(w[1]) == 0
    others = [i for i in range(6) if i != 1]
    anchored = sum((w[i] * (x[i].logsumexp(0) - x[i, i])) for x in (logits, logits.T) for i in others) / 12
    for one, other in zip((image, text), torch.autograd.grad(anchored, [z["image"], z["text"]]), strict=True):
        lab.assert_close(one, other)


def test_a_batch_below_the_shift_teaches_nothing(lab, case):
    z = case("A")
    loss = lab.step_loss(lab.build_adapter(Osa, shift=0.3), {**z, **estimated([0.3, -0.1, 0.2, -1.0])})
    assert float(loss.detach()) == 0
    assert all(bool((x == 0).all()) for x in torch.autograd.grad(loss, list(z.values())))


def prepared(towers, seed=0, **config):
    method = Osa(OsaConfig(**config), Facts(rows=8, batch=8, dim=16, seed=seed))
    side_towers.hold_reference(method, towers, None)
    method.prepare(towers)
    return method


def test_the_shift_is_the_estimators_mean_cosine_of_noise(towers):
    method = prepared(towers, shift_pairs=6)
    shift = float(method.shift)
    assert -1 < shift < 1
    assert float(prepared(towers, shift_pairs=6).shift) == shift
    assert float(prepared(towers, shift_pairs=6, seed=1).shift) != shift
    with torch.no_grad():
        for parameter in towers.parameters():
            parameter.add_(1.0)  # the trained towers take no part
    method.prepare(towers)
    assert float(method.shift) == shift
    fresh = Osa(OsaConfig(), Facts(rows=8, batch=8, dim=16, seed=0))
    fresh.load_state_dict(method.state_dict())
    assert float(fresh.shift) == shift


def test_a_given_shift_reads_neither_pixels_nor_the_text_tower():
    method = Osa(OsaConfig(shift=0.25), Facts(rows=8, batch=8, dim=16, seed=0))
    method.prepare(torch.nn.Module())
    assert float(method.shift) == 0.25
    assert Osa.needs_under(OsaConfig(shift=0.25)) == frozenset()
    assert Osa.needs_under(OsaConfig()) == Osa.needs


def test_the_estimator_gets_no_gradient(lab):
    towers = lab.TinyTowers()
    method = prepared(towers, shift=0.0)
    z = method.encode(towers, lab.some_rows(towers, 4))
    assert {name for name, x in z.items() if x.requires_grad} == {"image", "text"}
    for name in ("image", "text"):
        torch.testing.assert_close(z[f"side_{name}"], z[name].detach())  # a copy of the same towers


@pytest.mark.parametrize("bad", [{"shift": 1.0}, {"shift": math.nan}, {"shift_pairs": 0}, {"normalise": "mean"}])
def test_values_without_meaning_are_refused(bad):
    (field,) = bad
    with pytest.raises(ValueError, match=rf"Config\.{field} = "):
        OsaConfig(**bad)
