"""Who beats whom, counted again from the records."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, permutations
from types import SimpleNamespace

import numpy as np

from bench.store import Store
from reports.compare import compare
from reports.results import Results, load
from reports.statistics.paired import LEVEL, MINIMUM, adjusted, difference
from reports.tables.over_sets import main_scores
from reports.tables.pairs import PairsOfMethods

SUITE = "emoji_noisy"
CLEAN, NOISY = "0 % shuffled captions", "40 % shuffled captions"


def pairs_of(results: Results, noise: str) -> PairsOfMethods:
    return PairsOfMethods(list(results.ranked), main_scores(results, noise))


def test_wins_are_counted_over_main_metrics(three: Store) -> None:
    results = load(SUITE, three)
    mains = {("zero_shot", "top1"), ("shift", "top1"), ("linear_probe", "accuracy"), ("retrieval", "mean_recall")}
    mains.add(("noise_detection", "auroc"))
    for noise, full in ((CLEAN, 14), (NOISY, 15)):
        pairs = pairs_of(results, noise)
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
            at = pairs.places[a], pairs.places[b]
            assert pairs.better[at] == sum(means[0][key] > means[1][key] for key in means[0])
            assert pairs.of[at] == full
            assert pairs.better[at] + pairs.better[at[::-1]] + pairs.ties[at] == full


def test_significant_wins_are_holm_over_all_pairs_of_a_data_set(three: Store) -> None:
    results = load(SUITE, three)
    pairs = pairs_of(results, NOISY)
    shown = 0
    for measure in (one.measure for one in main_scores(results, NOISY)):
        values = {
            label: {run.seed: measure.ask(run, entry["score"]).value for run in results.of(label, NOISY)}  # type: ignore[union-attr]
            for label, entry in results.methods.items()
        }
        tests = {f"{a} {b}": difference(values[a], values[b]) for a, b in combinations(values, 2)}
        shown += int((adjusted([test.p for test in tests.values() if test]) <= LEVEL).sum())
    assert pairs.shown.sum() == shown
    assert 0 < shown < pairs.better.sum()
    assert (pairs.shown <= pairs.better).all()
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
    pairs = pairs_of(Results(results.plan, runs), CLEAN)
    at = pairs.places["siglip"], pairs.places["clip"]
    assert (pairs.better[at], pairs.ties[at], pairs.of[at], pairs.shown[at]) == (0, 14, 14, 0)


def test_nothing_is_significant_below_three_seeds(tmp_path: object, stores: SimpleNamespace) -> None:
    pairs = pairs_of(load(SUITE, stores.write_store(tmp_path, seeds=range(MINIMUM - 1))), NOISY)
    assert pairs.better[pairs.places["sogclr"], pairs.places["ncu"]] == 15
    assert not pairs.shown.any()
