"""CLAIMS.md: for each paper its main orderings as printed, and what a suite's seeds say of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from bench.console.markup import markdown
from reports.against import interval, p_text, signed
from reports.footnotes import planned_seeds
from reports.papers import PAPERS
from reports.power import POWER
from reports.reference.claims import Claims, PaperClaims
from reports.reference.judge import VERDICTS, Judged, judge
from reports.results import Results
from reports.statistics import MINIMUM
from reports.table import UNVERIFIED, unverified

_HEAD = ("as printed", "where", "printed", "here", "difference (95 %)", "p", "could show", "seeds", "verdict")
_READING = (
    "*holds*: the row that stands for the better method is better here too. *does not hold*: the opposite is shown. "
    "*cannot be told*: neither is. An ordering that cannot be told is not refuted: `could show` is the smallest "
    f"difference that these seeds show with {100 * POWER:.0f} % power, before the correction.",
    "Differences are in points, the better one as printed minus the other, by a paired t-test over the seeds that both "
    f"rows have; it takes {MINIMUM}. The interval is of one difference alone. p is adjusted by Holm over the "
    "orderings of one paper under one noise, and 0.05 decides. All intervals are over seeds on these test sets.",
    "Nothing here reproduces a paper: its numbers were made with other data, towers and budgets. It asks whether an "
    "order is general enough to show here.",
)


def claims_text(results: Results, claims: Claims) -> str:
    """Return the page as Markdown. The same results and claims give the same text."""
    judged = judge(results, claims)
    counts = Counter(one.verdict for of_paper in judged.values() for one in of_paper)
    total = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
    lines = [
        "# What the papers print, and what holds here",
        "",
        f"Judged by the suite {markdown(results.suite)}, {markdown(planned_seeds(results))}: {total}.",
        *(line for text in _READING for line in ("", text)),
    ]
    for name, of_paper in judged.items():
        lines += ["", *_section(results, name, claims, of_paper)]
    return "\n".join(lines) + "\n"


def _section(results: Results, name: str, claims: Claims, judged: Sequence[Judged]) -> list[str]:
    paper: PaperClaims = claims.papers[name]
    lines = [
        f"## {markdown(PAPERS[name].title)}",
        "",
        f"**Printed with.** {markdown(paper.printed)}",
        "",
        f"**Why it may differ here.** {markdown(paper.differs)}",
    ]
    for noise in dict.fromkeys(one.noise for one in judged):
        block = [one for one in judged if one.noise == noise]
        lines += ["", f"### {markdown(noise)}", "", _row(_HEAD), _row(["---"] * len(_HEAD))]
        lines += [_row(_cells(results, claims, one)) for one in block]
    labels = {label for one in judged for label in one.claim.rows if _mark(results.methods, label)}
    if labels:
        lines += ["", f"{UNVERIFIED} not verified: parts of the method are our reconstruction."]
    return lines


def _cells(results: Results, claims: Claims, one: Judged) -> list[str]:
    claim, test = one.claim, one.test
    rows = [f"`{label}`{_mark(results.methods, label)}" for label in claim.rows]
    numbers = ["", "", "", ""]
    if test is not None and one.p is not None and one.detectable is not None:
        numbers[:2] = f"{signed(test.value)} ({interval(test)})", p_text(one.p)
        numbers[2:] = f"{100 * one.detectable:.1f}", str(test.n)
    reason = f" ({markdown(one.lacks)})" if one.lacks else ""
    return [
        f"{markdown(claim.better)} \\> {markdown(claim.worse)}",
        markdown(f"Table {claim.table}, {claim.dataset}, {claim.metric}"),
        markdown(f"{claim.printed[0]} and {claim.printed[1]}"),
        f"{rows[0]} - {rows[1]}, {markdown(claims.measures[claim.measure].label)}",
        *numbers,
        f"{one.verdict}{reason}" if one.verdict == "cannot be told" else f"**{one.verdict}**",
    ]


def _mark(methods: Mapping[str, Mapping[str, object]], label: str) -> str:
    return unverified(str(methods[label]["fidelity"])) if label in methods else ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
