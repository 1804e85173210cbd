"""LATENT: where its regularisers vanish, its features on real towers; its values: bench/checks/oracles/latent.py."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from methods.latent import INDEPENDENT, Latent
from methods.protocol import Facts

SHARED = ("image", "text", "image_view", "text_view")


def features(total=6, dim=8):
    draws = torch.Generator().manual_seed(0)
    names = [*SHARED, *(name + INDEPENDENT for name in SHARED)]
    return {n: F.normalize(torch.randn(total, dim, generator=draws, dtype=torch.float64), dim=1) for n in names}


def terms_of(lab, z, cuts=(), **config):
    method, found = lab.build_adapter(Latent, **config), {}
    observed = lab.observe(method, z)
    for tile in lab.tiles_of(len(z["image"]), cuts):
        for name, value in method.loss(z, observed, tile).items():
            found[name] = found.get(name, 0.0) + value
    return found


def test_uniformity_in_tiles_has_the_value_and_the_gradient_of_its_logarithm(lab):
    z = {name: x.requires_grad_() for name, x in features().items()}
    distances = [torch.cdist(x, x).square() for x in (z["image" + INDEPENDENT], z["text" + INDEPENDENT])]
    direct = (torch.stack([(-1.5 * d).exp().sum() for d in distances]).sum() / 6).log()
    names = [name + INDEPENDENT for name in ("image", "text")]
    expected = torch.autograd.grad(direct, [z[name] for name in names])
    for cuts in ((), (2, 5)):
        found = terms_of(lab, z, cuts, variant="sep", kernel_t=1.5)["uniformity"]
        lab.assert_close(found, direct)
        for one, other in zip(torch.autograd.grad(found, [z[name] for name in names]), expected, strict=True):
            lab.assert_close(one, other, rtol=1e-7)


def test_separation_vanishes_for_orthogonal_features_and_is_largest_when_all_are_equal(lab):
    z = features()
    for name in ("image", "text"):
        private = z[name + INDEPENDENT]
        apart = private - (private * z[name]).sum(1, keepdim=True) * z[name]
        z[name + INDEPENDENT] = F.normalize(apart, dim=1)
    lab.assert_close(terms_of(lab, z, variant="sep")["orthogonality"], 0.0)
    equal = z["image"][:1].expand(6, -1)
    z |= dict.fromkeys((name + INDEPENDENT for name in ("image", "text")), equal)
    lab.assert_close(terms_of(lab, z, variant="sep")["uniformity"], math.log(12))


def test_the_bridge_holds_at_its_own_point(lab):
    z = features()
    z["image_view"] = F.normalize(0.4 * z["image"] + 0.6 * z["text"], dim=1)
    lab.assert_close(terms_of(lab, z, variant="br", kappa=0.4)["bridge"], 0.0)
    assert float(terms_of(lab, z, variant="br")["bridge"]) > 0.01
    z["image_view"] = z["text"]
    lab.assert_close(terms_of(lab, z, variant="br", kappa=0.0)["bridge"], 0.0)


def test_geometry_is_consistent_between_equal_modalities_and_equal_views(lab):
    z = features()
    plain = terms_of(lab, z, variant="gc")
    assert min(float(plain["modality_geometry"]), float(plain["view_geometry"])) > 0.1
    views = {**z, "image_view": z["image"], "text_view": z["text"]}
    lab.assert_close(terms_of(lab, views, variant="gc")["view_geometry"], 0.0)
    modalities = {**z, "text": z["image"]}
    lab.assert_close(terms_of(lab, modalities, variant="gc")["modality_geometry"], 0.0)


@pytest.mark.parametrize("variant", ["sep", "br", "gc"])
def test_the_weight_is_that_of_the_regulariser_alone(lab, variant):
    one, third = (terms_of(lab, features(), variant=variant, weight=weight) for weight in (1.0, 1 / 3))
    for name, value in one.items():
        lab.assert_close(third[name], value if name == "contrastive" else value / 3)


def test_contrast_is_the_mean_of_four_cross_entropies(lab):
    z, own = features(), torch.arange(6)
    pairs = [("image", "text"), ("text", "image"), ("image", "image_view"), ("text", "text_view")]
    expected = sum(F.cross_entropy(20.0 * z[a] @ z[b].T, own) for a, b in pairs) / 4
    lab.assert_close(terms_of(lab, z, temperature=0.05)["contrastive"], expected)


# --- on real towers -------------------------------------------------------------------------------------------------


def prepared(towers, **config):
    torch.manual_seed(0)
    facts = Facts(rows=8, batch=8, dim=16, seed=0, synonyms={"red apple": ("apple",)})
    method = Latent(Latent.Config(**config), facts)
    method.prepare(towers)
    return method


@pytest.mark.parametrize("variant", ["sep", "br", "gc"])
def test_second_views_are_other_inputs_and_only_sep_has_private_features(lab, towers, variant):
    method = prepared(towers, variant=variant)
    z = method.encode(towers, lab.some_rows(towers, 8, views=method.extra_views))
    private = {name + INDEPENDENT for name in SHARED} if variant == "sep" else set()
    assert set(z) == set(SHARED) | private
    for x in z.values():
        lab.assert_close(x.norm(dim=1), torch.ones(8), rtol=1e-5)
    for name in ("image", "text"):
        assert not torch.allclose(z[name], z[f"{name}_view"])
    assert len(list(method.parameters())) == (3 if variant == "sep" else 1)


def test_private_features_are_a_linear_layer_on_the_embedding(lab, towers):
    method, rows = prepared(towers, variant="sep"), lab.some_rows(towers, 8, views=1)
    z = method.encode(towers, rows)
    expected = F.normalize(towers.encode_text(rows.tokens) @ method.text_head.weight.T, dim=1)
    lab.assert_close(z["text" + INDEPENDENT], expected, rtol=1e-5, atol=1e-6)
    z["image_view" + INDEPENDENT].square().mul(torch.randn(8, 16)).sum().backward()
    assert bool(method.image_head.weight.grad.abs().sum() > 0)
    assert method.text_head.weight.grad is None


def test_the_note_says_when_there_are_no_synonyms(lab, towers):
    assert "no synonyms" in lab.build_adapter(Latent).about.note
    assert "no synonyms" not in prepared(towers).about.note
    assert "no synonyms" not in Latent.about.note
