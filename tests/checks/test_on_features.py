"""`bench check --features`: methods on heads that read stored features, and what is not applicable there."""

from __future__ import annotations

import pytest
import torch

from bench.adapters import registry
from bench.checks import lab
from bench.checks.pool import Ranks
from bench.checks.subject import Subject
from bench.checks.suite import CHECKS, WITHOUT_TOWERS, examine_on_features, subject_of
from bench.checks.trainings import Training, pairs

#: needs of the shipped methods that stored features never meet
LACKING = {
    "latent": ("tokens",),
    "ncu": ("text_transformer", "tokens"),
    "pcmepp": ("pixels", "text_transformer", "tokens"),
    "prolip": ("pixels", "text_transformer", "tokens"),
}


def test_what_features_lack_follows_from_the_needs_of_each_method() -> None:
    assert {name: subject_of(name, features=True).lacking({}) for name in LACKING} == LACKING
    assert not any(subject_of(name).lacking({}) for name in registry.names())
    for name in registry.names():
        if not registry.find(name).needs:
            assert not subject_of(name, features=True).lacking({})
    own = subject_of("cyclip", features=True)
    assert own.lacking({"in_modal": True}) == ("tokens",)
    assert not any(variant.config.get("in_modal") for variant in own.variants)


@pytest.mark.parametrize("name", ["clip", "sogclr"])
def test_a_method_passes_every_check_on_features(name: str, pool: Ranks) -> None:
    results = list(examine_on_features(subject_of(name, features=True), pool))
    assert [result.check for result in results] == [one.name for one in CHECKS if one.name not in WITHOUT_TOWERS]
    assert [f"{result.check}: {result.reason}" for result in results if result.outcome == "failed"] == []
    passed = {result.check for result in results if result.outcome == "passed"}
    assert {"gradient", "permutation", "micro_batches", "cost", "resume", "noise_mask", "learns", "ranks"} <= passed


def test_a_method_that_features_do_not_suit_is_skipped() -> None:
    (result,) = examine_on_features(
        subject_of("ncu", features=True), Ranks(), tuple(one for one in CHECKS if one.name == "cost")
    )
    assert result.outcome == "skipped"
    assert result.reason == "not applicable on stored features: needs text_transformer, tokens"


def test_the_towers_of_the_checks_are_heads() -> None:
    subject = Subject("clip", features=True)
    rows = subject.instance({}).rows()
    assert rows.images.shape == (40, lab.WIDTHS[0])
    assert rows.tokens.shape == (40, lab.WIDTHS[1])
    assert torch.equal(rows.tokens[0], rows.tokens[len(lab.TEXTS)]), "equal captions have equal features"
    training = Training("clip", towers="linear")
    assert pairs(training).pixels.shape == (training.rows, lab.WIDTHS[0])
    assert pairs(Training("clip")).pixels.shape == (150, 32, 32, 3)


def test_a_head_that_is_no_row_local_map_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab.StoredTowers, "encode_image", lambda self, images: self.visual(images - images.mean(0)))
    (check,) = (one for one in CHECKS if one.name == "micro_batches")
    (result,) = examine_on_features(subject_of("clip", features=True), Ranks(), (check,))
    assert result.outcome == "failed"
    assert "in two micro-batches" in result.reason
