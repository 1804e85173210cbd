"""Tables as LaTeX (booktabs), to be taken into a paper by \\input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from reports.table import Cell, Column, Table, marks, words

WIDTH = 130  #: letters beside each other, scaled down to the width of a page, that can still be read
_ESCAPES = {
    "\\": r"\textbackslash{}",
    "_": r"\_",
    "%": r"\%",
    "&": r"\&",
    "#": r"\#",
    "$": r"\$",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "→": r"$\rightarrow$",
    "†": r"$^\dagger$",
    "–": "--",
    "τ": r"$\tau$",
    "γ": r"$\gamma$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "λ": r"$\lambda$",
    "σ": r"$\sigma$",
    "ε": r"$\varepsilon$",
    "μ": r"$\mu$",
    "π": r"$\pi$",
}


def escape(text: str) -> str:
    """Text as LaTeX prints it: special characters are escaped, the symbols that our words use become commands."""
    return "".join(_ESCAPES.get(character, character) for character in text)


def table_latex(table: Table) -> str:
    """A `table` environment. Needs booktabs and graphicx.

    A table wider than the text is broken between its headings into blocks below each other, and a block that is still
    wider is scaled down.
    """
    lines = [
        r"\begin{table}[htbp]",
        r"\centering",
        rf"\caption{{{escape(_caption(table))}}}",
        rf"\label{{tab:{table.name}}}",
        r"\smallskip",
        "\n\\par\\medskip\n".join(_tabular(block) for block in _blocks(table)),
        *_notes(table),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _blocks(table: Table) -> list[Table]:
    """The same rows under fewer headings: as few blocks as can be read, about equally wide, by counting letters."""
    places: list[range] = []
    widths: list[int] = []
    for name, count in table.heads():
        start = places[-1].stop if places else 0
        places.append(range(start, start + count))
        widths.append(2 + max(len(name), sum(_width(table, place) for place in places[-1])))
    room = WIDTH - max((len(row.label) for row in table.rows), default=0)
    total = sum(widths)
    blocks: dict[int, list[int]] = {}
    for i, width in enumerate(widths):
        middle = (sum(widths[:i]) + width / 2) / total
        blocks.setdefault(int(middle * math.ceil(total / room)), []).extend(places[i])
    return [_only(table, block) for block in blocks.values()]


def _width(table: Table, place: int) -> int:
    column = table.columns[place]
    cells = [" ".join(words(row.cells[place], column, table.full)) for row in table.rows]
    return 2 + max(map(len, [column.label, *cells]))


def _only(table: Table, places: Sequence[int]) -> Table:
    rows = (replace(row, cells=tuple(row.cells[place] for place in places)) for row in table.rows)
    return replace(table, columns=tuple(table.columns[place] for place in places), rows=tuple(rows))


def _tabular(table: Table) -> str:
    columns = table.columns
    heads = table.heads()
    lines = [
        r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{l{'r' * len(columns)}}}",
        r"\toprule",
    ]
    if any(name for name, _ in heads):
        lines.append(" & ".join(["", *(rf"\multicolumn{{{n}}}{{c}}{{{escape(name)}}}" for name, n in heads)]) + r" \\")
        lines.append("".join(_rules(heads)))
    lines.append(" & ".join(["", *(escape(column.label) + _arrow(column) for column in columns)]) + r" \\")
    for group, rows in table.groups():
        lines.append(r"\midrule")
        if group:
            lines.append(rf"\multicolumn{{{len(columns) + 1}}}{{l}}{{\emph{{{escape(group)}}}}} \\")
        for row in rows:
            cells = [_cell(cell, column, table.full) for cell, column in zip(row.cells, columns, strict=True)]
            lines.append(" & ".join([escape(row.label), *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}}"])


def _caption(table: Table) -> str:
    percent = " Scores in percent." if any(column.unit == "percent" for column in table.columns) else ""
    return f"{table.title}. {table.description}{percent}".strip()


def _rules(heads: Sequence[tuple[str, int]]) -> list[str]:
    """A short rule under every heading, so that a reader sees which columns it covers."""
    rules, start = [], 2
    for name, count in heads:
        if name:
            rules.append(rf"\cmidrule(lr){{{start}-{start + count - 1}}}")
        start += count
    return rules


def _arrow(column: Column) -> str:
    return {True: r" $\uparrow$", False: r" $\downarrow$", None: ""}[column.higher_is_better]


def _cell(cell: Cell, column: Column, full: int) -> str:
    number, behind = words(cell, column, full)
    text = escape(number)
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
    """A complete document around tables, to look at them or to print them."""
    head = [
        r"\documentclass{article}",
        r"\usepackage[utf8]{inputenc}",
        r"\usepackage[margin=2cm]{geometry}",
        r"\usepackage{booktabs,graphicx}",
        r"\begin{document}",
    ]
    return "\n".join([*head, *bodies, r"\end{document}"]) + "\n"
