"""Methods against the baseline: gains, what the seeds can show, the recovered gap, `bench stats power`."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import ttost_paired

from bench.errors import UserError
from bench.store import Store
from reports.headlines import headlines, primary
from reports.measure import column_name
from reports.results import Results, load
from reports.seeds import seed_needs
from reports.statistics.contrasts import MARGIN, Contrast, contrasts, equivalence
from reports.statistics.kept import Kept
from reports.statistics.paired import LEVEL, t_test
from reports.statistics.ratio import fieller
from reports.tables.csv import table_frame
from reports.tables.footnotes import planned_seeds
from reports.tables.suite_tables import tables
from reports.tables.table import Cell, Table, signed

from ..command import call_bench

SUITE = "emoji_noisy"
CLEAN, NOISY = "0 % shuffled captions", "40 % shuffled captions"


@pytest.fixture(scope="module")
def results(bounded: Store) -> Results:
    return load(SUITE, bounded)


@pytest.fixture(scope="module")
def headline(results: Results) -> Contrast:
    """The suite's headline number under noise."""
    return headline_of(results, NOISY)


def headline_of(results: Results, noise: str) -> Contrast:
    name = column_name(*primary(results))
    (one,) = [one for one in contrasts(results) if (one.measure.column.name, one.noise) == (name, noise)]
    return one


def scores(results: Results, label: str, noise: str) -> np.ndarray:
    """[seeds], read from the records again."""
    named, score = primary(results), results.methods[label]["score"]
    records = [run.find(*named, score) for run in results.of(label, noise)]
    return np.array([record.value for record in records])


def cells(table: Table, row: str, group: str = "") -> tuple[Cell, ...]:
    (line,) = [line for line in table.rows if (line.label, line.group) == (row, group)]
    return line.cells


def test_gains_are_paired_t_tests_adjusted_over_the_compared_methods(results: Results, headline: Contrast) -> None:
    others = [label for label in results.ranked if label != "clip"]
    assert "oracle" not in others
    oracle = [stats.ttest_rel(scores(results, label, NOISY), scores(results, "clip", NOISY)) for label in others]
    rejected, steps, *_ = multipletests([one.pvalue for one in oracle], LEVEL, "holm")
    assert list(headline.gains) == others
    assert [test.adjusted for test in headline.gains.values()] == pytest.approx(steps)
    for label, one, shown in zip(others, oracle, rejected, strict=True):
        interval = one.confidence_interval(0.95)
        gain, alone = headline.gains[label], headline.gain(label)
        assert (alone.low, alone.high) == pytest.approx((interval.low, interval.high))
        assert (gain.low <= 0 <= gain.high) == (not shown)
        word = ("better" if gain.value > 0 else "worse") if shown else ""
        assert (headline.verdicts(label) or ("",))[0] in (word, "practically the same")
    assert {headline.verdicts(label) for label in ("sogclr", "ncu")} == {("better",), ("worse",)}


def test_practically_the_same_is_within_a_tenth_of_the_oracles_gain(results: Results, headline: Contrast) -> None:
    base = scores(results, "clip", NOISY)
    margin = MARGIN * (scores(results, "oracle", NOISY) - base).mean()
    near = {seed: headline.values["clip"][seed] + 0.001 * (seed % 2) for seed in range(5)}
    headline = replace(headline, values={**headline.values, "near": near})
    p_values = []
    for label, gain in headline.gains.items():
        own = np.array(list(headline.values[label].values()))
        expected, *_ = ttost_paired(own, base, -margin, margin)
        assert equivalence(gain, margin) == pytest.approx(expected)
        p_values.append(expected)
    rejected, *_ = multipletests(p_values, LEVEL, "holm")
    assert headline.same == {label for label, same in zip(headline.gains, rejected, strict=True) if same} == {"near"}
    assert headline.verdicts("near") == ("practically the same",)
    assert headline_of(results, CLEAN).same == set(), "without a gap there is no margin"


