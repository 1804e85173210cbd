"""The pages of a board: the index with its filters, a page a method, a page and a CSV a run. They compute nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from bench.console.csv_text import csv_text
from bench.console.markup import Html, html, together
from bench.store import Record
from bench.store.run import record_line
from reports.pages.html import asset, document
from reports.results import RunResult
from reports.site.rows import BoardRow, slug

VERSION = 1  #: of the board: of its columns, its addresses and its CSV
TITLE = "Noise-robust contrastive learning: the board"
FILTERS = ("suite", "noise", "method", "fidelity", "budget", "hardware")
_CSV = (
    *("source", "suite", "noise", "rate", "method", "fidelity", "budget", "hardware", "measure"),
    *("score", "std", "seeds", "difference", "recovered_gap", "resolution", "rerun", "runs"),
)
_HEADS = (
    ("method", "ascending"),
    ("suite", "ascending"),
    ("noise", "ascending"),
    ("score, %", "descending"),
    ("difference, points", "descending"),
    ("recovered gap", "descending"),
    ("resolution", "descending"),
    ("seeds", "descending"),
    ("rerun", "descending"),
    ("fidelity", "ascending"),
    ("budget", "ascending"),
    ("hardware", "ascending"),
)
_WIDE = ("suite", "noise")  #: columns that a phone has under the method's name, so that the score stands beside it
_NOTES = (
    "Score: the suite's headline number, mean and standard deviation over seeds. Rows of different suites are not "
    "comparable with each other.",
    "Difference: to the baseline of the same suite and noise, with 95 % interval and p (paired t-test over seeds, Holm "
    "over methods).",
    "Recovered gap: share of the way from the baseline to the same method trained on the clean pairs alone, Fieller's "
    "interval. Resolution: that way in detectable differences. Empty: it takes an oracle and three seeds.",
    "Rerun: one of the row's runs was trained again, with a consistent outcome. Rows without a rerun rest on their "
    "author's word: what `bench board` checks shows that they are consistent, and consistent is not proven.",
)


def index_page(rows: Sequence[BoardRow], sources: Sequence[str]) -> Html:
    """Return the board."""
    choices = together(_choice(name, sorted({str(getattr(row, name)) for row in rows})) for name in FILTERS)
    heads = together(_head(place, name, first) for place, (name, first) in enumerate(_HEADS))
    made = together((html("<li>{}</li>", one) for one in sources), "")
    body = [
        html("<style>{}</style>", asset("board.css")),
        html("<h1>{}</h1><p>Board version {}. <a href=board.csv>All rows as CSV</a></p>", TITLE, VERSION),
        html('<form class="filters" autocomplete="off">{}<button type="reset">All rows</button></form>', choices),
        html('<p class="soft" role="status"><span id="shown">{0}</span> of {0} rows</p>', len(rows)),
        html(
            '<div class="scroll" tabindex="0"><table id="board"><thead><tr>{}</tr></thead><tbody>{}</tbody></table>'
            "</div>",
            heads,
            together(map(_row, rows)),
        ),
        html('<ol class="notes">{}</ol>', together(html("<li>{}</li>", note) for note in _NOTES)),
        html("<h2>What it was made from</h2><ul>{}</ul>", made),
        html("<script>{}</script>", asset("board.js")),
    ]
    return document(TITLE, body)


def _choice(name: str, values: Sequence[str]) -> Html:
    options = together(html('<option value="{0}">{0}</option>', value) for value in values)
    return html(
        '<label>{0} <select name="{0}"><option value="">all</option>{1}</select></label>',
        name,
        options,
    )


def _head(place: int, name: str, first: str) -> Html:
    button = html("<button>{}</button>", name)
    return html('<th scope="col"{} data-place="{}" data-first="{}">{}</th>', _side(name, first), place, first, button)


def _side(name: str, first: str) -> Html:
    """Words stand at the left of their column, and numbers, whose best is the highest, at the right."""
    if name in _WIDE:
        return html(' class="text wide"')
    return html(' class="text"') if first == "ascending" else html("")


def _row(row: BoardRow, up: str = "") -> Html:
    filters = together(html(' data-{}="{}"', name, getattr(row, name)) for name in FILTERS)
    knows = html(" <small>knows {}</small>", row.knows) if row.knows else html("")
    under = html('<small class="narrow">{}, {}</small>', row.suite, row.noise)
    name = html('<a href="{}methods/{}.html">{}</a>', up, slug(row.method), row.method)
    cells = [
        html('<th scope="row">{}{}{}</th>', name, knows, under),
        html('<td class="text wide">{}</td><td class="text wide" data-v="{}">{}</td>', row.suite, row.rate, row.noise),
        _score(row, up),
        _number(row.gain, row.gain_text),
        _number(row.recovered, row.recovered_text),
        _number(row.resolution, row.resolution_text),
        html('<td class=seeds data-v="{}">{}</td>', row.score.n, _seeds(row, up)),
        html('<td data-v="{}">{}</td>', int(row.rerun), "yes" if row.rerun else "no"),
        together(html('<td class="text">{}</td>', one) for one in (row.fidelity, row.budget, row.hardware)),
    ]
    return html("<tr{}>{}</tr>", filters, together(cells))


def _score(row: BoardRow, up: str) -> Html:
    value = "" if row.score.value is None else f"{row.score.value:.8g}"
    return html(
        '<td data-v="{}" title="{}"><a href="{}methods/{}.html">{}</a></td>',
        value,
        row.measure,
        up,
        slug(row.method),
        row.score_text,
    )


def _number(value: float | None, text: str) -> Html:
    return html('<td class="measured" data-v="{}">{}</td>', "" if value is None else f"{value:.8g}", text)


def _seeds(row: BoardRow, up: str) -> Html:
    """The runs of a row by their seeds; a run that is not stored has no page."""
    return together(
        (
            html('<a href="{}runs/{}.html">{}</a>', up, run.run, run.seed) if has_page(run) else html("{}", run.seed)
            for run in row.runs
        ),
        " ",
    )


def has_page(run: RunResult) -> bool:
    """Return whether something of a run is stored that a page can show."""
    return run.status["state"] not in ("missing", "damaged")


def method_page(label: str, about: Mapping[str, Any], rows: Sequence[BoardRow]) -> Html:
    """Return the page of a method: what its plan says of it, and its rows."""
    facts = {
        "paper": about["paper"],
        "fidelity": about["fidelity"],
        "equations": about.get("equations") or "",
        "deviations": about["note"],
        "settings": json.dumps(about["config"], sort_keys=True),
    }
    heads = together(html('<th scope="col"{}>{}</th>', _side(name, first), name) for name, first in _HEADS)
    body = [
        html("<style>{}</style>", asset("board.css")),
        _back(),
        html("<h1>{}</h1><p>{}</p>{}", about["title"], about["summary"], _facts(facts)),
        html("<h2>Rows</h2>"),
        html(
            '<div class="scroll" tabindex="0"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>',
            heads,
            together(_row(row, "../") for row in rows),
        ),
        html("<p>The numbers under seeds lead to the runs.</p><pre>{}</pre>", about["bibtex"]),
    ]
    return document(f"{label} on the board", body)


def run_page(run: RunResult, suites: Sequence[str]) -> Html:
    """Return the page of a run: its settings, ledger and environment, and its final scores."""
    final = [record for key, record in sorted(run.records.items()) if key[0] == 1.0]
    rows = together(
        html(
            '<tr><th scope="row">{} {}</th><td class="text">{}</td><td>{}</td><td>{}</td></tr>',
            one.dataset,
            one.task,
            " ".join(filter(None, (one.metric, one.score))),
            f"{100 * one.value:.2f}",
            f"{one.n:,}",
        )
        for one in final
    )
    ledger = {name: value for name, value in run.ledger.items() if not isinstance(value, dict) and value is not None}
    body = [
        html("<style>{}</style>", asset("board.css")),
        _back(),
        html("<h1>{}, {}, seed {}</h1>", run.method, run.noise, run.seed),
        _facts({"run": run.run, "state": run.state, "suites": ", ".join(suites), "steps": f"{run.steps:,}"}),
        html('<p><a href="{}.csv">Records as CSV</a></p>', run.run),
        html(
            '<div class="scroll" tabindex="0"><table><thead><tr><th scope="col">measured on</th><th scope="col" '
            'class="text">metric</th><th scope="col">score, %</th><th scope="col">n</th></tr></thead><tbody>{}</tbody>'
            "</table></div>",
            rows,
        ),
        html("<h2>Ledger</h2>{}", _facts({**ledger, "budget": json.dumps(run.ledger.get("budget"))})),
        html("<h2>Settings</h2><pre>{}</pre>", json.dumps(run.stored.settings(), indent=1, sort_keys=True)),
        html("<h2>Environment</h2><pre>{}</pre>", json.dumps(run.environment, indent=1, sort_keys=True)),
    ]
    return document(f"{run.method}, seed {run.seed}", body)


def run_csv(run: RunResult) -> str:
    """Return the records of a run, those along training too."""
    names = [field.name for field in fields(Record)]
    lines = [{"data": "", **record_line(record)} for _, record in sorted(run.records.items())]
    return csv_text([tuple(names), *(tuple(line[name] for name in names) for line in lines)])


def board_csv(rows: Sequence[BoardRow]) -> str:
    """Return all rows; shares are in [0, 1]."""
    lines = (
        (
            *(row.source, row.suite, row.noise, row.rate, row.method, row.fidelity, row.budget, row.hardware),
            *(row.measure, row.score.state if row.score.value is None else row.score.value, row.score.std, row.score.n),
            *(row.gain, row.recovered, row.resolution, "yes" if row.rerun else "no"),
            " ".join(run.run for run in row.runs),
        )
        for row in rows
    )
    return csv_text([_CSV, *lines])


def _back() -> Html:
    return html('<nav><a href="../index.html">The board</a></nav>')


def _facts(facts: Mapping[str, Any]) -> Html:
    shown = ((name, value) for name, value in facts.items() if value != "")
    return html("<dl>{}</dl>", together(html("<dt>{}</dt><dd>{}</dd>", name, value) for name, value in shown))
