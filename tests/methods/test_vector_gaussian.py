"""ProLIP and PCME++ on vectors: the losses of their originals on the same Gaussians, heads on any tower's output."""

from __future__ import annotations

import pytest
import torch

from bench.checks.lab import TinyTowers
from methods.pcmepp import Pcmepp
from methods.pcmepp_features import PcmeppFeatures
from methods.prolip import Prolip
from methods.prolip_features import ProlipFeatures
from methods.protocol import Facts
from methods.vector_gaussian import VectorHead

ORIGINALS = (
    (ProlipFeatures, Prolip, {"masked_share": 0.0}, {"inclusion": 0.3, "vib": 0.2}),
    (PcmeppFeatures, Pcmepp, {"mixed_share": 0.0}, {"alpha": 0.4, "beta": 0.2, "shift": 2.0}),
)


@pytest.mark.parametrize(("kind", "original", "without", "config"), ORIGINALS)
def test_the_loss_is_the_original_one_on_the_same_gaussians(lab, kind, original, without, config):
    draws = torch.Generator().manual_seed(3)
    z = {
        name: torch.randn(8, 6, dtype=torch.float64, generator=draws)
        for name in ("image", "image_logvar", "text", "text_logvar")
    }
    z = {name: torch.nn.functional.normalize(x) if "_" not in name else x - 2 for name, x in z.items()}
    z |= {f"masked_{name}": torch.zeros_like(x) for name, x in z.items()}
    given = lab.step_loss(lab.build_adapter(kind, **config), z)
    lab.assert_close(given, lab.step_loss(lab.build_adapter(original, **config, **without), z))


@pytest.mark.parametrize("kind", [ProlipFeatures, PcmeppFeatures])
@pytest.mark.parametrize("towers", ["vit", "resnet"])
def test_the_variance_is_linear_in_the_tower_s_output(kind, towers):
    tiny = TinyTowers(towers)
    method = kind(kind.Config(logvar=-3.0), Facts(rows=8, batch=4, dim=tiny.dim, seed=0))
    method.prepare(tiny)
    images = torch.randn(4, *tiny.image_shape)
    features, vectors = method.image_features(tiny.eval(), images), tiny.encode_image(images)
    assert torch.allclose(features["embedding"].norm(dim=1), torch.ones(4))
    expected = vectors @ method.image_head.head.weight.T - 3.0
    assert torch.allclose(features["logvar"], expected, atol=1e-5)
    texts = tiny.tokenize(["a red cat", "two dogs"])
    expected = tiny.encode_text(texts) @ method.text_head.head.weight.T - 3.0
    assert torch.allclose(method.text_features(tiny, texts)["logvar"], expected, atol=1e-5)


def test_half_precision_does_not_reach_the_variances():
    tiny = TinyTowers("vit")
    head = VectorHead("image", tiny.dim, -10.0)
    images = torch.randn(4, *tiny.image_shape)
    with torch.autocast("cpu", torch.bfloat16):
        _, logvar = head(tiny, images)
    assert logvar.dtype == torch.float32
    assert not torch.equal(logvar, logvar.bfloat16().float())


@pytest.mark.parametrize(("kind", "field"), [(ProlipFeatures, "inclusion"), (PcmeppFeatures, "alpha")])
def test_options_are_checked_like_the_original_s(kind, field):
    with pytest.raises(ValueError, match=field):
        kind.Config(**{field: -1.0})