def test_an_exact_tie_is_equivalent_and_a_far_one_is_not() -> None:
    assert equivalence(t_test([0.0, 0.0, 0.0]), 0.01) == 1 / 8, "the exact sign test"
    assert equivalence(t_test([0.002] * 10), 0.01) == 2**-10
    assert equivalence(t_test([0.02, 0.02, 0.02]), 0.01) == 1
    assert equivalence(t_test([0.02, 0.021, 0.019]), 0.01) > 0.99


def test_the_detectable_difference_is_the_median_over_methods_above_chance(
    results: Results, headline: Contrast
) -> None:
    spreads = [
        np.std(scores(results, label, NOISY) - scores(results, "clip", NOISY), ddof=1) for label in headline.gains
    ]
    one = headline.detectable
    sizes = [TTestPower().solve_power(nobs=5, alpha=level, power=0.8) for level in (0.05, 0.05 / len(spreads))]
    assert (one.std, one.n, one.rows) == (pytest.approx(np.median(spreads)), 5, 7)
    assert one.value == pytest.approx(sizes[0] * np.median(spreads), rel=1e-5)
    assert one.adjusted == pytest.approx(sizes[1] * np.median(spreads), rel=1e-5)
    gap = scores(results, "oracle", NOISY).mean() - scores(results, "clip", NOISY).mean()
    assert headline.resolution.value == pytest.approx(gap / one.value)
    assert headline.resolution.low < headline.resolution.value < headline.resolution.high
    collapsed = {**headline.values, **{label: dict.fromkeys(range(5), 0.002) for label in ("ncu", "siglip", "bayes")}}
    left = replace(headline, values=collapsed).detectable
    assert left.std == pytest.approx(np.median([headline.gains[label].std for label in left_over(headline)]))
    assert left.rows == 7, "all are tested, whatever they say of the spread"


def left_over(headline: Contrast) -> list[str]:
    return [label for label in headline.gains if label not in ("ncu", "siglip", "bayes")]


def test_recovered_gaps_are_fiellers_over_noise_rates(results: Results) -> None:
    (table,) = [table for table in tables(results) if table.name == "recovered"]
    assert [column.label for column in table.columns] == [NOISY] * (len(headlines(results)))
    assert [row.label for row in table.rows] == [
        "oracle − CLIP, points", *(label for label in results.methods if label not in ("clip", "oracle"))
    ]  # fmt: skip
    base = scores(results, "clip", NOISY)
    gap = scores(results, "oracle", NOISY) - base
    ratio = fieller((scores(results, "sogclr", NOISY) - base).tolist(), gap.tolist())
    cell = cells(table, "sogclr")[0]
    assert (cell.value, cell.also["low"], cell.also["high"]) == pytest.approx((ratio.value, ratio.low, ratio.high))
    assert cells(table, "oracle − CLIP, points")[0].text.startswith(f"{signed(gap.mean())} (")
    assert not any(cell.bold for row in table.rows for cell in row.cells)
    assert "Intervals (95 %) are over n = 5 seeds (0, 1, 2, 3, 4) on these test sets" in " ".join(table.footnotes)


def test_the_csv_has_interval_and_p_beside_each_difference_and_no_std(results: Results, headline: Contrast) -> None:
    made = {table.name: table_frame(table) for table in tables(results)}
    frame, name = made["differences"], "Zero-shot emoji/iid top-1"
    (line,) = frame[(frame["row"] == "sogclr") & (frame["noise"] == NOISY)].to_dict("records")
    gain = headline.gains["sogclr"]
    assert (line[name], line[f"{name} n"]) == (gain.value, 5)
    ends = [f"{one:.12g}" for one in (gain.low, gain.high, gain.adjusted)]
    assert [str(line[f"{name} {what}"]) for what in ("low", "high", "p adjusted")] == ends
    assert not [column for column in frame.columns if column.endswith((" std", " bold"))]
    assert "Noise found AUROC low" in frame.columns


def test_a_gap_within_noise_recovers_nothing(results: Results) -> None:
    values = {run.run: run for run in results.of("clip", NOISY)}
    base = {run.seed: run for run in values.values()}
    runs = tuple(
        replace(run, records=base[(run.seed + 1) % 5].records) if (run.method, run.noise) == ("oracle", NOISY) else run
        for run in results.runs
    )
    made = {table.name: table for table in tables(Results(results.plan, runs))}
    assert cells(made["recovered"], "sogclr")[0].text == "gap not resolved"
    assert "practically" not in cells(made["differences"], "near", NOISY)[0].small


