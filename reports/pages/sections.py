"""Sections of the page that are text: answer, methods, data sets, runs, settings, notes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from bench.console.markup import Html, html, together
from reports.pages.answer import paragraphs, question, scoreboard, verdict
from reports.results import Results, RunResult
from reports.statistics.validity import ANSWERS, QUESTION, Check, validity
from reports.status import describe_error
from reports.tables.footnotes import context, protocol_name
from reports.tables.table import show
from reports.vocabulary import detail, family, metric_label, task_and_metric

FIDELITY = {  #: class of fidelity -> what it says
    "official-checked": "its loss equals the authors' executed code in numbers",
    "formula-checked": "its loss equals an independent evaluation of the paper's formula",
    "derived": "written from the paper's derivation; there is no official code to compare with",
    "reconstructed": "the paper does not state some parts, which were filled in; not verified",
    "unchecked": "its author says that it equals other code, but brings no values that show it; not verified",
}
MANY = 20  #: entries above which a part of the page is folded


def folded(content: Html, words: str, count: int) -> Html:
    """Return a part of the page, folded under these words if it is long. A link into it opens it (report.js)."""
    return html("<details><summary>{}</summary>{}</details>", words, content) if count > MANY else content


def last_run(results: Results) -> str:
    """The day on which the last run finished; "" before the first."""
    ends = [run.status.get("updated", 0) for run in results.runs if run.environment]
    return f"{datetime.fromtimestamp(max(ends), UTC):%Y-%m-%d}" if ends else ""


def hardware(run: RunResult) -> str:
    """The device and the number of cores; "" if they are not known."""
    known = run.environment.get("hardware") or {}
    cores = f", {known['cores']} cores" if known.get("cores") else ""
    return f"{known['device']}{cores}" if known.get("device") else ""


def provenance(results: Results) -> str:
    """When the last run finished, by which version of bench, and on which machines; "" before the first."""
    if not (day := last_run(results)):
        return ""
    packages = {run.environment.get("packages", {}).get("robust-cl-bench", "") for run in results.runs}
    machines = Counter(filter(None, map(hardware, results.runs))).most_common()
    others = " and others" if len(machines) > 1 else ""
    versions = ", ".join(f"bench {one}" for one in sorted(filter(None, packages)))
    return " · ".join(filter(None, (f"last run {day}", versions, *(f"{name}{others}" for name, _ in machines[:1]))))


def answer_section(results: Results, figure: Html) -> Html:
    """A question and its answer: a sentence, a row per noise, four checks, a figure; then budgets and cost."""
    head, *rows = scoreboard(results)
    said = together(html("<li>{}</li>", paragraph) for paragraph in paragraphs(results))
    return html(
        '<section id="answer"><h2>{}</h2><p class="verdict">{}</p>{}{}{}<ul class="answer">{}</ul></section>',
        question(results),
        verdict(results),
        listed(head, rows) if rows else "",
        _checks(results),
        figure,
        said,
    )


def _checks(results: Results) -> Html:
    """Whether the comparison can speak of robustness: a row per noise, a column per check; their numbers are folded."""
    found = validity(results)
    if not found:
        return html("")
    rows = [
        (one.noise, ANSWERS[one.outcome], *(_outcome(check) for check in one.checks))
        for one in found
        if one.noise in results.longest.noises
    ]
    sentences = together(
        html("<li>{}<ul>{}</ul></li>", one.sentence, together(html("<li>{}</li>", check) for check in one.sentences))
        for one in found
    )
    return html(
        '<div id="validity"><h3>{}</h3>{}<details><summary>what the checks found</summary><ul class="answer">{}</ul>'
        "</details></div>",
        QUESTION,
        listed(("noise", "answer", *(check.name for check in found[0].checks)), rows),
        sentences,
    )


def _outcome(check: Check) -> Html:
    mark = {"pass": "✓", "fail": "✗", "unknown": "?"}[check.outcome]
    return html('<span class="{0}" title="{1}">{2} {0}</span>', check.outcome, check.sentence, mark)


def notes_section(results: Results) -> Html:
    """What n and ± mean, and the notes that all tables share."""
    seeds = len(results.plan["seeds"])
    spread = (
        "There is one seed: n = 1. A different seed would give different numbers, and one number does not show how "
        "different. So there is no ±, nothing is bold, and small gaps between methods are not evidence."
        if seeds == 1
        else f"24.6 ± 0.3 is mean and standard deviation over n = {seeds} runs that differ only in their seed: initial "
        "weights, order, augmentation and which pairs are corrupted."
    )
    return html(
        """<section id="notes"><h2>Notes</h2>
