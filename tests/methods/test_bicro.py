"""BiCro: its mixture, labels, margins and rows in use over passes, degenerate batches. Official values: `oracles`."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.beta_mixture import beta_fit, beta_posteriors
from methods.bicro import Bicro
from methods.ncr import Ncr
from methods.protocol import Clock

MAIN = Clock(step=40, phase="train", progress=0.4, epoch=4)
LATE = Clock(step=60, phase="train", progress=0.6, epoch=6)
BORDER = Clock(step=20, phase="train", progress=0.2, epoch=2)
ALL = torch.ones(16) > 0


def ncr(label):
    one = torch.ones(16, dtype=torch.float64)
    return {"clean": ~ALL, "clean_probability": one, "prediction": label * one, "used": ALL}


def test_warm_on_all_rows_it_is_the_warm_loss_of_ncr(lab, z):
    lab.assert_close(
        lab.step_loss(lab.build_adapter(Bicro, warm_rows=1.0), z), lab.step_loss(lab.build_adapter(Ncr), z)
    )


@pytest.mark.parametrize("margin_of", ["anchor", "negative"])
@pytest.mark.parametrize("label", [0.0, 0.6, 1.0])
def test_equal_labels_are_the_main_loss_of_ncr_whosoever_the_margin(lab, z, label, margin_of):
    given = {"label": torch.full((16,), label, dtype=torch.float64), "used": ALL}
    loss = lab.sum_of_tiles(lab.build_adapter(Bicro, margin_of=margin_of), z, given, (5, 9))
    lab.assert_close(loss, lab.sum_of_tiles(lab.build_adapter(Ncr), z, ncr(label)))


def test_margins_of_anchors_and_of_negatives_by_hand(lab):
    """Cosines [[.8, .6], [.6, .8]]: a hinge is the margin less .2, or 0; labels 1 and 0 have margins .5 and 0."""
    z = {"image": torch.eye(2).double(), "text": torch.tensor([[0.8, 0.6], [0.6, 0.8]], dtype=torch.float64)}
    given = {"label": torch.tensor([1.0, 0.0]).double(), "used": ALL[:2]}
    for margin_of, rows in (("anchor", [0.6, 0.0]), ("negative", [0.3, 0.3])):
        method = lab.build_adapter(Bicro, margin=0.5, margin_of=margin_of)
        for row, expected in enumerate(rows):
            part = method.loss(z, given, slice(row, row + 1))["triplet"]
            lab.assert_close(part, expected / 2, atol=1e-9)


def test_a_warm_batch_trains_on_its_rows_of_smallest_loss(lab, z):
    method = lab.build_adapter(Bicro, rows=16)
    observed = lab.observe(method, z)
    order = observed["row_loss"].argsort()
    assert int(observed["used"].sum()) == 4
    assert bool(observed["used"][order[:4]].all())
    lab.assert_close(lab.sum_of_tiles(method, z, observed), observed["row_loss"][order[:4]].sum() / 16)


def test_a_batch_of_two_trains_on_one_row(lab, z):
    two = {name: x[:2] for name, x in z.items()}
    assert int(lab.observe(lab.build_adapter(Bicro, rows=2), two)["used"].sum()) == 1


def labels(method, z, clean=ALL, row_loss=None):
    row_loss = torch.arange(16).double() if row_loss is None else row_loss
    return method.labels(z, row_loss, clean)


def by_hand(z, clean, anchors, floor=0.5):
    v, t = z["image"].detach(), z["text"].detach()
    found = []
    for i in range(len(v)):
        total = 0.0
        for x, y in ((v, t), (t, v)):
            near = max(anchors, key=lambda k, x=x, i=i: float(x[i] @ x[k]))
            p, q = float(x[i] @ x[near]), float(y[i] @ y[near])
            total += p / q if p / q < 1 else q / p
        label = 1.0 if i in anchors else 0.5 + total / 4 if clean[i] else total / 2
        found.append(min(max(0.0 if label <= floor else label, 0.0), 1.0))
    return found


@pytest.mark.parametrize("floor", [0.0, 0.5])
def test_labels_by_hand(lab, z, floor):
    """Of 12 clean rows two are anchors: the clean rows 1 and 2, since row 0 is noisy."""
    clean = torch.arange(16) % 4 > 0
    lab.assert_close(labels(lab.build_adapter(Bicro, floor=floor), z, clean), by_hand(z, clean, [1, 2], floor))


def test_ten_clean_rows_have_two_anchors_and_nine_have_one(lab, z):
    found = [labels(lab.build_adapter(Bicro), z, torch.arange(16) < count) for count in (9, 10)]
    lab.assert_close(found[0], by_hand(z, torch.arange(16) < 9, [0]))
    lab.assert_close(found[1], by_hand(z, torch.arange(16) < 10, [0, 1]))


def test_misaligned_labels_are_those_of_the_batch_in_the_order_of_losses(lab, z):
    row_loss = torch.arange(16).flip(0).double()  # anchors are rows 15 and 14, row 13 is the first of the rest
    aligned, misaligned = (
        labels(lab.build_adapter(Bicro, clean_labels=form, floor=0.0), z, ALL, row_loss)
        for form in ("aligned", "misaligned")
    )
    assert torch.equal(misaligned[:14].flip(0), aligned[:14])
    assert torch.equal(misaligned[14:], torch.ones(2).double())


def test_pairs_of_equal_sides_agree(lab, z):
    equal = {"image": z["image"].detach(), "text": z["image"].detach()}
    assert torch.equal(labels(lab.build_adapter(Bicro), equal, torch.arange(16) < 5), torch.ones(16).double())


def test_similarities_that_are_both_zero_agree(lab):
    z = {name: torch.eye(4).double() for name in ("image", "text")}
    found = lab.build_adapter(Bicro).labels(z, torch.arange(4).double(), torch.arange(4) < 3)
    assert torch.equal(found, torch.ones(4).double())


def test_labels_do_not_depend_on_how_images_lie_beside_texts(lab, z):
    turn = torch.linalg.qr(torch.randn(16, 16, generator=torch.Generator().manual_seed(0)).double()).Q
    clean = torch.arange(16) < 9
    turned = {"image": z["image"] @ turn, "text": z["text"]}
    lab.assert_close(
        labels(lab.build_adapter(Bicro), turned, clean), labels(lab.build_adapter(Bicro), z, clean).detach(), atol=1e-9
    )


def test_it_is_warm_until_its_share_is_over_and_a_pass_has_been_divided(lab, z):
    method = lab.build_adapter(Bicro, rows=20)
    assert "label" not in lab.observe(method, z, when=MAIN), "nothing is divided yet"
    method.end_epoch(0)
    assert "label" not in lab.observe(method, z), "still warm"
    assert "label" in lab.observe(method, z, when=BORDER)
    main, late = lab.observe(method, z, when=MAIN), lab.observe(method, z, when=LATE)
    assert torch.equal(main["used"], method.clean[:16])
    assert 0 < int(main["used"].sum()) < 16
    assert bool(late["used"].all())


def test_a_batch_without_clean_rows_has_labels_and_margins_of_zero(lab, z):
    method = lab.build_adapter(Bicro, rows=16)
    method.fitted.fill_(True)
    method.clean.fill_(False)
    assert lab.step_loss(method, z, when=MAIN) == 0
    observed = lab.observe(method, z, when=LATE)
    assert not observed["label"].any()
    lab.assert_close(
        lab.sum_of_tiles(method, z, observed), lab.sum_of_tiles(lab.build_adapter(Ncr), z, ncr(0.0)), atol=1e-15
    )


def test_equal_losses_leave_all_rows_clean(lab, z):
    equal = {name: x[:1].expand(16, -1) for name, x in z.items()}
    method = lab.build_adapter(Bicro, rows=16)
    lab.observe(method, equal)
    method.end_epoch(0)
    assert bool(method.clean.all())
    lab.assert_close(lab.observe(method, equal, when=MAIN)["label"], torch.ones(16))


def test_one_row_in_a_hundred_is_noisy_where_no_probability_says_so(lab, monkeypatch):
    probability = torch.linspace(0.6, 1, 250).expand(2, -1)
    monkeypatch.setattr("methods.bicro.beta_posteriors", lambda *_: probability)
    assert int((~lab.build_adapter(Bicro).division(torch.zeros(250))[1]).sum()) == 3


def test_a_label_of_exactly_the_floor_is_zero(lab):
    """The second image is at a right angle to the anchor's, its text is not: the two do not agree at all."""
    z = {"image": torch.eye(2).double(), "text": torch.tensor([[1.0, 0.0], [0.6, 0.8]], dtype=torch.float64)}
    for floor, label in ((0.5, 0.0), (0.49, 0.5)):
        found = lab.build_adapter(Bicro, floor=floor).labels(z, torch.arange(2).double(), ALL[:2])
        lab.assert_close(found, [1.0, label])


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), total=st.integers(2, 60), kinds=st.integers(1, 4), single=st.booleans())
def test_probabilities_of_any_losses_are_finite(seed, total, kinds, single):
    draws = torch.Generator().manual_seed(seed)
    levels = torch.rand(kinds, generator=draws).double() ** 6
    x = levels[torch.randint(kinds, (total,), generator=draws)]
    found = beta_posteriors(x.float() if single else x, 1e-4)
    assert found.shape == (2, total)
    assert bool(((found >= 0) & (found <= 1)).all())
    if float(x.max() - x.min()) > 1e-3:
        assert bool((found.sum(0) <= 1 + 1e-6).all())


def test_the_mixture_finds_the_two_distributions(lab):
    draws = torch.Generator().manual_seed(0)
    uniform = torch.rand(4000, 9, generator=draws).double()
    small, large = uniform.amin(1), uniform.amax(1)  # of nine uniform numbers: Beta(1, 9) and Beta(9, 1)
    mixture = beta_fit(torch.cat([small, large[:2000]]), 100)
    lab.assert_close(mixture.alpha, [1, 9], rtol=0.15)
    lab.assert_close(mixture.beta, [9, 1], rtol=0.15)
    lab.assert_close(mixture.weights, [2 / 3, 1 / 3], rtol=0.15)


@pytest.mark.parametrize("margin_of", ["anchor", "negative"])
def test_gradient_after_a_pass_is_that_of_the_loss(lab, margin_of):
    """`bench check` sees the warm loss alone."""
    z = lab.oracle_inputs("R")
    given = {"label": torch.linspace(0.2, 1, 7, dtype=torch.float64), "used": ALL[:7]}
    method = lab.build_adapter(Bicro, margin_of=margin_of)

    def loss(image, text):
        return method.loss({"image": image, "text": text}, given, slice(0, 7))["triplet"]

    assert torch.autograd.gradcheck(loss, [z["image"], z["text"]])
