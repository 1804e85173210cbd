"""A kind of budget is one entry: suites, plans, ledgers and tables take it from there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import bench
from bench.catalogue.budget_kinds import BUDGET_KINDS, BudgetKind
from bench.store import Store

HUNDREDS = BudgetKind(
    "hundreds",
    unit="hundreds of pairs",
    spent=lambda spent: spent.samples / 100,
    steps=lambda value, batch, _: int(value * 100 // batch),
)
SUITE = """\
name: hundreds
budget: {hundreds: 0.64}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16, threads: 1}
evaluate: {tasks: [zero_shot], datasets: {zero_shot: [emoji/iid]}}
methods: [clip]
"""


@pytest.fixture
def hundreds() -> Iterator[BudgetKind]:
    BUDGET_KINDS.add(HUNDREDS)
    yield HUNDREDS
    BUDGET_KINDS.remove("hundreds")


@pytest.mark.usefixtures("hundreds")
def test_one_entry_adds_a_kind_of_budget(tmp_path: Path) -> None:
    (tmp_path / "hundreds.yaml").write_text(SUITE)
    summary = bench.run_suite(tmp_path / "hundreds.yaml", tmp_path / "out")
    (identity,) = summary.done
    run = Store(tmp_path / "out").run(identity)
    assert run.settings()["budget"] == {"kind": "hundreds", "value": 0.64}
    assert run.status()["step"] == 4
    ledger = run.ledger()
    assert (ledger["samples"], ledger["spent_share"], ledger["over_budget"]) == (64, 1.0, False)
    page = bench.Results(tmp_path / "out").report().read_text()
    assert "Budget of every run: 0.64 hundreds of pairs" in page


@pytest.mark.usefixtures("hundreds")
def test_a_kind_that_is_not_there_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "odd.yaml").write_text(SUITE.replace("{hundreds:", "{hundred:"))
    with pytest.raises(bench.UserError, match=r"odd.yaml:2: budget.hundred: unknown key; did you mean 'hundreds'"):
        bench.load_suite(tmp_path / "odd.yaml")
    with pytest.raises(bench.UserError, match="'epochs' is already a kind of budget"):
        BUDGET_KINDS.add(BudgetKind("epochs", "epochs", HUNDREDS.spent, HUNDREDS.steps))


def test_every_kind_says_what_a_step_buys() -> None:
    assert list(BUDGET_KINDS.names()) == ["epochs", "samples", "flops", "device_seconds"]
    for kind in BUDGET_KINDS:
        assert (kind.steps is None) == (kind.name in ("flops", "device_seconds"))
        assert kind.timed == (kind.name == "device_seconds")
