"""Who beats whom, counted again from the records."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from itertools import combinations, permutations
from types import SimpleNamespace

import numpy as np

from bench.store import Store
from reports.compare import compare
from reports.figures.win_map import _shares, wins_picture
from reports.pages.html import page
from reports.results import Results, load
from reports.statistics.paired import LEVEL, MINIMUM, adjusted, difference
from reports.tables.csv import table_csv
from reports.tables.over_sets import main_scores
from reports.tables.table import Cell, Table
from reports.tables.wins import count_wins, wins_table

SUITE = "emoji_noisy"
CLEAN, NOISY = "0 % shuffled captions", "40 % shuffled captions"


def cell_of(table: Table, a: str, b: str, noise: str) -> Cell:
    (row,) = [row for row in table.rows if (row.method, row.group) == (a, noise)]
    return row.cells[[column.name for column in table.columns].index(b)]


def test_wins_are_counted_over_main_metrics(three: Store) -> None:
    results, table = load(SUITE, three), wins_table(load(SUITE, three))
    mains = {("zero_shot", "top1"), ("shift", "top1"), ("linear_probe", "accuracy"), ("retrieval", "mean_recall")}
    mains.add(("noise_detection", "auroc"))
    for noise, full in ((CLEAN, 14), (NOISY, 15)):
        for a, b in permutations(("clip", "sogclr", "prolip", "ncu"), 2):
            means = []
            for label in (a, b):
                score = results.methods[label]["score"]
                found: dict[tuple[str, str], list[float]] = {}
                for run in results.of(label, noise):
                    for (at, dataset, task, metric, kind), record in run.records.items():
                        if at == 1 and (task.partition("/")[0], metric) in mains and kind in (score, ""):
                            found.setdefault((dataset, task), []).append(record.value)
                means.append({key: np.mean(values) for key, values in found.items()})
            assert len(means[0]) == full
            cell = cell_of(table, a, b, noise)
            assert cell.value == sum(means[0][key] > means[1][key] for key in means[0])
            assert cell.also["of"] == full
            assert cell.value + cell_of(table, b, a, noise).value + cell.also["ties"] == full


def test_more_than_chance_is_holm_over_all_pairs_of_a_data_set(three: Store) -> None:
    results = load(SUITE, three)
    wins = count_wins(results, NOISY)
    assert wins.tested
    shown = 0
    for measure in (one.measure for one in main_scores(results, NOISY)):
        values = {
            label: {run.seed: measure.ask(run, entry["score"]).value for run in results.of(label, NOISY)}  # type: ignore[union-attr]
            for label, entry in results.methods.items()
        }
        tests = {f"{a} {b}": difference(values[a], values[b]) for a, b in combinations(values, 2)}
        shown += int((adjusted([test.p for test in tests.values() if test]) <= LEVEL).sum())
    assert sum(wins.shown.values()) == shown
    assert 0 < shown < sum(wins.better.values())
    assert all(wins.shown[pair] <= wins.better[pair] for pair in wins.shown)
    (line,) = [line for line in compare(SUITE, three, "sogclr", "ncu").lines if line.primary and line.noise == NOISY]
    assert line.test is not None  # the same test, alone: with all pairs to correct for it is stricter
    assert line.test.p < LEVEL


def test_equal_methods_tie_and_equal_numbers_are_never_apart(three: Store) -> None:
    results = load(SUITE, three)
    twins = {run.seed: run for run in results.of("clip", CLEAN)}
    runs = tuple(
        replace(run, records=twins[run.seed].records) if (run.method, run.noise) == ("siglip", CLEAN) else run
        for run in results.runs
    )
    table = wins_table(Results(results.plan, runs))
    cell = cell_of(table, "siglip", "clip", CLEAN)
    assert (cell.value, cell.also) == (0, {"ties": 14, "of": 14, "by more than chance": 0})


def test_below_three_seeds_only_the_plain_count_is_shown_and_said(tmp_path: object, stores: SimpleNamespace) -> None:
    store = stores.write_store(tmp_path, seeds=range(MINIMUM - 1))
    table = wins_table(load(SUITE, store))
    assert f"it takes {MINIMUM} seeds" in table.description
    assert "Holm" not in " ".join((table.description, *table.footnotes))
    cell = cell_of(table, "sogclr", "ncu", NOISY)
    assert (cell.value, cell.small) == (15, "")
    assert "by more than chance" not in table_csv(table)


def test_what_is_not_there_is_said(troubled: Store) -> None:
    table = wins_table(load(SUITE, troubled))
    assert cell_of(table, "ncu", "clip", NOISY).state == "failed"
    assert cell_of(table, "clip", "ncu", NOISY).state == "failed"
    assert cell_of(table, "clip", "permutation_0.1", NOISY).state == "missing"
    assert cell_of(table, "clip", "clip", NOISY).text == "–"
    assert cell_of(table, "clip", "all", NOISY).small.endswith(" of 45")  # three others have all 15 data sets
    assert cell_of(table, "clip", "sogclr", NOISY).small == "(0)"
    lines = list(csv.DictReader(io.StringIO(table_csv(table))))
    assert lines[0]["clip"] == "–"
    assert (lines[0]["sogclr of"], lines[0]["sogclr ties"]) == ("14", "0")


def test_the_map_shows_the_table(three: Store, one: Store) -> None:
    results = load(SUITE, three)
    table = wins_table(results)
    labels = list(results.methods)
    won, beyond = _shares(labels, [row for row in table.rows if row.group == NOISY])
    at = labels.index("clip"), labels.index("sogclr")
    assert (won[at], won[at[::-1]]) == (0, 1)
    assert np.isnan(won.diagonal()).all()
    assert beyond[at[::-1]] == cell_of(table, "sogclr", "clip", NOISY).also["by more than chance"] / 15
    first, again = wins_picture(results, table), wins_picture(results, table)
    assert first is not None
    assert first == again
    assert "more than chance" in first.caption
    assert first.figure is not None
    panel = next(axes for axes in first.figure.axes if axes.get_title() == NOISY)
    order = [text.get_text() for text in first.figure.axes[0].get_yticklabels()]
    means = np.nanmean(np.concatenate([_shares(labels, rows)[0] for _, rows in table.groups()], axis=1), axis=1)
    assert order == [labels[place] for place in np.argsort(-means, kind="stable")], "the best stands first"
    numbers = {text.get_position(): text.get_text() for text in panel.texts}
    row, column = order.index("sogclr"), order.index("clip")
    assert numbers[column, row - 0.22] == "100"
    assert len(numbers) == np.isfinite(won).sum(), "no number in the diagonal"
    text = page(results, [table], [])
    counts = cell_of(table, "sogclr", "clip", NOISY).also
    assert f'data-also="{"|".join(counts)}"' in text, "what opens on a click says the counts"
    assert f'data-also="{"|".join(f"{count:g}" for count in counts.values())}"' in text
    alone = wins_picture(load(SUITE, one), wins_table(load(SUITE, one)))
    assert alone is not None
    assert "more than chance" not in alone.caption
