"""The report as one self-contained page: no network, sortable, readable on a phone and in the dark."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from bench.console.markup import Html, escaped, html, together
from reports.figures.figure_registry import FIGURES
from reports.figures.histograms import SIMILAR, name_of
from reports.figures.pictures import Picture, style_of
from reports.pages.sections import (
    answer_section,
    data_section,
    folded,
    methods_section,
    notes_section,
    provenance,
    run_numbers,
    runs_section,
    settings_section,
)
from reports.results import Results
from reports.tables.footnotes import context
from reports.tables.table import Cell, Column, Measured, Row, Table, Unit, marks, show, words

_FIGURE = 6  #: a figure counts as this many lines of a table where long parts are folded
_ASSETS = Path(__file__).parents[1] / "assets"
_DIALOG = Html(
    "<dialog><h3></h3><div class=scroll><table></table></div><p class=soft>The interval is bootstrapped over examples: "
    "it speaks of this checkpoint, not of the method.</p><form method=dialog><button>Close</button></form></dialog>"
)


def page(
    results: Results,
    tables: Sequence[Table],
    drawn: Mapping[str, Picture | None] = MappingProxyType({}),
) -> Html:
    """The whole document. `drawn`: figures by their names, as `figure_registry` knows them."""
    first, *others = tables
    numbers, shared = run_numbers(results), context(results)
    scores = {name: picture for name in FIGURES if (picture := drawn.get(name))}
    answer = _figure(scores.pop("answer")) if "answer" in scores else html("")
    own = {results.named(method): drawn.get(name_of(results, method)) for method in results.methods}
    diagnostics = _diagnostics(drawn.get(SIMILAR), {name: one for name, one in own.items() if one})
    figures = together(map(_figure, scores.values()))
    parts = {
        "answer": answer_section(results, answer),
        "overview": _section(results, first, numbers, shared),
        "figures": html('<section id="figures"><h2>Figures</h2>{}</section>', figures) if figures else html(""),
        "tables": html(
            '<section id="tables"><h2>Tables</h2>{}</section>',
            together(_section(results, table, numbers, shared, is_open=False) for table in others),
        ),
        "diagnostics": diagnostics,
        "methods": methods_section(results),
        "data": data_section(results),
        "runs": runs_section(results),
        "settings": settings_section(results),
        "notes": notes_section(results),
    }
    body = [
        html("<h1>{}</h1><p>{}</p>{}", results.suite, results.plan["description"], _counts(results)),
        _links([(name, name.capitalize()) for name, part in parts.items() if part]),
        *parts.values(),
        _DIALOG,
        _program(),
    ]
    return document(results.suite, body)


def printed_page(results: Results, tables: Sequence[Table]) -> Html:
    """Return the document of a suite that was not planned yet: the papers' tables that it declares."""
    body = [
        html(
            "<h1>{0}</h1><p>{1}</p><p>Nothing is planned here yet, so our cells have no numbers: "
            "<code>bench run {0} --plan-only</code> plans the suite.</p>{2}",
            results.suite,
            results.plan["description"],
            _links([(table.name, table.title) for table in tables]),
        ),
        *(_section(results, table, {}) for table in tables),
        together([_DIALOG, _program()]),
    ]
    return document(results.suite, body)


def document(title: str, body: Sequence[Html]) -> Html:
    """Return a page with the report's style: readable on a phone, in the dark and on paper."""
    head = html(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<title>{}</title><link rel=icon href=data:,><style>{}</style></head><body>",
        title,
        asset("report.css"),
    )
    return together([head, *body, html("</body></html>\n")], "\n")


def asset(name: str) -> Html:
    """Return a file of `assets`, as it is."""
    return Html((_ASSETS / name).read_text(encoding="utf-8"))


def _program() -> Html:
    return html("<script>{}</script>", asset("report.js"))


