"""Budgets as an axis of a report: from which one a method is better, Holm over budgets and methods, the figure."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from scipy import stats
from statsmodels.stats.multitest import multipletests

from bench.store import Store
from reports.build import build, figure_of
from reports.epochs import in_epochs
from reports.figures.figure_registry import draw
from reports.figures.figure_style import look
from reports.pages.answer import verdict
from reports.pages.html import page
from reports.reference.budgets import budgets_page, budgets_part
from reports.results import Results, load
from reports.statistics.regimes import regimes
from reports.tables.footnotes import context
from reports.tables.suite_tables import tables
from reports.tables.table import signed
from reports.tables.tuning import tuning_table

from . import stores

SUITE = "emoji_noisy"


@pytest.fixture(scope="module")
def store(bounded: Store, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The two noise rates of a store, told as two budgets of one rate."""
    store = Store(Path(shutil.copytree(bounded.root, tmp_path_factory.mktemp("regimes") / "store")))
    plan = store.plan(SUITE)
    stores.noises_as_budgets(plan)
    store.write_plan(SUITE, plan)
    return store


@pytest.fixture(scope="module")
def results(store: Store) -> Results:
    return load(SUITE, store)


@pytest.fixture
def in_flops(store: Store) -> dict[str, Any]:
    """The plan with budgets in FLOPs. An epoch of 4,500 pairs in batches of 128 has 35 steps."""
    plan: Any = store.plan(SUITE)
    spent = {10.0: 2.82e11, 40.0: 9.4e11}
    names = {one["label"]: f"40 % shuffled captions, {spent[one['budget']]:g} FLOPs" for one in plan["noises"]}
    for cell in plan["cells"]:
        steps = 1400 if "40 epochs" in cell["noise"] else 425
        cell |= {"steps": steps if cell["method"] == "clip" else steps // 2, "noise": names[cell["noise"]]}
    for block in plan["noises"]:
        block |= {"label": names[block["label"]], "budget": spent[block["budget"]]}
    plan["budget"] |= {"kind": "flops", "value": 9.4e11, "values": [2.82e11, 9.4e11], "unit": "FLOPs"}
    rungs = [{"budget": "2.82e+11 FLOPs", "settings": 4, "seeds": [1]}]
    plan["tuning"] = {"rungs": rungs, "rate": 0.4, "lr": None, "weight_decay": None, "methods": {}}
    plan["added"] = [["40 % shuffled captions, 9.4e+11 FLOPs", 3]]
    return dict(plan)


def test_budgets_in_flops_are_told_as_epochs_of_the_baseline(
    store: Store, in_flops: dict[str, Any], tmp_path: Path
) -> None:
    flops = Store(Path(shutil.copytree(store.root, tmp_path / "flops")))
    flops.write_plan(SUITE, in_flops)
    told = load(SUITE, flops)
    assert list(told.noises) == [f"40 % shuffled captions, {one} epochs of CLIP" for one in ("40", "12.1")]
    (found,) = regimes(told)
    assert (found.noise, found.unit, found.budgets) == ("40 % shuffled captions", "epochs of CLIP", (2.82e11, 9.4e11))
    assert found.numbers == {2.82e11: "12.1", 9.4e11: "40"}
    assert "40 % shuffled captions, 12.1 to 40 epochs of CLIP: significantly better" in found.sentence(told)
    assert {label for label, _ in found.significant}, "every run has the block of its plan"
    assert told.plan["added"] == [("40 % shuffled captions, 40 epochs of CLIP", 3)]
    assert told.budget("40 % shuffled captions, 40 epochs of CLIP") == 9.4e11
    page = " ".join(context(told))
    assert "Budgets: 2.82e+11, 9.4e+11 FLOPs (12.1 epochs of CLIP, 40 epochs of CLIP)" in page
    assert "4 settings at 12.1 epochs of CLIP" in " ".join(tuning_table(told).footnotes)


def test_budgets_in_flops_stay_where_epochs_do_not_tell_them_apart(in_flops: dict[str, Any]) -> None:
    assert in_epochs(in_flops, "CLIP") is not in_flops
    several = {**in_flops, "noises": [{**one, "towers": str(at)} for at, one in enumerate(in_flops["noises"])]}
    alike = {**in_flops, "cells": [{**cell, "steps": 1400} for cell in in_flops["cells"]]}
    untrained = {**in_flops, "cells": [{**cell, "steps": 0} for cell in in_flops["cells"]]}
    unknown = {**in_flops, "cells": [cell for cell in in_flops["cells"] if cell["method"] != "clip"]}
    no_batch = {**in_flops, "settings": {**in_flops["settings"], "train": {"batch": 0}}}
    for plan in (several, alike, untrained, unknown, no_batch):
        assert in_epochs(plan, "CLIP") is plan


def test_a_single_budget_in_flops_is_told_in_a_footnote(in_flops: dict[str, Any]) -> None:
    """Of a baseline that trains on half of the pairs, whose passes are shorter."""
    block = in_flops["noises"][0]
    cells = [{**cell, "kept_rows": 2250} for cell in in_flops["cells"] if cell["noise"] == block["label"]]
    budget = {"kind": "flops", "value": 9.4e11, "unit": "FLOPs"}
    about = context(Results({**in_flops, "budget": budget, "cells": cells}, ()))[0]
    assert about == "Budget of every run: 9.4e+11 FLOPs (82.4 epochs of CLIP)."


def test_what_is_significant_is_what_holm_over_both_leaves(results: Results) -> None:
    (found,) = regimes(results)
    assert (found.noise, found.unit, found.budgets) == ("40 % shuffled captions", "epochs", (10.0, 40.0))
    places, p_values = [], []
    for budget, contrast in zip(found.budgets, found.contrasts, strict=True):
        base = contrast.values[results.baseline]
        for label in contrast.ranked:
            if label != results.baseline:
                own = contrast.values[label]
                places.append((label, budget))
                p_values.append(stats.ttest_rel([own[s] for s in base], [base[s] for s in base]).pvalue)
    kept = multipletests(p_values, method="holm")[0]
    assert set(found.significant) == {place for place, significant in zip(places, kept, strict=True) if significant}
    assert found.significant
    assert len(found.significant) < len(places)


def test_since_is_the_smallest_budget_from_which_it_holds_at_all_larger_ones(results: Results) -> None:
    (found,) = regimes(results)
    gains = {place: np.sign(gain.value) for place, gain in found.significant.items()}
    for label in found.contrasts[0].gains:
        for better, sign in ((True, 1), (False, -1)):
            at = [budget for budget in found.budgets if gains.get((label, budget)) == sign]
            expected = None if 40.0 not in at else min(at)
            assert found.since(label, better) == expected, label


def test_the_verdict_says_who_is_better_if_all_budgets_are_corrected_together(results: Results) -> None:
    (found,) = regimes(results)
    won, _, jointly = verdict(results).partition(" With the tests of all budgets corrected together: ")
    assert won.startswith("Significantly better than CLIP under 40 % shuffled captions, 40 epochs: ")
    left = [label for label, budget in found.significant if budget == 40 and found.since(label, True)]
    largest_first = sorted(left, key=lambda label: -found.significant[label, 40].value)
    assert jointly.removesuffix(".").split(", ") == [results.named(label) for label in largest_first]


def test_the_page_of_all_budgets_has_each_gain_with_holms_p_and_what_was_memorised(results: Results) -> None:
    (found,) = regimes(results)
    rows = [line.split(" | ") for line in budgets_part(results) if line.startswith("| ")]
    head, *body = [[cell.strip("| ") for cell in row] for row in rows if "---" not in row[-1]]
    assert head[1:] == ["10 epochs", "40 epochs"], "nothing was memorised without the task"
    cells = {row[0]: row[1:] for row in body}
    for place, contrast in enumerate(found.contrasts):
        base = contrast.values[results.baseline]
        assert cells["CLIP"][place] == f"{100 * np.mean([*base.values()]):.1f} %"
        others = [label for label in contrast.ranked if label != results.baseline]
        tests = [stats.ttest_rel([contrast.values[label][s] for s in base], [*base.values()]) for label in others]
        for label, p in zip(others, multipletests([one.pvalue for one in tests], method="holm")[1], strict=True):
            cell, both = cells[results.named(label)][place], (label, found.budgets[place]) in found.significant
            gain = 100 * (np.mean([contrast.values[label][s] for s in base]) - np.mean([*base.values()]))
            text = f"{signed(gain / 100)} ({'<0.001' if p < 0.001 else f'{p:.3f}'})"
            assert cell == (f"**{text}**" if p <= 0.05 else text) + ("\\*" if both else ""), label
    assert next(iter(cells)) == "CLIP"
    assert budgets_page([[], budgets_part(results)]).count(f"## {results.suite}") == 1
    assert budgets_page([[]]) == ""


def test_a_budget_that_still_runs_is_no_null_result(results: Results) -> None:
    (whole,) = regimes(results)
    last = whole.contrasts[-1].noise
    started = Results(results.plan, tuple(run for run in results.runs if run.noise != last))
    (found,) = regimes(started)
    assert found.tested == (10.0,)
    assert found.sentence(started).startswith("40 % shuffled captions, 10 to 10 epochs: significantly better than")
    assert "no method; significantly worse" not in found.sentence(started)
    (found,) = regimes(Results(results.plan, ()))
    assert found.sentence(results) == "40 % shuffled captions: nothing is tested yet."


def test_the_report_draws_it_and_says_it(store: Store) -> None:
    build(SUITE, store)
    page = (store.suite(SUITE) / "report.html").read_text()
    (sentence,) = [one.sentence(load(SUITE, store)) for one in regimes(load(SUITE, store))]
    assert sentence.startswith("40 % shuffled captions, 10 to 40 epochs: significantly better than CLIP:")
    assert "Holm over methods and budgets" in sentence
    assert "Budgets: 10, 40 epochs" in page
    assert sentence in page.replace("&gt;", ">")
    assert (store.suite(SUITE) / "figures" / "regimes.png").is_file()


def test_a_line_is_the_gain_at_each_budget_with_its_interval(results: Results) -> None:
    (panel,) = figure_of(results, "regimes").axes
    (found,) = regimes(results)
    drawn = {tuple(np.round(line.get_ydata(), 9)): list(line.get_xdata()) for line in panel.lines}
    bars = [
        tuple(bar[:, 1].round(9))
        for one in panel.collections
        if isinstance(one, LineCollection)
        for bar in one.get_segments()
    ]
    for label in (*(one for one in results.ranked if one != "clip"), "oracle"):
        gains = [one.gain(label) for one in found.contrasts]
        assert drawn[tuple(round(100 * gain.value, 9) for gain in gains)] == [10, 40], label
        for gain in gains:
            assert (round(100 * gain.low, 9), round(100 * gain.high, 9)) in bars, label
    assert [text.get_text() for text in panel.get_xticklabels()] == ["10", "40"]


def test_figures_are_of_the_longest_budget_and_tables_stand_by_budget(results: Results) -> None:
    assert list(results.longest.noises) == ["40 % shuffled captions, 40 epochs"]
    assert {run.noise for run in results.longest.runs} == set(results.longest.noises)
    with look():
        drawn = {name: draw(name, results, {}) for name in ("differences", "regimes")}
    picture = drawn["differences"]
    assert [panel.get_title() for panel in picture.figure.axes] == ["40 % shuffled captions, 40 epochs"]
    assert picture.caption.endswith("At the longest budget of each noise.")
    assert "At the longest" not in drawn["regimes"].caption
    text = page(results, tables(results))
    overview = text[text.index('<section id="overview">') : text.index('<section id="tables">')]
    assert re.findall("<summary>([^<]*)</summary>", overview) == ["at 10 epochs"]
    longest, shorter = (
        overview[a:b] for a, b in ((0, overview.index("<details>")), (overview.index("<details>"), None))
    )
    assert (longest.count("<tbody"), shorter.count("<tbody")) == (2, 2), "a block and chance in each"
    assert ("40 epochs" in longest, "10 epochs" in longest) == (True, False)


def test_a_suite_with_one_budget_is_its_own_longest(bounded: Store) -> None:
    results = load(SUITE, bounded)
    assert results.longest is results


def test_a_suite_with_one_budget_has_none(bounded: Store) -> None:
    assert regimes(load(SUITE, bounded)) == []
