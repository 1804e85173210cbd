"""NCU: both phases and the masked Sinkhorn against the official code; prompts and phases on real towers."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from methods.clip import Clip
from methods.ncu import Ncu
from methods.protocol import Batch
from methods.sinkhorn import masked_sinkhorn


def at_scale(lab, scale, **config):
    method = lab.build(Ncu, **config)
    torch.nn.init.constant_(method.scale.rho, math.log(scale))
    return method


def step(method, lab, z, phase):
    """The step's constants and terms, as floats with gradient."""
    with torch.no_grad():
        observed = method.observe(z, Batch(torch.arange(len(z["image"])), lab.clock(0, phase)))
    return observed, method.loss(z, observed, slice(0, len(z["image"])))


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("confidence", ["two_sided", "image_to_text"])
def test_learning_the_negatives_equals_the_official_loss(lab, oracles, case, index, confidence):
    expected = oracles["ncu"]["phase1"]["cases"][index]
    method = at_scale(lab, expected["logit_scale"], forget=expected["NC_ratio"], confidence=confidence)
    z = case("N")
    observed, terms = step(method, lab, z, "learn")
    assert sorted(observed["kept"].tolist()) == sorted(expected["retain_ids"])
    names = {"relation": "cyclic_x10", "margin": "opposite_x10", "yes": "sigmoid_yes", "no": "sigmoid_no"}
    for name, key in names.items():
        lab.assert_close(terms[name], expected[key], atol=1e-9)
    loss = torch.stack(list(terms.values())).sum()
    lab.assert_close(loss, expected["loss"])
    loss.backward()
    lab.assert_close(z["negative"].grad, expected["grad_text_neg"])
    for name, key in (("image", "image"), ("text", "text"), ("negative", "text_neg")):
        lab.assert_close(z[name].grad.norm(), expected["grad_norms"][key])
    lab.assert_close(method.scale.rho.grad, expected["grad_log_scale"])


def test_confidence_is_equation_2(lab, oracles, case):
    expected = oracles["ncu"]["confidence"]
    two_sided = at_scale(lab, 1 / 0.07)._log_confidence(case("N")).exp() / 2
    lab.assert_close(two_sided, expected["paper_eq2_two_sided"])
    one_sided = at_scale(lab, 1 / 0.07, confidence="image_to_text")._log_confidence(case("N")).exp()
    lab.assert_close(one_sided, expected["official_image_to_text_only"])


def test_relation_of_the_paper_is_another_number(lab, oracles, case):
    expected = oracles["ncu"]["relation_loss_paper_vs_code"]
    for relation, key in (("paper", "paper_eq4"), ("code", "official_code_before_x10")):
        method = at_scale(lab, 1 / 0.07, forget=0.25, relation=relation, negative_weight=1.0)
        lab.assert_close(step(method, lab, case("N"), "learn")[1]["relation"], expected[key])


@pytest.mark.parametrize("index", [0, 2, 3, 4])
def test_unlearning_equals_the_official_loss(lab, oracles, case, index):
    expected = oracles["ncu"]["phase2"]["cases"][index]
    config = {"forget": expected["NC_ratio"], "gamma": expected["gamma"], **Ncu.presets["official"]}
    method, z = at_scale(lab, expected["logit_scale"], **config), case("N")
    _, terms = step(method, lab, z, "unlearn")
    lab.assert_close(terms["transport"], expected["loss_ul"])
    lab.assert_close(terms["margin"], expected["opposite"])
    loss = torch.stack(list(terms.values())).sum()
    lab.assert_close(loss, expected["loss"])
    loss.backward()
    lab.assert_close(z["image"].grad, expected["grad_image"])
    for name, key in (("image", "image"), ("text", "text"), ("negative", "text_neg")):
        lab.assert_close(z[name].grad.norm(), expected["grad_norms"][key])
    lab.assert_close(method.scale.rho.grad, expected["grad_log_scale"])


def test_plans_equal_the_official_ones(lab, oracles, case):
    expected = oracles["ncu"]["phase2"]["cases"][0]
    z = case("N")
    affinities = torch.cat([z["image"] @ z["text"].T, (z["image"] * z["negative"]).sum(1, keepdim=True)], 1).detach()
    cost = (1 - affinities) / (1 - affinities).max()
    allowed = torch.tensor(expected["mask_v"]).bool()
    lab.assert_close(masked_sinkhorn(cost, allowed), expected["plan_v"])
    lab.assert_close(masked_sinkhorn(cost.T, allowed.T), expected["plan_t"])


