"""The page over all committed comparisons: for each its question, answer, resolution, seeds, commit and hardware."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.console.markup import Html, html, together
from reports.pages.answer import answers, question
from reports.pages.html import document
from reports.results import Results
from reports.statistics.contrasts import headline_contrasts
from reports.statistics.paired import pairwise
from reports.tables.footnotes import planned_seeds
from reports.tables.vs_baseline import resolution_text

TITLE = "Committed comparisons"
_TEXTS = {
    "CLAIMS.md": "What becomes of the papers' orderings",
    "ORDERS.md": "Whether the comparisons rank the methods alike",
    "KINDS.md": "What holds across kinds of noise",
}
_SHORT = 12  #: characters of a commit that are printed


@dataclass(frozen=True)
class Entry:
    """What the page says of one comparison."""

    folder: str  #: beside the page
    suite: str
    description: str
    question: str  #: "" if its runs are not committed
    answers: tuple[str, ...]
    facts: Mapping[str, str]  #: name -> text
    links: tuple[tuple[str, str], ...]  #: path below the folder, and what it is


def entry_of(folder: str, results: Results, links: Sequence[tuple[str, str]]) -> Entry:
    """Return the entry of a comparison whose runs are committed."""
    facts = {
        "resolution": _resolution(results),
        "told apart": _told_apart(results),
        "compared": _compared(results),
        "runs": _states(results),
        "commit": _counted([_commit(run.environment) for run in results.runs]),
        "hardware": _counted([hardware_text(run.environment) for run in results.runs]),
    }
    description = str(results.plan.get("description", ""))
    return Entry(folder, results.suite, description, question(results), tuple(answers(results)), facts, tuple(links))


def bare_entry(folder: str, plan: Mapping[str, Any] | None, links: Sequence[tuple[str, str]]) -> Entry:
    """Return the entry of a comparison of which only tables are committed."""
    facts = {"runs": "not committed, so nothing of it can be computed anew"}
    if plan is None:
        return Entry(folder, folder, "", "", (), facts, tuple(links))
    facts = {"compared": _compared(Results(plan, ())), **facts}
    return Entry(folder, str(plan["suite"]), str(plan.get("description", "")), "", (), facts, tuple(links))


def _compared(results: Results) -> str:
    noises = len(results.noises)
    return f"{len(results.ranked)} methods, {noises} noise{'s' * (noises > 1)}, {planned_seeds(results)}"


def _resolution(results: Results) -> str:
    """The oracle's difference in detectable differences, under each noise where it is known."""
    known = [(one.noise, one.resolution) for one in headline_contrasts(results)]
    parts = [f"{resolution_text(ratio)} under {noise}" for noise, ratio in known if ratio]
    return "; ".join(parts) or "not known: it takes an oracle and three seeds"


def _told_apart(results: Results) -> str:
    """How many pairs of the compared methods differ on the headline number by more than chance."""
    parts = []
    for one in headline_contrasts(results):
        tests = pairwise({label: one.values[label] for label in one.ranked if label in one.values})
        count = len(tests.labels)
        parts.append(f"{tests.shown.sum()} of {count * (count - 1) // 2} pairs of methods under {one.noise}")
    return "; ".join(parts) or "nothing was measured"


def _states(results: Results) -> str:
    counts = ", ".join(f"{count} {state}" for state, count in results.states().items() if count)
    return f"{counts} of {len(results.runs)}"


def _commit(environment: Mapping[str, Any]) -> str:
    """The beginning of a commit, with "+" if files were changed."""
    commit = str(environment.get("commit") or "")
    return f"{commit[:_SHORT]}{'+' * commit.endswith('+')}"


def hardware_text(environment: Mapping[str, Any]) -> str:
    """Return the device and the number of cores; "" if they are not known."""
    hardware = environment.get("hardware") or {}
    cores = f", {hardware['cores']} cores" if hardware.get("cores") else ""
    return f"{hardware['device']}{cores}" if hardware.get("device") else ""


def _counted(texts: Sequence[str]) -> str:
    """Different texts, each with the number of runs if there are several; "" is not known."""
    counts = Counter(text for text in texts if text)
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{text} ({count} runs)" for text, count in counts.most_common()) or "not known"


def index_page(entries: Sequence[Entry], texts: Collection[str] = ()) -> Html:
    """Return the page; `texts` are the names of those of `_TEXTS` that lie beside it."""
    beside = together(html(' {1}: <a href="{0}">{0}</a>.', name, _TEXTS[name]) for name in texts)
    head = html(
        "<h1>{}</h1><p>A comparison with its runs is rendered from them: <code>bench reference</code> writes these "
        "pages again, and <code>bench import</code> takes the runs into a store.{}</p>",
        TITLE,
        beside,
    )
    nav = together(html('<a href="#{0}">{0}</a>', one.folder) for one in entries)
    return document(TITLE, [head, html("<nav>{}</nav>", nav), *map(_section, entries)])


def _section(entry: Entry) -> Html:
    said = together(html("<li>{}</li>", answer) for answer in entry.answers)
    facts = together(html("<dt>{}</dt><dd>{}</dd>", name, text) for name, text in entry.facts.items())
    links = together(html('<a href="{}/{}">{}</a>', entry.folder, path, what) for path, what in entry.links)
    return html(
        '<section id="{}"><h2>{}</h2><p>{}</p>{}{}<dl>{}</dl><nav>{}</nav></section>',
        entry.folder,
        entry.folder if entry.folder == entry.suite else f"{entry.folder} (suite {entry.suite})",
        entry.description,
        html("<p><b>{}</b></p>", entry.question) if entry.question else "",
        html('<ul class="answer">{}</ul>', said) if entry.answers else "",
        facts,
        links,
    )