def test_numbers_without_spread_are_no_certainty(headline: Contrast) -> None:
    """Three seeds of one and the same gap have p = 0.25 by the sign test."""
    base = {0: 0.25, 1: 0.5, 2: 0.375}
    values = {"clip": base} | {
        label: {seed: x + more for seed, x in base.items()} for label, more in (("oracle", 0.125), ("ncu", 0.0625))
    }
    alike = replace(headline, values=values, ranked=("clip", "ncu"))
    assert (alike.recovered("ncu"), alike.detectable, alike.resolution) == (None, None, None)
    values["oracle"] = {seed: x + 0.125 + 0.001 * seed for seed, x in base.items()}
    assert replace(alike, values=values).recovered("ncu").value == pytest.approx(0.0625 / 0.126)


def test_a_method_that_the_towers_do_not_suit_recovers_nothing_and_is_not_missing(results: Results) -> None:
    methods = [
        {**one, "inapplicable": {"": "needs pixels"}} if one["label"] == "near" else one
        for one in results.plan["methods"]
    ]
    without = Results({**results.plan, "methods": methods}, tuple(run for run in results.runs if run.method != "near"))
    (table,) = [table for table in tables(without) if table.name == "recovered"]
    assert {cell.state for cell in cells(table, "near")} == {"not applicable"}
    assert {cell.state for cell in cells(table, "sogclr")} == {"value"}


def test_tables_say_what_the_seeds_can_show(results: Results, headline: Contrast) -> None:
    made = {table.name: table for table in tables(results)}
    one, ratio = headline.detectable, headline.resolution
    assert cells(made["resolution"], "detectable difference", NOISY)[0].text == f"{100 * one.adjusted:.2f}"
    assert cells(made["resolution"], "of one method alone", NOISY)[0].text == f"{100 * one.value:.2f}"
    assert cells(made["resolution"], "seeds", NOISY)[0].text == "5"
    resolution = f"{ratio.value:.1f} ({ratio.low:.1f} to {ratio.high:.1f})"
    assert cells(made["resolution"], "resolution", NOISY)[0].text == resolution
    assert ("resolution", CLEAN) not in {(row.label, row.group) for row in made["resolution"].rows}
    cell = cells(made["differences"], "sogclr", NOISY)[0]
    assert cell.value == headline.gains["sogclr"].value
    assert cell.small.endswith(", better")
    assert cells(made["differences"], "sogclr", CLEAN)[-1].state == "not applicable"
    assert {row.label for row in made["differences"].rows}.isdisjoint({"clip", "oracle"})


def test_a_bound_is_marked_and_never_bold_though_it_is_the_best(bounded: Store) -> None:
    made = {table.name: table for table in tables(load(SUITE, bounded))}
    (bound,) = [row for row in made["zero_shot"].rows if row.uses and row.group == NOISY]
    others = [row for row in made["zero_shot"].rows if row.method and not row.uses and row.group == NOISY]
    best = max(cell.value for row in others for cell in row.cells[:1] if cell.value is not None)
    assert bound.mark == "§"
    assert bound.cells[0].value > best
    assert any(cell.bold for row in others for cell in row.cells)
    assert not any(cell.bold for table in made.values() for row in table.rows if row.uses for cell in row.cells)


def test_a_noise_with_fewer_seeds_is_compared_over_its_own(results: Results) -> None:
    noises = [{**noise, "seeds": [0, 1, 2]} if noise["label"] == CLEAN else noise for noise in results.plan["noises"]]
    runs = tuple(run for run in results.runs if run.noise != CLEAN or run.seed < 3)
    fewer = replace(results, plan={**results.plan, "noises": noises}, runs=runs)
    assert planned_seeds(fewer) == f"n = 5 seeds (0, 1, 2, 3, 4; the first 3 for {CLEAN})"
    assert {(one.noise, test.n) for one in contrasts(fewer) for test in one.gains.values()} == {(CLEAN, 3), (NOISY, 5)}
    made = {table.name: table for table in tables(fewer)}
    assert {cell.n for cell in cells(made["zero_shot"], "sogclr", CLEAN)} == {3}
    assert {cell.n for cell in cells(made["zero_shot"], "sogclr", NOISY)} == {5}


