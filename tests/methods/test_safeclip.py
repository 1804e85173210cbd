"""SafeCLIP: its two contrasts on parts of a batch, and the split of the rows."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from methods.clip import Clip
from methods.protocol import Clock
from methods.safeclip import Safeclip, safest


def main(step=0, progress=0.25, epoch=2):
    return Clock(step, "main", progress, epoch)


def scored(lab, similarity, **config):
    """An adapter that has visited rows of these similarities; NaN stands for a row that was not visited."""
    x = torch.tensor(similarity, dtype=torch.float64)
    method = lab.build_adapter(Safeclip, rows=len(x), **config)
    method.seen.copy_(~x.isnan())
    method.similarity.copy_(x.nan_to_num())
    return method


def two_groups(low=20, high=20):
    draws = torch.Generator().manual_seed(3)
    below = 0.1 + 0.03 * torch.randn(low, generator=draws, dtype=torch.float64)
    above = 0.5 + 0.03 * torch.randn(high, generator=draws, dtype=torch.float64)
    return torch.cat([below, above])


def loss_of(method, z, safe):
    return method.loss(z, {"safe": safe}, slice(0, len(safe)))


# --- the loss -------------------------------------------------------------------------------------------------------


def test_all_safe_with_equal_views_is_clip_and_all_risky_is_the_contrast_within(lab, viewed):
    method, own = lab.build_adapter(Safeclip), torch.arange(8)
    z = {**viewed, "image_view": viewed["image"], "text_view": viewed["text"]}
    safe = loss_of(method, z, torch.ones(8, dtype=torch.bool))
    lab.assert_close(safe["cross_modal"], lab.step_loss(lab.build_adapter(Clip), z))
    lab.assert_close(safe["in_modal"], 0.0)
    risky = loss_of(method, viewed, torch.zeros(8, dtype=torch.bool))
    parts = [F.cross_entropy(viewed[f"{name}_view"] @ viewed[name].T / 0.07, own) for name in ("image", "text")]
    lab.assert_close(risky["in_modal"], (parts[0] + parts[1]) / 2)
    lab.assert_close(risky["cross_modal"], 0.0)


def test_each_part_is_evaluated_on_its_rows_alone(lab, viewed):
    method, safe = lab.build_adapter(Safeclip), torch.tensor([1, 0, 0, 1, 1, 0, 1, 0]).bool()
    terms = loss_of(method, viewed, safe)
    for name, members in (("cross_modal", safe), ("in_modal", ~safe)):
        part = {key: x[members] for key, x in viewed.items()}
        alone = loss_of(method, part, torch.full((4,), name == "cross_modal"))[name]
        lab.assert_close(terms[name], alone / 2)
    image = torch.autograd.grad(terms["in_modal"], viewed["image"])[0]
    assert torch.equal(image[safe], torch.zeros_like(image[safe]))


def test_in_fp32_its_gradient_is_as_exact_as_clips_on_the_same_rows(lab, monkeypatch):
    """Without the two exchanged rows it nearly vanishes at small temperatures, and CLIP's is rounding, too."""
    draws = torch.Generator().manual_seed(0)
    meaning = torch.randn(48, 64, generator=draws)
    image, text = (F.normalize(meaning + 0.3 * torch.randn(48, 64, generator=draws), dim=1) for _ in range(2))
    text[:2] = text[:2].flip(0)

    def error(kind, temperature, first=0):
        method, gradients = lab.build_adapter(kind, temperature=temperature), []
        for dtype in (torch.float64, torch.float32):
            v, t = (x[first:].to(dtype).requires_grad_() for x in (image, text))
            z = {"image": v, "image_view": v, "text": t, "text_view": t}
            loss = sum(loss_of(method, z, torch.ones(len(v), dtype=torch.bool)).values())
            gradients.append(torch.cat(torch.autograd.grad(loss, [v, t])).double())
        return float((gradients[1] - gradients[0]).norm() / gradients[0].norm())

    for temperature, first in itertools.product((0.01, 0.02, 0.05, 0.07), (0, 2)):
        assert error(Safeclip, temperature, first) < 2 * error(Clip, temperature, first)
    bound = 2 * error(Clip, 0.01)
    monkeypatch.setattr(F, "cross_entropy", lambda x, own, **_: -x.softmax(1).gather(1, own[:, None]).log().sum())
    assert not error(Safeclip, 0.01) < bound, "logarithms of shares"


