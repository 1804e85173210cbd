"""The answer of a report: sentences and figures about the primary metric, against the tests that they tell of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PathCollection

from bench.console.markup import html
from bench.store import Store
from reports.build import build, figure_of
from reports.figures.figure_registry import FIGURES, draw_all
from reports.figures.figure_style import look
from reports.figures.forest import SIGNIFICANT, answer, forest
from reports.pages.answer import (
    _difference,
    cost_answer,
    last_answer,
    next_step,
    question,
    scoreboard,
    validity_sentences,
    verdict,
)
from reports.pages.html import page
from reports.results import Results, load
from reports.statistics.contrasts import headline_contrasts
from reports.statistics.power import power
from reports.tables.suite_tables import ALIKE, relative_costs, spent, tables
from reports.tables.table import signed

from . import stores

SUITE = "emoji_noisy"


@pytest.fixture(scope="module")
def results(bounded: Store) -> Results:
    return load(SUITE, bounded)


def test_the_first_screen_says_who_wins_and_counts_the_verdicts_of_each_noise(
    results: Results, one: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "significantly better than CLIP on" in question(results)
    head, *rows = scoreboard(results)
    assert head == ("noise", "CLIP", "better", "worse", "inconclusive", "best", "on clean", "seeds")
    for contrast, (noise, score, *counts, best, _, seeds) in zip(headline_contrasts(results), rows, strict=True):
        shown = [test.adjusted <= 0.05 for test in contrast.gains.values()]
        above = [test.value > 0 for test in contrast.gains.values()]
        better = sum(one and up for one, up in zip(shown, above, strict=True))
        assert counts == [str(better), str(sum(shown) - better), str(len(shown) - sum(shown))]
        assert (noise, score, seeds) == (
            contrast.noise,
            f"{100 * np.mean(list(contrast.values['clip'].values())):.1f} %",
            "5",
        )
        widest = max(contrast.gains, key=lambda label: contrast.gains[label].value)
        assert best.startswith(f"{results.named(widest)} {signed(contrast.gains[widest].value)} (")
    noisy = headline_contrasts(results)[1]
    winners = {results.named(label) for label in noisy.gains if "better" in noisy.verdicts(label)}
    said = verdict(results)
    assert said.startswith(f"Significantly better than CLIP under {noisy.noise}: ")
    clean = headline_contrasts(results)[0]
    largest_first = sorted(noisy.gains, key=lambda label: -noisy.gains[label].value)
    gains = {label: clean.gain(label) for label in largest_first if results.named(label) in winners}
    expected = [
        f"{results.named(label)} ({signed(gain.value)} on clean pairs)" for label, gain in gains.items() if gain
    ]
    assert said.partition(": ")[2].rstrip(".").split(", ") == expected
    assert len(expected) == len(winners)
    assert [row[6] for row in rows] == ["–", signed(clean.gains[widest].value)]
    worse = replace(noisy, ranked=("clip", "siglip", "ncu"))
    with monkeypatch.context() as patch:
        patch.setattr("reports.statistics.contrasts.contrasts", lambda _: [worse])
        assert verdict(results) == f"No method is significantly better than CLIP under {noisy.noise}."
    gone = Results(results.plan, tuple(run for run in results.runs if run.method != "clip"))
    assert scoreboard(gone)[2][1] == "–", "nobody knows yet whether it has learned"
    single = load(SUITE, one)
    assert verdict(single) == "No answer yet: a test needs 3 seeds that a method shares with CLIP."
    assert scoreboard(single)[1][2:6] == ("–", "–", "–", "–")


def test_where_less_is_better_the_arrow_and_the_sign_agree(results: Results) -> None:
    """Successes of an attack: the baseline's falls from 50 % to 20 % by one method and rises to 70 % by another."""
    (*_, noisy) = headline_contrasts(results)
    success = {"clip": 0.5, "siglip": 0.2, "ncu": 0.7}
    values = {
        label: {seed: -one - 0.001 * seed * place for seed in range(5)}
        for place, (label, one) in enumerate(success.items())
    }
    column = replace(noisy.measure.column, higher_is_better=False)
    made = replace(noisy, measure=replace(noisy.measure, column=column), ranked=tuple(success), values=values)
    assert _difference(made, "siglip").startswith("50.0 % → 20.2 %, −29.8 (")
    assert _difference(made, "ncu").startswith("50.0 % → 70.4 %, +20.4 (")


def test_one_seed_answers_nothing(one: Store) -> None:
    results = load(SUITE, one)
    assert forest(results) is None


