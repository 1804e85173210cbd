"""GSC: its identities, its state over passes, degenerate batches. The official code's values are in `oracles`."""

from __future__ import annotations

import copy

import torch

from methods.clip import Clip
from methods.gsc import Gsc
from methods.mixture import posteriors

WHOLE = slice(0, 16)
ONES = ("share", "share_average", "agreement_average", "target")  #: state that starts at 1


def targets(value: float = 1.0) -> dict[str, torch.Tensor]:
    return {"target": torch.full((16,), value, dtype=torch.float64)}


def visited(lab, z, ids=None, **config):
    """A method after one step, and the constants of that step."""
    method = lab.build_adapter(Gsc, rows=20, **config)
    return method, lab.observe(method, z, ids=ids)


def test_targets_of_one_without_structure_are_clip(lab, z):
    terms = lab.build_adapter(Gsc, structure_weight=0.0).loss(z, targets(), WHOLE)
    lab.assert_close(terms["cross_modal"], lab.step_loss(lab.build_adapter(Clip, temperature=0.07), z))
    assert terms["structure"] == 0


def test_targets_of_zero_have_no_loss_and_no_gradient(lab, z):
    terms = lab.build_adapter(Gsc, structure_weight=1.0).loss(z, targets(0.0), WHOLE)
    loss = terms["cross_modal"] + terms["structure"]
    assert loss == 0
    for gradient in torch.autograd.grad(loss, list(z.values())):
        assert not gradient.any()


def test_affinities_that_ignore_the_neighbours_are_uniform(lab, z):
    method, _ = visited(lab, z, intra_scale=0.0, structure_weight=1.0)
    weights = torch.linspace(0.1, 1, 16, dtype=torch.float64)
    structure = method.loss(z, {"target": weights}, WHOLE)["structure"]
    lab.assert_close(structure, torch.tensor(16.0, dtype=torch.float64).log() * weights.mean())
    lab.assert_close(method.disagreement[:16], torch.zeros(16))


def test_images_that_equal_their_texts_agree(lab, z):
    method, _ = visited(lab, {"image": z["image"], "text": z["image"]})
    lab.assert_close(method.disagreement[:16], torch.zeros(16))


def test_exchanging_the_modalities_turns_rows_of_the_structure_into_columns(lab, z):
    swapped = {"image": z["text"], "text": z["image"]}
    weights = {"target": torch.linspace(0.1, 1, 16, dtype=torch.float64)}
    method = lab.build_adapter(Gsc, structure_weight=1.0)
    here, there = method.loss(z, weights, WHOLE), method.loss(swapped, weights, WHOLE)
    lab.assert_close(there["cross_modal"], here["cross_modal"])
    assert abs(float((there["structure"] - here["structure"]).detach())) > 1e-3
    a, b = ((5 * x @ x.T).sigmoid() * weights["target"] for x in (z["image"], z["text"]))
    logits = 128 / 16 * a @ b.T
    columns = (weights["target"] * (logits.logsumexp(0) - logits.diagonal())).mean()
    lab.assert_close(there["structure"], columns)


def test_logits_per_batch_of_128_do_not_grow_with_the_batch(lab, z):
    """The same rows twice double the sum over neighbours, and the factor 128/B halves it."""
    twice = {name: torch.cat([x, x]) for name, x in z.items()}
    losses = []
    for rows in (z, twice):
        total = len(rows["image"])
        ones = {"target": torch.ones(total, dtype=torch.float64)}
        method = lab.build_adapter(Gsc, structure_weight=1.0)
        losses.append(method.loss(rows, ones, slice(0, total))["structure"])
    lab.assert_close(losses[1] - losses[0], torch.tensor(2.0, dtype=torch.float64).log())


def test_a_pass_fits_the_rows_that_were_visited_and_leaves_the_others(lab, z):
    method, observed = visited(lab, z, ids=torch.arange(4, 20))
    assert torch.equal(observed["target"], torch.ones(16, dtype=torch.float64)), "of the first pass"
    share, disagreement = method.share.clone(), method.disagreement.clone()
    method.end_epoch(0)
    q = posteriors(1 - disagreement[4:], "larger")
    assert q.max() > 0.9
    assert q.min() < 0.1
    expected = torch.minimum(0.3 + 0.7 * share[4:], 0.3 + 0.7 * q)
    lab.assert_close(method.target[4:], expected)
    assert not method.disagreement[:4].any()
    for name in ONES:
        assert torch.equal(getattr(method, name)[:4], torch.ones(4, dtype=torch.float64)), name


def test_beta_one_keeps_nothing_and_beta_zero_everything(lab, z):
    method, _ = visited(lab, z, beta=1.0)
    q = posteriors(1 - method.disagreement[:16], "larger")
    method.end_epoch(0)
    lab.assert_close(method.target[:16], torch.minimum(method.share[:16], q))
    still, _ = visited(lab, z, beta=0.0)
    still.end_epoch(0)
    assert torch.equal(still.target, torch.ones(20, dtype=torch.float64))


def test_pairs_with_equal_scores_keep_what_the_softmax_leaves_them(lab, z):
    equal = {name: x[:1].expand(16, -1) for name, x in z.items()}
    method, _ = visited(lab, equal, beta=1.0)
    method.end_epoch(0)
    lab.assert_close(method.target[:16], torch.full((16,), 1 / 16))


def test_a_pass_without_any_visit_changes_nothing(lab):
    method = lab.build_adapter(Gsc, rows=20)
    before = copy.deepcopy(method.state_dict())
    method.end_epoch(0)
    for name, x in method.state_dict().items():
        assert torch.equal(x, before[name]), name


def test_rows_without_any_target_agree_with_nothing(lab, z):
    method = lab.build_adapter(Gsc, rows=16)
    method.target.zero_()
    lab.observe(method, z)
    assert torch.equal(method.disagreement, torch.ones(16, dtype=torch.float64))
    method.end_epoch(0)
    assert bool(method.target.isfinite().all())


def test_gradient_after_a_pass_is_that_of_the_loss(lab):
    """`bench check` sees targets of 1 alone, since no pass ends there."""
    z = lab.oracle_inputs("P")
    weights = {"target": torch.linspace(0, 1, 7, dtype=torch.float64)}
    method = lab.build_adapter(Gsc, structure_weight=1.0, temperature=0.5)

    def loss(image, text):
        return torch.stack(list(method.loss({"image": image, "text": text}, weights, slice(0, 7)).values())).sum()

    assert torch.autograd.gradcheck(loss, [z["image"], z["text"]])
