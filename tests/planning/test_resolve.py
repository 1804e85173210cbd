"""A budget buys whole steps, never more than it pays for; the search of a setting spreads over its range."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bench.errors import UserError
from bench.planning import tune
from bench.planning.budget import resolve
from bench.suite.settings import MethodEntry
from bench.suite.tune_settings import TuneSettings
from methods.protocol import Phase

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
    by_flops = resolve("flops", value, step_flops=price, **plain)
    seconds = {name: one / 7 for name, one in price.items()}
    by_time = resolve("device_seconds", value / 7, step_flops=dict.fromkeys(price, 1), step_seconds=seconds, **plain)
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
    resolved = resolve("epochs", epochs, **plain)
    assert resolved.steps == epochs * (rows // batch)
    assert resolved.epoch_steps == rows // batch
    assert resolved.budget_epoch_steps == 0
    assert resolve("samples", resolved.steps * batch, **plain) == resolved, "the same budget in another unit"


@quick
@given(st.integers(1, 30), st.integers(1, 3))
def test_parts_of_an_epoch_are_not_lost_to_rounding(parts: int, epochs: int) -> None:
    """0.1 + 0.2 of an epoch are three tenths of its steps, though not as floats."""
    value = sum([1 / parts] * parts * epochs)
    resolved = resolve("epochs", value, rows=3000, batch=10, phases=(Phase(),), step_flops={"train": 1})
    assert resolved.steps == 300 * epochs


def test_a_treated_run_passes_over_its_own_rows_while_its_budget_counts_all() -> None:
    plain = {"batch": 10, "phases": (Phase(),), "step_flops": {"train": 1}}
    treated = resolve("epochs", 4, rows=1000, seen=255, **plain)
    assert (treated.steps, treated.epoch_steps, treated.budget_epoch_steps) == (400, 25, 100)
    assert resolve("epochs", 4, rows=1000, seen=1000, **plain) == resolve("epochs", 4, rows=1000, **plain)
    with pytest.raises(UserError, match="batch is 10, but there are 9 training pairs"):
        resolve("epochs", 4, rows=1000, seen=9, **plain)


def test_less_than_a_step_is_no_run() -> None:
    plain = {"rows": 1000, "batch": 10, "phases": (Phase(),), "step_flops": {"train": 100}}
    for kind, value in (("samples", 9.9), ("epochs", 0.0099), ("flops", 99)):
        with pytest.raises(UserError, match=rf"budget\.{kind}: {value:g} leaves no step for phase 'train'; give more"):
            resolve(kind, value, **plain)
    for kind, value in (("samples", 10), ("epochs", 0.01), ("flops", 100)):
        assert resolve(kind, value, **plain).steps == 1


def test_steps_left_over_go_to_the_largest_remainders_in_order() -> None:
    shares = (Phase("a", 0.5), Phase("b", 0.3), Phase("c", 0.2))
    flops = dict.fromkeys("abc", 1)
    for steps, expected in ((10, (5, 3, 2)), (11, (6, 3, 2)), (12, (6, 4, 2)), (13, (6, 4, 3)), (14, (7, 4, 3))):
        resolved = resolve("samples", steps, rows=10, batch=1, phases=shares, step_flops=flops)
        assert tuple(count for _, count in resolved.phases) == expected


@quick
@given(st.integers(2, 12), st.integers(0, 50), st.floats(1e-5, 1e-2), st.floats(1.5, 1000))
def test_trials_spread_evenly_over_the_logarithm_of_a_range(trials: int, seed: int, low: float, factor: float) -> None:
    asked = TuneSettings(trials=trials, seed=seed, lr=(low, low * factor), temperature=(0.01, 0.1))
    settings = tune.settings_of(asked, MethodEntry(method="sogclr"))
    assert settings[0] == {}, "the first is the suite's own"
    rates = [one["lr"] for one in settings[1:]]
    assert len(rates) == trials - 1
    parts = len(rates)
    for number, rate in enumerate(rates):
        place = (math.log(rate) - math.log(low)) / math.log(factor)
        assert place == pytest.approx((number + 0.5) / parts, abs=0.006 / math.log(factor))
    temperatures = sorted(one["temperature"] for one in settings[1:])
    expected = [0.01 * 10 ** ((number + 0.5) / parts) for number in range(parts)]
    assert temperatures == pytest.approx(expected, rel=6e-3), "each once, in some order"
    assert tune.settings_of(asked, MethodEntry(method="sogclr")) == settings, "the same for every row of a suite"


def test_temperatures_are_paired_by_the_seed_and_not_in_order() -> None:
    def pairing(seed: int) -> list[float]:
        asked = TuneSettings(trials=7, seed=seed)
        return [one["temperature"] for one in tune.settings_of(asked, MethodEntry(method="sogclr"))[1:]]

    assert len({tuple(pairing(seed)) for seed in range(6)}) > 1
    assert any(pairing(seed) != sorted(pairing(seed)) for seed in range(6))


@pytest.mark.parametrize(
    ("entry", "tunes"),
    [
        (MethodEntry(method="clip"), False),
        (MethodEntry(method="clip", config={"learnable_scale": False}), True),
        (MethodEntry(method="clip", config={"learnable_scale": False, "temperature": 0.1}), False),
        (MethodEntry(method="sogclr"), True),
    ],
)
def test_a_temperature_is_tried_where_the_method_keeps_it_and_nobody_named_it(entry: MethodEntry, tunes: bool) -> None:
    settings = tune.settings_of(TuneSettings(trials=3), entry)
    assert all(("temperature" in one) is tunes for one in settings[1:])


def test_what_was_chosen_is_put_into_the_row_and_nothing_else() -> None:
    entry = MethodEntry(method="sogclr", label="mine", config={"gamma": 0.8}, lr=0.5)
    assert tune.applied(entry, {}) == entry
    changed = tune.applied(entry, {"lr": 1e-3, "temperature": 0.05})
    assert (changed.lr, changed.config) == (1e-3, {"gamma": 0.8, "temperature": 0.05})
    assert changed.model_copy(update={"lr": 0.5, "config": entry.config}) == entry
    assert entry.config == {"gamma": 0.8}, "the row that it was made from stays"


@pytest.mark.parametrize(
    ("scores", "best"),
    [([0.1, 0.3, 0.2], 1), ([0.2, 0.2, 0.1], 0), ([None, 0.0, None], 1), ([None, None], 0), ([0.0, None, 0.5], 2)],
)
def test_the_best_trial_is_the_first_of_the_highest_score(scores: list[float | None], best: int) -> None:
    trials = tuple(tune.Trial({"lr": float(n + 1)}, f"run{n}", None, score) for n, score in enumerate(scores))
    choice = tune.Choice(trials, {"samples": 7})
    assert choice.best is trials[best]
    written = choice.to_json()
    assert (written["chosen"], written["score"]) == ({"lr": float(best + 1)}, scores[best])
    assert [one["run"] for one in written["trials"]] == [trial.run for trial in trials]
    assert written["ledger"] == {"samples": 7}
