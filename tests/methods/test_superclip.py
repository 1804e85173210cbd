"""SuperCLIP: which tokens weigh how much, what the head costs by hand, and what it reads of each kind of tower.

Its values: bench/checks/oracles/finetuning.py.
"""

from __future__ import annotations

import dataclasses
import math

import pytest
import timm
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from open_clip.modified_resnet import ModifiedResNet
from torch import nn

from methods.clip import Clip
from methods.protocol import Facts
from methods.superclip import Superclip, SuperclipConfig, _with_features

V, WIDTH = 11, 3
captions = st.lists(st.lists(st.integers(0, V - 1), min_size=5, max_size=5), min_size=2, max_size=6)


def headed(lab, **config):
    method = lab.build_adapter(Superclip, **config)
    method.add_head(WIDTH, V)
    return method.double()


def rows(tokens, pooled=None):
    tokens = torch.tensor(tokens).sort(1).values
    unit = nn.functional.normalize(torch.randn(2, len(tokens), 4, generator=torch.Generator().manual_seed(0)), dim=2)
    pooled = torch.arange(3.0 * len(tokens)).reshape(-1, 3).sin() if pooled is None else pooled
    return {"image": unit[0].double(), "text": unit[1].double(), "pooled": pooled.double(), "tokens": tokens}


def targets(lab, method, tokens):
    """q as [B, V]."""
    z = rows(tokens)
    return torch.zeros(len(tokens), V, dtype=torch.float64).scatter_add_(
        1, z["tokens"], lab.observe(method, z)["targets"]
    )


def test_two_captions_by_hand(lab):
    method = headed(lab)
    with torch.no_grad():
        method.norm.weight.zero_()  # the head then gives its bias
        method.head.bias.copy_(torch.arange(V) / 4)
    z = rows([[1, 5, 5, 9], [1, 2, 9, 9]])
    observed = lab.observe(method, z)
    # Tokens 5 and 2 are in one caption each, 1 and 9 in both: all the weight of a caption lies on the rare one.
    lse = math.log(sum(math.exp(k / 4) for k in range(V)))
    loss = method.loss(z, observed, slice(0, 2))["tokens"]
    lab.assert_close(loss, ((lse - 5 / 4) + (lse - 2 / 4)) / 2)


def test_weights_are_log_ratios_of_counts(lab):
    method = headed(lab)
    targets(lab, method, [[0, 1, 2], [0, 1, 3], [0, 4, 4], [0, 0, 0]])
    q = targets(lab, method, [[0, 1, 2], [0, 5, 5], [0, 6, 7], [0, 0, 0]])
    w = {k: math.log(9 / (c + 1)) for k, c in {0: 8, 1: 3, 2: 2, 5: 1, 6: 1, 7: 1}.items()}
    lab.assert_close(q[0, 1], w[1] / (w[1] + w[2]))
    lab.assert_close(q[2, [6, 7]], [0.5, 0.5])
    assert float(q[1, 5]) == 1
    assert not q[:, 0].any(), "it was in every caption"
    assert not q[3].any(), "a caption of nothing else has no target"
    assert int(method.captions) == 8
    assert method.captions_with.tolist() == [8, 3, 2, 1, 1, 1, 1, 1, 0, 0, 0]


@settings(max_examples=40, deadline=None)
@given(st.lists(captions, min_size=1, max_size=3).filter(lambda steps: len({len(step) for step in steps}) == 1))
def test_a_head_that_knows_nothing_costs_the_log_of_the_vocabulary(lab, steps):
    method = headed(lab)
    nn.init.zeros_(method.head.weight)
    for tokens in steps:
        z = rows(tokens)
        observed = lab.observe(method, z)
        q = observed["targets"]
        taught = (q.sum(1) > 0.5).double()
        assert bool((q >= 0).all())
        lab.assert_close(q.sum(1), taught)
        everywhere = set.intersection(*(set(caption) for step in steps[: steps.index(tokens) + 1] for caption in step))
        lab.assert_close(taught, [float(not set(caption) <= everywhere) for caption in tokens])
        lab.assert_close(method.loss(z, observed, slice(0, len(tokens)))["tokens"], math.log(V) * float(taught.mean()))


@settings(max_examples=30, deadline=None)
@given(captions, st.randoms())
def test_a_caption_is_a_set_of_tokens(lab, tokens, random):
    shuffled = [random.sample(caption, 5) for caption in tokens]
    doubled = [[*caption, caption[0]] for caption in tokens]
    wanted = targets(lab, headed(lab), tokens)
    for same in (shuffled, doubled):
        lab.assert_close(targets(lab, headed(lab), same), wanted)


def test_equal_captions_teach_nothing_until_others_come(lab):
    method = headed(lab)
    for _ in range(2):
        assert not targets(lab, method, [[1, 2, 3]] * 3).any()
    assert targets(lab, method, [[1, 2, 3], [4, 5, 6], [4, 5, 7]]).sum(1).tolist() == pytest.approx([1, 1, 1])
    method.captions.fill_(10**6)
    method.captions_with[:3] = torch.tensor([10**6, 10**6 - 1, 10**6])  # token 1 weighs a millionth
    lab.assert_close(targets(lab, method, [[0, 1, 2], [0, 1, 2]])[:, 1], [1.0, 1.0])