@pytest.mark.parametrize("row", [0, 1, 2])
def test_variants(lab, oracles, case, row):
    expected = oracles["ncu"]["phase2_variants"]["rows"][row]
    config = {
        "forget": expected["NC_ratio"],
        "normalise_text_targets": expected["normalise_text_targets"],
        "confidence": "two_sided" if expected["two_sided_confidence"] else "image_to_text",
    }
    z = case("N")
    _, terms = step(at_scale(lab, expected["logit_scale"], **config), lab, z, "unlearn")
    lab.assert_close(terms["transport"], expected["loss_ul"])
    terms["transport"].backward()
    for name, norm in zip(("image", "text", "negative"), expected["grad_norms"], strict=True):
        lab.assert_close(z[name].grad.norm(), norm)
    _, summed = step(at_scale(lab, expected["logit_scale"], **config, mean_of_directions=False), lab, z, "unlearn")
    lab.assert_close(summed["transport"], expected["loss_img"] + expected["loss_txt"])


def test_empty_forget_set_is_finite_where_the_official_code_is_nan(lab, oracles, case):
    assert oracles["ncu"]["phase2"]["cases"][1]["loss"] == "nan"
    for normalise in (True, False):
        z = case("N")
        method = at_scale(lab, 1 / 0.07, forget=0.1, normalise_text_targets=normalise)
        _, terms = step(method, lab, z, "unlearn")
        lab.assert_close(terms["transport"], 0.540967054, rtol=1e-8)
        terms["transport"].backward()
        assert all(bool(x.grad.isfinite().all()) for x in z.values())
        assert bool(method.scale.rho.grad.isfinite())


def test_single_precision(lab, oracles, case):
    z = case("N", torch.float32)
    method = at_scale(lab, 1 / 0.07, forget=0.25, **Ncu.presets["official"]).float()
    _, terms = step(method, lab, z, "unlearn")
    assert terms["transport"].dtype == torch.float32
    lab.assert_close(terms["transport"], oracles["ncu"]["phase2"]["cases"][0]["loss_ul"], rtol=1e-4)


def test_masked_sinkhorn_equals_the_official_solver(lab, oracles):
    given = oracles["ncu"]["masked_sinkhorn"]
    cost, allowed = torch.tensor(given["cost"], dtype=torch.float64), torch.tensor(given["mask"]).bool()
    plan = masked_sinkhorn(cost, allowed)
    lab.assert_close(plan, given["plan_100_iters_thresh1e_4"])
    lab.assert_close(
        masked_sinkhorn(cost, allowed, iterations=5000, threshold=1e-12), given["plan_converged"], rtol=1e-6
    )
    assert bool((plan[~allowed] == 0).all())
    lab.assert_close(plan.sum(0), torch.full((5,), 0.2), rtol=1e-6)
    nothing = torch.ones_like(allowed)
    nothing[:, 4] = False
    empty = masked_sinkhorn(cost, nothing)
    lab.assert_close(empty.sum(1), given["no_forget_rows"]["row_sums"])
    lab.assert_close(empty.sum(0), given["no_forget_rows"]["col_sums"])


def test_hard_targets_without_forgetting_are_cross_entropies(lab, case):
    z = {name: x.detach() for name, x in case("N").items()}
    method = at_scale(lab, 3.0, forget=0.0, gamma=0.0)
    _, terms = step(method, lab, z, "unlearn")
    logits = 3.0 * torch.cat([z["image"] @ z["text"].T, (z["image"] * z["negative"]).sum(1, keepdim=True)], 1)
    own = torch.arange(8)
    by_image = F.cross_entropy(logits, own)
    by_text = F.cross_entropy(logits.T[:8], own, reduction="sum") / 9  # the ninth target is empty
    lab.assert_close(terms["transport"], (by_image + by_text) / 2)


def test_margin_and_relation_vanish_where_they_should(lab, case):
    method, z = at_scale(lab, 1.0, forget=0.0), case("N")
    opposite = {"image": z["image"], "text": z["text"], "negative": -z["text"]}
    assert float(step(method, lab, opposite, "learn")[1]["relation"].detach()) == 0
    # A negative at cosine -0.5 of its text lies inside the margins, at 0 and at -0.9 outside.
    other = F.normalize(z["image"] - (z["image"] * z["text"]).sum(1, keepdim=True) * z["text"], dim=1)
    for cosine, expected in ((-0.5, 0.0), (0.0, 0.2), (-0.9, 0.2), (-0.2, 0.0), (-0.7, 0.0)):
        negative = cosine * z["text"] + math.sqrt(1 - cosine**2) * other
        terms = step(method, lab, {**z, "negative": negative}, "unlearn")[1]
        lab.assert_close(terms["margin"], expected, atol=1e-9)


