"""Tables as LaTeX (booktabs), to be taken into a paper by \\input."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, groupby
from typing import Any

from bench.errors import UserError, nearest
from reports.results import Results
from reports.tables.footnotes import context
from reports.tables.latex_text import escape
from reports.tables.table import Cell, Column, Row, Table, marks, words

WIDTH = 138  #: characters side by side, scaled down to the width of a page, that can still be read
FULL = 110  #: characters side by side that need no scaling
COLUMN = 62  #: as `WIDTH`, in one of two columns
LINES = 54  #: lines of a page that a table may fill, besides its caption and notes
LONGEST = 80  #: characters of one text in a table; TeX knows no width of 6 m
FLOATS = r"\extrafloats{1000}\maxdeadcycles=1000"  #: LaTeX holds 52 by itself, and gives up after 100 rounds
NEEDS = rf"% Needs \usepackage{{booktabs,graphicx}}, and {FLOATS} where tables follow each other without text."
HEAD = 4  #: lines that headings and rules take


def table_latex(table: Table) -> str:
    """One `table` environment, or several where the rows do not fit on a page. Needs booktabs and graphicx.

    What is too wide for one of two columns is a `table*`, which takes both; in one column that is the same. A table
    wider than the text is broken between its headings, or within one that alone is too wide, into blocks below each
    other, and a block that is still wider is scaled down. The notes are under the last part.
    """
    parts = _parts(table)
    environment = "table*" if any(_letters(block) > COLUMN for part in parts for block in part) else "table"
    lines = []
    for place, part in enumerate(parts):
        lines += [
            rf"\begin{{{environment}}}[htbp]",
            *([r"\addtocounter{table}{-1}"] if place else []),
            r"\centering\footnotesize\renewcommand{\arraystretch}{0.9}",
            rf"\caption{{{escape(_caption(table) if place == 0 else f'{table.title}, continued.')}}}",
            *([rf"\label{{tab:{table.name}}}"] if place == 0 else []),
            r"\smallskip",
            "\n\\par\\medskip\n".join(map(_tabular, part)),
            *(_notes(table) if place == len(parts) - 1 else []),
            rf"\end{{{environment}}}",
        ]
    return "\n".join(lines) + "\n"


def for_a_paper(results: Results, table: Table, methods: Sequence[str] = ()) -> str:
    r"""A table as a paper prints it: methods by their titles with `\cite`, and of the notes those of marks alone.

    methods: labels of the rows to keep, all by default; bold stays what it is among all rows of the suite. The keys are
    those of `bench methods --cite`. Raises UserError for a label that the table does not have.
    """
    known = refuse_unknown(methods, table)
    kept = [row for row in table.rows if not row.method or not methods or row.method in methods]
    named = tuple(
        replace(row, label=results.titled(row), cite=cite_key(results.methods.get(row.method, {}))) for row in kept
    )
    marked = "".join(row.mark + "".join(map(marks, row.cells)) for row in kept)
    notes = {mark: meaning for mark, meaning in table.notes.items() if mark in marked}
    all_rows = (f"Bold is among all {len(known)} entries of the suite.",)
    long = context(results) if results.runs else ()
    short = [note for note in table.footnotes if note not in long] if table.brief is None else table.brief
    footnotes = (*short, *(all_rows if 0 < len(set(methods)) < len(known) else ()))
    return f"{NEEDS}\n{table_latex(replace(table, rows=named, notes=notes, footnotes=footnotes))}"


def refuse_unknown(methods: Sequence[str], table: Table) -> list[str]:
    """Return the labels of a table's rows. Raises UserError for a label that it does not have."""
    known = list(dict.fromkeys(row.method for row in table.rows if row.method))
    for label in methods:
        if label not in known:
            raise UserError(f"{label!r} is not a row of the table {table.name}{nearest(label, known)}")
    return known


