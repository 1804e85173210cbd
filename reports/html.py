"""The report as one self-contained page: no network, sortable, readable on a phone and in the dark."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reports.drawing import Picture, style_of
from reports.results import Results
from reports.sections import data_section, how_to_read, methods_section, runs_section, settings_section
from reports.table import Cell, Column, Measured, Row, Table, Unit, marks, show, words

_ASSETS = Path(__file__).parent / "assets"
_DIALOG = (
    "<dialog><h3></h3><div class=scroll><table></table></div><p class=soft>The interval is bootstrapped over examples: "
    "it speaks of this checkpoint, not of the method.</p><form method=dialog><button>Close</button></form></dialog>"
)


def page(
    results: Results,
    tables: Sequence[Table],
    pictures: Sequence[Picture],
    similarities: Picture | None = None,
    own: Mapping[str, Picture] = MappingProxyType({}),
) -> str:
    """The whole document. `similarities` and `own` (by method): what `reports.diagnostics.learned` gives."""
    runs = list({run.run: run for run in results.runs}.values())
    places = {run.run: place for place, run in enumerate(runs)}
    data = json.dumps([{"id": run.run, "seed": run.seed} for run in runs]).replace("<", "\\u003c")
    title = html.escape(results.suite)
    body = [
        f"<h1>{title}</h1><p>{html.escape(results.plan['description'])}</p>{_counts(results)}",
        _nav(tables, bool(similarities or own)),
        _section(results, tables[0], places),
        how_to_read(results),
        *(_figure(picture) for picture in pictures),
        *(_section(results, table, places) for table in tables[1:]),
        _diagnostics(similarities, own),
        methods_section(results),
        data_section(results),
        runs_section(results),
        settings_section(results),
        _DIALOG,
        f'<script type="application/json" id="runs-data">{data}</script>',
        f"<script>{_asset('report.js')}</script>",
    ]
    return _document(title, body)


def printed_page(results: Results, tables: Sequence[Table]) -> str:
    """The document of a suite that was not planned yet: the papers' tables that it declares."""
    title = html.escape(results.suite)
    links = "".join(f'<a href="#{table.name}">{html.escape(table.title)}</a>' for table in tables)
    body = [
        f"<h1>{title}</h1><p>{html.escape(results.plan['description'])}</p><p>Nothing was planned here yet, so no cell "
        f"of ours has a number: <code>bench run {title} --dry-run</code> plans.</p><nav>{links}</nav>",
        *(_section(results, table, {}) for table in tables),
        f'<script type="application/json" id="runs-data">[]</script>{_DIALOG}<script>{_asset("report.js")}</script>',
    ]
    return _document(title, body)


def _document(title: str, body: Sequence[str]) -> str:
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><link rel=icon href=data:,><style>{_asset('report.css')}</style></head><body>"
    )
    return "\n".join([head, *body, "</body></html>"]) + "\n"


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _counts(results: Results) -> str:
    counts = {state: count for state, count in results.states().items() if count}
    parts = "".join(f'<span class="{state}">{count} {state}</span>' for state, count in counts.items())
    return f'<p class="counts">{parts or "<span>no runs</span>"} of {len(results.runs)} runs</p>'


def _nav(tables: Sequence[Table], diagnostics: bool) -> str:
    links = [(table.name, table.title) for table in tables]
    links.insert(1, ("reading", "How to read this"))
    links += [("diagnostics", "Diagnostics")] if diagnostics else []
    links += [("methods", "Methods"), ("data", "Data"), ("runs", "Runs"), ("settings", "Settings")]
    return "<nav>" + "".join(f'<a href="#{name}">{html.escape(title)}</a>' for name, title in links) + "</nav>"


def _figure(picture: Picture) -> str:
    source = base64.b64encode(picture.png).decode()
    caption = html.escape(picture.caption)
    return (
        f'<figure id="figure-{picture.name}" style="--least: {picture.least}px"><div class=scroll>'
        f'<img src="data:image/png;base64,{source}" alt="{caption}"></div><figcaption>{caption}</figcaption></figure>'
    )


def _diagnostics(similarities: Picture | None, own: Mapping[str, Picture]) -> str:
    if not similarities and not own:
        return ""
    parts = [f"<h3>{html.escape(method)}</h3>{_figure(picture)}" for method, picture in own.items()]
    return (
        '<section id="diagnostics"><h2>Diagnostics</h2><p>What the runs learned beside their scores. Nothing here is '
        f"ranked.</p>{_figure(similarities) if similarities else ''}{''.join(parts)}</section>"
    )


