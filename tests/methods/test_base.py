"""What adapters share: draws, blocks, tiles, cross-entropies and the logit scale, each against another way to it."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st

from methods.base import (
    BLOCK,
    HyperparameterError,
    LogitScale,
    blocks,
    check,
    check_scale,
    directions,
    info_nce,
    pair_decisions,
    portion,
    similarities,
    spans,
    stream,
    stream_key,
    unit,
    wide,
    without_own,
)
from methods.freezing import besides_image_backbone
from methods.gamma import log_gamma_draws


def batch(total, dim=5, seed=0):
    draws = torch.Generator().manual_seed(seed)
    pair = (torch.randn(total, dim, generator=draws, dtype=torch.float64) for _ in range(2))
    return {name: F.normalize(x, dim=1) for name, x in zip(("image", "text"), pair, strict=True)}


@settings(deadline=None)
@given(st.integers(0, 2**40), st.text(max_size=9), st.lists(st.integers(0, 2**40), max_size=3))
def test_a_key_of_a_stream_is_63_bits_of_blake2b(seed, purpose, key):
    digest = hashlib.blake2b(repr((seed, purpose, tuple(key))).encode(), digest_size=8).digest()
    assert stream_key(seed, purpose, *key) == int.from_bytes(digest, "little") // 2
    assert 0 <= stream_key(seed, purpose, *key) < 2**63


def test_streams_of_other_keys_are_others_and_leave_the_global_generator_alone():
    before = torch.get_rng_state()
    keys = [(0, "a", 1), (0, "a", 2), (0, "b", 1), (1, "a", 1), (0, "a"), (0, "a", 1, 1)]
    draws = [tuple(torch.rand(4, generator=stream(*key)).tolist()) for key in keys]
    assert len(set(draws)) == len(keys)
    assert draws[0] == tuple(torch.rand(4, generator=stream(*keys[0])).tolist())
    assert torch.equal(torch.get_rng_state(), before)


@settings(deadline=None)
@given(st.integers(0, 1000), st.integers(1, 5000))
@example(290, 100)
@example(125, 128)
def test_a_portion_is_that_of_exact_arithmetic(per_mille, total):
    assert portion(per_mille / 1000, total) == math.floor(Fraction(per_mille, 1000) * total)


@settings(deadline=None)
@given(st.integers(1, 3000), st.integers(1, 400))
def test_spans_cover_every_row_once(total, size):
    parts = spans(total, size)
    assert [row for part in parts for row in range(total)[part]] == list(range(total))
    assert all(part.stop - part.start == size for part in parts[:-1])
    assert 0 < parts[-1].stop - parts[-1].start <= size


@settings(deadline=None)
@given(st.integers(0, 300), st.integers(1, 200))
def test_blocks_cut_anchors_at_multiples_of_their_size(start, count):
    found = blocks(slice(start, start + count))
    rows = [(block, row) for block, part in found for row in range(part.start, part.stop)]
    assert rows == [(row // BLOCK, row) for row in range(start, start + count)]
    assert all(part.start < part.stop for _, part in found)
    assert len({block for block, _ in found}) == len(found)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_similarities_are_in_at_least_single_precision(dtype):
    x, y = batch(6)["image"].to(dtype), batch(6)["text"].to(dtype)
    expected = torch.float64 if dtype == torch.float64 else torch.float32
    assert wide(x).dtype == unit(x).dtype == similarities(x, y).dtype == expected
    exact = x.double() @ y.double().T
    assert torch.allclose(similarities(x, y).double(), exact, atol=1e-6 if expected == torch.float32 else 1e-15)


@pytest.mark.parametrize("cuts", [(), (3,), (1, 2, 5)])
def test_the_cross_entropies_of_tiles_sum_to_torchs(lab, cuts):
    z, scale = batch(7), torch.tensor(4.2, dtype=torch.float64)
    logits = scale * z["image"] @ z["text"].T
    image_labels, text_labels = torch.tensor([1, 0, 2, 2, 6, 5, 3]), torch.tensor([0, 0, 4, 3, 3, 1, 6])
    own = torch.arange(7)
    for first, second in ((None, None), (image_labels, text_labels), (None, text_labels)):
        parts = [info_nce(z, scale, tile, first, second) for tile in lab.tiles_of(7, cuts)]
        one, other = (own if labels is None else labels for labels in (first, second))
        expected = (F.cross_entropy(logits, one) + F.cross_entropy(logits.T, other)) / 2
        lab.assert_close(torch.stack(parts).sum(), expected)


@pytest.mark.parametrize("cuts", [(), (3,), (1, 2, 5)])
def test_binary_decisions_of_tiles_sum_to_torchs(lab, cuts):
    z = batch(7)
    logits = 3 * z["image"] @ z["text"].T - 1
    parts = [pair_decisions(logits[tile], tile) for tile in lab.tiles_of(7, cuts)]
    targets = torch.eye(7, dtype=torch.float64)
    lab.assert_close(sum(parts), F.binary_cross_entropy_with_logits(logits, targets, reduction="sum"))


def test_directions_are_rows_of_the_logits_and_of_their_transpose(lab):
    z, scale, tile = batch(6), torch.tensor(2.0, dtype=torch.float64), slice(2, 5)
    (by_image, own), (by_text, same) = directions(z, scale, tile)
    logits = 2 * z["image"] @ z["text"].T
    lab.assert_close(by_image, logits[tile])
    lab.assert_close(by_text, logits.T[tile])
    assert own.tolist() == same.tolist() == [2, 3, 4]


def test_leaving_out_the_own_partner_touches_nothing_else():
    logits = torch.arange(18.0).reshape(3, 6)
    found = without_own(logits.clone(), slice(2, 5))
    own = torch.zeros(3, 6, dtype=torch.bool)
    own[[0, 1, 2], [2, 3, 4]] = True
    assert bool((found[own] == -math.inf).all())
    assert torch.equal(found[~own], logits[~own])


@pytest.mark.parametrize("temperature", [0.01, 0.07, 1.0, 5.0])
def test_the_logit_scale_starts_at_one_over_the_temperature(lab, temperature):
    learned = lab.in_fp64(lambda: LogitScale(temperature))
    fixed = lab.in_fp64(lambda: LogitScale(temperature, learnable=False))
    lab.assert_close(learned(), 1 / temperature)
    lab.assert_close(fixed(), 1 / temperature)
    assert [name for name, _ in learned.named_parameters()] == ["rho"]
    assert list(fixed.parameters()) == []
    assert set(fixed.state_dict()) == set(learned.state_dict()) == {"rho"}


@pytest.mark.parametrize(("rho", "kept"), [(-1.0, 0.0), (0.5, 0.5), (4.6, 4.6), (9.0, math.log(100))])
def test_only_a_learned_scale_is_clamped(lab, rho, kept):
    for learnable in (True, False):
        scale = lab.in_fp64(lambda learnable=learnable: LogitScale(0.07, learnable))
        scale.rho.data.fill_(rho)
        scale.clamp_()
        lab.assert_close(scale.rho, kept if learnable else rho)


@dataclass(frozen=True)
class Config:
    """A scale's two fields."""

    temperature: float = 0.07
    learnable_scale: object = True