def _counts(results: Results) -> Html:
    counts = {state: count for state, count in results.states().items() if count}
    parts = together(html('<span class="{0}">{1} {0}</span>', state, f"{count:,}") for state, count in counts.items())
    count, made = parts or html("<span>no runs</span>"), provenance(results)
    whole = f"{sum(counts.values()):,}"
    return html('<p class="counts">{} of {} runs{}{}</p>', count, whole, " · " if made else "", made)


def _links(links: Sequence[tuple[str, str]]) -> Html:
    return html("<nav>{}</nav>", together(html('<a href="#{}">{}</a>', name, title) for name, title in links))


def _figure(picture: Picture) -> Html:
    return html(
        '<figure id="figure-{0}" style="--least: {1}px"><div class=scroll><img src="data:image/webp;base64,{2}" '
        'alt="{3}"></div><figcaption>{3}</figcaption></figure>',
        picture.name,
        picture.least,
        base64.b64encode(picture.webp).decode(),
        picture.caption,
    )


def _diagnostics(similarities: Picture | None, own: Mapping[str, Picture]) -> Html:
    if not similarities and not own:
        return html("")
    figures = together(html("<h3>{}</h3>{}", name, _figure(picture)) for name, picture in own.items())
    return html(
        '<section id="diagnostics"><h2>Diagnostics</h2><p>What the runs learned, besides their scores. Nothing here is '
        "ranked.</p>{}{}</section>",
        _figure(similarities) if similarities else "",
        folded(figures, f"show the figures of {len(own)} methods", _FIGURE * len(own)),
    )


def _section(
    results: Results, table: Table, places: Mapping[str, int], shared: Sequence[str] = (), is_open: bool = True
) -> Html:
    """A table with its notes, open or folded; `shared`: notes that appear once on the page for all tables."""
    percent = " Scores in percent." if any(column.unit == "percent" for column in table.columns) else ""
    notes = [escaped(f"{mark} {meaning}.") for mark, meaning in table.notes.items()]
    notes += [escaped(note) for note in table.footnotes if note not in shared]
    if shared:
        notes.append(html('<a href="#shared">Notes on all tables</a>: budget, treatments, noise, environments.'))
    (_, first), *others = _by_budget(results, table).items()
    shown = html(
        '{}{}<ol class="notes">{}</ol>',
        _table(results, first, places),
        together(
            html("<details><summary>at {}</summary>{}</details>", budget, _table(results, one, places))
            for budget, one in others
        ),
        together(html("<li>{}</li>", note) for note in notes),
    )
    whole = html("<p>{}{}</p>{}", table.description, percent, shown)
    if is_open:
        return html('<section id="{}"><h2>{}</h2>{}</section>', table.name, table.title, whole)
    words = html("{} <small>{}</small>", table.title, f"{len(table.rows)} rows")
    return html('<section id="{}"><details><summary>{}</summary>{}</details></section>', table.name, words, whole)


def _by_budget(results: Results, table: Table) -> dict[str, Table]:
    """A table for each budget of the suite, the longest first; rows of no noise stand in all."""
    budgets = {row.group: results.budget(row.group) for row in table.rows if row.group in results.noises}
    return {
        results.told(budget): replace(
            table, rows=tuple(row for row in table.rows if budgets.get(row.group, budget) == budget)
        )
        for budget in sorted(set(budgets.values()), reverse=True)
    } or {"": table}


def _table(results: Results, table: Table, places: Mapping[str, int]) -> Html:
    return html(
        "<div class=scroll><table>{}{}</table></div>",
        _head(table),
        together(_bodies(results, table, places)),
    )


def _head(table: Table) -> Html:
    over = together(
        html('<th scope="colgroup" class="over" colspan="{}">{}</th>', count, name)
        if name
        else html('<td colspan="{}"></td>', count)
        for name, count in table.heads()
    )
    columns = together(_column(place, column) for place, column in enumerate(table.columns, start=1))
    return html('<thead><tr><td></td>{}</tr><tr><th scope="col">method</th>{}</tr></thead>', over, columns)


