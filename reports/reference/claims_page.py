"""CLAIMS.md: the main orderings of each paper as printed, and whether each holds in a suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.console.markup import markdown, markdown_table
from reports.headlines import primary
from reports.pages.answer import validity_sentences
from reports.papers.layouts import PAPERS
from reports.reference.claims import (
    NOT_RUN,
    VERDICTS,
    ClaimMeasure,
    Claims,
    Judged,
    PaperClaims,
    claim_measure,
    judge,
    numbers_of,
)
from reports.results import Results
from reports.statistics.paired import MINIMUM
from reports.statistics.power import POWER
from reports.statistics.validity import validity
from reports.tables.footnotes import planned_seeds
from reports.tables.table import UNVERIFIED, signed, unverified
from reports.tables.vs_baseline import interval, p_text

_HEAD = ("as printed", "where", "printed", "here", "difference (95 %)", "p", "detectable", "seeds", "verdict")
_READING = (
    "*holds*: the row for the better method is significantly better here too. *does not hold*: it is significantly "
    "worse. *inconclusive*: neither, which refutes nothing; `detectable` is the smallest difference that these seeds "
    f"detect with {100 * POWER:.0f} % power, before the correction. *not tested*: no numbers, or too few seeds.",
    "Differences are in points, the better one as printed minus the other, by a paired t-test over the seeds that both "
    f"rows have; it takes {MINIMUM}. The interval is not adjusted. p is adjusted by Holm over the orderings "
    "of one paper under one noise, and 0.05 decides. All intervals are over seeds on these test sets.",
    "Nothing here reproduces a paper: its numbers were made with other data, towers and budgets. The question is "
    "whether an order is general enough to appear here.",
)


@dataclass(frozen=True)
class ClaimsPart:
    """The outcome of the claims that a comparison judges."""

    counts: list[tuple[str, list[int]]]  #: a paper's title and how many of its orderings have each verdict
    sound: list[int]  #: the same of all papers, under the noises whose validity checks all pass
    lines: list[str]  #: Markdown: the suite, its seeds, whether it can speak of robustness, its measures, each paper


def claims_part(results: Results, claims: Claims) -> ClaimsPart:
    """Judge the claims by a suite's results; of several budgets, by the longest of each noise."""
    checked = validity_sentences(results)  # the checks read shorter budgets too
    passed = {one.noise for one in validity(results) if one.outcome == "pass"}
    results = results.longest
    by_paper = judge(results, claims)
    counts = [(PAPERS[name].title, _counts(of_paper)) for name, of_paper in by_paper.items()]
    sound = _counts([one for of_paper in by_paper.values() for one in of_paper if one.noise in passed])
    used = {one.measure for paper in claims.papers.values() for one in paper.claims}
    lines = [
        f"## Judged by the suite {markdown(results.suite)}",
        "",
        f"{markdown(planned_seeds(results))}. The primary metric is {markdown(' '.join(primary(results)))}.",
        "",
        *(line for text in checked for line in (markdown(text), "")),
        *(
            f"- {markdown(one.label)}: {_averaged(results, one)}."
            for name, one in claims.measures.items()
            if name in used and claim_measure(results, one)
        ),
    ]
    for name, of_paper in by_paper.items():
        lines += ["", *_section(results, name, claims, of_paper)]
    return ClaimsPart(counts, sound, lines)


def _counts(judged: Sequence[Judged]) -> list[int]:
    return [[one.verdict for one in judged].count(verdict) for verdict in VERDICTS]


def claims_text(parts: Sequence[ClaimsPart]) -> str:
    """Return the page as Markdown. The same parts give the same text."""
    counts = [row for part in parts for row in part.counts]
    holds, opposite, inconclusive, untested = _sums([own for _, own in counts])
    sound = _sums([part.sound for part in parts])
    lines = [
        "# What the papers print, and what holds here",
        "",
        f"Of the papers' orderings, each under the noise rates of its paper, {holds} hold here, {opposite} "
        f"do not hold, {inconclusive} are inconclusive and {untested} were not tested.",
        "",
        f"Of the {sum(sound)} under a noise for which the comparison that judges them passes all validity checks, "
        f"{sound[0]} hold, {sound[1]} do not hold and {sound[2]} are inconclusive. For the others a check fails or is "
        "unknown, or the pairs are clean.",
        "",
        *markdown_table(["orderings of", *VERDICTS], [[markdown(title), *map(str, own)] for title, own in counts]),
        *(line for text in _READING for line in ("", text)),
        *(line for part in parts for line in ("", *part.lines)),
    ]
    return "\n".join(lines) + "\n"


def _sums(counts: Sequence[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip(*counts, strict=True)]


def _averaged(results: Results, wanted: ClaimMeasure) -> str:
    """The data sets over which each part of a measure is the mean."""
    sets = (dict.fromkeys(dataset for dataset, *_ in numbers_of(results, part)) for part in wanted.parts)
    parts = (f"{part.metric} over {', '.join(own)}" for part, own in zip(wanted.parts, sets, strict=True))
    return markdown("the mean of " + "; and of ".join(parts))


def _section(results: Results, name: str, claims: Claims, judged: Sequence[Judged]) -> list[str]:
    paper: PaperClaims = claims.papers[name]
    lines = [
        f"### {markdown(PAPERS[name].title)}",
        "",
        f"**Printed with.** {markdown(paper.printed)}",
        "",
        f"**Why it may differ here.** {markdown(paper.differs)}",
    ]
    for noise in dict.fromkeys(one.noise for one in judged):
        block = [one for one in judged if one.noise == noise]
        lines += ["", f"#### {markdown(noise)}", ""]
        if all(one.lacks == NOT_RUN for one in block):
            lines.append(f"{NOT_RUN.capitalize()}.")
        else:
            lines += markdown_table(_HEAD, [_cells(results, claims, one) for one in block])
    if any(_mark(results.methods, label) for one in judged for label in one.claim.rows):
        lines += ["", f"{UNVERIFIED} not verified: parts of the method are our reconstruction."]
    return lines


def _cells(results: Results, claims: Claims, one: Judged) -> list[str]:
    claim, test = one.claim, one.test
    rows = [f"`{label}`{_mark(results.methods, label)}" for label in claim.rows]
    numbers = ["", "", "", ""]
    if test is not None and one.p is not None and one.detectable is not None:
        clean = f"; {signed(one.clean.value)} on clean pairs" if one.clean else ""
        numbers[:2] = f"{signed(test.value)} ({interval(test)}{clean})", p_text(one.p)
        numbers[2:] = f"{100 * one.detectable:.1f}", str(test.n)
    reason = f" ({markdown(one.lacks)})" if one.lacks else ""
    return [
        f"{markdown(claim.better)} \\> {markdown(claim.worse)}",
        markdown(f"Table {claim.table}, {claim.dataset}, {claim.metric}"),
        markdown(f"{claim.printed[0]} and {claim.printed[1]}"),
        f"{rows[0]} - {rows[1]}, {markdown(claims.measures[claim.measure].label)}",
        *numbers,
        f"**{one.verdict}**" if one.verdict in VERDICTS[:2] else f"{one.verdict}{reason}",
    ]


def _mark(methods: Mapping[str, Mapping[str, object]], label: str) -> str:
    return unverified(str(methods[label]["fidelity"])) if label in methods else ""
