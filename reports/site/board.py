"""`bench board site`: the board as one page with filters and sorting that works without a network, and as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.console.markup import Html, html, together
from bench.console.text import csv_text
from bench.errors import UserError
from bench.store.files import write_bytes
from reports.pages.html import asset, document
from reports.site.rows import BoardRow, Check, board_rows, listed, name_of, opened
from reports.statistics.ratio import Ratio
from reports.tables.vs_baseline import interval, p_text, signed

VERSION = 3  #: of the board: of its columns and its CSV
PAGE, CSV = "index.html", "board.csv"
_TITLE = "Noise-robust contrastive learning: the board"
_FILTERS = ("suite", "noise", "method", "fidelity", "budget", "hardware", "basis")
_COLUMNS = (
    *("source", "suite", "noise", "rate", "method", "fidelity", "budget", "hardware", "measure"),
    *("score", "std", "seeds", "difference", "recovered_gap", "resolution", "rerun", "runs", "basis", "of"),
)
_UP, _DOWN = "ascending", "descending"  #: how a first click sorts
_HEADS = {
    **{"method": _UP, "suite": _UP, "noise": _UP, "score, %": _DOWN, "difference, points": _DOWN},
    **{"recovered gap": _DOWN, "resolution": _DOWN, "seeds": _DOWN, "rerun": _DOWN},
    **{"fidelity": _UP, "budget": _UP, "hardware": _UP, "basis": _UP},
}
_WIDE = ("suite", "noise")  #: columns that a phone has under the method's name, so that the score stands beside it
_NOTES = (
    "Score: the suite's headline number, mean and standard deviation over seeds. Rows of different suites are not "
    "comparable with each other.",
    "Difference: to the baseline of the same suite and noise, with 95 % interval and p (paired t-test over seeds, Holm "
    "over methods).",
    "Recovered gap: share of the way from the baseline to the same method trained on the clean pairs alone, Fieller's "
    "interval. Resolution: that way in detectable differences. Empty: it takes an oracle and three seeds.",
    "Basis: what the scores rest on. Recomputed: `bench board check` computed them from per-example results; an "
    "author may have invented those: consistent is not proven. Hardware and names of rows are stated by the author.",
    "Rerun: one of the row's runs was trained again, with a consistent outcome, as the file beside the bundle says. "
    "`bench board check BUNDLE --rerun RUN` trains one again here.",
    "The CSV file has the ids of the runs; `bench store import` of the archive and `bench show RUN` say all of one.",
)


def site(paths: Sequence[Path], out: Path, check: Check | None = None) -> list[Path]:
    """Write the board over stores, committed comparisons and bundles; return its page and its CSV file.

    An earlier board in `out` is replaced. `check` computes a bundle's numbers again before it is shown; without it they
    are labelled as stated. Raises UserError if there are no runs, if an archive is damaged or forged, and if `out` has
    other files than a board.
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
                done, data = results.states()["done"], results.plan["data"]
                parts = [f"{done} of {len(results.runs)} runs", f"protocol {results.plan['protocol']}"]
                parts.append(f"plan {str(results.plan.get('suite_hash', ''))[:12]}")
                parts.append(f"{data['name']}, {data['rows']:,} pairs")
                sources.append(f"{name}: suite {results.suite}; {'; '.join(parts)}")
    if not rows:
        raise UserError(f"{', '.join(map(str, paths))}: has no planned runs to show")
    for file, text in ((PAGE, page(rows, sources)), (CSV, board_csv(rows))):
        write_bytes(out / file, text.encode(), durable=False)
    return [out / PAGE, out / CSV]


def page(rows: Sequence[BoardRow], sources: Sequence[str]) -> Html:
    """Return the board; `sources` says what it was made from, a line each."""
    choices = together(_choice(name, sorted({str(getattr(row, name)) for row in rows})) for name in _FILTERS)
    heads = together(_head(place, *head) for place, head in enumerate(_HEADS.items()))
    body = [
        html("<style>{}</style>", asset("board.css")),
        html('<h1>{}</h1><p>Board version {}. <a href="{}">All rows as CSV</a></p>', _TITLE, VERSION, CSV),
        html('<form class="filters" autocomplete="off">{}<button type="reset">All rows</button></form>', choices),
        html('<p class="soft" role="status"><span id="shown">{0}</span> of {0} rows</p>', len(rows)),
        html(
            '<div class="scroll" tabindex="0"><table id="board"><thead><tr>{}</tr></thead><tbody>{}</tbody></table>'
            "</div>",
            heads,
            together(map(_row, rows)),
        ),
        html('<ol class="notes">{}</ol>', together(html("<li>{}</li>", note) for note in _NOTES)),
        html("<h2>What it was made from</h2><ul>{}</ul>", together(html("<li>{}</li>", one) for one in sources)),
        html("<script>{}</script>", asset("board.js")),
    ]
    return document(_TITLE, body)


def _choice(name: str, values: Sequence[str]) -> Html:
    options = together(html('<option value="{0}">{0}</option>', value) for value in values)
    return html('<label>{0} <select name="{0}"><option value="">all</option>{1}</select></label>', name, options)


def _head(place: int, name: str, first: str) -> Html:
    """Words stand at the left of their column, and numbers, whose best is the highest, at the right."""
    words = "text wide" if name in _WIDE else "text" if first == _UP else ""
    return html(
        '<th scope="col" class="{}" data-place="{}" data-first="{}"><button>{}</button></th>', words, place, first, name
    )


def _row(row: BoardRow) -> Html:
    filters = together(html(' data-{}="{}"', name, getattr(row, name)) for name in _FILTERS)
    said = [f"of {row.of}"] * bool(row.of) + [f"knows {row.knows}"] * bool(row.knows)
    about = together(html(" <small>{}</small>", one) for one in said)
    under = html('<small class="narrow">{}, {}</small>', row.suite, row.noise)
    gain = f"{signed(row.gain.value)} ({interval(row.gain)}, {p_text(row.p)})" if row.gain and row.p is not None else ""
    cells = [
        html('<th scope="row">{}{}{}</th>', row.method, about, under),
        html('<td class="text wide">{}</td><td class="text wide" data-v="{}">{}</td>', row.suite, row.rate, row.noise),
        html('<td data-v="{}" title="{}">{}</td>', _plain(row.score.value), row.measure, _score(row)),
        html('<td class="measured" data-v="{}">{}</td>', _plain(row.gain.value if row.gain else None), gain),
        _ratio(row.recovered),
        _ratio(row.resolution),
        html('<td class="seeds" data-v="{}">{}</td>', row.score.n, " ".join(map(str, row.runs.values()))),
        html('<td data-v="{}">{}</td>', int(row.rerun), "yes" if row.rerun else "no"),
        together(html('<td class="text">{}</td>', one) for one in (row.fidelity, row.budget, row.hardware, row.basis)),
    ]
    return html("<tr{}>{}</tr>", filters, together(cells))


def _score(row: BoardRow) -> str:
    """The mean in percent with the standard deviation over seeds, or why there is none."""
    if row.score.value is None:
        return row.score.state
    return f"{100 * row.score.value:.1f}" + ("" if row.score.std is None else f" ± {100 * row.score.std:.1f}")


def _ratio(ratio: Ratio | None) -> Html:
    text = f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})" if ratio else ""
    return html('<td class="measured" data-v="{}">{}</td>', _plain(ratio.value if ratio else None), text)


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.8g}"


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
