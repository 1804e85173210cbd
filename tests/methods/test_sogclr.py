"""SogCLR's identities; the official code's values are in `oracles`."""

from __future__ import annotations

import math

import torch

from methods.sogclr import Sogclr


def without_partner(z, temperature):
    """Sum over both directions of the mean LSE over candidates other than the partner, and of -s_ii / tau."""
    s = z["image"] @ z["text"].T / temperature
    others = s.masked_fill(torch.eye(len(s), dtype=torch.bool), -math.inf)
    own = s.diagonal()
    return (others.logsumexp(1) - own).mean() + (others.logsumexp(0) - own).mean()


def test_gamma_one_has_the_gradient_of_clip_without_the_positive_in_the_denominator(lab, case, assert_same_gradients):
    z, method = case("B"), lab.build_adapter(Sogclr, gamma=1.0, temperature=0.1, floor=0.0)
    for _ in range(2):  # the second visit forgets the first
        found = lab.step_loss(method, z)
    assert_same_gradients(found, 0.1 * without_partner(z, 0.1), z.values())


def test_weights_sum_to_g_over_u_plus_floor(lab, case):
    method, z = lab.build_adapter(Sogclr, temperature=0.05, floor=1e-3), {k: v.detach() for k, v in case("B").items()}
    shifted = {"image": z["image"].roll(1, 0), "text": z["text"]}
    lab.observe(method, shifted)
    observed = lab.observe(method, z, when=lab.a_clock(1))
    weights = method.draw(z, observed, slice(0, 6))["image"]
    s = z["image"] @ z["text"].T
    e = ((s - s.diagonal()[:, None]) / 0.05).masked_fill(torch.eye(6, dtype=torch.bool), -math.inf)
    u, b = method.log_u_image[:6].exp(), method.peak_image[:6]
    lab.assert_close(weights.sum(1), e.exp().sum(1) / (u + 1e-3 * b.exp()))
    lab.assert_close(weights.diagonal(), torch.zeros(6))


def test_image_part_does_not_change_with_a_constant_on_a_row_of_similarities(lab, case):
    z, method = {k: v.detach() for k, v in case("B").items()}, lab.build_adapter(Sogclr, temperature=0.1)
    # A direction that no image but one has, and that all texts share, adds a constant to that image's row.
    extra = torch.zeros(6, 1, dtype=torch.float64)
    extra[2] = 0.3
    moved = {
        "image": torch.cat([z["image"], extra], 1),
        "text": torch.cat([z["text"], torch.ones_like(extra)], 1),
    }
    plain = {name: torch.cat([x, torch.zeros_like(extra)], 1) for name, x in z.items()}
    for a, b in zip(image_parts(lab, method, plain), image_parts(lab, method, moved), strict=True):
        lab.assert_close(a, b)


def image_parts(lab, method, z):
    observed = lab.observe(method, z)
    constants = method.draw(z, observed, slice(0, 6))
    constants["text"] = torch.zeros_like(constants["text"])
    return constants["image"], method.loss(z, constants, slice(0, 6))["global_contrastive"]


def test_a_first_pass_that_forgets_equals_first_touch_unless_rows_come_twice(lab, case):
    once = [(torch.arange(6), 0), (torch.arange(6, 12), 0), (torch.arange(6), 1), (torch.arange(6, 12), 1)]
    twice = [(torch.arange(6), 0), (torch.arange(6), 0)]
    for visits, equal in ((once, True), (twice, False)):
        losses = []
        for start in ("touch", "epoch"):
            method = lab.build_adapter(Sogclr, temperature=0.1, start=start)
            for step, (ids, epoch) in enumerate(visits):
                z = {"image": case("B")["image"], "text": case("B")["text"].roll(step, 0)}
                loss = lab.step_loss(method, z, ids, lab.a_clock(step, epoch=epoch))
            losses.append(float(loss.detach()))
        assert (losses[0] == losses[1]) == equal


def test_monitors_tau_log_u(lab, case):
    method, z = lab.build_adapter(Sogclr, temperature=0.1), case("B")
    observed = lab.observe(method, z)
    expected = 0.1 * (method.log_u_image[:6].mean() + method.log_u_text[:6].mean())
    lab.assert_close(method.monitor(z, observed)["tau_log_u"], expected)


def test_permuting_the_batch_changes_nothing(lab, case):
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    losses = []
    for way in (torch.arange(6), order):
        method = lab.build_adapter(Sogclr, temperature=0.1)
        lab.step_loss(method, case("B"), torch.arange(6))
        z = {name: x.roll(1, 0)[way] for name, x in case("B").items()}
        losses.append(lab.step_loss(method, z, torch.arange(6)[way], lab.a_clock(1)))
    lab.assert_close(losses[0], losses[1])