def test_only_what_is_shown_is_filled(results: Results) -> None:
    panels = figure_of(results, "differences").axes
    labels = [text.get_text() for text in panels[0].get_yticklabels()]
    for panel, one in zip(panels, headline_contrasts(results), strict=True):
        (points,) = [found for found in panel.collections if isinstance(found, PathCollection)]
        assert labels == [results.named(label) for label in one.gains]
        assert points.get_offsets()[:, 1].tolist() == list(range(len(labels)))
        for place, label in enumerate(one.gains):
            assert points.get_offsets()[place, 0] == pytest.approx(100 * one.gains[label].value)
            is_filled = points.get_facecolors()[place].tolist() != [1.0, 1.0, 1.0, 1.0]
            assert is_filled == (one.gains[label].adjusted <= 0.05), label


def test_the_answer_is_one_noise_sorted_with_what_is_significant_in_colour(results: Results, one: Store) -> None:
    with look():
        picture, without = answer(results), answer(load(SUITE, one))
    assert without is None, "one seed answers nothing"
    (panel,) = picture.figure.axes
    shown = headline_contrasts(results)[-1]
    best_first = sorted(shown.gains, key=lambda label: -shown.gains[label].value)
    assert [text.get_text() for text in panel.get_yticklabels()] == [results.named(label) for label in best_first]
    better = [label for label in best_first if "better" in shown.verdicts(label)]
    count = f"{len(better) or 'No'} of {len(best_first)} methods {'is' if len(better) < 2 else 'are'}"
    assert panel.get_title() == f"{count} significantly better than CLIP\n{shown.noise}"
    bars = [line for line in panel.lines if line.get_linewidth() == 1.4]
    for label, bar in zip(best_first, bars, strict=True):
        test = shown.gains[label]
        assert bar.get_xdata() == pytest.approx([100 * test.low, 100 * test.high])
        assert (bar.get_color() == SIGNIFICANT) == test.is_significant
    assert shown.gap
    assert f"{100 * shown.gap.value:+.1f}" in panel.texts[0].get_text()


