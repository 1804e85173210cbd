"""DRRho-CLIP: what a reference model does to the weights of a global contrastive loss."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from bench.training import side_towers
from methods.drrho import Drrho
from methods.protocol import Cost, Facts
from methods.sogclr import Sogclr


def beside(z, image, text):
    return {**z, "side_image": image.detach(), "side_text": text.detach()}


def constant(z):
    """A reference to which all pairs are alike."""
    return beside(z, z["image"][:1].expand_as(z["image"]), z["text"][:1].expand_as(z["text"]))


def weights(method, z, lab):
    observed = lab.observe(method, z)
    with torch.no_grad():
        return observed, method.draw(z, observed, slice(0, len(z["image"])))


def test_a_reference_that_knows_nothing_gives_sogclr_times_a_factor(lab, case, assert_same_gradients):
    z = case("C")
    one = lab.step_loss(lab.build_adapter(Drrho, temperature=0.05, epsilon=0.0), constant(z))
    other = lab.step_loss(lab.build_adapter(Sogclr, temperature=0.05, floor=0.0), z)
    assert_same_gradients(one, 8 / 7 * other, z.values())


def test_epsilon_joins_the_normaliser_as_if_every_row_had_that_much_more_to_sum(lab, case):
    z, total, epsilon, tau = case("C"), 8, 0.01, 0.05
    _, drawn = weights(lab.build_adapter(Drrho, temperature=tau, epsilon=epsilon), constant(z), lab)
    s = (z["image"] @ z["text"].T).detach()
    e = ((s - s.diagonal()[:, None]) / tau).exp().fill_diagonal_(0)
    lab.assert_close(drawn["image"], total / (total - 1) * e / (e.sum(1, keepdim=True) + total * epsilon))


def test_where_the_reference_is_the_model_all_negatives_weigh_the_same(lab, case):
    z = case("B")
    _, drawn = weights(lab.build_adapter(Drrho), beside(z, z["image"], z["text"]), lab)
    expected = torch.full((6, 6), 1 / (5 * (1e-4 + 5 / 6)), dtype=torch.float64).fill_diagonal_(0)
    for direction in ("image", "text"):
        lab.assert_close(drawn[direction], expected)


@pytest.mark.parametrize(("epsilon", "pulls"), [(1e-4, False), (0.0, True)])
def test_epsilon_drops_a_pair_of_which_the_reference_thinks_ill(lab, epsilon, pulls):
    """The model holds pair 0 for as good as the others; the reference finds its caption elsewhere."""
    rows = torch.eye(6, dtype=torch.float64)
    z = {"image": rows, "text": rows.clone()}
    reference = F.normalize(rows + 0.5 * rows.roll(1, 0), dim=1)
    reference[0] = -rows[0]
    method = lab.build_adapter(Drrho, epsilon=epsilon)
    observed, drawn = weights(method, beside(z, rows, reference), lab)
    total = float(drawn["image"][0].sum())
    assert (total > 0.9) == pulls
    assert (total < 1e-3) != pulls
    dropped = method.monitor(beside(z, rows, reference), observed)["dropped"]
    assert (dropped == 0) == pulls


def test_the_side_towers_give_embeddings_without_gradient(lab, towers):
    method = Drrho(Drrho.Config(), Facts(rows=8, batch=8, dim=16, seed=0))
    side_towers.hold_reference(method, towers, None)
    z = method.encode(towers, lab.some_rows(towers, 8))
    assert sorted(z) == ["image", "side_image", "side_text", "text"]
    assert [x.requires_grad for _, x in sorted(z.items())] == [True, False, False, True]
    for name in ("side_image", "side_text"):
        assert torch.allclose(z[name].norm(dim=1), torch.ones(8))
    torch.testing.assert_close(z["side_text"], z["text"].detach())  # its weights are the towers', before training
    assert method.cost("train") == Cost(side_image=1.0, side_text=1.0)
    assert not method.starts_from_reference


def test_a_run_of_one_pass_has_no_memory_and_neither_has_the_official_preset(lab, case):
    z = constant(case("C"))
    for settings, late, keeps in (({}, 0, False), ({}, 5, True), (Drrho.presets["official"], 5, False)):
        method = lab.build_adapter(Drrho, **settings)
        for roll in (0, 1):
            when = lab.a_clock(0, epoch=late)
            turned = {**z, "text": z["text"].detach().roll(roll, 0)}
            if late:  # half of a run and more is done
                when = type(when)(0, "train", progress=0.9, epoch=late)
            observed = lab.observe(method, turned, when=when)
        new = (observed["log_sum_image"] - math.log(8)).exp() + 1e-4
        assert torch.allclose(method.log_u_image[:8].exp(), new, rtol=1e-9) != keeps
