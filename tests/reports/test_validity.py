"""Whether a comparison can speak of robustness: each check passes and fails on planted numbers; rows at chance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from bench import resources
from bench.store import Store
from reports.build import figure_of
from reports.compare import compare
from reports.pages.answer import validity_sentences
from reports.pages.html import page
from reports.reference.agreement import ranking
from reports.reference.claims import VERDICTS, judge, read_claims
from reports.reference.claims_page import claims_part, claims_text
from reports.results import Results, RunResult, load
from reports.statistics.chance import unlearned
from reports.statistics.contrasts import headline_contrasts
from reports.statistics.kept import Kept, kept
from reports.statistics.validity import validity
from reports.tables.csv import table_csv
from reports.tables.suite_tables import tables
from reports.tables.table import signed

SUITE = "emoji_noisy"
CLEAN, NOISE = "0 % shuffled captions", "40 % shuffled captions"
HEADLINE = ("emoji/iid", "zero_shot/concept", "top1")
MEMORISED = ("emoji/train", "memorisation", "memorised")
Score = Callable[[str, float, float], float]  #: label, rate, share of the run -> score
RUNGS = [{"budget": "5 epochs"}, {"budget": "20 epochs"}]
ORDER = {
    "clip": 0.30,
    "siglip": 0.32,
    "permutation_0.1": 0.28,
    "sogclr": 0.34,
    "bayes": 0.26,
    "ncu": 0.24,
    "near": 0.36,
}


@pytest.fixture(scope="module")
def plain(bounded: Store) -> Results:
    return load(SUITE, bounded)


def planted(
    plain: Results, score: Score, memorised: float | None = 0.3, edge: Mapping[str, Any] | None = None
) -> Results:
    """The same runs with these headline numbers at 75 % and at the end, and shares of memorised wrong captions."""
    runs, places = list[RunResult](), list(plain.methods)
    for run in plain.runs:
        rate, own = plain.noises[run.noise]["rate"], plain.methods[run.method]["score"]
        one = run.find(*HEADLINE, own)
        records = {key: record for key, record in run.records.items() if key[1:4] != HEADLINE}
        for at in (0.75, 1.0):
            value = score(run.method, rate, at) + 1e-3 * np.sin(7 * run.seed + 13 * places.index(run.method) + 5 * rate)
            records[at, *HEADLINE, one.score] = replace(one, at=at, value=value, low=value - 0.01, high=value + 0.01)
        if memorised is not None and rate:
            dataset, task, metric = MEMORISED
            about = {"dataset": dataset, "task": task, "metric": metric, "score": "", "value": memorised}
            records[1.0, *MEMORISED, ""] = replace(one, **about, low=None, high=None, higher_is_better=False)
        runs.append(replace(run, records=records, measured=records))
    tuning = {label: {"edge": []} for label in plain.methods} | dict(edge or {})
    return Results({**plain.plan, "tuning": {"methods": tuning, "rungs": RUNGS}}, tuple(runs))


def good(label: str, rate: float, at: float) -> float:
    """Trained out, and the order under noise is the reverse of that on clean pairs."""
    level = ORDER.get(label, 0.30)
    return (0.3 - 0.5 * (level - 0.3) if rate else level) * (1 if at == 1 else 0.99)


def outcomes(results: Results, rows: tuple[str, ...] = ()) -> dict[str, str]:
    (found,) = validity(results, rows)
    return {check.name: check.outcome for check in found.checks}


def test_a_comparison_passes_and_each_check_fails_alone(plain: Results) -> None:
    results = planted(plain, good)
    assert set(outcomes(results).values()) == {"pass"}
    (found,) = validity(results)
    assert found.sentence == f"{NOISE}: yes; all four checks pass."

    def early(label: str, rate: float, at: float) -> float:
        return good(label, rate, 1.0) * (1 if at == 1 or label != "oracle" else 0.96)

    def same_order(label: str, rate: float, _at: float) -> float:
        return ORDER.get(label, 0.3) * (0.6 if rate else 1)

    failing = {
        "wrong captions learned": planted(plain, good, memorised=0.04),
        "trained out": planted(plain, early),
        "not the clean order": planted(plain, same_order),
        "tuned": planted(plain, good, edge={"siglip": {"edge": ["lr"]}}),
    }
    for name, made in failing.items():
        assert {check for check, outcome in outcomes(made).items() if outcome != "pass"} == {name}
    (found,) = validity(failing["wrong captions learned"])
    assert "CLIP has memorised 4.0 % of its wrong captions" in found.sentence
    assert "it speaks of speed of learning, not robustness." in found.sentence
    (found,) = validity(failing["trained out"])
    gains = "CLIP +0.0 %, oracle +4.0 %, permutation_0.1 +0.0 %, Bayesian weights +0.0 %, NCU +0.0 % (limit 3.0 %)"
    assert f"{gains}; it speaks of early training" in found.sentence
    assert "for 1 of 9 rows; it speaks of unequal tuning" in validity(failing["tuned"])[0].sentence


def test_the_claims_count_apart_what_a_sound_comparison_judges(plain: Results) -> None:
    claims, sound = read_claims(resources.published_folder()), planted(plain, good)
    under = [one.verdict for of in judge(sound, claims).values() for one in of if one.noise == NOISE]
    parts = [claims_part(sound, claims), claims_part(planted(plain, good, memorised=0.04), claims)]
    assert [part.sound for part in parts] == [[under.count(verdict) for verdict in VERDICTS], [0, 0, 0, 0]]
    assert len({*under}) > 1
    said = f"{len(under)} under a noise for which the comparison that judges them passes all validity checks, "
    assert f"{said}{under.count('holds')} hold, {under.count('does not hold')} do not hold" in claims_text(parts)


def test_what_is_not_stored_is_unknown(plain: Results) -> None:
    results = planted(plain, good, memorised=None, edge={"siglip": {}})
    ends = [{key: one for key, one in run.records.items() if key[0] == 1} for run in results.runs]
    runs = tuple(replace(run, records=end, measured=end) for run, end in zip(results.runs, ends, strict=True))
    results = Results(results.plan, runs)
    unknown = {name for name, outcome in outcomes(results).items() if outcome == "unknown"}
    assert unknown == {"wrong captions learned", "trained out", "tuned"}
    assert "unknown; memorisation was not measured" in validity(results)[0].sentence
    untuned = Results({**results.plan, "tuning": None}, runs)
    assert "no entry was tuned" in validity(untuned)[0].checks[-1].sentence


def test_a_row_that_was_not_tuned_beside_one_that_was_leaves_it_unknown(plain: Results) -> None:
    results = planted(plain, good)
    half = Results({**results.plan, "tuning": {"methods": {"clip": {"edge": []}}, "rungs": RUNGS}}, results.runs)
    assert outcomes(half, ("ncu", "clip"))["tuned"] == outcomes(half)["tuned"] == "unknown"
    assert validity(half, ("ncu",))[0].checks[-1].sentence.endswith("for 0 of 1 rows; NCU had no trials")
    assert outcomes(half, ("clip",))["tuned"] == "pass"


def test_the_check_of_tuning_names_the_longest_budget_of_the_trials_where_the_runs_have_another(plain: Results) -> None:
    results = planted(plain, good)
    shorter = Results({**results.plan, "tuning": {**results.plan["tuning"], "rungs": RUNGS[:1]}}, results.runs)
    (same, other) = (validity(one)[0].checks[-1] for one in (results, shorter))
    assert (same.outcome, other.outcome) == ("pass", "pass"), "the limits are fixed"
    assert other.sentence == f"{same.sentence}; the trials had at most 5 epochs, and the runs have 20 epochs"


def test_seeds_that_rank_nothing_leave_the_order_unknown(plain: Results) -> None:
    """Equal rows: their order under noise is no order, so it is not the one on clean pairs either."""
    results = planted(plain, lambda _label, rate, _at: 0.2 if rate else 0.3)
    order = {check.name: check for check in validity(results)[0].checks}["not the clean order"]
    assert (order.outcome, order.sentence.endswith("these seeds rank no rows reliably")) == ("unknown", True)


def test_a_row_that_had_not_learned_at_the_shorter_budget_is_read_along_its_own_run(plain: Results) -> None:
    results = planted(plain, lambda label, rate, at: 0.0001 if not rate and label == "ncu" else good(label, 0.4, at))
    blocks = [
        {**block, "kind": "shuffled_captions", "rate": 0.4, "budget": budget}
        for block, budget in zip(results.plan["noises"], (10.0, 160.0), strict=True)
    ]
    results = Results({**results.plan, "noises": blocks}, results.runs)
    trained = {check.name: check for check in validity(results, ("ncu",))[0].checks}["trained out"]
    assert "NCU +1.0 %" in trained.sentence


def test_kept_over_a_seed_that_collapsed_is_no_number(plain: Results) -> None:
    """Its logarithm has none, and leaving it out would flatter the method."""
    (found,) = kept(plain).values()
    assert found.change("ncu") is not None
    values = {**found.noisy.values, "ncu": {**found.noisy.values["ncu"], 0: 0.0}}
    assert Kept(found.clean, replace(found.noisy, values=values)).change("ncu") is None


def test_a_row_in_question_is_judged_as_well(plain: Results) -> None:
    def rising(label: str, rate: float, at: float) -> float:
        return good(label, rate, 1.0) * (1 if at == 1 or label != "siglip" else 0.9)

    results = planted(plain, rising, edge={"sogclr": {"edge": ["lr"]}})
    assert outcomes(results, ("clip", "near")) | {"tuned": ""} == dict.fromkeys(outcomes(results), "pass") | {
        "tuned": ""
    }
    assert outcomes(results, ("near", "clip"))["tuned"] == "pass"
    assert outcomes(results, ("siglip", "clip"))["trained out"] == "fail"


def test_better_rows_are_in_question_and_all_rows_if_none_is_better(plain: Results) -> None:
    """Under noise Bayes is better than CLIP and SigLIP worse; then nothing differs from CLIP."""

    def rising(late: str, alike: bool) -> Score:
        return lambda label, rate, at: good("clip" if alike else label, rate, 1.0) * (at if label == late else 1)

    for late, alike, outcome in (
        ("bayes", False, "fail"),
        ("siglip", False, "pass"),
        ("siglip", True, "fail"),
        ("oracle", True, "fail"),
    ):
        assert outcomes(planted(plain, rising(late, alike)))["trained out"] == outcome, (late, alike)


def test_with_budgets_the_slope_over_the_shorter_one_counts_and_the_longest_comes_first(plain: Results) -> None:
    """40 % noise at 10 and at 160 epochs, from half of the level to all of it."""
    results = planted(plain, lambda label, rate, _at: good(label, 0.4, 1.0) * (1 if rate else 0.5))
    blocks = [
        {**block, "kind": "shuffled_captions", "rate": 0.4, "budget": budget}
        for block, budget in zip(results.plan["noises"], (10.0, 160.0), strict=True)
    ]
    results = Results({**results.plan, "noises": blocks}, results.runs)
    longest, shortest = validity(results)
    assert (longest.noise, shortest.noise) == (NOISE, CLEAN)
    values = {noise: headline_contrasts(results)[place].values["clip"] for place, noise in enumerate((CLEAN, NOISE))}
    ends = {noise: np.mean(list(own.values())) for noise, own in values.items()}
    gain = (ends[NOISE] - ends[CLEAN]) / ends[NOISE] * np.log(4 / 3) / np.log(16)
    assert 0.04 < gain < 0.06
    trained = {check.name: check for check in longest.checks}["trained out"]
    assert (trained.outcome, f"CLIP {signed(gain)} %" in trained.sentence) == ("fail", True)


def test_it_comes_first_on_the_page_and_in_every_answer(plain: Results, bounded: Store) -> None:
    results = planted(plain, good, memorised=0.04)
    text = page(results, [tables(plain)[0]])
    assert 0 < text.index('id="answer"') < text.index('id="validity"') < text.index('id="overview"')
    assert "wrong captions learned: fail" in text
    assert validity_sentences(results)[0].startswith("Can this comparison speak of robustness? 40 %")
    assert compare(SUITE, bounded, "near").text().startswith("Can this comparison speak of robustness? 40 %")


def test_kept_is_the_share_of_the_clean_score_and_its_gain_is_paired_on_the_log_scale(plain: Results) -> None:
    """By scipy and statsmodels: at Fieller's ends a paired t-test has p = 0.05."""
    (found,) = kept(plain).values()
    clean, noisy = (one.values for one in headline_contrasts(plain))
    seeds = sorted(clean["clip"])
    logs = {}
    for label in plain.methods:
        own = "clip" if label == "oracle" else label
        top, bottom = (np.array([side[one][seed] for seed in seeds]) for side, one in ((noisy, label), (clean, own)))
        share = found.share(label)
        assert share.value == pytest.approx(top.mean() / bottom.mean())
        for end in (share.low, share.high):
            assert stats.ttest_1samp(top - end * bottom, 0).pvalue == pytest.approx(0.05)
        logs[label] = np.log(top / bottom)
    compared = [label for label in plain.ranked if label != "clip"]
    tests = [stats.ttest_1samp(logs[label] - logs["clip"], 0) for label in compared]
    holm = multipletests([test.pvalue for test in tests], method="holm")[1]
    assert list(found.changes) == compared
    for label, test, p in zip(compared, tests, holm, strict=True):
        change, alone = found.changes[label], found.change(label)
        assert change.value == pytest.approx(np.mean(logs[label] - logs["clip"]))
        assert (alone.low, alone.high) == pytest.approx(tuple(test.confidence_interval()))
        assert change.adjusted == pytest.approx(p)


