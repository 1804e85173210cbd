"""Sections of the page that are text: how to read it, methods, data sets, runs, settings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bench.console.markup import Html, html, together
from reports.pages.answer import paragraphs, question
from reports.results import Results, RunResult
from reports.statistics.validity import QUESTION, Validity, validity
from reports.tables.footnotes import context, protocol_name
from reports.tables.table import show
from reports.vocabulary import detail, family, metric_label, task_and_metric

FIDELITY = {  #: class of fidelity -> what it says
    "official-checked": "its loss equals the authors' executed code in numbers",
    "formula-checked": "its loss equals an independent evaluation of the paper's formula",
    "derived": "written from the paper's derivation; there is no official code to compare with",
    "reconstructed": "parts are not stated in the paper and were filled in; not verified",
    "unchecked": "its author says that it equals other code, but brings no values that show it; not verified",
}
_STATES = {
    "missing": "not started, or not measured: this evaluation was not asked for, or made under another protocol alone",
    "running": "a process is at work on it now",
    "interrupted": "stopped on the way; the same command resumes it",
    "failed": "stopped by an error, which stands in the list of runs",
    "damaged": "a file of the run cannot be read; the list of runs names it",
    "n/a": "has no meaning here, such as finding noise where there is none",
}


MANY = 20  #: lines or entries from which on a part of the page is folded


def folded(content: Html, words: str, count: int) -> Html:
    """Return a part of the page; where it has many entries, behind these words. A link into it opens it (report.js)."""
    return html("<details><summary>{}</summary>{}</details>", words, content) if count > MANY else content


def validity_section(results: Results) -> Html:
    """Whether the comparison can speak of robustness: an answer a noise, and behind it a sentence a check."""
    found = validity(results)
    if not found:
        return html("")
    lines = [_judged(one, one is found[0]) for one in found if one.noise in results.longest.noises]
    shorter = [_judged(one) for one in found if one.noise not in results.longest.noises]
    more = html("<details><summary>at shorter budgets</summary>{}</details>", together(shorter)) if shorter else ""
    return html('<section id="validity"><h2>{}</h2>{}{}</section>', QUESTION, together(lines), more)


def _judged(one: Validity, is_open: bool = False) -> Html:
    items = together(html("<li>{}</li>", sentence) for sentence in one.sentences)
    attribute = html(" open") if is_open else ""
    return html("<details{}><summary>{}</summary><ul>{}</ul></details>", attribute, one.sentence, items)


def answer_section(results: Results) -> Html:
    """The suite's question, what its seeds answer, one paragraph a noise, and what the methods cost."""
    lines = together(html("<li>{}</li>", paragraph) for paragraph in paragraphs(results))
    return html(
        '<section id="answer"><h2>{}</h2><ul class="answer">{}</ul></section>',
        question(results),
        lines or html("<li>Nothing of it was measured yet.</li>"),
    )


def how_to_read(results: Results) -> Html:
    """Plain words for n, ±, bold, the words in place of numbers, and chance."""
    seeds = len(results.plan["seeds"])
    spread = (
        "There is one seed: n = 1. A different seed would give different numbers, and one number says nothing of how "
        "different. So there is no ±, nothing is bold, and small gaps between methods are not evidence."
        if seeds == 1
        else f"24.6 ± 0.3 is mean and standard deviation over n = {seeds} runs that differ in their seed only: initial "
        "weights, order, augmentation and which pairs are corrupted. A block or a cell with fewer says so: n = 2."
    )
    states = together(html("<li><i>{}</i>: {}</li>", word, meaning) for word, meaning in _STATES.items())
    return html(
        """<section id="reading"><h2>How to read this</h2>
<p>Every method trained on the same pairs with the same corruption, order, towers and budget; only the method differs.
Compare within a block: each block is one noise, under one pair of towers.</p>
<ul><li>{}</li>
<li><b>Bold</b> means: no method of its column is significantly better in this block. It takes three seeds. Where more
than a third of the rows would be bold, nothing is: these seeds cannot rank them.</li>
<li><i>chance</i> is what a uniformly random guess would score on average.</li>
<li>† spent more than its budget. Scores bought with more are not comparable.</li>
<li>‡ not verified: the paper leaves parts of the method open, or a claim comes without values that show it. Its entry
under Methods says which.</li>
<li>§ was trained on what no method knows, such as which pairs are clean, or chosen by it: a bound, never bold and never
ranked.</li>
<li>¶ has not learned: its headline number is at chance under this noise, so nothing of it is tested.</li>
<li>A click on a number shows the runs behind it; a click on a heading sorts.</li>{}</ul>
<h3 id="shared">Notes on all tables</h3><ol class="notes">{}</ol></section>""",
        spread,
        states,
        together(html("<li>{}</li>", note) for note in context(results)),
    )