def test_the_answer_shows_a_noise_under_which_a_method_is_better(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    noisy = headline_contrasts(results)[-1]
    without = replace(noisy, ranked=("clip", "siglip", "ncu"))
    monkeypatch.setattr("reports.figures.forest.tested_contrasts", lambda _: [without, noisy])
    with look():
        title = answer(results).figure.axes[0].get_title()
    assert f"of {len(noisy.gains)} methods" in title


def test_a_noise_whose_gap_is_not_resolved_has_no_band(tmp_path: Path) -> None:
    """Under the first noise the oracle is a row that is worse than the baseline."""
    methods = (*stores.METHODS[:2], ("oracle", "CLIP", 1.4, "cosine"))
    store = stores.write_store(tmp_path, methods=methods, rates=(0.2, 0.4), curve=(), diagnostics=False)
    whole, noise = load(SUITE, store), "20 % shuffled captions"
    kept = [run for run in whole.runs if (run.method, run.noise) != ("oracle", noise)]
    kept += [replace(run, method="oracle") for run in whole.of("siglip", noise)]
    results = Results(whole.plan, tuple(kept))
    bands = {panel.get_title(): len(panel.patches) for panel in figure_of(results, "differences").axes}
    assert bands == {"20 % shuffled captions": 0, "40 % shuffled captions": 1}, "no band of what there is to gain"


def test_the_page_begins_with_the_answer(results: Results, bounded: Store) -> None:
    text = page(results, tables(results), draw_all(results, {}, FIGURES))
    shown = ("figure-answer", "overview", "figures", "figure-differences", "figure-kept", "figure-radar", "tables")
    parts = ("answer", "validity", *shown)
    cost = text.index(str(html("<li>{}</li>", cost_answer(results))))
    assert text.index('id="figure-answer"') < cost < text.index('id="overview"')
    order = [text.index(f'id="{part}"') for part in parts]
    assert order == sorted(order)
    built = build(SUITE, bounded)
    said = (*validity_sentences(results), cost_answer(results), next_step(results))
    assert built.answers == (verdict(results), *said)
    assert [line.split()[0] for line in built.scoreboard] == [row[0].split()[0] for row in scoreboard(results)]


def test_the_next_step_is_seeds_that_decide_or_the_best_method(results: Results, one: Store) -> None:
    single = load(SUITE, one)
    spent_here = sum(spent(run.ledger, key) for run in single.runs for key in ("train_seconds", "evaluate_seconds"))
    minutes = max(1, round(2 * spent_here / 2 / 60))
    duration = f"about {minutes} min at the pace of the stored runs"
    assert next_step(single) == f"For a verdict: bench run {SUITE} --set 'seeds=[0, 1, 2]', {duration}"
    contrasts = headline_contrasts(results)
    unsure = [(abs(t.value) / t.std, c, label) for c in contrasts for label, t in c.gains.items() if t.adjusted > 0.05]
    effect, contrast, label = max(unsure, key=lambda found: found[0])
    n = next(n for n in range(2, 1000) if power(effect, n, 0.05 / len(contrast.gains)) >= 0.8)
    said = f"For a verdict on {results.named(label)}: bench run {SUITE} --set 'seeds={list(range(n))}', about "
    assert (next_step(results).startswith(said), n > 5) == (n <= 10, True)
    assert next_step(Results(results.plan, ())) == ""


def test_the_answer_says_what_the_methods_cost(results: Results) -> None:
    (table,) = [table for table in tables(results) if table.name == "cost"]
    place = [column.name for column in table.columns].index("relative cost")
    known = {row.method: row.cells[place].value for row in table.rows if row.method not in ("", "clip")}
    assert relative_costs(results) == pytest.approx(known), "the same under each noise"
    least, most = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    ends = f"from {known[least]:.2f} ({results.named(least)}) to {known[most]:.2f} ({results.named(most)})"
    assert cost_answer(results) == f"Cost: {ends} times CLIP's training FLOPs."
    assert f"<li>{cost_answer(results).replace(chr(39), '&#x27;')}</li>" in page(results, tables(results))
    nothing = Results(results.plan, tuple(replace(run, ledger={}) for run in results.runs))
    assert cost_answer(nothing) == ""


def test_a_column_of_equal_costs_is_left_out(results: Results) -> None:
    """At one budget it would be 1.00 in every line; the answer says it once."""
    assert "relative cost" in [column.name for column in tables(results)[0].columns]
    spent = {run.method: 0.8 * ALIKE * (run.method == "bayes") for run in results.runs}
    runs = tuple(
        replace(run, ledger={**run.ledger, "flops": 1e12 * (1 - spent[run.method]), "reference": None})
        for run in results.runs
    )
    alike = Results(results.plan, runs)
    assert "relative cost" not in [column.name for column in tables(alike)[0].columns]
    assert cost_answer(alike) == "Cost: about the same for all methods, 0.96 to 1.00 times CLIP's training FLOPs."


def test_a_recovered_gap_is_printed_as_a_number_and_not_as_a_note(results: Results) -> None:
    text = page(results, tables(results))
    section = text[text.index('<section id="recovered">') : text.index('<section id="resolution">')]
    assert section.count("<tbody>") == 1
    assert 'class="chance"' not in section


def test_figures_mark_what_is_not_verified(results: Results) -> None:
    entries = [{**entry, "fidelity": "reconstructed"} for entry in results.plan["methods"]]
    doubtful = Results({**results.plan, "methods": entries}, results.runs)
    for name in ("differences", "noise"):
        panel = figure_of(doubtful, name).axes[0]
        texts = [text.get_text() for text in (*panel.get_yticklabels(), *panel.texts)]
        assert {f"{doubtful.named(label)}‡" for label in doubtful.ranked if label != "clip"} <= set(texts), name


def test_the_last_weights_are_told_beside_the_best_of_each_run(three: Store, results: Results) -> None:
    assert last_answer(results) == "", "only the last weights were measured"
    along = load(SUITE, three)
    assert last_answer(along).endswith(
        "the last weights are at most 0.0 points behind the best (CLIP, 0 % shuffled captions) on top-1."
    )
    runs = []
    for run in along.runs:
        high = {key: replace(one, value=0.9 + 0.01 * run.seed) for key, one in run.records.items() if key[0] == 0.5}
        runs.append(replace(run, records={**run.records, **high}) if run.method == "ncu" and "40" in run.noise else run)
    own = [
        run.find("emoji/iid", "zero_shot/concept", "top1", "cosine")
        for run in along.of("ncu", "40 % shuffled captions")
    ]
    lost = np.mean([0.9 + 0.01 * seed - one.value for seed, one in enumerate(own) if one])
    said = f"at most {100 * lost:.1f} points behind the best (NCU, 40 % shuffled captions) on top-1."
    assert said in last_answer(Results(along.plan, tuple(runs)))
    lower = [
        replace(run, records={key: replace(one, higher_is_better=False) for key, one in run.records.items()})
        for run in runs
    ]
    assert said not in last_answer(Results(along.plan, tuple(lower))), "where lower is better the best is the lowest"