def test_kept_has_a_table_and_a_figure_and_needs_clean_pairs(plain: Results) -> None:
    table = next(one for one in tables(plain) if one.name == "kept")
    assert [row.method for row in table.rows] == list(plain.methods)
    assert "Robustness kept low" in table_csv(table)
    (found,), (clean, noisy) = kept(plain).values(), (one.values for one in headline_contrasts(plain))
    rows = {row.method: [cell.value for cell in row.cells] for row in table.rows}
    for label in ("siglip", "ncu"):
        under, own = (np.array(list(side[label].values())) for side in (noisy, clean))
        base = np.array([list(side["clip"].values()) for side in (noisy, clean)])
        change = np.mean(np.log(under / own) - np.log(base[0] / base[1]))
        expected = [under.mean(), own.mean(), under.mean() / own.mean(), change, (own - base[1]).mean()]
        assert rows[label] == pytest.approx(expected), label
    assert rows["clip"][:3] == pytest.approx(
        [*(np.mean(list(one["clip"].values())) for one in (noisy, clean)), found.share("clip").value]
    )
    cells = {row.method: row.cells[-1] for row in table.rows}
    for label, gain in headline_contrasts(plain)[0].gains.items():
        ends = cells[label].also["low"], cells[label].also["high"]
        assert ends == (gain.low, gain.high), "the interval that the table of differences has"
    panel = figure_of(plain, "kept").axes[0]
    assert {"CLIP", "oracle"} <= {text.get_text() for text in panel.texts}
    points = [line.get_xydata()[0].tolist() for line in panel.lines if line.get_linestyle() == "None"]
    for label in plain.methods:
        share = found.share(label)
        level = 100 * np.mean(list(noisy[label].values()))
        assert any(point == pytest.approx([level, 100 * share.value]) for point in points), label
        bars = [line.get_ydata() for line in panel.lines if line.get_xdata() == pytest.approx([level, level])]
        assert any(bar == pytest.approx([100 * share.low, 100 * share.high]) for bar in bars), label
    other = [{**block, "budget": 10.0 + place} for place, block in enumerate(plain.plan["noises"])]
    assert kept(Results({**plain.plan, "noises": other}, plain.runs)) == {}