@pytest.mark.parametrize("rows", [[], [5]])
def test_a_part_of_no_row_or_one_row_costs_nothing_in_any_tile(lab, viewed, rows):
    method, safe = lab.build_adapter(Safeclip), torch.zeros(8, dtype=torch.bool)
    safe[rows] = True
    pieces = [method.loss(viewed, {"safe": safe}, slice(a, a + 2)) for a in range(0, 8, 2)]
    lab.assert_close(sum(piece["cross_modal"] for piece in pieces), 0.0)
    lab.assert_close(sum(piece["in_modal"] for piece in pieces), loss_of(method, viewed, safe)["in_modal"])
    gradients = torch.autograd.grad(sum(sum(p.values()) for p in pieces), list(viewed.values()))
    assert all(bool(x.isfinite().all()) for x in gradients)


def test_at_scale_0_every_contrast_is_that_of_chance(lab, viewed):
    method = lab.build_adapter(Safeclip, temperature=1e12, learnable_scale=False)
    for phase in ("warm", "slow"):
        lab.assert_close(lab.step_loss(method, viewed, when=lab.a_clock(phase=phase)), math.log(8), rtol=1e-9)


def test_phases_contrast_within_then_across_then_by_the_split(lab, viewed):
    method = lab.build_adapter(Safeclip)
    assert [(phase.name, phase.share, phase.lr_scale) for phase in method.phases()] == [
        ("warm", 5 / 32, 1.0),
        ("slow", 1 / 32, 0.01),
        ("main", 26 / 32, 1.0),
    ]
    for phase, safe in (("warm", 0), ("slow", 8)):
        assert int(lab.observe(method, viewed, when=lab.a_clock(phase=phase))["safe"].sum()) == safe


# --- the split ------------------------------------------------------------------------------------------------------


def test_rows_of_the_upper_component_are_safe_and_rows_not_visited_are_risky(lab):
    x = two_groups().tolist()
    method = scored(lab, [*x, math.nan, math.nan])
    method.split(main())
    assert method.safe.tolist() == [False] * 20 + [True] * 20 + [False] * 2
    assert int(method.first_safe) == 20


def test_the_split_moves_along_with_its_rows(lab):
    x = two_groups()
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    one, other = scored(lab, x.tolist()), scored(lab, x[order].tolist())
    for progress, epoch in ((0.25, 2), (0.5, 3)):
        for method in (one, other):
            method.split(main(0, progress, epoch))
        assert torch.equal(one.safe[order], other.safe)


def test_far_below_both_means_the_wider_component_wins(lab):
    draws = torch.Generator().manual_seed(0)
    low = 0.1 + 0.002 * torch.randn(30, generator=draws, dtype=torch.float64)
    high = 0.5 + 0.1 * torch.randn(30, generator=draws, dtype=torch.float64)
    method = scored(lab, [*low.tolist(), *high.tolist(), 0.05])
    method.split(main())
    assert bool(method.safe[60]), "the posterior is not monotone in the similarity"
    assert not bool(method.safe[:30].any())


def test_the_safe_share_grows_with_the_run_up_to_its_cap(lab):
    method, sizes = scored(lab, two_groups().tolist()), []
    for step, progress in enumerate((0.2, 0.4, 0.6, 1.0)):
        method.split(main(step, progress, step))
        sizes.append(int(method.safe.sum()))
    assert sizes == [20, 22, 25, 30]  # of 40: 0.5 + 0.26 (progress - 0.2) / 0.8
    capped = scored(lab, two_groups(4, 36).tolist())
    for step, progress in enumerate((0.2, 0.9)):
        capped.split(main(step, progress, step))
    assert int(capped.safe.sum()) == 34