def test_without_an_oracle_or_seeds_the_tables_say_so_or_are_left_out(three: Store, one: Store) -> None:
    made = {table.name: table for table in tables(load(SUITE, three))}
    assert "recovered" not in made
    assert any("{method: clip, label: oracle, keep: oracle}" in note for note in made["resolution"].footnotes)
    assert {"differences", "recovered", "resolution"}.isdisjoint(table.name for table in tables(load(SUITE, one)))


def test_power_says_how_many_seeds_a_difference_takes(bounded: Store, headline: Contrast) -> None:
    one = headline.detectable
    exact = [
        int(np.ceil(TTestPower().solve_power(effect_size=0.005 / one.std, alpha=level, power=0.8)))
        for level in (0.05 / one.rows, 0.05)
    ]
    assert exact[0] > exact[1]
    said = call_bench("stats", "power", SUITE, "--difference", "0.5", "--results", bounded.root)
    row = next(text for text in said.split(NOISY)[1].splitlines() if "Zero-shot emoji/iid top-1" in text)
    assert re.split(r" {2,}", row.strip())[1:5] == [
        "5", f"{100 * one.std:.2f}", f"{100 * one.adjusted:.2f}", f"{100 * one.value:.2f}"
    ]  # fmt: skip
    assert row.split()[-2:] == [str(number) for number in exact]
    assert "resolution: the difference of oracle" in said


def test_power_refuses_what_it_cannot_answer(one: Store, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no method that scores above chance has 3 seeds in common with clip"):
        seed_needs(SUITE, one)
    for points in (0.0, -1.0, 101.0, float("nan")):
        with pytest.raises(UserError, match="should be above 0 and at most 100 points"):
            seed_needs(SUITE, one, points)
    with pytest.raises(UserError, match="no plan"):
        seed_needs(SUITE, Store(tmp_path))


def test_where_less_is_better_a_method_that_hardly_learns_is_left_out_and_a_better_one_is_not(
    headline: Contrast,
) -> None:
    """A collapsed method is safe from an attack by chance; a method that halves its success is not near chance."""
    column = replace(headline.measure.column, higher_is_better=False, chance=0.002)
    success = {"clip": (0.5, 0.56, 0.44), "half": (0.25, 0.2, 0.3), "collapsed": (0.0, 0.02, 0.0)}
    signed = {label: {seed: -one for seed, one in enumerate(own)} for label, own in success.items()}
    made = replace(headline, measure=replace(headline.measure, column=column), ranked=tuple(signed), values=signed)
    assert made.detectable.std == pytest.approx(np.std(np.subtract(success["clip"], success["half"]), ddof=1))
    assert made.gains["half"].value == pytest.approx(0.25)


def test_no_interval_leaves_what_is_possible(headline: Contrast) -> None:
    values = {"clip": {0: 0.9, 1: 0.1, 2: 0.5}, "near": {0: 0.1, 1: 0.9, 2: 0.2}}
    wide = replace(headline, ranked=tuple(values), values=values)
    alone, adjusted = wide.gain("near"), wide.gains["near"]
    assert t_test([-0.8, 0.8, -0.3]).low < -1
    assert [(one.low, one.high) for one in (alone, adjusted)] == [(-1, 1)] * 2, "shares differ by 1 at most"
    noisy = replace(headline, values={"near": {0: 0.01, 1: 0.3, 2: 0.02}})
    clean = replace(headline, values={"near": {0: 0.5, 1: 0.51, 2: 0.5}})
    share, free = Kept(clean, noisy).share("near"), fieller([0.01, 0.3, 0.02], [0.5, 0.51, 0.5])
    assert free.low < share.low == 0, "nobody keeps less than nothing"
