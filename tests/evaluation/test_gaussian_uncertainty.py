"""Uncertainty and inclusion on the real emoji: an untrained ProLIP is enough to see what is measured."""

from __future__ import annotations

import dataclasses
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch

from bench import data
from bench.data import MemoryPairs
from bench.evaluation.features import Features
from bench.evaluation.probabilistic.hierarchy import LEVELS, levels
from bench.evaluation.probabilistic.uncertainty import (
    MEAN_COLOUR,
    Level,
    fewer_words,
    inclusion,
    inclusions,
    longest_captions,
    masked,
    masked_in_training,
    surer,
    uncertainties,
    within,
    words,
)
from bench.towers.build import normalise
from methods import prolip

from .conftest import build

BATCH = 128


def pairs(count: int = 300) -> MemoryPairs:
    found = data.load("emoji/iid", 32)
    assert isinstance(found, MemoryPairs)
    return found.select(np.arange(len(found)) < count)


@pytest.fixture(scope="module")
def features() -> Features:
    return Features(*build("prolip"), "c", "1", None)


def test_each_mean_is_over_the_distinct_captions_of_its_length_level_or_style(features: Features) -> None:
    some = pairs()
    lines = dict(uncertainties(features, some))
    captions = sorted({text for row in range(len(some)) for text in some.captions(row)})
    of = dict(zip(captions, features.texts(captions)["logvar"].double().exp().sum(1).tolist(), strict=True))
    three = [of[text] for text in captions if len(text.split()) == 3]
    long = [of[text] for text in captions if len(text.split()) >= 8]
    for name, values in (("captions of 3 words", three), ("captions of 8 or more words", long)):
        assert (lines[name].n, lines[name].value) == (len(values), pytest.approx(np.mean(values)))
        assert lines[name].interval[0] < lines[name].value < lines[name].interval[1]
    assert sum(lines[name].n for name in lines if name.startswith("captions")) == len(captions)
    names = {some.classes["concept"][label] for label in some.labels["concept"]}
    assert lines["level name"].value == pytest.approx(np.mean([of[name] for name in names]), rel=1e-4)
    assert lines["level group"].n == len(set(some.labels["group"]))
    style = some.labels["style"] == some.classes["style"].index("noto")
    variances = features.images(some)["logvar"].double().exp().sum(1)
    assert lines["images of noto"].value == pytest.approx(float(variances[torch.from_numpy(style)].mean()))
    assert sum(one.n for name, one in lines.items() if name.startswith("images of")) == lines["images"].n == 300


def test_a_special_caption_is_surer_where_its_variance_is_smaller(features: Features) -> None:
    known = {
        "0": Level(("a", "a", "b", "c"), np.array([4.0, 4.0, 3.0, 1.0])),
        "1": Level(("d", "e", "b", "f"), np.array([3.0, 5.0, 3.0, 0.5])),
        "2": Level(("g", "h", "i", "j"), np.array([1.0, 1.0, 1.0, 1.0])),
    }
    assert known["0"].distinct.tolist() == [4.0, 3.0, 1.0]
    shares = surer(known)
    assert shares["level 1 against 0"].tolist() == [1, 0, 1], "the row with one caption at both is left out"
    assert shares["adjacent levels"].tolist() == [1, 0, 1, 1, 1, 1, 0]
    lines = dict(uncertainties(features, pairs(60)))
    assert {name for name in lines if "against" in name or "adjacent" in name} == {
        *(f"level {b} against {a}" for a, b in combinations(LEVELS, 2)),
        "adjacent levels",
    }
    some = pairs(60)
    own = np.array([features.texts(list(texts))["logvar"].double().exp().sum(1).tolist() for texts in levels(some)])
    differ = [texts[0] != texts[2] for texts in levels(some)]
    assert lines["level name against group"].value == pytest.approx((own[:, 0] > own[:, 2])[differ].mean())


def test_a_wider_gaussian_around_the_same_mean_includes() -> None:
    mean = torch.nn.functional.normalize(torch.randn(4, 8, generator=torch.Generator().manual_seed(0)), dim=-1)
    narrow, wide = ({"embedding": mean, "logvar": torch.full((4, 8), value)} for value in (-6.0, -3.0))
    assert bool(within(narrow, wide).all())
    assert not bool(within(wide, narrow).any())


