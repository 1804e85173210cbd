"""CyCLIP: its identities, and the in-modal option on real towers."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from methods.clip import Clip
from methods.cyclip import Cyclip
from methods.protocol import Cost

CYCLIC = ("in_modal_cyclic", "cross_modal_cyclic")


def cyclic(lab, z, **config):
    terms = lab.build_adapter(Cyclip, **config).loss(z, {}, slice(0, len(z["image"])))
    return torch.stack([terms[name] for name in CYCLIC])


def test_equal_modalities_are_consistent(lab, case):
    image = case("B")["image"]
    lab.assert_close(cyclic(lab, {"image": image, "text": image}), [0.0, 0.0])


def test_cross_modal_term_is_twice_that_of_the_pairs_above_the_diagonal(lab, case):
    z = case("B")
    similarities = z["image"] @ z["text"].T
    above = (similarities - similarities.T).square().triu(1).sum()
    lab.assert_close(cyclic(lab, z, lambda_cross_modal=1.0)[1], 2 / 6 * above)


def test_an_orthogonal_transform_of_both_modalities_changes_nothing(lab, case):
    z = case("B")
    turn, _ = torch.linalg.qr(torch.randn(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    method = lab.build_adapter(Cyclip)
    lab.assert_close(lab.step_loss(method, {name: x @ turn for name, x in z.items()}), lab.step_loss(method, z))
    assert not torch.allclose(cyclic(lab, {"image": z["image"] @ turn, "text": z["text"]}), cyclic(lab, z))


def test_consistency_grows_with_the_batch(lab, case):
    z = case("B")
    lab.assert_close(cyclic(lab, {name: torch.cat([x, x]) for name, x in z.items()}), 2 * cyclic(lab, z))


def test_consistency_has_no_gradient_to_the_scale(lab, case):
    z, gradients = case("A"), []
    for method in (lab.build_adapter(Cyclip, lambda_in_modal=9.0, lambda_cross_modal=9.0), lab.build_adapter(Clip)):
        gradients.append(torch.autograd.grad(lab.step_loss(method, z), method.scale.rho)[0])
    lab.assert_close(*gradients)


# --- in_modal -------------------------------------------------------------------------------------------------------


def test_in_modal_contrast_is_the_mean_of_both_parts(lab, viewed):
    method = lab.build_adapter(Cyclip, in_modal=True, lambda_in_modal=0.0, lambda_cross_modal=0.0)
    own = torch.arange(8)
    parts = [
        F.cross_entropy(viewed[a] @ viewed[b].T / 0.07, own)
        for a, b in (("image", "text"), ("text", "image"), ("image", "image_view"), ("text", "text_view"))
    ]
    lab.assert_close(lab.step_loss(method, viewed), sum(parts) / 4)


def test_in_modal_tiles_and_differentiates(lab, viewed, assert_same_gradients):
    method = lab.build_adapter(Cyclip, in_modal=True, temperature=0.5)
    whole, tiled = lab.step_loss(method, viewed), lab.step_loss(method, viewed, cuts=(1, 4))
    lab.assert_close(tiled, whole)
    assert_same_gradients(tiled, whole, [*viewed.values(), method.scale.rho])
    value = lambda *z: lab.step_loss(method, dict(zip(viewed, z, strict=True)))  # noqa: E731
    assert torch.autograd.gradcheck(value, tuple(viewed.values()))


def test_second_views_are_declared_and_encoded(lab, towers):
    plain, method = lab.build_adapter(Cyclip), lab.build_adapter(Cyclip, in_modal=True)
    assert (plain.extra_views, plain.cost("train")) == (0, Cost())
    assert (method.extra_views, method.cost("train")) == (1, Cost(image=2.0, text=2.0))
    towers.eval()
    rows = lab.some_rows(towers, 6, views=1)
    assert set(plain.encode(towers, rows)) == {"image", "text"}
    z = method.encode(towers, rows)
    lab.assert_close(z["image_view"], F.normalize(towers.encode_image(rows.views[0]), dim=-1))
    edited = [method.eda(caption, 0, place) for place, caption in enumerate(rows.captions)]
    assert edited != rows.captions
    lab.assert_close(z["text_view"], F.normalize(towers.encode_text(towers.tokenize(edited)), dim=-1))
    lab.assert_close(z["text_view"].norm(dim=1), torch.ones(6), rtol=1e-5)


def test_edits_depend_on_the_place_in_the_global_batch_alone(lab):
    towers, method = lab.TinyTowers(), lab.build_adapter(Cyclip, in_modal=True)
    whole = method.encode(towers, lab.some_rows(towers, 8, views=1))["text_view"]
    part = method.encode(towers, lab.some_rows(towers, 8, slice(4, 8), views=1))["text_view"]
    lab.assert_close(part, whole[4:], rtol=1e-4, atol=1e-5)
    later = method.encode(towers, lab.some_rows(towers, 8, when=lab.a_clock(1), views=1))["text_view"]
    assert not torch.allclose(later, whole, atol=1e-3)


def test_flat_embeddings(lab, viewed):
    """Every cross-entropy is ln B, and nothing is inconsistent."""
    flat = torch.full((6, 4), 0.5, dtype=torch.float64)
    lab.assert_close(lab.step_loss(lab.build_adapter(Cyclip, in_modal=True), dict.fromkeys(viewed, flat)), math.log(6))
