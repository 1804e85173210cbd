"""What a method says that is worth searching can be searched, and no method has more room in temperature than CLIP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.adapters import registry
from bench.adapters.scaffold import template_source
from bench.checks.card import space_faults
from bench.checks.pool import RankPool
from bench.checks.suite import CHECKS, run_checks, subject_of
from methods.clip import Clip
from methods.dcl import Dcl
from methods.ncu import Ncu
from methods.protocol import TEMPERATURE, Choice, Linear, Log
from methods.rince import Rince


def test_every_shipped_method_has_a_space() -> None:
    assert {name: space_faults(registry.find_method(name)) for name in registry.method_names()} == dict.fromkeys(
        registry.method_names(), ""
    )


def test_the_baselines_space_of_temperatures_is_no_smaller_than_anyones() -> None:
    own = Clip.space["temperature"]
    assert isinstance(own, Log)
    assert Clip.space["learnable_scale"] == Choice((True, False))
    for kind in map(registry.find_method, registry.method_names()):
        if isinstance(one := kind.space.get("temperature"), Linear):
            assert own.low <= one.low < one.high <= own.high, kind.name
        if isinstance(one := kind.space.get("scale"), Linear):
            assert own.low <= 1 / one.high < 1 / one.low <= own.high, kind.name


@pytest.mark.parametrize(
    ("method", "space", "wrong"),
    [
        (Clip, {}, "is empty"),
        (Clip, {"learnable_scale": Choice((True, False))}, "lacks temperature, the temperature or its start"),
        (Clip, {"temprature": Log(0.01, 0.5)}, "'temprature' is not a field of Config; did you mean 'temperature'?"),
        (Clip, {"temperature": (0.01, 0.5)}, "temperature: (0.01, 0.5) should be Log(low, high), Linear"),
        (Clip, {"temperature": Log(0.5, 0.01)}, "temperature: Log(low=0.5, high=0.01) should have low < high"),
        (Clip, {"temperature": Log(0.0, 0.5)}, "both positive if it is a Log"),
        (Clip, {"temperature": Log(0.1, 0.5)}, "temperature: the default 0.07 lies outside Log(low=0.1, high=0.5)"),
        (Clip, {**TEMPERATURE, "learnable_scale": Choice((False,))}, "learnable_scale: the default True lies outside"),
        (Rince, {**Rince.space, "temperature": Log(0.005, 0.5)}, "a point of it is refused: RinceConfig.q = 0.995"),
        (Dcl, {"temperature": Log(0.001, 1.0), "tau_plus": Linear(0.2, 0.5)}, "tau_plus: the default 0.1 lies outside"),
        (Ncu, {name: Log(0.01, 1.0) for name in ("forget", "gamma", "reg", "learn_share", "eda_alpha")}, "5 hyper-par"),
    ],
)
def test_a_wrong_space_is_named(method: Any, space: dict[str, Any], wrong: str) -> None:
    assert wrong in space_faults(type("Wrong", (method,), {"space": space}))


def test_a_method_that_takes_over_a_trained_temperature_need_not_search_it() -> None:
    assert "temperature" not in Ncu.space
    assert space_faults(Ncu) == ""


@pytest.mark.usefixtures("own_plugins")
def test_bench_check_refuses_a_wrong_space(tmp_path: Path) -> None:
    (card,) = [check for check in CHECKS if check.name == "card"]
    file = tmp_path / "my_loss.py"
    for space, outcome in (("Log(0.01, 0.5)", "passed"), ("Log(0.2, 0.5)", "failed")):
        file.write_text(template_source("my_loss").replace("Log(0.01, 0.5)", space))
        registry.clear_caches()
        (result,) = run_checks(subject_of(str(file)), RankPool(), (card,))
        assert result.outcome == outcome, result.reason
    assert "space: epsilon: the default 0.1 lies outside Log(low=0.2, high=0.5)" in result.reason
    registry.clear_caches()