def _column(place: int, column: Column) -> Html:
    return html(
        '<th scope="col"{} data-place="{}" data-first="{}" title="{}"><button>{}{}</button></th>',
        html(' class="at-chance"') if column.at_chance else "",
        place,
        "descending" if column.higher_is_better else "ascending",
        column.description,
        column.label,
        {True: html("&nbsp;↑"), False: html("&nbsp;↓"), None: ""}[column.higher_is_better],
    )


def _bodies(results: Results, table: Table, places: Mapping[str, int]) -> Iterable[Html]:
    for group, rows in table.groups():
        printed = len(rows) > 1 or rows[0].method or any(cell.source for cell in rows[0].cells)
        yield html(
            "<tbody{}>{}{}</tbody>",
            "" if printed else html(' class="chance"'),
            html(
                '<tr class="group"><th scope="rowgroup">{}</th><td colspan="{}"></td></tr>',
                table.heading(group),
                len(table.columns),
            )
            if group
            else "",
            together(_row(results, table, row, places) for row in rows),
        )


def _row(results: Results, table: Table, row: Row, places: Mapping[str, int]) -> Html:
    full = table.full_under(row.group)
    cells = (_cell(cell, column, full, places) for cell, column in zip(row.cells, table.columns, strict=True))
    return html(
        '<tr><th scope="row" title="{0}">{1}{0}{2}</th>{3}</tr>',
        results.titled(row),
        html('<span class="dot" style="--c: {}"></span>', style_of(results, row.method)["color"]) if row.method else "",
        row.mark,
        together(cells),
    )


def _cell(cell: Cell, column: Column, full: int, places: Mapping[str, int]) -> Html:
    number, behind = words(cell, column, full)
    text = html("<b>{}</b>", number) if cell.bold else escaped(number)
    small = html(" <small>{}</small>", behind) if behind else html("")
    kind = "theirs" if cell.source else "at-chance" if column.at_chance else ""
    kind = cell.state if cell.state != "value" else kind
    attributes = together(
        [
            html(' class="{}"', kind) if kind else "",
            "" if cell.value is None else html(' data-v="{}"', f"{cell.value:.8g}"),
        ]
    )
    if not any(run in places for run in cell.runs):  # trials are not runs of the page; the CSV has their ids
        return html("<td{}>{}{}</td>", attributes, text, small)
    return html(
        '<td{} data-m="{}"><a href="#r{}">{}</a>{}{}</td>',
        attributes,
        _behind(cell, column, places),
        places[cell.runs[0]],
        text,
        small,
        marks(cell),
    )


def _behind(cell: Cell, column: Column, places: Mapping[str, int]) -> str:
    """The runs of a cell for the page's program: "number|value|low|high|examples", one after the other.

    A page has a hundred thousand of them. So the number of a run that comes right after the one before it, examples
    that are as many as those of the one before it, and what is empty at the end are left out.
    """
    parts = [(places[part.run], _measured(part, cell, column), part.n) for part in cell.measured]
    parts += [(places[run], (state,), 0) for run, state in cell.lacking]
    parts += [(places[run], (), 0) for run in cell.sources]
    written, last, before = [], -2, 0
    for place, fields, n in sorted(parts):
        count = "" if n == before else str(n)
        padded = [*fields, *[""] * (3 - len(fields)), count]
        written.append("|".join(["" if place == last + 1 else str(place), *padded]).rstrip("|"))
        last, before = place, n
    return ";".join(written)


def _measured(part: Measured, cell: Cell, column: Column) -> tuple[str, ...]:
    """A run's value, and the ends of its interval if it has one, as they are printed."""
    value = show(part.value, column.unit, cell.digits, column.scale)
    unit: Unit = "printed" if column.unit == "printed" else "percent"
    return (value,) if part.low is None or part.high is None else (value, show(part.low, unit), show(part.high, unit))