def test_inclusion_is_that_of_training_without_damping() -> None:
    generator = torch.Generator().manual_seed(0)
    sides = [torch.randn(500, 8, generator=generator, dtype=torch.float64) * size for size in (1, 4, 1, 4)]
    torch.testing.assert_close(inclusion(*sides), prolip.inclusion(*sides), rtol=1e-9, atol=1e-9)
    far_apart = [torch.tensor([value], dtype=torch.float64) for value in (0.0, -40.0, 0.1, 3.0)]
    torch.testing.assert_close(inclusion(*far_apart), prolip.inclusion(*far_apart), rtol=1e-9, atol=0)


def test_three_quarters_of_an_image_show_the_mean_colour() -> None:
    some = pairs(20)
    before, after = some.pixels, masked(some).pixels
    cells = (after == before).all(-1).reshape(20, 8, 4, 8, 4)
    shown = cells.all((2, 4))
    hidden = (after == MEAN_COLOUR).all(-1).reshape(20, 8, 4, 8, 4).all((2, 4))
    assert (shown | hidden).all()
    assert hidden.sum((1, 2)).tolist() == [48] * 20
    assert not (hidden[0] == hidden[1]).all()
    assert float(normalise(np.broadcast_to(MEAN_COLOUR, (1, 2, 2, 3)).copy()).abs().max()) < 0.01


def test_a_quarter_of_the_words_stays_in_order() -> None:
    text = "one two three four five six seven eight"
    found = {fewer_words(text, number) for number in range(50)}
    assert len(found) > 15
    for kept in found:
        assert words(kept) == 2
        assert sorted(kept.split(), key=text.split().index) == kept.split()
    assert fewer_words("one two", 0) in ("one", "two")


def test_every_pair_is_masked_once_with_the_methods_own_masks(features: Features) -> None:
    some = pairs()
    method, towers = features.method, features.towers
    captions, seen = longest_captions(some), []
    encode = method.encode

    def noted(towers, rows):  # type: ignore[no-untyped-def]
        z = encode(towers, rows)
        inside = z["masked_image"].abs().sum(1) > 0
        seen.append((rows.ids[inside], rows.images.shape, rows.clock.step))
        return z

    method.encode = noted  # type: ignore[method-assign]
    try:
        held = masked_in_training(method, towers, some, captions, BATCH)
    finally:
        method.encode = encode  # type: ignore[method-assign]
    assert {side: len(values) for side, values in held.items()} == {"image": 300, "text": 300}
    assert {int(row) for ids, _, _ in seen for row in ids} == set(range(300))
    assert {shape for _, shape, _ in seen} == {(BATCH, 3, 32, 32)}
    assert {step for _, _, step in seen} == set(range(8))


def test_what_a_method_does_not_mask_is_said(features: Features) -> None:
    some = pairs(40)
    lines, notes = inclusions(features, some, BATCH)
    assert notes == []
    assert [number.n for _, number in lines] == [40, 40, 40, 40, 40]
    assert all(0 <= number.interval[0] <= number.value <= number.interval[1] <= 1 for _, number in lines)
    plain = build("clip")[0]
    assert masked_in_training(plain, features.towers, some, longest_captions(some), BATCH) == {}


def test_a_method_that_is_set_to_mask_nothing_has_no_masked_versions(
    features: Features, monkeypatch: pytest.MonkeyPatch
) -> None:
    method: Any = features.method
    monkeypatch.setattr(method, "config", dataclasses.replace(method.config, masked_share=0.0))
    lines, notes = inclusions(features, pairs(40), BATCH)
    assert len(lines) == 3
    assert notes == ["masked as in training: n/a, prolip encodes no masked versions"]


def test_captions_of_one_word_cannot_lose_any(features: Features) -> None:
    some = pairs(10)
    texts = tuple(("cat",) if row < 4 else ("a black cat",) for row in range(10))
    lines = dict(inclusions(features, dataclasses.replace(some, texts=texts), BATCH)[0])
    assert lines["caption within itself, fewer words"].n == 6
    assert lines["image within its caption"].n == 10
