"""Results of checks as text, and as a Markdown, HTML or JSON file that stands alone."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bench.checks.suite import CHECKS, Outcome, Result
from bench.errors import UserError

FORMATS = (".md", ".html", ".json")
SIGNS: dict[Outcome, str] = {"passed": "+", "failed": "FAIL", "skipped": "-", "expected": "x"}
LEGEND = "+ passed, - does not apply, x fails as declared"
COLOURS: dict[Outcome, str] = {"passed": "#dff0d8", "failed": "#f2b8b5", "skipped": "#eeeeee", "expected": "#fcefc7"}


def line(result: Result) -> str:
    """Return one row of the table of one method."""
    text = f"{result.check:<16} {result.outcome:<9} {result.seconds:6.2f} s  {result.reason}"
    return text.rstrip()


def verdict(results: Sequence[Result]) -> str:
    """Return one sentence: the number of results by outcome, and the seconds of all."""
    counts = {outcome: sum(result.outcome == outcome for result in results) for outcome in SIGNS}
    summary = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    return f"{summary} in {sum(result.seconds for result in results):.0f} s"


def _grid(results: Sequence[Result]) -> tuple[list[str], list[str], dict[tuple[str, str], Result]]:
    methods = list(dict.fromkeys(result.method for result in results))
    checks = [check.name for check in CHECKS if any(result.check == check.name for result in results)]
    return methods, checks, {(result.method, result.check): result for result in results}


def matrix(results: Sequence[Result]) -> str:
    """Return the outcomes as a table: one row for each method, one column for each check."""
    methods, checks, result_of = _grid(results)
    width = max(map(len, methods))
    lines = [f"{number:>{width}}  {check}" for number, check in enumerate(checks, 1)]
    lines += ["", " " * width + "".join(f"{number:>5}" for number in range(1, len(checks) + 1))]
    for method in methods:
        cells = "".join(f"{SIGNS[result_of[method, check].outcome]:>5}" for check in checks)
        seconds = sum(result_of[method, check].seconds for check in checks)
        lines.append(f"{method:<{width}}{cells}  {seconds:5.1f} s")
    return "\n".join([*lines, "", LEGEND])


def check_format(path: Path) -> None:
    """Raise UserError if the suffix of a file names no format."""
    if path.suffix not in FORMATS:
        raise UserError(f"--report {path}: should end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")


def write(path: Path, results: Sequence[Result]) -> None:
    """Write the same table to a file, in the format of its suffix."""
    writer = {".md": _markdown, ".html": _html, ".json": _json}[path.suffix]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(writer(results), encoding="utf-8")


def _json(results: Sequence[Result]) -> str:
    return json.dumps([asdict(result) for result in results], indent=1) + "\n"


def _markdown(results: Sequence[Result]) -> str:
    methods, checks, result_of = _grid(results)
    lines = [f"# bench check: {verdict(results)}", "", f"| check | {' | '.join(methods)} |"]
    lines.append("|---" * (len(methods) + 1) + "|")
    for check in checks:
        lines.append(f"| {check} | {' | '.join(result_of[method, check].outcome for method in methods)} |")
    lines += ["", *(f"- `{check.name}`: {check.about}" for check in CHECKS if check.name in checks), ""]
    noted = [r for r in results if r.reason]
    lines += [f"- {r.method}, {r.check}, {r.outcome}: {r.reason}" for r in noted]
    return "\n".join(lines) + "\n"


def _html(results: Sequence[Result]) -> str:
    methods, checks, result_of = _grid(results)
    about = {check.name: check.about for check in CHECKS}

    def cell(result: Result) -> str:
        title = html.escape(f"{result.outcome}, {result.seconds:.2f} s. {result.reason}", quote=True)
        return f'<td style="background:{COLOURS[result.outcome]}" title="{title}">{result.outcome}</td>'

    head = "".join(f"<th>{html.escape(method)}</th>" for method in methods)
    rows = "".join(
        f'<tr><th title="{html.escape(about[check], quote=True)}">{check}</th>'
        + "".join(cell(result_of[method, check]) for method in methods)
        + "</tr>\n"
        for check in checks
    )
    noted = "".join(
        f"<li>{html.escape(f'{r.method}, {r.check}, {r.outcome}: {r.reason}')}</li>\n" for r in results if r.reason
    )
    style = "body{font:14px sans-serif}td,th{padding:2px 6px;text-align:left}"
    return (
        f'<!doctype html>\n<meta charset="utf-8">\n<title>bench check</title>\n<style>{style}</style>\n'
        f"<h1>bench check: {html.escape(verdict(results))}</h1>\n"
        f"<table>\n<tr><th></th>{head}</tr>\n{rows}</table>\n<ul>\n{noted}</ul>\n"
    )