<p>All rows of a block have the same noise, order, towers and budget; methods, settings and choice of pairs differ.
Compare within a block: each block is one noise, with one pair of towers. A click on a number shows the runs behind
it; a click on a heading sorts.</p><p>{}</p>
<h3 id="shared">Notes on all tables</h3><ol class="notes">{}</ol></section>""",
        spread,
        together(html("<li>{}</li>", note) for note in context(results)),
    )


def methods_section(results: Results) -> Html:
    """Each method in two sentences, with its source and how far to trust the adapter."""
    articles = together(_method(results.named(label), entry) for label, entry in results.methods.items())
    whole = folded(articles, f"show all {len(results.methods)}", len(results.methods))
    return html('<section id="methods"><h2>Methods</h2>{}</section>', whole)


def _method(title: str, entry: Mapping[str, Any]) -> Html:
    printed = f"{entry['paper']}, {entry['equations']}" if entry["equations"] else entry["paper"]
    facts = {
        "paper": html('<a href="{}">{}</a>', link, printed) if (link := paper_link(entry["bibtex"])) else printed,
        "documentation": html("<code>bench methods {}</code>", entry["method"]),
        "fidelity": f"{entry['fidelity']}: {FIDELITY.get(entry['fidelity'], '')}",
        "starts from": f"a shared {entry['reference']} run, which is charged to it" if entry["reference"] else "",
        "keeps": entry["state"],
        "score": entry["score"],
        "our reading": entry["note"],
        "label": html("<code>{}</code>", entry["label"]),
        "preset": entry["preset"] or "",
        "settings": ", ".join(f"{name} = {value}" for name, value in entry["config"].items()),
    }
    return html(
        "<article><h3>{}</h3><p>{}</p><dl>{}</dl><details><summary>BibTeX</summary><pre>{}</pre></details></article>",
        title,
        entry["summary"],
        together(html("<dt>{}</dt><dd>{}</dd>", name, value) for name, value in facts.items() if value),
        entry["bibtex"],
    )


def paper_link(bibtex: str) -> str:
    """The address of a paper: on arXiv where its entry says so, or a search for its title; "" if it is not out."""
    if number := re.search(r"\b\d{4}\.\d{5}\b", bibtex):
        return f"https://arxiv.org/abs/{number[0]}"
    title = re.search(r"\btitle\s*=\s*\{(.*?)\},?\s*(?:\w+\s*=|\}\s*$)", bibtex, re.S)
    words = " ".join(re.sub("[{}]", "", title[1]).split()) if title and "nonymous" not in bibtex else ""
    return f"https://scholar.google.com/scholar?q={quote(words)}" if words else ""


def data_section(results: Results) -> Html:
    """What was trained on and what was measured on."""
    data = results.plan["data"]
    rows = []
    for name, entry in results.plan["datasets"].items():
        chance = ", ".join(_chance(key, value) for key, value in entry["chance"].items())
        rows.append((name, f"{entry['n']:,}", entry["description"], chance))
    return html(
        '<section id="data"><h2>Data</h2><p>Trained on {}: {} pairs, {}</p>{}</section>',
        data["name"],
        f"{data['rows']:,}",
        data["description"],
        listed(("data set", "examples", "what it is", "chance"), rows, (2, 3)),
    )


def listed(heads: Sequence[object], rows: Iterable[Sequence[object]], wrapped: Collection[int] = ()) -> Html:
    """A table of words: cells and their heads begin at the left; those at these places are broken into lines."""
    return _body(heads, together(html("<tr>{}</tr>", _cells_of(row, wrapped)) for row in rows))


def _cells_of(row: Sequence[object], wrapped: Collection[int] = ()) -> Html:
    cells = ((html(' class="wrap"') if place in wrapped else "", cell) for place, cell in enumerate(row))
    return together(html("<td{}>{}</td>", *cell) for cell in cells)


def _body(heads: Sequence[object], rows: Html) -> Html:
    head = together(html('<th scope="col">{}</th>', name) for name in heads)
    return html(
        '<div class=scroll tabindex=0><table class="words"><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>',
        head,
        rows,
    )


def _chance(key: str, value: float) -> str:
    task, metric = task_and_metric(key)
    words = (detail(task) or family(task).replace("_", " "), metric_label(metric))
    return f"{' '.join(words)} {show(value, 'percent')} %"


def run_numbers(results: Results) -> dict[str, int]:
    """The number of each run's row in `runs_section`, by its id; seeds that stand in one cell follow each other."""
    methods, noises = list(results.methods), list(results.noises)
    runs = sorted(results.runs, key=lambda run: (methods.index(run.method), noises.index(run.noise), run.seed))
    return {run: number for number, run in enumerate(dict.fromkeys(run.run for run in runs))}


def runs_section(results: Results) -> Html:
    """Every run by its id with its state, its failure where it failed, its noise and its checkpoint."""
    heads = ("method", "noise", "seed", "state", "steps", "run", "noise manifest", "environment")
    numbers = run_numbers(results)
    rows = []
    for run in results.runs:
        number = numbers.pop(run.run, None)  # rows may share a run, and an id occurs once on a page
        anchor = html("") if number is None else html(' id="r{}"', number)
        rows.append(html("<tr{}>{}</tr>", anchor, _cells_of(_cells(results, run))))
    return html(
        '<section id="runs"><h2>Runs</h2><p><code>bench show RUN</code> prints everything stored of a run.</p>{}'
        "</section>",
        folded(_body(heads, together(rows)), f"show all {len(rows)}", len(rows)),
    )


def _cells(results: Results, run: RunResult) -> list[str]:
    state = run.state
    error = run.status.get("error")
    reason = f": {describe_error(error)}" if error else ""
    packages = run.environment.get("packages", {})
    environment = ", ".join(f"{name} {packages[name]}" for name in ("torch", "numpy") if packages.get(name))
    step = run.status.get("step")
    return [
        results.named(run.method),
        run.noise,
        str(run.seed),
        html('<span class="{0}">{0}</span>{1}', state, reason),
        f"{run.steps:,}" if state in ("done", "trained") or step is None else f"{step:,} of {run.steps:,}",
        html('<code title="{}">{}</code>', run.run, run.run[:16]),
        html("<code>{}</code>", run.manifest["hash"][:12]) if run.manifest else "",
        environment,
    ]


def settings_section(results: Results) -> Html:
    """What all methods share."""
    shared = {"budget": results.plan["budget"], "seeds": results.plan["seeds"]}
    shared |= {"protocol": protocol_name(results.plan["protocol"]), **results.plan["settings"]}
    return html(
        '<section id="settings"><h2>Settings shared by all methods</h2>'
        "<details><summary>show</summary><pre>{}</pre></details></section>",
        json.dumps(shared, indent=2, ensure_ascii=False),
    )
