"""The papers' orderings: every printed number is theirs, and the verdicts are those of paired t-tests with Holm."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ttest_rel
from statsmodels.stats.multitest import multipletests
from typer.testing import CliRunner

from bench import resources
from bench.cli import app
from bench.store import Store
from bench.suite.suite import load_suite
from reports.papers.layouts import PAPERS
from reports.papers.published import Published, read
from reports.reference.claims import (
    Claim,
    ClaimMeasure,
    Claims,
    Judged,
    PaperClaims,
    Part,
    claim_measure,
    judge,
    numbers_of,
    read_claims,
)
from reports.reference.claims_page import claims_part, claims_text
from reports.results import Results, load
from reports.tables.table import signed
from reports.vocabulary import family

from . import stores

SUITE = "emoji_noisy"
PUBLISHED = resources.published_folder()
#: The papers whose suites the bench has; those against noisy correspondence have one to three orderings of its rows.
FIVE = ("bayes_weighted_cl", "label_augmentation", "nuclr", "ncu", "prolip")


def measured(label: str, *parts: tuple[str, str]) -> ClaimMeasure:
    return ClaimMeasure(label=label, parts=tuple(Part(task=task, metric=metric) for task, metric in parts))


ZERO_SHOT = {"zero-shot": measured("zero-shot top-1", ("zero_shot/concept", "top1"))}


def claim(better: str, worse: str, measure: str = "zero-shot") -> Claim:
    named = {"table": "1", "dataset": "ImageNet", "metric": "top1", "rows": (better, worse), "measure": measure}
    return Claim(better=better.upper(), worse=worse.upper(), printed=(2.0, 1.0), **named)


def of(*claims: Claim, rates: tuple[float, ...] = (0.4,)) -> Claims:
    paper = PaperClaims(printed="One_run.", differs="Small <towers>.", rates=rates, claims=claims)
    return Claims(comparison="emoji_noisy", measures=ZERO_SHOT, papers={"ncu": paper})


def values(results: Results, label: str, noise: str) -> list[float]:
    """By a mean of its own over the two data sets."""
    return [
        float(np.mean([run.find(f"emoji/{s}", "zero_shot/concept", "top1", results.methods[label]["score"]).value
                       for s in ("iid", "novel")]))
        for run in results.of(label, noise)
    ]  # fmt: skip


@pytest.mark.promise("every number of a claim is in the paper's table")
@pytest.mark.parametrize("paper", read_claims(PUBLISHED).papers)
def test_every_printed_number_is_in_the_papers_table(paper: str) -> None:
    claims, numbers = read_claims(PUBLISHED), read(PUBLISHED, paper)

    def fits(one: Published, claim: Claim, side: int) -> bool:
        named = (one.table, one.method, one.heading, one.metric) == (
            claim.table, (claim.better, claim.worse)[side], claim.dataset, claim.metric,
        )  # fmt: skip
        towers = one.pretrain.startswith(claim.pretrain) and one.backbone.startswith(claim.backbone)
        return named and towers and one.setting == claim.settings[side] and one.value == claim.printed[side]

    for one in claims.papers[paper].claims:
        better, worse = ([number for number in numbers if fits(number, one, side)] for side in (0, 1))
        assert len(better) == len(worse) == 1, one
        assert better[0].value > worse[0].value, one
        assert (better[0].pretrain, better[0].heading) == (worse[0].pretrain, worse[0].heading), one
        assert better[0].noise_rate == worse[0].noise_rate, one


def test_every_paper_has_claims_and_every_row_is_one_of_the_suite() -> None:
    claims = read_claims(PUBLISHED)
    assert sorted([*claims.papers, *claims.without_claims]) == sorted(PAPERS)
    for name, paper in claims.papers.items():
        suite = load_suite(paper.comparison or claims.comparison)
        labels, rates = {method.label for method in suite.methods}, set(suite.noise[0].rates)
        assert len(paper.claims) >= (5 if name in FIVE else 1)
        assert len({(*sorted(one.rows), one.measure, one.table) for one in paper.claims}) == len(paper.claims)
        assert rates & {*paper.rates}
        assert {label for one in paper.claims for label in one.rows} <= labels
        assert {one.measure for one in paper.claims} <= set(claims.measures)


def test_every_measure_is_one_that_the_suite_makes(three: Store) -> None:
    results, claims = load(SUITE, three), read_claims(PUBLISHED)
    used = {one.measure for paper in claims.judged_by(SUITE).papers.values() for one in paper.claims}
    assert len(used) == 5
    for name in used:
        own = claim_measure(results, claims.measures[name])
        assert own is not None, name
        assert own.comparable
    for paper in claims.papers.values():
        datasets = load_suite(paper.comparison or claims.comparison).evaluate.datasets
        for part in (part for one in paper.claims for part in claims.measures[one.measure].parts):
            assert {*part.datasets} <= {*datasets.get(family(part.task), ())}
    assert claim_measure(results, measured("none", ("retrieval", "mean_recall"), ("retrieval", "depth"))) is None


def test_a_part_may_name_the_data_sets_that_it_averages(three: Store) -> None:
    results, part = load(SUITE, three), Part(task="zero_shot/concept", metric="top1")
    every = numbers_of(results, part)
    assert [name for name, *_ in every] == ["emoji/iid", "emoji/novel"]
    assert numbers_of(results, part.model_copy(update={"datasets": ("emoji/novel",)})) == every[1:]
    assert numbers_of(results, part.model_copy(update={"datasets": ("emoji-b/iid",)})) == []


def test_verdicts_are_those_of_scipy_and_statsmodels(bounded: Store) -> None:
    results = load(SUITE, bounded)
    pairs = [("sogclr", "clip"), ("clip", "sogclr"), ("near", "clip"), ("bayes", "ncu"), ("siglip", "clip")]
    judged = judge(results, of(*(claim(*pair) for pair in pairs)))["ncu"]
    noise = next(label for label in results.noises if label.startswith("40"))
    tests = [ttest_rel(*(values(results, label, noise) for label in pair)) for pair in pairs]
    expected = multipletests([test.pvalue for test in tests], method="holm")[1]
    assert [one.p for one in judged] == pytest.approx(expected, rel=1e-6)
    for one, test in zip(judged, tests, strict=True):
        interval = test.confidence_interval()
        assert (one.test.low, one.test.high) == pytest.approx((interval.low, interval.high), rel=1e-6)
    assert [one.verdict for one in judged] == ["holds", "does not hold", "inconclusive", "holds", "does not hold"]


def test_of_several_budgets_of_a_rate_the_longest_judges(bounded: Store) -> None:
    results = load(SUITE, bounded)
    plan = json.loads(json.dumps(results.plan))
    stores.noises_as_budgets(plan)
    names = dict(zip(results.noises, (one["label"] for one in plan["noises"]), strict=True))
    runs = tuple(replace(run, noise=names[run.noise]) for run in results.runs)
    (judged,) = judge(Results(plan, runs), of(claim("sogclr", "clip")))["ncu"]
    assert judged.noise == "40 % shuffled captions, 40 epochs"


def test_each_noise_has_a_correction_of_its_own(bounded: Store) -> None:
    results = load(SUITE, bounded)
    both = judge(results, of(claim("sogclr", "clip"), claim("near", "clip"), rates=(0.0, 0.4)))["ncu"]
    alone = judge(results, of(claim("sogclr", "clip"), claim("near", "clip"), rates=(0.4,)))["ncu"]
    assert both[2:] == alone
    assert both[0].noise.startswith("0 %")


def test_what_cannot_be_tested_says_why(one: Store, three: Store) -> None:
    def reason(store: Store, *claims: Claim, rate: float = 0.4, measures: dict[str, ClaimMeasure] = ZERO_SHOT) -> str:
        wanted = of(*claims, rates=(rate,)).model_copy(update={"measures": measures})
        (judged,) = judge(load(SUITE, store), wanted)["ncu"]
        assert (judged.verdict, judged.test, judged.detectable) == ("not tested", None, None)
        return judged.lacks

    assert reason(one, claim("sogclr", "clip")) == "1 of the 3 seeds that it takes"
    assert reason(three, claim("sogclip", "clip")) == "there is no row 'sogclip'"
    assert reason(three, claim("sogclr", "clip"), rate=0.2) == "this noise rate was not run"
    nothing = {"zero-shot": measured("depth", ("depth", "error"))}
    assert reason(three, claim("sogclr", "clip"), measures=nothing) == "not measured by this suite"


def test_a_claim_without_a_test_takes_no_part_in_the_correction(three: Store) -> None:
    results = load(SUITE, three)
    alone = judge(results, of(claim("sogclr", "clip")))["ncu"]
    beside = judge(results, of(claim("nobody", "clip"), claim("sogclr", "clip")))["ncu"]
    assert beside[1] == alone[0]


def test_the_page_counts_and_escapes(bounded: Store) -> None:
    results = load(SUITE, bounded)
    claims = of(claim("sogclr", "clip"), claim("clip", "sogclr"), claim("nobody", "clip"))
    text = claims_text([claims_part(results, claims)])
    assert "n = 5 seeds (0, 1, 2, 3, 4)." in text
    assert "1 hold here, 1 do not hold, 0 are inconclusive and 1 were not tested." in text
    assert f"| {PAPERS['ncu'].title} | 1 | 1 | 0 | 1 |" in text
    assert "Small \\<towers\\>." in text
    row = next(line for line in text.splitlines() if line.startswith("| SOGCLR"))
    judged: Judged = judge(results, of(claim("sogclr", "clip"), claim("clip", "sogclr")))["ncu"][0]
    assert f"| {signed(judged.test.value)} (" in row
    assert row.endswith("| 5 | **holds** |")
    assert "| not tested (there is no row 'nobody') |" in text
    section = text[text.index("### ") :]
    assert {len(re.split(r"(?<!\\)\|", line)) for line in section.splitlines() if line.startswith("|")} == {11}
    assert text == claims_text([claims_part(load(SUITE, bounded), claims)])


def test_the_page_lists_only_measures_that_the_suite_has(three: Store) -> None:
    claims = of(claim("sogclr", "clip"), claim("sogclr", "clip", "depth"))
    measures = {**ZERO_SHOT, "depth": measured("error of depth", ("depth", "error"))}
    text = claims_text([claims_part(load(SUITE, three), claims.model_copy(update={"measures": measures}))])
    assert "- zero-shot top-1: the mean of top1 over emoji/iid, emoji/novel." in text
    assert "- error of depth" not in text
    assert "not tested (not measured by this suite)" in text


def test_the_command_prints_all_papers(three: Store) -> None:
    result = CliRunner().invoke(app, ["stats", "claims", SUITE, "--results", str(three.root)], catch_exceptions=False)
    assert result.exit_code == 0
    papers = read_claims(PUBLISHED).papers
    not_run = [rate for paper in papers.values() for rate in {*paper.rates} - {0.0, 0.4}]
    assert result.stdout.count("This noise rate was not run.") == len(not_run)
    assert result.stdout.count("### ") - result.stdout.count("#### ") == len(papers)
    assert "| ProLIP \\> CLIP | Table 1, ImageNet," in result.stdout