def test_the_terms_are_clip_and_the_weighted_loss_over_tokens(lab, case):
    tokens = [[0, 1, 2], [0, 3, 4], [0, 1, 5], [0, 6, 7]]
    z = {**rows(tokens), **case("A")}
    method = headed(lab, class_weight=0.25)
    observed = lab.observe(method, z)
    terms = method.loss(z, observed, slice(0, 4))
    lab.assert_close(terms["contrastive"], lab.step_loss(lab.build_adapter(Clip), z))
    logits = method.head(method.norm(z["pooled"]))
    q = torch.zeros(4, V, dtype=torch.float64).scatter_add_(1, z["tokens"], observed["targets"])
    lab.assert_close(terms["tokens"], 0.25 * nn.functional.cross_entropy(logits, q))


def test_counts_stay_exact_in_single_precision(lab):
    method = headed(lab).float()
    method.captions += 2**30
    method.captions_with += 2**30
    targets(lab, method, [[0, 1], [0, 2], [0, 3]])
    assert method.captions_with[:5].tolist() == [2**30 + 3, 2**30 + 1, 2**30 + 1, 2**30 + 1, 2**30]


def prepared(towers, **config):
    method = Superclip(SuperclipConfig(**config), Facts(rows=8, batch=8, dim=16, seed=0))
    method.prepare(towers)
    return method


def test_the_head_reads_the_last_layer_beside_the_plain_embedding(lab, towers):
    towers.eval()
    method, given_rows = prepared(towers), lab.some_rows(towers, 4)
    seen = {}
    if hasattr(towers.visual, "ln_post"):
        towers.visual.ln_post.register_forward_hook(lambda _m, _x, out: seen.update(patches=out))
    with torch.no_grad():
        z = method.encode(towers, given_rows)
        embedding = nn.functional.normalize(towers.encode_image(given_rows.images), dim=1)
        wanted = seen["patches"][:, 1:].mean(1) if seen else towers.pooled(given_rows.images)
    torch.testing.assert_close(z["image"], embedding)
    torch.testing.assert_close(z["pooled"], wanted)
    assert z["pooled"].shape[1] == method.norm.weight.shape[0]
    assert len(method.captions_with) == 64, "the text tower's vocabulary"
    lab.observe(method, z, ids=given_rows.ids)
    words = [set(caption) for caption in given_rows.tokens.tolist()]
    assert method.captions_with.tolist() == [sum(token in caption for caption in words) for token in range(64)]
    assert int(method.captions) == 4
    assert method.monitor(z, {}) == {"tokens_seen": len(set.union(*words))}


def test_the_features_of_a_map_are_its_mean():
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    visual = ModifiedResNet((1, 1, 1, 1), 16, 4, image_size=64, width=8).eval()
    last = {}
    visual.layer4.register_forward_hook(lambda _m, _x, out: last.update(map=out))
    with torch.no_grad():
        embedding, pooled = _with_features(visual, images)
    torch.testing.assert_close(pooled, last["map"].mean((2, 3)))
    torch.testing.assert_close(embedding, visual(images))


@pytest.mark.parametrize(
    ("name", "pool", "places"), [("test_resnet", "avg", (2, 3)), ("test_resnet", "", (2, 3)), ("test_vit", "", 1)]
)
def test_the_features_of_timms_towers_come_before_their_classifier(name, pool, places):
    trunk = timm.create_model(name, num_classes=16 if pool else 0, global_pool=pool).eval()
    visual = nn.Module()
    visual.trunk, visual.head = trunk, nn.Sequential()
    images = torch.randn(2, 3, *trunk.default_cfg["input_size"][1:], generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        embedding, pooled = _with_features(visual, images)
        features = trunk.forward_features(images)
    torch.testing.assert_close(pooled, features.mean(places))
    torch.testing.assert_close(embedding, trunk(images))


def test_the_embedding_is_read_before_it_is_normalised(lab, towers):
    towers.eval()
    method, given_rows = prepared(towers, feature="embedding"), lab.some_rows(towers, 4)
    with torch.no_grad():
        z, embedding = method.encode(towers, given_rows), towers.encode_image(given_rows.images)
    torch.testing.assert_close(z["pooled"], embedding)
    torch.testing.assert_close(z["image"], nn.functional.normalize(embedding, dim=1))
    assert Superclip.needs_under(method.config) == {"tokens", "text_transformer"}
    assert Superclip.needs_under(SuperclipConfig()) == Superclip.needs


def test_a_head_starts_small_and_without_bias(lab):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        method = lab.build_adapter(Superclip)
        method.add_head(64, 500)
    assert float(method.head.weight.detach().std()) == pytest.approx(64**-0.5, rel=0.02)
    assert not method.head.bias.any()


def test_other_image_towers_are_refused(towers):
    towers.visual = nn.Identity()
    with pytest.raises(TypeError, match="superclip cannot read the last layer of the image tower Identity"):
        prepared(towers)


@pytest.mark.parametrize("bad", [{"class_weight": -1.0}, {"class_weight": math.inf}, {"feature": "class token"}])
def test_values_without_meaning_are_refused(bad):
    (field,) = bad
    with pytest.raises(ValueError, match=rf"Config\.{field} = "):
        dataclasses.replace(SuperclipConfig(), **bad)