def test_permuting_the_batch_changes_nothing(lab, case):
    order = torch.tensor([3, 1, 7, 5, 0, 2, 4, 6])
    for phase in ("learn", "unlearn"):
        losses = [
            sum(
                step(at_scale(lab, 10.0, forget=0.25), lab, {k: v[way] for k, v in case("N").items()}, phase)[
                    1
                ].values()
            )
            for way in (torch.arange(8), order)
        ]
        lab.assert_close(losses[0], losses[1])


# --- on real towers -------------------------------------------------------------------------------------------------


@pytest.fixture
def prepared(lab, towers):
    torch.manual_seed(0)
    method = lab.build(Ncu, batch=6).float()
    method.prepare(towers)
    return method


def test_prompts_reach_the_negatives_only(lab, towers, prepared):
    rows = lab.some_rows(towers, 6)
    z = prepared.encode(towers, rows)
    assert {name: x.shape for name, x in z.items()} == dict.fromkeys(("image", "text", "negative"), (6, 16))
    z["text"].sum().backward(retain_graph=True)
    assert prepared.prompts.grad is None
    z["negative"].square().mul(torch.randn(6, 16)).sum().backward()
    assert bool((prepared.prompts.grad.abs().sum(1) > 0).all())
    before = z["negative"].detach()
    with torch.no_grad():
        prepared.prompts.add_(torch.randn_like(prepared.prompts))
    assert not torch.allclose(prepared.encode(towers, rows)["negative"], before)


def test_prompted_text_is_the_tower_on_replaced_embeddings(lab, prepared):
    """With prompts equal to the embedding of a real token, the negative is that of the spelled-out token ids."""
    towers = lab.TinyTowers()
    with torch.no_grad():
        prepared.prompts.copy_(towers.text.token_embedding.weight[7].expand(8, -1))
    tokens = towers.tokenize(["black cat", "one two three four five six seven eight nine ten"])
    found = prepared._encode_prompted(towers, tokens)
    start, end = 60, 63
    short = [start, *[7] * 8, *tokens[0, 1:3].tolist(), end, *[0] * 4]
    long = [start, *[7] * 8, *tokens[1, 1:7].tolist(), end]  # cut, but with its end token
    lab.assert_close(found, towers.encode_text(torch.tensor([short, long])), rtol=1e-5, atol=1e-6)


def test_too_short_a_context_is_refused(lab):
    with pytest.raises(ValueError, match="prompts = 14"):
        lab.build(Ncu, prompts=14).prepare(lab.TinyTowers())


def test_phases_freeze_what_the_method_says(prepared, towers):
    learn, unlearn = prepared.phases()
    assert learn.share + unlearn.share == pytest.approx(1)
    names = [f"towers.{name}" for name, _ in towers.named_parameters()]
    names += [f"method.{name}" for name, _ in prepared.named_parameters()]
    frozen = {phase.name: {name for name in names if not phase.trainable(name)} for phase in (learn, unlearn)}
    assert frozen["learn"] == {name for name in names if name.startswith("towers.visual.")}
    # 5/12 of three text blocks: the first.
    first = {name for name in names if name.startswith("towers.text.transformer.resblocks.0.")}
    assert frozen["unlearn"] == {"method.prompts"} | first
    assert prepared.options("method.prompts") == {"lr": 3e-4}
    assert prepared.options("method.scale.rho") == {}


def test_names_its_scale_as_the_reference_does_and_clamps_it_in_the_second_phase_only(lab):
    clip, method = lab.build(Clip), lab.build(Ncu)
    assert clip.state_dict()["scale.rho"].shape == method.state_dict()["scale.rho"].shape
    with torch.no_grad():
        method.scale.rho.fill_(9.0)
    method.after_step(lab.clock(0, "learn"))
    assert method.scale.rho.item() == 9.0
    method.after_step(lab.clock(0, "unlearn"))
    lab.assert_close(method.scale(), 100.0)
    assert Ncu.reference == "clip"


def test_the_note_says_when_there_are_no_synonyms(lab):
    from methods.protocol import Facts

    with_none = lab.build(Ncu)
    assert "no synonyms" in with_none.about.note
    facts = Facts(rows=8, batch=8, dim=16, seed=0, synonyms={"red apple": ("apple",)})
    assert "no synonyms" not in Ncu(Ncu.Config(), facts).about.note
    assert "no synonyms" not in Ncu.about.note
