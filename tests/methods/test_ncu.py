"""NCU: its transport against POT, identities, prompts and phases on real towers; values: checks/oracles/ncu.py."""

from __future__ import annotations

import math

import numpy
import ot
import pytest
import torch
import torch.nn.functional as F

from methods.clip import Clip
from methods.ncu import Ncu
from methods.ncu_ablation import NcuAblation
from methods.protocol import Facts
from methods.sinkhorn import masked_sinkhorn


def at_scale(lab, scale, **config):
    method = lab.build_adapter(Ncu, **config)
    torch.nn.init.constant_(method.scale.rho, math.log(scale))
    return method


def step(method, lab, z, phase):
    """The step's constants and terms, as floats with gradient."""
    observed = lab.observe(method, z, when=lab.a_clock(0, phase))
    return observed, method.loss(z, observed, slice(0, len(z["image"])))


def test_an_empty_forget_set_leaves_nothing_to_normalise(lab, case):
    found = []
    for normalise in (True, False):
        z = case("N")
        method = at_scale(lab, 1 / 0.07, forget=0.1, normalise_text_targets=normalise)
        _, terms = step(method, lab, z, "unlearn")
        terms["transport"].backward()
        assert all(bool(x.grad.isfinite().all()) for x in z.values())
        assert bool(method.scale.rho.grad.isfinite())
        found.append(terms["transport"])
    lab.assert_close(found[0], found[1])


def test_embeddings_that_are_all_one_get_targets_that_are_numbers(lab):
    one = torch.zeros(8, 4, dtype=torch.float64)
    one[:, 0] = 1.0
    observed, terms = step(at_scale(lab, 1.0), lab, dict.fromkeys(("image", "text", "negative"), one), "unlearn")
    lab.assert_close(observed["image_targets"].sum(1), torch.ones(8))
    assert all(bool(term.isfinite()) for term in terms.values())


def test_single_precision(lab, oracles, case):
    z = case("N", torch.float32)
    method = at_scale(lab, 1 / 0.07, forget=0.25, **Ncu.presets["official"]).float()
    _, terms = step(method, lab, z, "unlearn")
    assert terms["transport"].dtype == torch.float32
    lab.assert_close(terms["transport"], oracles["ncu"]["phase2"]["cases"][0]["loss_ul"], rtol=1e-4)


def test_sinkhorn_keeps_its_mask_and_ends_on_its_columns():
    cost, allowed = problem(8, forgotten=(1, 4))
    for plan in (masked_sinkhorn(cost, allowed), masked_sinkhorn(cost, allowed, iterations=1)):
        assert bool((plan[~allowed] == 0).all())
        torch.testing.assert_close(plan.sum(0), torch.full((9,), 1 / 9, dtype=torch.float64), rtol=1e-9, atol=0)


@pytest.mark.parametrize("forgotten", [None, (1, 4), (0, 3, 7)])
def test_a_converged_plan_is_that_of_pot(forgotten):
    """POT knows no forbidden cells; a cost of 10^3 at a regularisation of 0.03 is e^-33333, which is 0."""
    cost, allowed = problem(8, forgotten or ())
    if forgotten is None:
        allowed = torch.ones_like(allowed)
    rows, columns = (numpy.full(n, 1 / n) for n in cost.shape)
    dear = torch.where(allowed, cost, 1e3).numpy()
    options = {"method": "sinkhorn_log", "stopThr": 1e-13, "numItermax": 100_000}
    expected = torch.from_numpy(ot.sinkhorn(rows, columns, dear, 0.03, **options))
    found = masked_sinkhorn(cost, allowed, iterations=100_000, threshold=1e-14)
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-15)


def problem(total, forgotten):
    """Random costs of `total` rows against as many columns and one more, and the cells that NCU allows."""
    cost = torch.rand(total, total + 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    marked = torch.zeros(total, dtype=torch.bool).index_fill(0, torch.tensor(forgotten, dtype=torch.int64), True)
    return cost, torch.cat([~torch.diag(marked), marked[:, None]], dim=1)


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


def test_the_report_sees_where_the_negatives_stand(lab, case):
    z = {name: x.detach() for name, x in case("N").items()}
    (shown,) = at_scale(lab, 1.0).diagnostics(z, {})
    lab.assert_close(shown.series["caption and hardest negative"], (z["text"] * z["negative"]).sum(1))
    assert len(shown.series) == 3


def test_the_distance_variant_drives_captions_and_negatives_apart(lab):
    unit = torch.eye(4, dtype=torch.float64)
    z = {"image": unit, "text": unit, "negative": unit.clone()}
    z["negative"][1] = -unit[1]  # at distance 2
    z["negative"][2] = unit[3]  # at distance sqrt 2; the others at 0
    method = lab.build_adapter(NcuAblation, batch=4, variant="distance", forget=0.0)
    _, terms = step(method, lab, z, "learn")
    lab.assert_close(terms["relation"], -10 * (2 + math.sqrt(2)) / 4)


# --- on real towers -------------------------------------------------------------------------------------------------


@pytest.fixture
def prepared(lab, towers):
    torch.manual_seed(0)
    method = lab.build_adapter(Ncu, batch=6).float()
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
        lab.build_adapter(Ncu, prompts=14).prepare(lab.TinyTowers())


def test_phases_freeze_what_the_method_says(prepared, towers):
    learn, unlearn = prepared.phases()
    assert learn.share + unlearn.share == pytest.approx(1)
    names = [f"towers.{name}" for name, _ in towers.named_parameters()]
    names += [f"method.{name}" for name, _ in prepared.named_parameters()]
    frozen = {phase.name: {name for name in names if not phase.trainable(name)} for phase in (learn, unlearn)}
    heads = ("towers.visual.proj", "towers.visual.head.", "towers.visual.attnpool.")
    backbone = {name for name in names if name.startswith("towers.visual.") and not name.startswith(heads)}
    assert frozen["learn"] == backbone
    assert any(name.startswith(heads) for name in names)
    # 5/12 of three text blocks: the first.
    first = {name for name in names if name.startswith("towers.text.transformer.resblocks.0.")}
    assert frozen["unlearn"] == {"method.prompts"} | first
    assert prepared.options("method.prompts") == {"lr": 3e-4}
    assert prepared.options("method.scale.rho") == {}


def test_names_its_scale_as_the_reference_does_and_clamps_it_in_the_second_phase_only(lab):
    clip, method = lab.build_adapter(Clip), lab.build_adapter(Ncu)
    assert clip.state_dict()["scale.rho"].shape == method.state_dict()["scale.rho"].shape
    with torch.no_grad():
        method.scale.rho.fill_(9.0)
    method.after_step(lab.a_clock(0, "learn"))
    assert method.scale.rho.item() == 9.0
    method.after_step(lab.a_clock(0, "unlearn"))
    lab.assert_close(method.scale(), 100.0)
    assert Ncu.reference == "clip"


def test_the_note_says_when_there_are_no_synonyms(lab):
    with_none = lab.build_adapter(Ncu)
    assert "no synonyms" in with_none.about.note
    facts = Facts(rows=8, batch=8, dim=16, seed=0, synonyms={"red apple": ("apple",)})
    assert "no synonyms" not in Ncu(Ncu.Config(), facts).about.note
    assert "no synonyms" not in Ncu.about.note
