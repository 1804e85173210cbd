"""A budget buys whole steps, never more than it pays for; the search of a setting spreads over its range."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bench.adapters import hyperparameters, registry
from bench.errors import UserError
from bench.planning import trial_settings, tune
from bench.planning.planner import resolve_budget
from bench.suite.settings import MethodEntry
from bench.suite.suite import load_suite
from bench.suite.tune_settings import TuneSettings
from methods.protocol import Log, Phase

quick = settings(deadline=None, max_examples=60)
SHARES = st.lists(st.floats(0.1, 1.0), min_size=1, max_size=4)


def phases(shares: list[float]) -> tuple[Phase, ...]:
    return tuple(Phase(f"p{number}", share / sum(shares)) for number, share in enumerate(shares))


@quick
@given(SHARES, st.lists(st.integers(1, 1000), min_size=4, max_size=4), st.integers(5_000, 10**6))
def test_a_budget_of_cost_pays_for_each_phase_and_for_no_further_step(
    shares: list[float], prices: list[int], value: int
) -> None:
    own = phases(shares)
    price = {phase.name: prices[number] for number, phase in enumerate(own)}
    assume(all(value * phase.share >= price[phase.name] for phase in own))
    plain = {"rows": 100, "batch": 10, "phases": own}
    by_flops = resolve_budget("flops", value, step_flops=price, **plain)
    seconds = {name: one / 7 for name, one in price.items()}
    by_time = resolve_budget(
        "device_seconds", value / 7, step_flops=dict.fromkeys(price, 1), step_seconds=seconds, **plain
    )
    for (name, steps), (_, timed), phase in zip(by_flops.phases, by_time.phases, own, strict=True):
        assert steps * price[name] <= value * phase.share * (1 + 1e-12)
        assert (steps + 1) * price[name] > value * phase.share * (1 - 1e-12)
        assert abs(timed - steps) <= 1, "seconds in proportion to FLOPs buy the same, but for rounding"
    assert by_flops.flops <= value * (1 + 1e-12)


@quick
@given(st.integers(2, 300), st.integers(2, 300), st.integers(1, 40))
def test_epochs_are_passes_of_whole_batches(batch: int, more: int, epochs: int) -> None:
    rows = batch + more
    plain = {"rows": rows, "batch": batch, "phases": (Phase(),), "step_flops": {"train": 1}}
    resolved = resolve_budget("epochs", epochs, **plain)
    assert resolved.steps == epochs * (rows // batch)
    assert resolved.epoch_steps == rows // batch
    assert resolved.budget_epoch_steps == 0
    assert resolve_budget("samples", resolved.steps * batch, **plain) == resolved, "the same budget in another unit"


@quick
@given(st.integers(1, 30), st.integers(1, 3))
def test_parts_of_an_epoch_are_not_lost_to_rounding(parts: int, epochs: int) -> None:
    """0.1 + 0.2 of an epoch are three tenths of its steps, though not as floats."""
    value = sum([1 / parts] * parts * epochs)
    resolved = resolve_budget("epochs", value, rows=3000, batch=10, phases=(Phase(),), step_flops={"train": 1})
    assert resolved.steps == 300 * epochs


def test_a_treated_run_passes_over_its_own_rows_while_its_budget_counts_all() -> None:
    plain = {"batch": 10, "phases": (Phase(),), "step_flops": {"train": 1}}
    treated = resolve_budget("epochs", 4, rows=1000, seen=255, **plain)
    assert (treated.steps, treated.epoch_steps, treated.budget_epoch_steps) == (400, 25, 100)
    assert resolve_budget("epochs", 4, rows=1000, seen=1000, **plain) == resolve_budget("epochs", 4, rows=1000, **plain)
    with pytest.raises(UserError, match="batch is 10, but there are 9 training pairs"):
        resolve_budget("epochs", 4, rows=1000, seen=9, **plain)


def test_less_than_a_step_is_no_run() -> None:
    plain = {"rows": 1000, "batch": 10, "phases": (Phase(),), "step_flops": {"train": 100}}
    for kind, value in (("samples", 9.9), ("epochs", 0.0099), ("flops", 99)):
        with pytest.raises(
            UserError, match=rf"budget\.{kind}: {value:g} leaves no step for phase 'train'; increase it"
        ):
            resolve_budget(kind, value, **plain)
    for kind, value in (("samples", 10), ("epochs", 0.01), ("flops", 100)):
        assert resolve_budget(kind, value, **plain).steps == 1


def test_steps_left_over_go_to_the_largest_remainders_in_order() -> None:
    shares = (Phase("a", 0.5), Phase("b", 0.3), Phase("c", 0.2))
    flops = dict.fromkeys("abc", 1)
    for steps, expected in ((10, (5, 3, 2)), (11, (6, 3, 2)), (12, (6, 4, 2)), (13, (6, 4, 3)), (14, (7, 4, 3))):
        resolved = resolve_budget("samples", steps, rows=10, batch=1, phases=shares, step_flops=flops)
        assert tuple(count for _, count in resolved.phases) == expected


@quick
@given(st.integers(2, 40), st.sampled_from(["clip", "rince", "isogclr", "siglip", "osa"]), st.floats(1.5, 1000))
def test_points_lie_inside_the_ranges_and_are_the_same_at_any_time(trials: int, method: str, factor: float) -> None:
    entry = MethodEntry(method=method)
    asked = TuneSettings(trials=trials, lr=(1e-4, 1e-4 * factor), weight_decay=(0.01, 1.0))
    settings, space = trial_settings.settings_of(asked, entry), trial_settings.space_of(asked, entry)
    assert settings[0] == {}, "the first is the row's own"
    assert len(settings) == trials
    for changes in settings[1:]:
        assert list(changes) == ["lr", "weight_decay", *registry.find_method(method).space]
        assert all(-0.01 <= space[name].place(value) < 1.01 for name, value in changes.items())
        hyperparameters.resolve_config(method, None, trial_settings.applied(entry, changes).config)  # refuses none
    assert trial_settings.settings_of(asked.model_copy(update={"trials": trials + 5}), entry)[:trials] == settings
    other = trial_settings.settings_of(asked, MethodEntry(method="dcl"))
    assert [one["lr"] for one in other[1:]] == [one["lr"] for one in settings[1:]], "the same for every row of a suite"


def test_sixteen_starts_reach_every_sixteenth_of_a_range_and_both_choices() -> None:
    settings = trial_settings.settings_of(TuneSettings(trials=16, lr=(1e-4, 1e-2)), MethodEntry(method="clip"))
    places = sorted(Log(1e-4, 1e-2).place(one["lr"]) for one in settings[1:])
    assert places == pytest.approx([number / 16 for number in range(1, 16)], abs=1e-3)
    assert sorted(one["learnable_scale"] for one in settings[1:]) == [False] * 8 + [True] * 7


def test_what_a_row_names_itself_is_fixed_and_no_range_is_no_search() -> None:
    asked = TuneSettings(trials=4, lr=(1e-4, 1e-2), weight_decay=(0.01, 1.0))
    fixed = MethodEntry(method="clip", config={"learnable_scale": False}, lr=1e-3)
    assert list(trial_settings.space_of(asked, fixed)) == ["weight_decay", "temperature"]
    assert list(trial_settings.space_of(TuneSettings(trials=4), MethodEntry(method="clip"))) == [
        "temperature",
        "learnable_scale",
    ]
    bare = MethodEntry(method="clip", config={"learnable_scale": False, "temperature": 0.1})
    assert trial_settings.settings_of(TuneSettings(trials=4), bare) == [{}]


def test_budgets_halve_the_settings_and_the_last_has_all_seeds() -> None:
    asked = TuneSettings.model_validate({"trials": 16, "budget": [{"epochs": 10}, {"epochs": 40}, {"epochs": 160}]})
    assert [(budget and budget.value, count, seeds) for budget, count, seeds in asked.rungs] == [
        (10, 16, (1000,)),
        (40, 4, (1000,)),
        (160, 2, (1000, 1001, 1002)),
    ]
    assert asked.runs == 16 + 4 + 2 * 3
    assert TuneSettings(trials=8).rungs == [(None, 8, (1000, 1001, 1002))]


@pytest.mark.parametrize(
    ("scores", "count", "expected"),
    [
        ([0.9, 0.1, 0.3, 0.2], 2, [0, 2]),
        ([0.0, 0.1, 0.3, 0.2], 3, [0, 2, 3]),
        ([None, 0.2, 0.2, 0.1], 2, [0, 1]),
        ([0.5, None, None, 0.0], 2, [0, 3]),
        ([0.5, None, None, None], 2, [0, 1]),
        ([0.5], 4, [0]),
    ],
)
def test_the_own_settings_and_the_best_others_go_on(
    scores: list[float | None], count: int, expected: list[int]
) -> None:
    assert tune.surviving_settings(dict(enumerate(scores)), count) == expected


EDGES = """\
name: edges
budget: {epochs: 1}
train: {lr: 1.0e-3, weight_decay: 0.1}
tune: {trials: 4, lr: [1.0e-4, 1.0e-2], weight_decay: [0.09, 1.0]}
methods: [clip]
"""


def test_a_setting_in_the_outer_tenth_of_its_range_is_at_an_edge_if_leaving_it_costs(tmp_path: Path) -> None:
    (tmp_path / "edges.yaml").write_text(EDGES)
    suite = load_suite(tmp_path / "edges.yaml")
    (entry,) = suite.methods

    def edge(*finals: tuple[dict[str, Any], float | None]) -> tuple[str, ...]:
        return tuple(trial_settings.settings_at_edge(suite, entry, finals))

    assert edge(({}, 0.5)) == ("weight_decay",), "of a range on a logarithmic scale, 0.1 of 0.09 to 1"
    best: dict[str, Any] = {"weight_decay": 0.3, "lr": 1.5e-4}
    assert edge((best, 0.5)) == ("lr",)
    assert edge(({"weight_decay": 0.3, "lr": 1.7e-4, "learnable_scale": False}, 0.5)) == ()
    assert edge(({"weight_decay": 0.3, "temperature": 0.4}, 0.5)) == ("temperature",)
    inside: dict[str, Any] = {"weight_decay": 0.3, "lr": 1e-3}
    assert edge((inside, 0.4849), (best, 0.5)) == ("lr",), "it loses more than 3 % by leaving the edge"
    assert edge((inside, 0.4851), (best, 0.5)) == (), "the score does not depend on it"
    assert edge((best, 0.49), ({**best, "lr": 1.1e-4}, 0.5)) == ("lr",), "both are at the same end"
    assert edge((best, 0.49), ({**best, "lr": 9e-3}, 0.5)) == (), "either end is as good"
    assert edge((best, None), (inside, 0.1)) == ()
    assert edge((best, None)) == ()
    assert trial_settings.settings_at_edge(suite, entry, [(best, 0.5)]) == {"lr": {"weight_decay": 0.3}}, (
        "back at the row's own"
    )
    middle = trial_settings.settings_at_edge(suite, entry, [({}, 0.5)])
    assert middle == {"weight_decay": {"weight_decay": 0.3}}, "the row's own lies at the same end"
    assert [trial_settings.is_as_good(score, 0.5) for score in (0.485, 0.4849, None)] == [True, False, False]


@pytest.mark.parametrize(("others", "away", "edge"), [(0.49, 0.0, []), (0.1, 0.49, []), (0.1, 0.1, ["weight_decay"])])
def test_a_setting_in_the_outer_tenth_is_named_in_the_plan_whether_or_not_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: float, away: float, edge: list[str]
) -> None:
    """The row's own weight decay of 0.1, and the score of other trials and of a further one away from it."""
    (tmp_path / "edges.yaml").write_text(EDGES)
    suite = load_suite(tmp_path / "edges.yaml")

    def measured(_suite: object, trials: Any, rung: int, found: tune.Followed, _planner: object) -> Any:
        found.made["clip"] = [(tune.Trial({}, 0, 7, "run", None, 0.5), None)]
        return {label: {n: away if rung else others if n else 0.5 for n in own} for label, own in trials.items()}

    monkeypatch.setattr(tune, "_measured", measured)
    monkeypatch.setattr(tune, "_spent", lambda *_: {})
    found = tune._follow(suite, suite.methods, tune.Followed(), mock.Mock())
    written = found.choices["clip"].to_json()
    assert (written["chosen"], written["edge"], written["outer"]) == ({}, edge, ["weight_decay"])