def methods_section(results: Results) -> Html:
    """Each method in two sentences, with its source and how far to trust the adapter."""
    articles = together(map(_method, results.methods.values()))
    whole = folded(articles, f"show all {len(results.methods)}", len(results.methods))
    return html('<section id="methods"><h2>Methods</h2>{}</section>', whole)


def _method(entry: Mapping[str, Any]) -> Html:
    facts = {
        "paper": f"{entry['paper']}, {entry['equations']}" if entry.get("equations") else entry["paper"],
        "fidelity": f"{entry['fidelity']}: {FIDELITY.get(entry['fidelity'], '')}",
        "starts from": f"a shared {entry['reference']} run, which is charged to it" if entry["reference"] else "",
        "keeps": entry.get("state", ""),
        "score": entry["score"],
        "our reading": entry["note"],
        "preset": entry["preset"] or "",
        "settings": ", ".join(f"{name} = {value}" for name, value in entry["config"].items()),
    }
    return html(
        "<article><h3>{}{}</h3><p>{}</p><dl>{}</dl><details><summary>BibTeX</summary><pre>{}</pre></details></article>",
        entry["title"],
        "" if entry["label"] == entry["title"] else html(' <code class="soft">{}</code>', entry["label"]),
        entry["summary"],
        together(html("<dt>{}</dt><dd>{}</dd>", name, value) for name, value in facts.items() if value),
        entry["bibtex"],
    )


def data_section(results: Results) -> Html:
    """What was trained on and what was measured on."""
    data = results.plan["data"]
    rows = []
    for name, entry in results.plan["datasets"].items():
        chance = ", ".join(_chance(key, value) for key, value in entry.get("chance", {}).items())
        count = f"{entry['n']:,}" if "n" in entry else ""
        cells = (name, count, entry.get("description", ""), chance)
        rows.append(html("<tr>{}</tr>", together(html('<td class="text wrap">{}</td>', cell) for cell in cells)))
    return html(
        '<section id="data"><h2>Data</h2><p>Trained on {}: {} pairs, {}</p>{}</section>',
        data["name"],
        f"{data['rows']:,}",
        data.get("description", ""),
        _listed(("data set", "examples", "what it is", "chance"), rows),
    )


def _listed(heads: Sequence[str], rows: Sequence[Html]) -> Html:
    head = together(html('<th scope="col" class="text">{}</th>', name) for name in heads)
    return html(
        "<div class=scroll><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>", head, together(rows)
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
        rows.append(html("<tr{}>{}</tr>", anchor, together(html("<td>{}</td>", cell) for cell in _cells(run))))
    return html(
        '<section id="runs"><h2>Runs</h2><p><code>bench show RUN</code> prints everything stored of a run.</p>{}'
        "</section>",
        folded(_listed(heads, rows), f"show all {len(rows)}", len(rows)),
    )


def _cells(run: RunResult) -> list[str]:
    state = run.state
    error = run.status.get("error")
    reason = f": {describe_error(error)}" if error else ""
    packages = run.environment.get("packages", {})
    environment = ", ".join(f"{name} {packages[name]}" for name in ("torch", "numpy") if packages.get(name))
    step = run.status.get("step")
    return [
        run.method,
        run.noise,
        str(run.seed),
        html('<span class="{0}">{0}</span>{1}', state, reason),
        f"{run.steps:,}" if state in ("done", "trained") or step is None else f"{step:,} of {run.steps:,}",
        html('<code title="{}">{}</code>', run.run, run.run[:16]),
        html("<code>{}</code>", run.manifest["hash"][:12]) if run.manifest else "",
        environment,
    ]


def describe_error(error: Mapping[str, Any]) -> str:
    """ "NotFinite at step 312 (forget): the loss is nan"."""
    place = f" at step {error['step']}" if error.get("step") is not None else ""
    term = f" ({error['term']})" if error.get("term") else ""
    return f"{error.get('type', 'error')}{place}{term}: {error.get('message', '')}"


def settings_section(results: Results) -> Html:
    """What all methods share."""
    shared = {"budget": results.plan["budget"], "seeds": results.plan["seeds"]}
    shared |= {"protocol": protocol_name(results.plan["protocol"]), **results.plan["settings"]}
    return html(
        '<section id="settings"><h2>Settings shared by all methods</h2>'
        "<details><summary>show</summary><pre>{}</pre></details></section>",
        json.dumps(shared, indent=2, ensure_ascii=False),
    )
