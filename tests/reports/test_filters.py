"""Filter or loss: the table of both with their interaction, and gains against the share kept, a line a budget."""

from __future__ import annotations

import shutil
from html import escape
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from bench.store import Store
from reports.build import figure_of
from reports.figures.subset_curves import kept_share
from reports.pages.html import printed_page
from reports.plan_fields import recipe
from reports.results import Results, load
from reports.statistics.contrasts import headline_contrasts
from reports.tables.filter_or_loss import filter_tables

from . import stores

SUITE = "emoji_noisy"
#: row of the made-up store -> its method, what it keeps of the pairs
ROWS = {
    "clip": ("clip", None),
    "siglip": ("rcl", None),
    "permutation_0.1": ("clip", 0.6),
    "sogclr": ("rcl", 0.6),
    "bayes": ("clip", 0.4),
    "ncu": ("rince", 0.6),
}


@pytest.fixture(scope="module")
def results(bounded: Store, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """A store whose rows are told as methods with and without a filter, and its two noise rates as two budgets."""
    store = Store(Path(shutil.copytree(bounded.root, tmp_path_factory.mktemp("filters") / "store")))
    plan = store.plan(SUITE)
    stores.noises_as_budgets(plan)
    clip = next(entry for entry in plan["methods"] if entry["label"] == "clip")
    for entry in plan["methods"]:
        if entry["label"] in ROWS:
            method, share = ROWS[entry["label"]]
            entry |= {**{name: clip.get(name) for name in ("preset", "config", "lr", "reference")}, "method": method}
            keep = {"label": f"score {share}", "about": "the pairs of highest cosine", "uses": "", "rule": "samples"}
            entry["keep"] = keep if share else None
    for cell in plan["cells"]:
        share = ROWS.get(cell["method"], ("", None))[1]
        cell["kept_rows"] = share and round(share * plan["data"]["rows"])
    store.write_plan(SUITE, plan)
    return load(SUITE, store)


def test_filter_loss_both_and_interaction_are_paired_by_seed(results: Results) -> None:
    (table,) = filter_tables(results)
    assert [row.label for row in table.rows] == ["sogclr", "sogclr"], "rince has no row of its own on all pairs"
    assert [column.name for column in table.columns] == ["filter", "loss", "both", "interaction"]
    p_values = []
    for row, one in zip(table.rows, headline_contrasts(results), strict=True):
        seeds = sorted(one.values["clip"])
        rows = ("clip", "permutation_0.1", "siglip", "sogclr")
        none, chosen, loss, both = (np.array([one.values[label][seed] for seed in seeds]) for label in rows)
        for cell, effect in zip(
            row.cells, (chosen - none, loss - none, both - none, both - chosen - loss + none), strict=True
        ):
            assert cell.value == pytest.approx(effect.mean())
            p_values.append(stats.ttest_1samp(effect, 0).pvalue)
            assert cell.also["p"] == pytest.approx(p_values[-1])
    shown = str(printed_page(results, [table]))
    assert all(cell.small and escape(cell.small) in shown for row in table.rows for cell in row.cells)
    found = [cell.also["p adjusted"] for row in table.rows for cell in row.cells]
    assert found == pytest.approx(multipletests(p_values, method="holm")[1])


def test_a_filter_beside_two_losses_is_one_test(results: Results) -> None:
    """Holm corrects over different tests: seven a budget, of eight cells."""
    methods = [dict(entry) for entry in results.plan["methods"]]
    by_label = {entry["label"]: entry for entry in methods}
    for label, keep in (("near", None), ("prolip", by_label["sogclr"]["keep"])):
        by_label[label] |= {**by_label["siglip"], "label": label, "method": "psd", "keep": keep}
    (table,) = filter_tables(Results({**results.plan, "methods": methods}, results.runs))
    assert [row.label for row in table.rows] == ["sogclr", "prolip"] * 2
    cells = {
        (row.group, column.name, "" if column.name == "filter" else row.label): cell.also
        for row in table.rows
        for column, cell in zip(table.columns, row.cells, strict=True)
    }
    assert len(cells) == 2 * 7
    adjusted = multipletests([also["p"] for also in cells.values()], method="holm")[1]
    assert [also["p adjusted"] for also in cells.values()] == pytest.approx(adjusted)


def test_entries_that_differ_in_how_weights_are_chosen_have_two_recipes() -> None:
    entry = {"method": "clip", "preset": None, "lr": 1e-3, "config": {}, "label": "clip", "keep": None}
    assert recipe({**entry, "label": "clip filtered", "keep": {"label": "score 0.6"}}) == recipe(entry)
    for more in ({"select": "noisy_validation"}, {"average": 0.5}, {"untrained": True}):
        assert recipe({**entry, **more}) != recipe(entry)


def test_without_such_rows_there_is_neither(bounded: Store) -> None:
    assert filter_tables(load(SUITE, bounded)) == []
    assert kept_share(load(SUITE, bounded)) is None


def test_a_line_a_budget_ends_at_the_baseline_itself(results: Results) -> None:
    panels = figure_of(results, "kept_share").axes
    (panel,) = [axes for axes in panels if axes.get_xlabel() == "pairs trained on, %"]
    gains = {
        one.noise: [one.gain(label) for label in ("bayes", "permutation_0.1")] for one in headline_contrasts(results)
    }
    for budget, drawn in zip((10, 40), panel.containers, strict=True):
        line = drawn.lines[0]
        assert drawn.get_label() == f"{budget} epochs"
        assert line.get_xdata() == pytest.approx([40, 60, 100], abs=0.1)
        (expected,) = [own for noise, own in gains.items() if f", {budget} epochs" in noise]
        assert line.get_ydata() == pytest.approx([*(100 * gain.value for gain in expected if gain), 0])
    levels = [line for line in panel.lines if len(set(np.round(line.get_ydata(), 12))) == 1]
    assert len(levels) == 3, "zero, and the oracle at each budget"