@pytest.mark.parametrize("bad", [{"temperature": 0.0}, {"temperature": math.inf}, {"learnable_scale": 1}])
def test_a_refusal_names_class_field_value_and_what_is_allowed(bad):
    (field, value), config = next(iter(bad.items())), Config(**bad)
    with pytest.raises(HyperparameterError) as raised:
        check_scale(config)
    error = raised.value
    assert (error.field, error.value) == (field, value)
    assert str(error) == f"Config.{field} = {value!r}, but it must be {error.allowed}"
    check(config, field, True, "anything")
    check_scale(Config())


@settings(deadline=None, max_examples=12)
@given(st.sampled_from([0.05, 0.4, 1.0, 3.0, 20.0]), st.integers(0, 1000))
def test_gamma_draws_follow_the_law(shape, seed):
    from scipy import stats

    shapes = torch.full((4000,), shape, dtype=torch.float64)
    for below_one in (True,) if shape < 1 else (True, False):
        draws = log_gamma_draws(shapes, torch.Generator().manual_seed(seed), below_one)
        assert stats.kstest(draws.numpy(), stats.loggamma(shape).cdf).pvalue > 1e-5
        assert bool(draws.isfinite().all())  # also where the draw itself would be 0


@pytest.mark.parametrize(
    ("name", "stays"),
    [
        ("towers.visual.transformer.resblocks.0.attn.in_proj_weight", False),
        ("towers.visual.conv1.weight", False),
        ("towers.visual.trunk.head.fc.weight", False),
        ("towers.visual.proj", True),
        ("towers.visual.head.proj.weight", True),
        ("towers.visual.attnpool.c_proj.weight", True),
        ("towers.text.transformer.resblocks.0.ln_1.weight", True),
        ("method.scale.rho", True),
    ],
)
def test_freezing_the_image_backbone_leaves_its_projection(name, stays):
    assert besides_image_backbone(name) is stays
