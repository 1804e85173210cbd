"""Sections of the page that are text: how to read it, methods, data sets, runs, settings."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Any

from reports.footnotes import protocol_name
from reports.results import Results, RunResult
from reports.table import show
from reports.vocabulary import detail, family, metric_label, task_and_metric

_FIDELITY = {
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


def how_to_read(results: Results) -> str:
    """Plain words for n, ±, bold, the words in place of numbers, and chance."""
    seeds = len(results.plan["seeds"])
    spread = (
        "There is one seed: n = 1. A different seed would give different numbers, and one number says nothing of how "
        "different. So there is no ±, nothing is bold, and small gaps between methods are not evidence."
        if seeds == 1
        else f"24.6 ± 0.3 is mean and standard deviation over n = {seeds} runs that differ in their seed only: initial "
        "weights, order, augmentation and which pairs are corrupted. A cell with fewer says so: n=2."
    )
    states = "".join(f"<li><i>{word}</i>: {meaning}</li>" for word, meaning in _STATES.items())
    return f"""<section id="reading"><h2>How to read this</h2>
<p>Every method trained on the same pairs with the same corruption, order, towers and budget; only the method differs.
Compare within a block: each block is one noise, under one pair of towers.</p>
<ul><li>{spread}</li>
<li><b>Bold</b> means: not shown to be worse than the best of its column in this block. It takes three seeds. Several
bold numbers in a column are a tie as far as this can tell.</li>
<li><i>chance</i> is what a uniformly random guess would score on average.</li>
<li>† spent more than its budget. Scores bought with more are not comparable.</li>
<li>‡ not verified: the paper leaves parts of the method open, or a claim comes without values that show it. Its entry
under Methods says which.</li>
<li>§ was trained on what no method knows, such as which pairs are clean: a bound, never bold and never ranked.</li>
<li>A click on a number shows the runs behind it; a click on a heading sorts.</li>{states}</ul></section>"""


def methods_section(results: Results) -> str:
    """Each method in two sentences, with its source and how far to trust the adapter."""
    return '<section id="methods"><h2>Methods</h2>' + "".join(map(_method, results.methods.values())) + "</section>"


def _method(entry: Mapping[str, Any]) -> str:
    facts = {
        "paper": f"{entry['paper']}, {entry['equations']}" if entry.get("equations") else entry["paper"],
        "fidelity": f"{entry['fidelity']}: {_FIDELITY.get(entry['fidelity'], '')}",
        "starts from": f"a shared {entry['reference']} run, which is charged to it" if entry["reference"] else "",
        "keeps": entry.get("state", ""),
        "score": entry["score"],
        "our reading": entry["note"],
        "preset": entry["preset"] or "",
        "settings": ", ".join(f"{name} = {value}" for name, value in entry["config"].items()),
    }
    label = "" if entry["label"] == entry["title"] else f' <code class="soft">{html.escape(entry["label"])}</code>'
    return (
        f"<article><h3>{html.escape(entry['title'])}{label}</h3><p>{html.escape(entry['summary'])}</p>{_facts(facts)}"
        f"<details><summary>BibTeX</summary><pre>{html.escape(entry['bibtex'])}</pre></details></article>"
    )


def _facts(facts: Mapping[str, Any]) -> str:
    items = (
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(str(value))}</dd>" for name, value in facts.items() if value
    )
    return f"<dl>{''.join(items)}</dl>"


def data_section(results: Results) -> str:
    """What was trained on and what was measured on."""
    data = results.plan["data"]
    rows = []
    for name, entry in results.plan["datasets"].items():
        chance = ", ".join(_chance(key, value) for key, value in entry.get("chance", {}).items())
        count = f"{entry['n']:,}" if "n" in entry else ""
        cells = (name, count, entry.get("description", ""), chance)
        rows.append("<tr>" + "".join(f'<td class="text wrap">{html.escape(cell)}</td>' for cell in cells) + "</tr>")
    heads = "".join(f'<td class="text soft">{head}</td>' for head in ("data set", "examples", "what it is", "chance"))
    return (
        f'<section id="data"><h2>Data</h2><p>Trained on {html.escape(data["name"])}: {data["rows"]:,} pairs, '
        f"{html.escape(data['description'])}</p><div class=scroll><table><tr>{heads}</tr>{''.join(rows)}</table></div>"
        "</section>"
    )


def _chance(key: str, value: float) -> str:
    task, metric = task_and_metric(key)
    words = (detail(task) or family(task).replace("_", " "), metric_label(metric))
    return f"{' '.join(words)} {show(value, 'percent')} %"


def runs_section(results: Results) -> str:
    """Every run by its id with its state, its failure where it failed, its noise and its checkpoint."""
    heads = ("method", "noise", "seed", "state", "steps", "run", "noise manifest", "environment")
    head = "".join(f'<td class="text soft">{name}</td>' for name in heads)
    seen: set[str] = set()
    rows = []
    for run in results.runs:
        anchor = "" if run.run in seen else f' id="run-{run.run}"'
        seen.add(run.run)
        rows.append(f"<tr{anchor}>" + "".join(f'<td class="text">{cell}</td>' for cell in _run_cells(run)) + "</tr>")
    return (
        '<section id="runs"><h2>Runs</h2><p><code>bench show RUN</code> prints everything stored of a run.</p>'
        f"<div class=scroll><table><tr>{head}</tr>{''.join(rows)}</table></div></section>"
    )


def _run_cells(run: RunResult) -> list[str]:
    state = run.state
    error = run.status.get("error")
    said = f'<span class="{state}">{state}</span>'
    if error:
        said += f": {html.escape(describe_error(error))}"
    packages = run.environment.get("packages", {})
    environment = ", ".join(f"{name} {packages[name]}" for name in ("torch", "numpy") if packages.get(name))
    step = run.status.get("step")
    return [
        html.escape(run.method),
        html.escape(run.noise),
        str(run.seed),
        said,
        f"{run.steps:,}" if state in ("done", "trained") or step is None else f"{step:,} of {run.steps:,}",
        f"<code>{run.run[:16]}</code>",
        f"<code>{run.manifest['hash'][:12]}</code>" if run.manifest else "",
        html.escape(environment),
    ]


def describe_error(error: Mapping[str, Any]) -> str:
    """ "NotFinite at step 312 (forget): the loss is nan"."""
    place = f" at step {error['step']}" if error.get("step") is not None else ""
    term = f" ({error['term']})" if error.get("term") else ""
    return f"{error.get('type', 'error')}{place}{term}: {error.get('message', '')}"


def settings_section(results: Results) -> str:
    """What all methods share."""
    shared = {"budget": results.plan["budget"], "seeds": results.plan["seeds"]}
    shared |= {"protocol": protocol_name(results.plan["protocol"]), **results.plan["settings"]}
    text = html.escape(json.dumps(shared, indent=2, ensure_ascii=False))
    return (
        '<section id="settings"><h2>Settings shared by all methods</h2>'
        f"<details><summary>show</summary><pre>{text}</pre></details></section>"
    )