def _section(results: Results, table: Table, places: Mapping[str, int]) -> str:
    percent = " Scores in percent." if any(column.unit == "percent" for column in table.columns) else ""
    turned = ' class="turned"' if table.turned else ""
    notes = [f"{mark} {meaning}." for mark, meaning in table.notes.items()]
    items = "".join(f"<li>{html.escape(note)}</li>" for note in (*notes, *table.footnotes))
    return (
        f'<section id="{table.name}"><h2>{html.escape(table.title)}</h2>'
        f"<p>{html.escape(table.description)}{percent}</p><div class=scroll><table{turned}>{_head(table)}"
        f'{"".join(_bodies(results, table, places))}</table></div><ol class="notes">{items}</ol></section>'
    )


def _head(table: Table) -> str:
    over = "".join(
        f'<th class="over" colspan="{count}">{html.escape(name)}</th>' if name else f'<th colspan="{count}"></th>'
        for name, count in table.heads()
    )
    columns = "".join(_column(place, column) for place, column in enumerate(table.columns, start=1))
    return f"<thead><tr><th></th>{over}</tr><tr><th>method</th>{columns}</tr></thead>"


def _column(place: int, column: Column) -> str:
    arrow = {True: "&nbsp;↑", False: "&nbsp;↓", None: ""}[column.higher_is_better]
    first = "descending" if column.higher_is_better else "ascending"
    return (
        f'<th data-place="{place}" data-first="{first}" title="{html.escape(column.description)}">'
        f"<button>{html.escape(column.label)}{arrow}</button></th>"
    )


def _bodies(results: Results, table: Table, places: Mapping[str, int]) -> Iterable[str]:
    for group, rows in table.groups():
        kind = "" if rows[0].method or any(cell.source for cell in rows[0].cells) else ' class="chance"'
        heading = (
            f'<tr class="group"><th>{html.escape(group)}</th><td colspan="{len(table.columns)}"></td></tr>'
            if group
            else ""
        )
        yield f"<tbody{kind}>{heading}{''.join(_row(results, table, row, places) for row in rows)}</tbody>"


def _row(results: Results, table: Table, row: Row, places: Mapping[str, int]) -> str:
    dot = f'<span class="dot" style="--c: {style_of(results, row.method)["color"]}"></span>' if row.method else ""
    cells = (_cell(cell, column, row, table, places) for cell, column in zip(row.cells, table.columns, strict=True))
    label = html.escape(row.label)
    return f'<tr><th title="{label}">{dot}{label}{row.mark}</th>{"".join(cells)}</tr>'


def _cell(cell: Cell, column: Column, row: Row, table: Table, places: Mapping[str, int]) -> str:
    number, behind = words(cell, column, table.full)
    text = html.escape(number)
    text = f"<b>{text}</b>" if cell.bold else text
    small = f" <small>{html.escape(behind)}</small>" if behind else ""
    value = "" if cell.value is None else f' data-v="{cell.value:.8g}"'
    kind = (
        f' class="{cell.state if cell.state != "value" else "theirs"}"' if cell.state != "value" or cell.source else ""
    )
    if not any(run in places for run in cell.runs):  # trials are no runs of the page; the CSV has their ids
        return f"<td{kind}{value}>{text}{small if cell.source else ''}</td>"
    title = " · ".join(filter(None, (row.label, row.group, column.group, column.label)))
    parts: list[Sequence[Any]] = [
        (places[part.run], show(part.value, column.unit, cell.digits), _interval(part, column), part.n or "")
        for part in cell.measured
    ]
    parts += [(places[run], state, "", "") for run, state in cell.lacking]
    parts += [(places[run], "", "", "") for run in cell.sources]
    parts.sort(key=lambda part: part[0])  # by place in the plan, that is by seed
    data = html.escape(json.dumps(parts, separators=(",", ":"), ensure_ascii=False))
    return (
        f'<td{kind}{value} data-m="{data}" data-t="{html.escape(title)}">'
        f'<a href="#run-{cell.runs[0]}">{text}</a>{small}{marks(cell)}</td>'
    )


def _interval(part: Measured, column: Column) -> str:
    unit: Unit = "printed" if column.unit == "printed" else "percent"
    return "" if part.low is None or part.high is None else f"{show(part.low, unit)} to {show(part.high, unit)}"