def references(results: Results, tables: Sequence[str]) -> list[str]:
    r"""Lines of a bibliography of the methods that these tables cite, for a document that has no other."""
    cited = {key: entry for entry in results.methods.values() if (key := cite_key(entry))}
    used = {key: entry for key, entry in cited.items() if any(rf"\cite{{{key}}}" in table for table in tables)}
    if not used:
        return []
    items = [rf"\bibitem{{{key}}} {escape(entry['title'])}: {escape(entry['paper'])}." for key, entry in used.items()]
    return [r"\clearpage", rf"\begin{{thebibliography}}{{{len(used)}}}", *items, r"\end{thebibliography}"]


def cite_key(entry: Mapping[str, Any]) -> str:
    """The key of a method's BibTeX entry; "" if it has none, or one that LaTeX cannot read."""
    match = re.match(r"\s*@\w+\{([\w:.+/-]+),", entry.get("bibtex") or "", re.ASCII)
    return match.group(1) if match else ""


def _parts(table: Table) -> list[list[Table]]:
    """Tabulars for each page: all blocks of as many groups of rows as fit, or else the blocks of one group in turn."""
    blocks = [[replace(block, rows=rows) for rows in _groups(block)] for block in _blocks(table)]
    parts: list[list[Table]] = []
    left = 0.0
    for pieces in zip(*blocks, strict=True):
        heights = [min(1.0, FULL / _letters(one)) * (len(one.rows) + len(one.groups()) + HEAD) for one in pieces]
        more = sum(heights) - HEAD * len(pieces)
        if parts and len(parts[-1]) == len(pieces) and more <= left:
            parts[-1] = [replace(a, rows=(*a.rows, *b.rows)) for a, b in zip(parts[-1], pieces, strict=True)]
            left -= more
            continue
        for place, (piece, height) in enumerate(zip(pieces, heights, strict=True)):
            if place and height <= left:
                parts[-1].append(piece)
                left -= height
            else:
                parts.append([piece])
                left = LINES - height
    return parts


def _groups(table: Table) -> list[tuple[Row, ...]]:
    """Return the rows under each heading; rows without one, such as chance, stay with those before them."""
    groups: list[tuple[Row, ...]] = []
    for name, rows in table.groups():
        if name or not groups:
            groups.append(tuple(rows))
        else:
            groups[-1] += tuple(rows)
    return groups


def _letters(table: Table) -> int:
    """Return the width of one block in characters."""
    return _labels(table) + sum(_width(table, place) for place in range(len(table.columns)))


def _labels(table: Table) -> int:
    """Return the characters of the longest label, with the number of its citation."""
    return max((len(row.label) + (5 if row.cite else 0) for row in table.rows), default=0)


def _blocks(table: Table) -> list[Table]:
    """The same rows under fewer columns: as few blocks as can be read, about equally wide, by counting characters.

    Columns under one heading stay together, unless they alone are too wide to be read.
    """
    room = WIDTH - _labels(table)
    places: list[Sequence[int]] = []
    widths: list[int] = []
    for name, columns in groupby(range(len(table.columns)), lambda place: table.columns[place].group):
        together = list(columns)
        own = [_width(table, place) for place in together]
        whole = 2 + max(len(name), sum(own))
        places += [together] if whole <= room else ([place] for place in together)
        widths += [whole] if whole <= room else own
    total = sum(widths)
    blocks: dict[int, list[int]] = {}
    for i, width in enumerate(widths):
        middle = (sum(widths[:i]) + width / 2) / total
        blocks.setdefault(int(middle * math.ceil(total / room)), []).extend(places[i])
    return [_only(table, block) for block in blocks.values()]


def _width(table: Table, place: int) -> int:
    lines = [*_head(table, place), *_numbers(table, place)]
    return 2 + max(map(len, lines), default=0)


def _numbers(table: Table, place: int) -> list[str]:
    column = table.columns[place]
    return [" ".join(words(row.cells[place], column, table.full_under(row.group))) for row in table.rows]