def test_a_row_at_chance_takes_part_in_nothing(plain: Results) -> None:
    """Chance is 0.0013, and some seeds of a row at 0.0009 are above it."""

    def score(label: str, rate: float, at: float) -> float:
        return 0.0009 if label == "bayes" and rate else good(label, rate, at)

    results = planted(plain, score)
    assert unlearned(results) == {CLEAN: frozenset(), NOISE: frozenset({"bayes"})}
    clean, noisy = headline_contrasts(results)
    assert "bayes" in clean.gains
    assert "bayes" not in noisy.gains
    tests = {
        label: stats.ttest_rel([noisy.values[label][s] for s in range(5)], [noisy.values["clip"][s] for s in range(5)])
        for label in plain.ranked
        if label not in ("clip", "bayes")
    }
    holm = multipletests([test.pvalue for test in tests.values()], method="holm")[1]
    found = {label: test.adjusted for label, test in noisy.gains.items()}
    assert found == pytest.approx(dict(zip(tests, holm.tolist(), strict=True)))
    assert noisy.detectable.rows == len(tests)
    assert "bayes" not in ranking(results).values[NOISE]
    rows = sum(len(own) > 0 for label, own in noisy.values.items() if label in plain.ranked)
    assert f"means of {rows} rows" in validity(results)[0].checks[2].sentence
    assert "bayes" not in kept(results)[NOISE].changes
    made = {table.name: table for table in tables(Results({**results.plan, "tuning": None}, results.runs))}
    marked = {(row.group, row.method) for row in made["overview"].rows if "¶" in row.mark}
    assert marked == {(NOISE, "bayes")}
    assert "¶" in made["overview"].notes
    cells = {(row.group, row.method): row.cells[0].text for row in made["differences"].rows}
    assert cells[NOISE, "bayes"] == "has not learned"


def test_a_difference_under_noise_is_told_with_that_on_clean_pairs(plain: Results, bounded: Store) -> None:
    clean, noisy = headline_contrasts(plain)
    better = max(noisy.gains, key=lambda label: noisy.gains[label].value)
    gain = 100 * np.mean([clean.values[better][seed] - clean.values["clip"][seed] for seed in range(5)])
    assert (
        f"on clean pairs {plain.named(better)} - CLIP is {signed(gain / 100)}"
        in compare(SUITE, bounded, better).verdict
    )
    assert (
        f"on clean pairs CLIP - {plain.named(better)} is {signed(-gain / 100)}"
        in compare(SUITE, bounded, "clip", better).verdict
    )
