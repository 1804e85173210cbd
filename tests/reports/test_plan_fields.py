"""A plan with a field missing or parts that do not fit is refused in one line that names the file and the field."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.store import Damaged, Store
from reports.results import load

from . import stores

SUITE = "emoji_noisy"
Change = Callable[[dict[str, Any]], object]
TRIAL = {"changes": {}, "run": "0" * 64, "score": 0.1}
CHOICE = {"chosen": {}, "score": 0.1, "trials": [TRIAL], "ledger": {"flops": 1, "train_seconds": 1}}
RUNG = {"budget": "10 epochs", "settings": 16, "seeds": [1000]}
TUNING = {"methods": {}, "rungs": [RUNG], "rate": 0.4, "lr": [1e-4, 1e-2], "weight_decay": None}
TABLES = {"paper": "ncu", "numbers": ["1"], "rows": {}, "towers": {}}


@pytest.fixture(scope="module")
def plan() -> dict[str, Any]:
    methods, rates, seeds = stores.METHODS[:2], (0.0, 0.4), (0,)
    cells = [stores.plan_cell(label, rate, 0) for label, *_ in methods for rate in rates]
    return stores.plan(SUITE, methods, rates, seeds, cells)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.update(methods=[]), "methods: is empty"),
        (lambda p: p.pop("noises"), "noises: is missing"),
        (lambda p: p.update(seeds=[]), "seeds: is empty"),
        (lambda p: p.update(primary=None), "primary: should be an object"),
        (lambda p: p.pop("primary"), "primary: is missing"),
        (lambda p: p["primary"].pop("metric"), "primary.metric: is missing"),
        (lambda p: p["methods"][1].update(label="clip"), "methods: duplicate label 'clip'"),
        (lambda p: p.update(baseline="clpi"), "baseline: 'clpi' is not among methods; did you mean 'clip'?"),
        (lambda p: p["cells"][2].update(method="clpi"), "cells.2.method: 'clpi' is not among methods; did you mean"),
        (lambda p: p["cells"][1].update(noise="x"), "cells.1.noise: 'x' is not among noises; valid: 0 % shuffled"),
        (lambda p: p["methods"][0].update(keep={"label": "x", "rule": "passes"}), "methods.0.keep.about: is missing"),
        (
            lambda p: p["methods"][0].update(keep={"label": "x", "about": "some", "uses": "", "rule": "pases"}),
            "methods.0.keep.rule: should be samples or passes",
        ),
        (lambda p: p["methods"][0].pop("lr"), "methods.0.lr: is missing"),
        (lambda p: p.update(tuning={"methods": {}}), "tuning.rungs: is missing"),
        (lambda p: p.update(tuning={**TUNING, "rungs": []}), "tuning.rungs: is empty"),
        (lambda p: p.update(tuning={**TUNING, "lr": [1.0]}), "tuning.lr: should be two numbers"),
        (
            lambda p: p.update(tuning={**TUNING, "methods": {"clip": {**CHOICE, "ledger": {"flops": 1}}}}),
            "tuning.methods.clip.ledger.train_seconds: is missing",
        ),
        (lambda p: p.update(tuning={**TUNING, "methods": {"clip": CHOICE}}), "tuning.methods.clip.points: is missing"),
        (lambda p: p.update(tuning={"methods": {}, "temperature": [0.01, 0.1]}), "tuning.budget: is missing"),
        (lambda p: p.update(tables={"paper": "ncu"}), "tables.numbers: is missing"),
        (lambda p: p["settings"]["train"].pop("batch"), "settings.train.batch: is missing"),
    ],
)
def test_what_does_not_fit_is_named(plan: dict[str, Any], change: Change, message: str, tmp_path: Path) -> None:
    changed = copy.deepcopy(plan)
    change(changed)
    store = Store(tmp_path)
    store.write_plan(SUITE, changed)
    with pytest.raises(Damaged, match=re.escape(f"plan.json: {message}")) as error:
        load(SUITE, store)
    assert str(error.value).endswith("; delete it, and `bench run emoji_noisy --plan-only` writes it again")


def test_a_plan_that_fits_is_read(plan: dict[str, Any], tmp_path: Path) -> None:
    store, own = Store(tmp_path), {**CHOICE, "points": 1, "default": None, "edge": []}
    for tuning in (TUNING, {**TUNING, "lr": None, "methods": {"clip": own}}):
        store.write_plan(SUITE, {**plan, "tuning": tuning, "tables": TABLES})
        assert load(SUITE, store).plan["tuning"] == tuning
