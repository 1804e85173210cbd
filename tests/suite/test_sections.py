"""Sections of a suite by themselves: what they accept, what they stand for, and what of them enters an id."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from bench.catalogue.budget_kinds import BUDGET_KINDS
from bench.suite import needs
from bench.suite.keep_settings import ALL_PAIRS, KeepSettings
from bench.suite.launcher_settings import SlurmSettings
from bench.suite.noise_settings import NoiseSettings
from bench.suite.settings import (
    Budget,
    DataSettings,
    EvaluateSettings,
    MethodEntry,
    TowerSettings,
    TrainSettings,
)
from bench.suite.tune_settings import TuneSettings

quick = settings(deadline=None, max_examples=50)


@quick
@given(st.sampled_from(BUDGET_KINDS.names()), st.floats(1e-3, 1e15), st.floats(0.01, 1.0))
def test_a_budget_is_of_one_kind_and_a_share_of_it_of_the_same(kind: str, value: float, share: float) -> None:
    budget = Budget.model_validate({kind: value, "samples" if kind != "samples" else "flops": None})
    assert (budget.kind, budget.value) == (kind, value)
    part = budget.scaled(share)
    assert part.kind == kind
    assert part.value == pytest.approx(value * share)
    assert budget.timed is (kind == "device_seconds")
    assert budget.scaled(1.0) == budget


@quick
@given(st.integers(2, 4096))
def test_a_batch_has_a_group_of_batchnorm_that_divides_it_or_is_refused(batch: int) -> None:
    group = min(batch, 128)
    if batch % group:
        with pytest.raises(ValidationError, match=f"{group} does not divide batch {batch}"):
            TrainSettings(batch=batch)
    else:
        assert TrainSettings(batch=batch).bn_group == group
    assert TrainSettings(batch=batch, bn_group=1).bn_group == 1


@quick
@given(st.integers(1, 16), st.integers(1, 16), st.integers(1, 300))
def test_a_micro_batch_is_whole_groups_and_no_larger_than_the_batch(groups: int, size: int, micro: int) -> None:
    batch = groups * size
    given_ = {"batch": batch, "bn_group": size, "micro_batch": micro}
    if batch >= 2 and micro <= batch and micro % size == 0:
        assert TrainSettings.model_validate(given_).micro_batch == micro
    else:
        with pytest.raises(ValidationError, match=r"batch"):
            TrainSettings.model_validate(given_)


PLAIN: dict[type[BaseModel], dict[str, Any]] = {
    TrainSettings: {"micro_batch": 128, "checkpoint_seconds": 1.0, "recompute": True},
    DataSettings: {"workers": 3},
    TowerSettings: {"label": "large"},
}


@pytest.mark.parametrize("kind", list(PLAIN), ids=lambda kind: kind.__name__)
def test_what_cannot_change_a_result_is_no_part_of_an_id(kind: Any) -> None:
    assert kind(**PLAIN[kind]).content() == kind().content()
    assert kind(**PLAIN[kind]) != kind()


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (TrainSettings, "warmup_steps", 5),
        (TrainSettings, "final_lr", 1e-5),
        (TrainSettings, "compile", True),
        (partial(DataSettings, name="cc3m"), "share", 0.5),
        (DataSettings, "block", 4),
        (TowerSettings, "context", 9),
        (TowerSettings, "channels", "imagenet"),
        (TowerSettings, "text_start", "hub"),
    ],
)
def test_fields_that_came_later_enter_ids_only_if_they_are_said(kind: Any, field: str, value: object) -> None:
    assert field not in kind().content()
    assert kind(**{field: value}).content() == {**kind().content(), field: value}


@pytest.mark.parametrize(
    ("given_", "label", "content"),
    [
        ("all", "all", {"kind": "all"}),
        ("oracle", "oracle", {"kind": "oracle"}),
        ({"kind": "random", "share": 0.5}, "random 0.5", {"kind": "random", "share": 0.5}),
        ({"kind": "trusted", "rows": 500}, "trusted 500", {"kind": "trusted", "rows": 500}),
    ],
)
def test_a_treatment_is_printed_and_hashed_by_its_own_parameters(given_: Any, label: str, content: Any) -> None:
    found = KeepSettings.model_validate(given_)
    assert found.label == label
    assert found.content() == content
    assert (found == ALL_PAIRS) is (label == "all")


@pytest.mark.parametrize(
    "given_",
    ["every", {"kind": "random"}, {"kind": "random", "rows": 3}, {"kind": "oracle", "share": 0.5},
     {"kind": "random", "share": 0.0}, {"kind": "random", "share": 1.1}, {"kind": "trusted", "rows": 0}],
)  # fmt: skip
def test_a_treatment_with_wrong_parameters_is_refused(given_: Any) -> None:
    with pytest.raises(ValidationError):
        KeepSettings.model_validate(given_)


def test_a_treatment_that_leaves_nothing_out_is_none() -> None:
    half = KeepSettings(kind="random", share=0.5)
    assert half.under(0.0) == half.under(0.4) == half
    assert KeepSettings(kind="random", share=1.0).under(0.4) == ALL_PAIRS
    oracle = KeepSettings(kind="oracle")
    assert oracle.under(0.0) == ALL_PAIRS
    assert oracle.under(0.2) == oracle


def test_each_rate_above_zero_has_its_file() -> None:
    noise = NoiseSettings(kind="imported", rates=(0.2, 0.0, 0.4), files=("a", "b"))
    assert [noise.file(rate) for rate in (0.0, 0.2, 0.4)] == [None, "a", "b"]
    assert noise.at(0.4) == NoiseSettings(kind="imported", rates=(0.4,), files=("b",))
    assert noise.at(0.0) == NoiseSettings(kind="imported", rates=(0.0,))
    assert NoiseSettings(rates=(0.4,)).file(0.4) is None
    for wrong in ({"kind": "imported", "rates": (0.2, 0.4), "files": ("a",)}, {"rates": (0.2,), "files": ("a",)}):
        with pytest.raises(ValidationError, match="file"):
            NoiseSettings.model_validate(wrong)


def test_options_that_a_kind_does_not_have_are_refused_and_none_are_not_written() -> None:
    assert "options" not in NoiseSettings(rates=(0.2,)).model_dump()
    with pytest.raises(ValidationError, match="unknown key"):
        NoiseSettings(rates=(0.2,), options={"colour": "red"})


def test_trials_measure_the_validation_sets_alone() -> None:
    own = EvaluateSettings(
        tasks=("zero_shot",),
        curve=(0.5,),
        protocol="ncu",
        datasets={"zero_shot": ("cars",), "validation": ("flickr30k",)},
    )
    trials = own.of_trials("validation", ["last"])
    assert (trials.tasks, trials.curve, trials.along, trials.protocol) == (("validation",), (), (), "ncu")
    assert trials.datasets == {"validation": ("flickr30k",)}
    trials = own.of_trials("noisy_validation", ["last", "clean_validation", "clean_validation"])
    assert (trials.tasks, trials.along) == (("noisy_validation", "clean_validation"), ("clean_validation",))
    assert (trials.curve, trials.datasets) == ((0.5,), {})


def test_trials_by_either_validation_measure_both_where_the_suite_does() -> None:
    own = EvaluateSettings(tasks=("retrieval", "noisy_validation", "clean_validation"))
    by_noisy, by_clean = (own.of_trials(by, ["last"]).tasks for by in ("noisy_validation", "clean_validation"))
    assert set(by_noisy) == set(by_clean) == {"noisy_validation", "clean_validation"}


def test_ranges_of_trials_rise() -> None:
    assert TuneSettings(trials=2, lr=(1e-4, 1e-3)).lr == (1e-4, 1e-3)
    for wrong in (
        *({"lr": (1e-3, 1e-3)}, {"weight_decay": (0.2, 0.1)}, {"lr": (0.0, 1.0)}),
        *({"seeds": [1, 2]}, {"seeds": [1, 2, 2]}, {"keep": 1.0}),
        *({"budget": [{"epochs": 4}, {"epochs": 2}]}, {"budget": [{"epochs": 4}, {"samples": 8}]}),
    ):
        with pytest.raises(ValidationError):
            TuneSettings.model_validate({"trials": 2, **wrong})


@pytest.mark.parametrize(("time", "good"), [("90", 1), ("1:30:00", 1), ("2-12", 1), ("2-12:30", 1), ("1h", 0), ("", 0)])
def test_a_time_limit_is_sbatchs(time: str, good: bool) -> None:
    if good:
        assert SlurmSettings(time=time).time == time
    else:
        with pytest.raises(ValidationError):
            SlurmSettings(time=time)


def test_places_in_a_start_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_DATA", "/somewhere")
    entry = MethodEntry(method="clip", start="{data}/starts/{towers}.pt")
    assert entry.start_of(TowerSettings(label="small")) == "/somewhere/starts/small.pt"
    assert MethodEntry(method="clip").start_of(TowerSettings()) is None
    assert MethodEntry.model_validate("clip") == MethodEntry(method="clip", label="clip")


def test_needs_are_met_or_said_in_their_order() -> None:
    ours = TowerSettings()
    assert list(needs.unmet(set(needs.NEEDS), ours, DataSettings())) == []
    wrapped = TowerSettings(text="roberta-ViT-B-32")
    ((word, reason),) = needs.unmet(set(needs.NEEDS), wrapped, DataSettings())
    assert word == "text_transformer"
    assert "towers.text roberta-ViT-B-32 is a model of transformers that open_clip wraps" in reason
    assert list(needs.unmet({"pixels", "tokens"}, wrapped, DataSettings())) == []
    assert list(needs.unmet((), wrapped, DataSettings())) == []