def _head(table: Table, place: int) -> list[str]:
    """The lines of a column's label: it is broken between words until it is about as wide as what stands under it."""
    widest = max([8, *map(len, _numbers(table, place))])  # a table may have no rows
    return textwrap.wrap(table.columns[place].label, widest, break_long_words=False, break_on_hyphens=False) or [""]


def _only(table: Table, places: Sequence[int]) -> Table:
    rows = (replace(row, cells=tuple(row.cells[place] for place in places)) for row in table.rows)
    return replace(table, columns=tuple(table.columns[place] for place in places), rows=tuple(rows))


def _tabular(table: Table) -> str:
    columns = table.columns
    heads = table.heads()
    lines = [
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{l{'r' * len(columns)}}}",
        r"\toprule",
    ]
    if any(name for name, _ in heads):
        lines.append(" & ".join(["", *(rf"\multicolumn{{{n}}}{{c}}{{{_brief(name)}}}" for name, n in heads)]) + r" \\")
        # a short rule under every heading, so that a reader sees which columns it covers
        starts = accumulate((count for _, count in heads), initial=2)
        named = [(start, start + count - 1) for start, (name, count) in zip(starts, heads, strict=False) if name]
        lines.append("".join(rf"\cmidrule(lr){{{first}-{last}}}" for first, last in named))
    lines.append(" & ".join(["", *(_label(table, place) for place in range(len(columns)))]) + r" \\")
    for group, rows in table.groups():
        lines.append(r"\midrule")
        if group:
            lines.append(rf"\multicolumn{{{len(columns) + 1}}}{{l}}{{\emph{{{_brief(table.heading(group))}}}}} \\")
        for row in rows:
            full = table.full_under(group)
            cells = [_cell(cell, column, full) for cell, column in zip(row.cells, columns, strict=True)]
            label = _brief(row.label) + escape(row.mark)
            label = f"{{*}}{label[1:]}" if label.startswith("*") else label  # else it would belong to the \\ before it
            label += rf"~\cite{{{row.cite}}}" if row.cite else ""
            lines.append(" & ".join([label, *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}}"])


def _label(table: Table, place: int) -> str:
    """The label of a column, in as many lines as `_head` breaks it into."""
    column = table.columns[place]
    head = [_brief(line) for line in _head(table, place)]
    joined = r"\\".join(head) + _arrow(column)
    return joined if len(head) == 1 else rf"\shortstack[r]{{{joined}}}"


def _brief(text: str) -> str:
    """Text of a cell, as `escape` writes it; long text is truncated."""
    return escape(text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…")


def _caption(table: Table) -> str:
    percent = " Scores in percent." if any(column.unit == "percent" for column in table.columns) else ""
    return f"{table.title}. {table.description}{percent}".strip()


def _arrow(column: Column) -> str:
    return {True: r" $\uparrow$", False: r" $\downarrow$", None: ""}[column.higher_is_better]


def _cell(cell: Cell, column: Column, full: int) -> str:
    number, behind = words(cell, column, full)
    text = _brief(number)
    if cell.bold:
        text = rf"\textbf{{{text}}}"
    elif cell.state != "value":
        text = rf"\emph{{{text}}}"
    small = rf" {{\scriptsize {escape(behind)}}}" if behind else ""
    return text + small + escape(marks(cell))


def _notes(table: Table) -> list[str]:
    notes = [f"{mark} {meaning}." for mark, meaning in table.notes.items()]
    text = " ".join(escape(note) for note in (*notes, *table.footnotes))
    return [r"\par\smallskip", rf"\parbox{{\linewidth}}{{\footnotesize {text}}}"] if text else []


def document(bodies: Sequence[str]) -> str:
    r"""A complete document around tables, to look at them or to print them."""
    head = [
        r"\documentclass{article}",
        r"\usepackage[utf8]{inputenc}",
        r"\usepackage[margin=2cm]{geometry}",
        r"\usepackage{booktabs,graphicx}",
        FLOATS,
        r"\begin{document}",
    ]
    return "\n".join([*head, *bodies, r"\end{document}"]) + "\n"
