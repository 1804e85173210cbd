"""ProLIP: the loss against the official code, inclusion against integrals, variances on real towers."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from methods.prolip import Prolip, inclusion
from methods.prolip_towers import _with_last
from methods.protocol import Batch
from methods.siglip import Siglip

OPTIONS = {
    "vib_beta": "vib",
    "inclusion_alpha": "inclusion",
    "inclusion_alpha_occ": "masked_inclusion",
    "inclusion_loss_eps": "inclusion_eps",
    "inclusion_loss_scale": "inclusion_scale",
}


def gaussians(oracles, name, dtype=torch.float64):
    """z of a case in which the two masked rows, 0 and 1 of the oracle, stand at places 0 and B / 2 of the batch."""
    given, logvar = oracles["inputs"][name], oracles["inputs"]["logsigma_sq"][name]
    masked = oracles["inputs"]["masked"][name]
    total = len(given["image"])
    order = [0, *range(2, total // 2 + 1), 1, *range(total // 2 + 1, total)]
    z = {}
    for key in ("image", "text"):
        z[key] = torch.tensor(given[key], dtype=dtype)[order]
        z[f"{key}_logvar"] = torch.tensor(logvar[key], dtype=dtype)[order]
        for new, old in ((f"masked_{key}", f"mean_{key}"), (f"masked_{key}_logvar", f"logvar_{key}")):
            z[new] = torch.zeros_like(z[key])
            z[new][[0, total // 2]] = torch.tensor(masked[old], dtype=dtype)
    return {name: x.requires_grad_() for name, x in z.items()}


def official(lab, total, **config):
    none = {"vib": 0.0, "inclusion": 0.0, "masked_inclusion": 0.0}
    method = lab.build(Prolip, batch=total, masked_share=2 / total, **{**none, **config})
    torch.nn.init.constant_(method.scale.rho, math.log(10))
    return method


@pytest.mark.parametrize("index", range(8))
def test_equals_the_official_loss(lab, oracles, index):
    given = oracles["prolip"]["loss"]["cases"][index]
    config = {OPTIONS[key]: float(value) for key, value in given["cfg"].items()}
    for name, expected in given["out"].items():
        z = gaussians(oracles, name)
        method = official(lab, len(z["image"]), **config)
        loss = lab.objective(method, z)
        lab.assert_close(loss, expected["loss"])
        loss.backward()
        norms = expected.get("grad_norms", {})
        for key, norm in norms.items():
            kind, _, side = key.partition("_")
            lab.assert_close(z[f"{side}_logvar" if kind == "logvar" else side].grad.norm(), norm)
        if "grad_scale" in expected:
            lab.assert_close(
                [method.scale.rho.grad / 10, method.bias.grad], [expected["grad_scale"], expected["grad_bias"]]
            )


def test_single_precision(lab, oracles):
    given = oracles["prolip"]["loss"]["cases"][4]
    config = {OPTIONS[key]: float(value) for key, value in given["cfg"].items()}
    z = gaussians(oracles, "B", torch.float32)
    loss = lab.objective(official(lab, 6, **config).float(), z)
    assert loss.dtype == torch.float32
    lab.assert_close(loss, given["out"]["B"]["loss"], rtol=1e-4)


def test_vib_is_the_codes(lab, oracles):
    given = oracles["prolip"]["checks"]["vib"]
    mean = torch.tensor(oracles["inputs"]["C"]["image"], dtype=torch.float64)
    logvar = torch.tensor(oracles["inputs"]["logsigma_sq"]["C"]["image"], dtype=torch.float64)
    found = lab.build(Prolip)._vib({"image": mean, "image_logvar": logvar}, "image") / mean.numel()
    lab.assert_close(found, given["official"])


def test_without_variance_it_is_siglip(lab, oracles):
    z = gaussians(oracles, "C")
    with torch.no_grad():
        z["image_logvar"].fill_(-60.0)
        z["text_logvar"].fill_(-60.0)
    loss = lab.objective(official(lab, 8), z)
    siglip = lab.build(Siglip)
    torch.nn.init.constant_(siglip.scale.rho, math.log(10))
    lab.assert_close(loss, lab.objective(siglip, {"image": z["image"], "text": z["text"]}))
    lab.assert_close(loss, oracles["prolip"]["checks"]["ppcl_sigma0_equals_siglip"]["ppcl_logvar_minus60"])


@pytest.mark.parametrize("row", range(4))
def test_inclusion_in_one_dimension(lab, oracles, row):
    given = oracles["prolip"]["loss"]["inclusion_1d_check"]["rows"][row]
    numbers = [torch.tensor(given[key], dtype=torch.float64) for key in ("mu1", "logvar1", "mu2", "logvar2")]
    lab.assert_close(inclusion(*numbers), given["official_H"], atol=1e-10)
    lab.assert_close(inclusion(*numbers, exact=True), given["numeric_H"], atol=1e-10)


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


def test_inclusion_is_antisymmetric_and_stable(lab, oracles):
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
    for low, high, _ in oracles["prolip"]["checks"]["inclusion_eps-100_torch.float32"]:
        # The official single-precision form is NaN for large log-variances; ours stays at the same value.
        found = inclusion(*(torch.tensor(x) for x in (0.0, low, 0.0, high)), eps=-100.0)
        lab.assert_close(found, 0.8447249549, rtol=1e-5)


def test_antisymmetry_of_the_loss_term(lab, oracles):
    """inc(1, 2) - inc(2, 1) = -c mean H."""
    z = gaussians(oracles, "B")
    method = official(lab, 6, inclusion_scale=3.0, inclusion_eps=-1.0)
    difference = method._included(z, "image", "text") - method._included(z, "text", "image")
    h = inclusion(z["image"], z["image_logvar"], z["text"], z["text_logvar"], -1.0)
    lab.assert_close(difference, -3.0 * h.sum())


def test_exploding_regularisers_are_dropped_but_nan_is_not(lab, oracles):
    z = {name: x.detach() for name, x in gaussians(oracles, "B").items()}
    plain = lab.objective(official(lab, 6), z)
    z["image_logvar"][0, 0] = 30.0  # e^15 / 60 > 1e4
    method = official(lab, 6, vib=1.0)
    observed = method.observe(z, Batch(torch.arange(6), lab.clock()))
    assert {name: bool(x) for name, x in observed.items()} == {
        "vib": True,
        "inclusion": False,
        "masked_inclusion": False,
    }
    assert float(method.loss(z, observed, slice(0, 6))["vib"]) == 0
    assert plain > 0
    z["image_logvar"][0, 0] = math.nan
    assert not any(bool(x) for x in method.observe(z, Batch(torch.arange(6), lab.clock())).values())
    assert not bool(lab.objective(method, z).isfinite())


def test_exact_inclusion_option_changes_the_loss(lab, oracles):
    z = gaussians(oracles, "B")
    losses = [lab.objective(official(lab, 6, inclusion=1.0, inclusion_exact=exact), z) for exact in (False, True)]
    assert abs(float((losses[0] - losses[1]).detach())) > 1e-3


def test_permuting_rows_within_masked_and_unmasked_places_changes_nothing(lab, oracles):
    z = gaussians(oracles, "B")
    order = torch.tensor([3, 5, 1, 0, 2, 4])  # places 0 and 3 are the masked ones
    config = {"inclusion": 0.1, "masked_inclusion": 1.0, "vib": 0.1}
    loss = lab.objective(official(lab, 6, **config), z)
    lab.assert_close(lab.objective(official(lab, 6, **config), {name: x[order] for name, x in z.items()}), loss)


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
    lab.assert_close(-2 * lab.build(Prolip).confidence(image, text), distance - 2, rtol=1e-5)
    assert Prolip.score == "csd"


# --- on real towers -------------------------------------------------------------------------------------------------


def prepared(lab, towers, batch=16, seed=0, **config):
    torch.manual_seed(0)
    method = lab.build(Prolip, batch=batch, seed=seed, **config).float()
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
        lab.objective(method, z).backward()
        missing = [name for name, p in method.named_parameters() if p.grad is None or float(p.grad.abs().sum()) == 0]
        assert missing == []


def test_masks_are_keyed_by_seed_and_step(lab, towers):
    def masked(seed, step):
        method = prepared(lab, towers, seed=seed)
        z = method.eval().encode(towers.eval(), lab.some_rows(towers, 16, when=lab.clock(step)))
        return z["masked_image"], z["masked_text"]

    for side in (0, 1):
        assert torch.equal(masked(0, 1)[side], masked(0, 1)[side])
        assert not torch.allclose(masked(0, 1)[side], masked(0, 2)[side], atol=1e-5)
        assert not torch.allclose(masked(0, 1)[side], masked(1, 1)[side], atol=1e-5)


def test_masked_norms_use_and_keep_running_statistics(lab):
    towers = lab.TinyTowers("resnet")
    method = prepared(lab, towers)
    from bench.batchnorm import grouped_norms

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
        lab.build(Prolip).prepare(towers)
    towers = lab.TinyTowers()
    towers.text = torch.nn.Linear(3, 3)
    with pytest.raises(TypeError, match="not Linear"):
        lab.build(Prolip).prepare(towers)
