"""ProLIP: identities, inclusion against integrals, real towers. Its values are in bench/checks/oracles/prolip.py."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from bench.checks.oracles.prolip import masked_gaussians as gaussians
from bench.checks.oracles.prolip import prolip_adapter as official
from methods.gaussian_towers import _with_last
from methods.prolip import Prolip, inclusion, log_overlap
from methods.siglip import Siglip


def test_single_precision(lab, oracles):
    given = oracles["prolip"]["loss"]["cases"][4]
    z = {name: x.detach().float() for name, x in gaussians("B").items()}
    loss = lab.step_loss(official(6, given["cfg"]).float(), z)
    assert loss.dtype == torch.float32
    lab.assert_close(loss, given["out"]["B"]["loss"], rtol=1e-4)


def test_without_variance_it_is_siglip(lab):
    z = gaussians("C")
    with torch.no_grad():
        z["image_logvar"].fill_(-60.0)
        z["text_logvar"].fill_(-60.0)
    loss = lab.step_loss(official(8), z)
    lab.assert_close(loss, lab.step_loss(lab.build_adapter(Siglip), {"image": z["image"], "text": z["text"]}))


def test_the_textbook_bottleneck_is_the_divergence_from_the_standard_normal(lab):
    z = {name: x.detach() for name, x in gaussians("C").items()}
    normal = torch.distributions.Normal(z["image"], (z["image_logvar"] / 2).exp())
    standard = torch.distributions.Normal(torch.zeros_like(z["image"]), torch.ones_like(z["image"]))
    expected = torch.distributions.kl_divergence(normal, standard).sum()
    lab.assert_close(lab.build_adapter(Prolip, vib_form="textbook")._vib(z, "image"), expected)


def log_integral(mean_1, logvar_1, mean_2, logvar_2):
    """ln of the integral of p_1^2 p_2, numerically."""
    x = torch.linspace(-60, 60, 400_001, dtype=torch.float64)
    log_p = [
        -0.5 * (math.log(2 * math.pi) + v + (x - m) ** 2 / math.exp(v))
        for m, v in ((mean_1, logvar_1), (mean_2, logvar_2))
    ]
    return torch.logsumexp(2 * log_p[0] + log_p[1], 0) + math.log(120 / 400_000)


def test_exact_inclusion_is_the_ratio_of_integrals(lab):
    for a, b in (((0.0, 0.0), (0.5, 1.0)), ((0.3, -1.0), (-0.2, 0.5)), ((1.0, 0.7), (-1.5, 0.1))):
        expected = log_integral(*a, *b) - log_integral(*b, *a)
        numbers = [torch.tensor(x, dtype=torch.float64) for x in (*a, *b)]
        lab.assert_close(inclusion(*numbers, exact=True), expected, rtol=1e-7)
        lab.assert_close(log_overlap(*numbers, exact=True), log_integral(*a, *b), rtol=1e-7)


def test_inclusion_is_antisymmetric_and_stable(lab):
    generator = torch.Generator().manual_seed(0)
    one, two = (torch.randn(2, 50, generator=generator, dtype=torch.float64) * 3 for _ in range(2))
    for eps in (0.0, -20.0, -100.0):
        lab.assert_close(inclusion(*one, *two, eps), -inclusion(*two, *one, eps))
        lab.assert_close(inclusion(*one, *one, eps), torch.zeros(50))
    same_mean = inclusion(one[0], one[1], one[0], two[1])
    assert torch.equal(same_mean.sign(), (two[1] - one[1]).sign())
    # eps <= -10: only the variances count.
    delta = two[1] - one[1]
    lab.assert_close(
        inclusion(*one, *two, -40.0), delta - 0.5 * torch.log((delta.exp() + 0.5) / (1 + 0.5 * delta.exp()))
    )


def test_antisymmetry_of_the_loss_term(lab):
    """inc(1, 2) - inc(2, 1) = -c mean H."""
    z = gaussians("B")
    method = official(6, inclusion_scale=3.0, inclusion_eps=-1.0)
    difference = method._included(z, "image", "text") - method._included(z, "text", "image")
    h = inclusion(z["image"], z["image_logvar"], z["text"], z["text_logvar"], -1.0)
    lab.assert_close(difference, -3.0 * h.sum())


def test_exploding_regularisers_are_dropped_but_nan_is_not(lab):
    z = {name: x.detach() for name, x in gaussians("B").items()}
    plain = lab.step_loss(official(6), z)
    z["image_logvar"][0, 0] = 30.0  # e^15 / 60 > 1e4
    method = official(6, vib=1.0)
    observed = lab.observe(method, z)
    assert {name: bool(x) for name, x in observed.items()} == {
        "vib": True,
        "inclusion": False,
        "masked_inclusion": False,
    }
    assert float(method.loss(z, observed, slice(0, 6))["vib"]) == 0
    assert plain > 0
    z["image_logvar"][0, 0] = math.nan
    assert not any(bool(x) for x in lab.observe(method, z).values())
    assert not bool(lab.step_loss(method, z).isfinite())


@pytest.mark.parametrize(("name", "limit"), [("vib", 1e4), ("inclusion", 1e5), ("masked_inclusion", 1e5)])
def test_a_regulariser_is_dropped_above_its_limit(lab, name, limit):
    method, z = official(6), {one: x.detach() for one, x in gaussians("B").items()}
    for share, dropped in ((0.99, False), (1.01, True)):
        terms = {
            one: torch.tensor(share * limit if one == name else 0.0) for one in ("vib", "inclusion", "masked_inclusion")
        }
        method._regularisers = lambda *_, terms=terms: terms
        observed = lab.observe(method, z)
        assert {one for one, x in observed.items() if x} == ({name} if dropped else set())


def test_without_shorter_images_both_sides_of_a_masked_row_cost_a_pass():
    cost = official(8).cost("train")
    assert (cost.image, cost.text) == (1.25, 1.25)


def test_exact_inclusion_option_changes_the_loss(lab):
    z = gaussians("B")
    losses = [lab.step_loss(official(6, inclusion=1.0, inclusion_exact=exact), z) for exact in (False, True)]
    assert abs(float((losses[0] - losses[1]).detach())) > 1e-3


def test_permuting_rows_within_masked_and_unmasked_places_changes_nothing(lab):
    z = gaussians("B")
    order = torch.tensor([3, 5, 1, 0, 2, 4])  # places 0 and 3 are the masked ones
    config = {"inclusion": 0.1, "masked_inclusion": 1.0, "vib": 0.1}
    loss = lab.step_loss(official(6, **config), z)
    lab.assert_close(lab.step_loss(official(6, **config), {name: x[order] for name, x in z.items()}), loss)


def test_what_it_reports_of_masked_rows(lab):
    z = {name: x.detach() for name, x in gaussians("B").items()}
    for name in ("masked_image", "masked_text"):
        z[name] = z[name.removeprefix("masked_")].clone()
        z[f"{name}_logvar"] = z[f"{name.removeprefix('masked_')}_logvar"] + 1.0  # wider: everything lies within
    z["masked_text_logvar"][0] -= 2.0
    method = official(6)
    assert method.monitor(z, {}) == {"images_within_masked": 1.0, "texts_within_masked": 0.5}
    uncertain, included = method.diagnostics(z, {})
    assert {legend: len(x) for legend, x in uncertain.series.items()} == {
        "images": 6,
        "texts": 6,
        "masked images": 2,
        "masked texts": 2,
    }
    lab.assert_close(uncertain.series["texts"], z["text_logvar"].exp().sum(1))
    lab.assert_close(uncertain.series["masked images"], math.e * z["image_logvar"][[0, 3]].exp().sum(1))
    assert (included.series["texts"] > 0).tolist() == [False, True]
    nothing = lab.build_adapter(Prolip, batch=6, masked_share=0.0)
    assert nothing.monitor(z, {}) == {}
    assert [shown.name for shown in nothing.diagnostics(z, {})] == ["uncertainty"]


def test_confidence_ranks_by_the_sampled_distance(lab):
    generator = torch.Generator().manual_seed(1)
    image, text = (
        {
            "embedding": F.normalize(torch.randn(9, 5, generator=generator), dim=1),
            "logvar": torch.randn(9, 5, generator=generator),
        }
        for _ in range(2)
    )
    distance = (image["embedding"] - text["embedding"]).square().sum(1)
    distance = distance + image["logvar"].exp().sum(1) + text["logvar"].exp().sum(1)
    lab.assert_close(-2 * lab.build_adapter(Prolip).confidence(image, text), distance - 2, rtol=1e-5)
    assert Prolip.score == "csd"


# --- on real towers -------------------------------------------------------------------------------------------------


def prepared(lab, towers, batch=16, seed=0, **config):
    torch.manual_seed(0)
    method = lab.build_adapter(Prolip, batch=batch, seed=seed, **config).float()
    method.prepare(towers)
    return method


@pytest.mark.parametrize("text_unc", ["official", "paper"])
def test_one_row_a_pair_and_zero_where_not_masked(lab, towers, text_unc):
    method = prepared(lab, towers, text_unc=text_unc)
    z = method.encode(towers, lab.some_rows(towers, 16))
    assert {x.shape for x in z.values()} == {(16, 16)}
    assert len(z) == 8
    for name, x in z.items():
        if name.startswith("masked_"):
            assert x.abs().sum(1).nonzero().flatten().tolist() == [0, 8]  # floor(0.125 * 16) = 2, evenly spaced
            assert not torch.allclose(x[0], z[name.removeprefix("masked_")][0], atol=1e-4)
    lab.assert_close(z["image"].norm(dim=1), torch.ones(16), rtol=1e-5)
    assert -12 < float(z["image_logvar"].detach().mean()) < -8
    assert -12 < float(z["text_logvar"].detach().mean()) < -8


def test_micro_batches_change_nothing(lab, towers):
    method = prepared(lab, towers)
    whole = method.encode(towers, lab.some_rows(towers, 16))
    parts = [method.encode(towers, lab.some_rows(towers, 16, part)) for part in (slice(0, 8), slice(8, 16))]
    for name, x in whole.items():
        lab.assert_close(torch.cat([part[name] for part in parts]), x, rtol=1e-4, atol=1e-5)


def test_every_added_parameter_learns(lab, towers):
    for text_unc in ("official", "paper"):
        method = prepared(lab, towers, text_unc=text_unc)
        z = method.encode(towers, lab.some_rows(towers, 16))
        lab.step_loss(method, z).backward()
        missing = [name for name, p in method.named_parameters() if p.grad is None or float(p.grad.abs().sum()) == 0]
        assert missing == []


def test_masks_are_keyed_by_seed_and_step(lab, towers):
    def masked(seed, step):
        method = prepared(lab, towers, seed=seed)
        z = method.eval().encode(towers.eval(), lab.some_rows(towers, 16, when=lab.a_clock(step)))
        return z["masked_image"], z["masked_text"]

    for side in (0, 1):
        assert torch.equal(masked(0, 1)[side], masked(0, 1)[side])
        assert not torch.allclose(masked(0, 1)[side], masked(0, 2)[side], atol=1e-5)
        assert not torch.allclose(masked(0, 1)[side], masked(1, 1)[side], atol=1e-5)


def test_masked_norms_use_and_keep_running_statistics(lab):
    towers = lab.TinyTowers("resnet")
    method = prepared(lab, towers)
    from bench.towers.batchnorm import grouped_norms

    method.encode(towers, lab.some_rows(towers, 16))
    norms = list(grouped_norms(towers.visual))
    # Two groups of eight of the whole batch and nothing of the masked rows; all are back in training.
    assert {len(norm.seen) for norm in norms} == {2}
    assert all(norm.training for norm in norms)


def test_share_of_kept_patches(lab):
    towers = lab.TinyTowers("vit")  # 16 patches
    seen = []
    towers.visual.transformer.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape[1]))
    for config, kept in (({}, 4), ({"keep_patches": True}, 12), ({"mask_ratio": 0.5}, 8)):
        seen.clear()
        method = prepared(lab, towers, **config)
        method.encode(towers, lab.some_rows(towers, 16))
        assert seen == [18, kept + 2]
        assert method.cost("train").image == pytest.approx(1 + 0.125 * kept / 16)
        assert method.cost("train").text == pytest.approx(1.125)


def test_official_text_variance_is_the_head_on_the_unnormalised_mean(lab):
    towers = lab.TinyTowers()
    rows = lab.some_rows(towers, 16)
    method = prepared(lab, towers)
    z = method.encode(towers, rows)
    mean = towers.encode_text(rows.tokens)
    lab.assert_close(z["text"], F.normalize(mean, dim=1), rtol=1e-5, atol=1e-6)
    lab.assert_close(z["text_logvar"], method.text_head.head(mean), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
def test_own_text_token_reads_the_whole_text(lab, causal):
    towers = lab.TinyTowers(causal=causal)
    rows = lab.some_rows(towers, 16)
    method = prepared(lab, towers, text_unc="paper")
    z = method.encode(towers, rows)
    changed = rows.tokens.clone()
    changed[0, 1] = 5
    other = method.text_head(towers, changed)[1]
    assert not torch.allclose(other[0], z["text_logvar"][0], atol=1e-6)
    lab.assert_close(other[1:], z["text_logvar"][1:], rtol=1e-4, atol=1e-5)
    if causal:  # the means are those of the plain tower
        lab.assert_close(z["text"], F.normalize(towers.encode_text(rows.tokens), dim=1), rtol=1e-4, atol=1e-5)


def test_the_mask_of_a_causal_tower_grows_by_a_causal_token():
    grown = _with_last(torch.full((4, 4), -math.inf).triu(1))
    assert torch.equal(grown, torch.full((5, 5), -math.inf).triu(1))


def test_padding_and_end_tokens_are_never_masked(lab):
    towers = lab.TinyTowers()
    method = prepared(lab, towers)
    tokens = towers.tokenize(["black cat"])
    everything = torch.ones_like(tokens, dtype=torch.bool)
    embedded = []
    towers.text.transformer.register_forward_pre_hook(lambda _, args: embedded.append(args[0]))
    method.text_head(towers, tokens)
    method.text_head(towers, tokens, everything)
    changed = (embedded[0] != embedded[1]).any(2)[0]
    assert changed.tolist() == [True] * 3 + [False] * 13  # start and two words; then end and padding


def test_evaluation_features(lab, towers):
    method = prepared(lab, towers).eval()
    rows = lab.some_rows(towers.eval(), 4)
    for features in (method.image_features(towers, rows.images), method.text_features(towers, rows.tokens)):
        assert features["embedding"].shape == features["logvar"].shape == (4, 16)
        lab.assert_close(features["embedding"].norm(dim=1), torch.ones(4), rtol=1e-5)
    z = method.encode(towers, lab.some_rows(towers, 4))
    lab.assert_close(method.image_features(towers, rows.images)["logvar"], z["image_logvar"], rtol=1e-5, atol=1e-6)


def test_unknown_towers_are_refused(lab):
    towers = lab.TinyTowers()
    towers.visual = torch.nn.Linear(3, 3)
    with pytest.raises(TypeError, match="image tower Linear"):
        lab.build_adapter(Prolip).prepare(towers)
    towers = lab.TinyTowers()
    towers.text = torch.nn.Linear(3, 3)
    with pytest.raises(TypeError, match="not Linear"):
        lab.build_adapter(Prolip).prepare(towers)
