"""An external plan whose parts do not fit is refused in one line that names the file and the field."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.errors import UserError
from bench.store import Store
from reports.headlines import primary
from reports.plan_fields import refuse_unfit
from reports.results import Results, load

SUITE = "emoji_noisy"
Change = Callable[[dict[str, Any]], object]
TUNING = {"methods": {}, "rungs": [], "rate": 0.4, "lr": [1e-4, 1e-2], "weight_decay": None}
TABLES = {"paper": "ncu", "numbers": ["1"], "rows": {}, "towers": None}


@pytest.fixture(scope="module")
def plan(stores: SimpleNamespace) -> dict[str, Any]:
    methods, rates, seeds = stores.METHODS[:2], (0.0, 0.4), (0,)
    cells = [stores.plan_cell(label, rate, 0) for label, *_ in methods for rate in rates]
    return stores.plan(SUITE, methods, rates, seeds, cells)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.update(methods=[]), "methods is empty"),
        (lambda p: p.pop("noises"), "noises is empty"),
        (lambda p: p.update(seeds=[]), "seeds is empty"),
        (lambda p: p.update(primary=None), "primary.dataset is missing"),
        (lambda p: p["primary"].pop("metric"), "primary.metric is missing"),
        (lambda p: p["methods"][1].update(label="clip"), "methods: duplicate label 'clip'"),
        (lambda p: p.update(baseline="clpi"), "baseline: unknown label 'clpi'; did you mean 'clip'?"),
        (lambda p: p["cells"][2].update(method="clpi"), "cells.2.method: 'clpi' is not among methods; did you mean"),
        (lambda p: p["cells"][1].update(noise="x"), "cells.1.noise: 'x' is not among noises; valid: 0 % shuffled"),
        (lambda p: p["methods"][0].update(keep={"rule": "passes"}), "methods.0.keep.about is missing"),
        (
            lambda p: p["methods"][0].update(keep={"about": "some", "rule": "pases"}),
            "methods.0.keep.rule: 'pases' is unknown; did you mean 'passes'?",
        ),
        (lambda p: p.update(tuning={**TUNING, "lr": [1.0]}), "methods.0.lr is missing"),
        (lambda p: p.update(tuning={"methods": {}}), "tuning.rungs is missing"),
        (
            lambda p: p.update(tuning={**TUNING, "methods": {"clip": {"ledger": {"flops": 1}}}}),
            "tuning.methods.clip.ledger.train_seconds is missing",
        ),
        (
            lambda p: p.update(tuning={**TUNING, "methods": {"clip": {"ledger": {"flops": 1, "train_seconds": 1}}}}),
            "tuning.methods.clip.points is missing",
        ),
        (lambda p: p.update(tuning={"methods": {}, "temperature": [0.01, 0.1]}), "tuning.budget is missing"),
        (lambda p: p.update(tables={"paper": "ncu"}), "tables.numbers is missing"),
        (lambda p: (p.update(tables=TABLES), p["settings"]["train"].pop("batch")), "settings.train.batch is missing"),
    ],
)
def test_what_does_not_fit_is_named(plan: dict[str, Any], change: Change, message: str, tmp_path: Path) -> None:
    changed = copy.deepcopy(plan)
    change(changed)
    with pytest.raises(UserError, match=re.escape(f"plan.json: {message}")) as error:
        refuse_unfit(changed, tmp_path / "plan.json")
    assert str(error.value).endswith("; `bench run emoji_noisy --plan-only` writes the plan again")


def test_a_plan_without_a_headline_is_refused_by_what_shows_it(plan: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"emoji_noisy/plan.json: primary is missing; `bench run emoji_noisy"):
        primary(Results({name: value for name, value in plan.items() if name != "primary"}, ()))


def test_a_plan_that_fits_is_read_and_one_that_does_not_is_not(plan: dict[str, Any], tmp_path: Path) -> None:
    refuse_unfit(plan, tmp_path / "plan.json")
    tuned = [{**entry, "lr": 1e-3} for entry in plan["methods"]]
    refuse_unfit({**plan, "methods": tuned, "tuning": TUNING, "tables": TABLES}, tmp_path / "plan.json")
    with pytest.raises(UserError, match=r"tuning.lr should be two numbers"):
        refuse_unfit({**plan, "methods": tuned, "tuning": {**TUNING, "lr": [1.0]}}, tmp_path / "plan.json")
    store = Store(tmp_path)
    store.write_plan(SUITE, {**plan, "cells": [{**plan["cells"][0], "method": "clpi"}]})
    with pytest.raises(UserError, match=r"plan.json: cells.0.method: 'clpi'"):
        load(SUITE, store)
