"""`bench board site`: the board as one page with filters and sorting that works without a network, and as CSV."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.console.markup import Html, html, together
from bench.console.text import csv_text
from bench.errors import UserError
from bench.store.files import write_bytes
from reports.pages.html import asset, document
from reports.site.rows import BoardRow, Check, board_rows, listed, name_of, opened
from reports.tables.table import signed
from reports.tables.vs_baseline import interval, p_text

VERSION = 4  #: of the board: of its columns and its CSV
PAGE, CSV = "index.html", "board.csv"
_TITLE = "Noise-robust contrastive learning: the board"
_INTRODUCTION = (
    "Methods that train image-text models on pairs with wrong captions, each at the same budget on the same noise. "
    "Choose a suite and a noise: the method that is best on the suite's primary metric comes first. Differences are "
    "from the baseline: ▲ significantly better, ▼ significantly worse, ○ inconclusive."
)
_FILTERS = ("suite", "noise", "method")
_COLUMNS = (
    *("source", "suite", "noise", "rate", "method", "fidelity", "budget", "hardware", "measure"),
    *("score", "std", "seeds", "difference", "recovered_gap", "resolution", "rerun", "runs", "basis", "of"),
)
_UP, _DOWN = "ascending", "descending"
#: a column -> how a first click sorts
_HEADS = {"method": _UP, "score": _DOWN, "difference, points": _DOWN, "seeds": _DOWN}
_HEADS |= dict.fromkeys(("fidelity", "budget", "basis"), _UP)
_NOTES = (
    "Score: the suite's primary metric, named below with the better direction; mean and standard deviation "
    "over seeds. Rows of different suites are not comparable with each other.",
    "Difference: method minus baseline, with its interval (95 % or more, by its step of Holm's procedure) and adjusted "
    "p (paired t-test over seeds).",
    "Basis: what the scores rest on. Recomputed: `bench board check` computed them from per-example results, which an "
    "author may have invented: consistent is not proven. Hardware and names of rows are stated by the author.",
    "Rerun: one of the row's runs was trained again, with a consistent outcome, as the file next to the bundle says. "
    "`bench board check BUNDLE --rerun RUN` trains one again here.",
    "The CSV file has recovered gap, resolution, hardware and the ids of the runs; `bench store import` of the archive "
    "and `bench show RUN` print everything about a run, `bench methods NAME` about a method.",
)


def site(paths: Sequence[Path], out: Path, check: Check | None = None, home: str = "") -> list[Path]:
    """Write the board of stores, committed comparisons and bundles; return its page and its CSV file.

    An earlier board in `out` is replaced. `check` computes a bundle's numbers again before it is shown; without it they
    are labelled as stated. `home`: see `page`. Raises UserError if there are no runs, if an archive is damaged or
    forged, and if `out` has other files than a board.
    """
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / CSV).is_file())):
        raise UserError(f"--out {out}: is neither an empty folder nor an earlier site; choose another")
    rows, sources = list[BoardRow](), list[str]()
    for path in listed(paths):
        name = name_of(path)
        with opened(path, check) as suites:
            for suite in suites:
                rows += board_rows(name, suite)
                results = suite.results
                states, data = results.states(), results.plan["data"]
                parts = [f"{states['done']} of {sum(states.values())} runs", f"protocol {results.plan['protocol']}"]
                parts.append(f"plan {results.plan['suite_hash'][:12]}")
                parts.append(f"{data['name']}, {data['rows']:,} pairs")
                sources.append(f"{name}: suite {results.suite}; {'; '.join(parts)}")
    if not rows:
        raise UserError(f"{', '.join(map(str, paths))}: has no planned runs to show")
    for file, text in ((PAGE, page(rows, sources, home)), (CSV, board_csv(rows))):
        write_bytes(out / file, text.encode(), durable=False)
    return [out / PAGE, out / CSV]


def page(rows: Sequence[BoardRow], sources: Sequence[str], home: str = "") -> Html:
    """Return the board, opened on the first suite and its first noise; `sources`: what it was made from, one line each.

    home: the address of the documentation, to which the page and its methods lead.
    """
    places = Counter(suite for suite, _ in {(row.suite, row.source) for row in rows})
    rows = [replace(row, suite=f"{row.suite} ({row.source})") if places[row.suite] > 1 else row for row in rows]
    choices = together(_choice(name, list(dict.fromkeys(str(getattr(row, name)) for row in rows))) for name in _FILTERS)
    heads = together(_head(place, *head) for place, head in enumerate(_HEADS.items()))
    links = html(' · <a href="{}">Documentation</a>', home) if home else html("")
    body = [
        html("<style>{}</style>", asset("board.css")),
        html("<h1>{}</h1><p>{}</p>", _TITLE, _INTRODUCTION),
        html('<p class="soft">Board version {}. <a href="{}">All rows as CSV</a>{}</p>', VERSION, CSV, links),
        html('<form class="filters" autocomplete="off">{}<button type="reset">All rows</button></form>', choices),
        html('<p class="soft" role="status"><span id="shown">{0}</span> of {0} rows</p>', len(rows)),
        html(
            '<div class="scroll" tabindex="0"><table id="board"><thead><tr>{}</tr></thead><tbody>{}</tbody></table>'
            "</div>",
            heads,
            together(_row(row, home) for row in sorted(rows, key=lambda row: -_goodness(row, row.score.value))),
        ),
        html('<ol class="notes">{}</ol>', together(html("<li>{}</li>", note) for note in _NOTES)),
        html("<h2>Sources</h2><ul>{}</ul>", together(html("<li>{}</li>", one) for one in sources)),
        html("<script>{}</script>", asset("board.js")),
    ]
    return document(_TITLE, body)


def _goodness(row: BoardRow, value: float | None) -> float:
    """A score of a row or a difference of it, larger where it is better; rows without one come last."""
    return -math.inf if value is None else value if row.higher_is_better else -value


def _choice(name: str, values: Sequence[str]) -> Html:
    options = together(html('<option value="{0}">{0}</option>', value) for value in values)
    return html('<label>{0} <select name="{0}"><option value="">all</option>{1}</select></label>', name, options)


def _head(place: int, name: str, first: str) -> Html:
    """Words stand at the left of their column, and numbers, whose best is the highest, at the right."""
    words = "text" if first == _UP else ""
    return html(
        '<th scope="col" class="{}" data-place="{}" data-first="{}"><button>{}</button></th>', words, place, first, name
    )


def _row(row: BoardRow, home: str) -> Html:
    filters = together(html(' data-{}="{}"', name, getattr(row, name)) for name in (*_FILTERS, "rate"))
    docs = home and f"{home.rstrip('/')}/generated/methods/{row.of or row.method}.html"
    links = (("paper", row.paper), ("docs", docs))
    about = [html(' <a class="small" href="{}">{}</a>', link, name) for name, link in links if link]
    said = [f"of {row.of}"] * bool(row.of) + [f"knows {row.knows}"] * bool(row.knows)
    about += [html("<small>{}</small>", one) for one in said]
    about += [html('<small class="place">{}, {}</small>', row.suite, row.noise)]
    gain, gained = html(""), row.gain.value if row.gain else None
    if row.gain:
        better = (row.gain.value > 0) == row.higher_is_better
        mark = "○" if not row.gain.is_significant else "▲" if better else "▼"
        gain = html(
            "{} {} <small>{}, {}</small>", mark, signed(row.gain.value), interval(row.gain), p_text(row.gain.adjusted)
        )
    measure = html("{} <small>{} {}</small>", _score(row), row.measure, "↑" if row.higher_is_better else "↓")
    words = (row.fidelity, row.budget, f"{row.basis}{', rerun' * row.rerun}")
    cells = [
        html('<th scope="row">{}{}</th>', row.title, together(about)),
        html('<td class="measured" data-v="{}">{}</td>', _plain(_goodness(row, row.score.value)), measure),
        html('<td class="measured" data-v="{}">{}</td>', _plain(_goodness(row, gained)), gain),
        html('<td data-v="{0}">{0}</td>', row.score.n),
        *(html('<td class="text">{}</td>', one) for one in words),
    ]
    return html("<tr{}>{}</tr>", filters, together(cells))


def _score(row: BoardRow) -> str:
    """The mean in percent with the standard deviation over seeds, or why there is none."""
    if row.score.value is None:
        return row.score.state
    return f"{100 * row.score.value:.1f}" + ("" if row.score.std is None else f" ± {100 * row.score.std:.1f}")


def _plain(value: float) -> str:
    return f"{value:.8g}" if math.isfinite(value) else ""


def board_csv(rows: Sequence[BoardRow]) -> str:
    """Return all rows; shares are in [0, 1]."""
    lines = (
        (
            *(row.source, row.suite, row.noise, row.rate, row.method, row.fidelity, row.budget, row.hardware),
            *(row.measure, row.score.state if row.score.value is None else row.score.value, row.score.std, row.score.n),
            *(one.value if one else None for one in (row.gain, row.recovered, row.resolution)),
            "yes" if row.rerun else "no",
            " ".join(row.runs),
            *(row.basis, row.of),
        )
        for row in rows
    )
    return csv_text([_COLUMNS, *lines])