def test_what_was_chosen_is_put_into_the_row_and_nothing_else() -> None:
    entry = MethodEntry(method="sogclr", label="mine", config={"gamma": 0.8}, lr=0.5)
    assert trial_settings.applied(entry, {}) == entry
    changed = trial_settings.applied(entry, {"lr": 1e-3, "weight_decay": 0.2, "temperature": 0.05})
    assert (changed.recipe, changed.config) == ({"lr": 1e-3, "weight_decay": 0.2}, {"gamma": 0.8, "temperature": 0.05})
    assert changed.model_copy(update={"lr": 0.5, "weight_decay": None, "config": entry.config}) == entry
    assert entry.config == {"gamma": 0.8}, "the row that it was made from stays"


@pytest.mark.parametrize(
    ("scores", "best"),
    [([0.1, 0.3, 0.2], 1), ([0.2, 0.2, 0.1], 0), ([None, 0.0, None], 1), ([None, None], 0), ([0.0, None, 0.5], 2)],
)
def test_the_best_trial_is_the_first_of_the_highest_score(scores: list[float | None], best: int) -> None:
    finals = tuple(({"lr": float(n + 1)}, score) for n, score in enumerate(scores))
    trials = tuple(
        tune.Trial(changes, 0, seed, f"run{n}, {seed}", None, score)
        for n, (changes, score) in enumerate(finals)
        for seed in (7, 8)
    )
    choice = tune.Choice(trials, finals, {"samples": 7}, ("lr",))
    assert choice.best is finals[best]
    written = choice.to_json()
    assert (written["chosen"], written["score"]) == ({"lr": float(best + 1)}, scores[best])
    assert (written["points"], written["default"], written["edge"]) == (len(scores), scores[0], ["lr"])
    assert [one["run"] for one in written["trials"]] == [trial.run for trial in trials]
    assert written["ledger"] == {"samples": 7}