def test_a_split_holds_for_a_pass_and_survives_a_restart(lab):
    method = scored(lab, two_groups().tolist())
    method.split(main(0, 0.25, 2))
    before = method.safe.clone()
    method.similarity.copy_(method.similarity.flip(0))
    method.split(main(1, 0.3, 2))
    assert torch.equal(method.safe, before)
    loaded = lab.build_adapter(Safeclip, rows=40)
    loaded.load_state_dict(method.state_dict())
    for one in (method, loaded):
        one.split(main(2, 0.5, 3))
    assert torch.equal(method.safe, loaded.safe)
    assert int((method.safe & before).sum()) < 10
    warm = scored(lab, two_groups().tolist())
    warm.split(lab.a_clock(phase="warm", epoch=3))
    assert not bool(warm.safe.any())


@pytest.mark.parametrize(("similarity", "safe"), [([math.nan] * 3, 0), ([0.2, math.nan], 1), ([0.3] * 4, 4)])
def test_no_row_one_row_and_equal_rows_can_be_split(lab, similarity, safe):
    method = scored(lab, similarity)
    for progress, epoch in ((0.25, 1), (0.5, 2)):
        method.split(main(0, progress, epoch))
        assert int(method.safe.sum()) <= safe
    first = scored(lab, similarity)
    first.split(main())
    assert int(first.safe.sum()) == safe


def test_equal_posteriors_are_ordered_by_similarity_and_then_by_row():
    similarity, posterior = torch.tensor([0.1, 0.9, 0.5, 0.5, 0.2]), torch.tensor([1.0, 0.3, 1.0, 1.0, 1.0])
    assert safest(similarity, posterior, 3).tolist() == [2, 3, 4]
    assert safest(similarity, posterior, 9).tolist() == [2, 3, 4, 0, 1]


def test_scores_are_those_of_the_last_visit_and_the_split_sees_them_before_the_batch(lab, viewed):
    method, ids = lab.build_adapter(Safeclip, rows=20), torch.arange(4, 12)
    lab.observe(method, viewed, ids=ids, when=main(0, 0.2, 0))
    assert not bool(method.safe.any()), "nothing was visited before"
    lab.assert_close(method.similarity[ids], (viewed["image"] * viewed["text"]).sum(1))
    assert method.seen.nonzero().flatten().tolist() == ids.tolist()
    with torch.no_grad():
        numbers = method.monitor(viewed, {"safe": torch.ones(8, dtype=torch.bool)})
    assert numbers["unvisited"] == 12
    lab.assert_close(
        numbers["contrast"], lab.step_loss(lab.build_adapter(Safeclip), viewed, when=lab.a_clock(phase="slow"))
    )


# --- the banks ------------------------------------------------------------------------------------------------------


def test_an_empty_bank_leaves_the_first_views_and_a_full_one_gives_them_no_gradient(lab, viewed):
    method = lab.build_adapter(Safeclip, dim=5, bank=True, bank_size=32)
    first = lab.step_loss(method, viewed, when=lab.a_clock(0, "warm"))
    lab.assert_close(first, lab.step_loss(lab.build_adapter(Safeclip), viewed, when=lab.a_clock(0, "warm")))
    assert torch.equal(method.image_bank.entries[:8], viewed["image"].detach())
    second = lab.step_loss(method, viewed, when=lab.a_clock(1, "warm"))
    lab.assert_close(second, first)  # every view is its own nearest entry
    gradients = torch.autograd.grad(second, list(viewed.values()), materialize_grads=True)
    assert [bool(x.any()) for x in gradients] == [False, False, True, True]


def test_only_rows_that_are_contrasted_within_enter_the_banks(lab, viewed):
    method = lab.build_adapter(Safeclip, rows=8, dim=5, bank=True, bank_size=32)
    lab.observe(method, viewed, when=lab.a_clock(0, "slow"))
    assert int(method.text_bank.filled) == 0
    method.split_epoch.fill_(2)
    method.safe[:3] = True
    lab.observe(method, viewed, when=main())
    assert torch.equal(method.text_bank.entries[:5], viewed["text"][3:].detach())
    assert int(method.text_bank.filled) == 5


@pytest.mark.parametrize("bad", [{"warm_share": 0.0}, {"slow_share": 0.9}, {"threshold": 1.5}, {"bank_size": 0}])
def test_what_is_refused_is_named(bad):
    with pytest.raises(ValueError, match=rf"SafeclipConfig\.{next(iter(bad))} = .*, but it must be "):
        Safeclip.Config(**bad)
