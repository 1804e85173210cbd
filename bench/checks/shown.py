"""Results of checks as text, and as a Markdown, HTML or JSON file that stands alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bench.checks.suite import CHECKS, Outcome, Result
from bench.console.markup import Html, html, markdown, together
from bench.console.text import joined
from bench.errors import UserError

FORMATS = (".md", ".html", ".json")
SIGNS: dict[Outcome, str] = {"passed": "+", "failed": "FAIL", "skipped": "-", "expected": "x"}
LEGEND = "+ passed, - does not apply, x fails as declared"
COLOURS: dict[Outcome, str] = {"passed": "#dff0d8", "failed": "#f2b8b5", "skipped": "#eeeeee", "expected": "#fcefc7"}


def line(result: Result) -> str:
    """One row of the table of one method."""
    text = f"{result.check:<16} {result.outcome:<9} {result.seconds:6.2f} s  {result.reason}"
    return text.rstrip()


def verdict(results: Sequence[Result]) -> str:
    """One sentence."""
    counts = {outcome: sum(result.outcome == outcome for result in results) for outcome in SIGNS}
    summary = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    return f"{summary} in {sum(result.seconds for result in results):.0f} s"


def _grid(results: Sequence[Result]) -> tuple[list[str], list[str], dict[tuple[str, str], Result]]:
    methods = list(dict.fromkeys(result.method for result in results))
    checks = [check.name for check in CHECKS if any(result.check == check.name for result in results)]
    return methods, checks, {(result.method, result.check): result for result in results}


def matrix(results: Sequence[Result]) -> str:
    """Methods by checks."""
    methods, checks, result_of = _grid(results)
    width = max(map(len, methods))
    lines = [f"{number:>{width}}  {check}" for number, check in enumerate(checks, 1)]
    lines += ["", " " * width + "".join(f"{number:>5}" for number in range(1, len(checks) + 1))]
    for method in methods:
        cells = "".join(f"{SIGNS[result_of[method, check].outcome]:>5}" for check in checks)
        seconds = sum(result_of[method, check].seconds for check in checks)
        lines.append(f"{method:<{width}}{cells}  {seconds:5.1f} s")
    return joined([*lines, "", LEGEND])


def check_format(path: Path) -> None:
    """UserError for a file name that says no format."""
    if path.suffix not in FORMATS:
        raise UserError(f"--report {path}: should end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")


def write(path: Path, results: Sequence[Result]) -> None:
    """The same table as a file, its format by suffix."""
    writer = {".md": _markdown, ".html": _html, ".json": _json}[path.suffix]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(writer(results), encoding="utf-8")


def _json(results: Sequence[Result]) -> str:
    return json.dumps([asdict(result) for result in results], indent=1) + "\n"


def _markdown(results: Sequence[Result]) -> str:
    methods, checks, result_of = _grid(results)
    lines = [f"# bench check: {verdict(results)}", "", f"| check | {' | '.join(map(markdown, methods))} |"]
    lines.append("|---" * (len(methods) + 1) + "|")
    for check in checks:
        lines.append(f"| {check} | {' | '.join(result_of[method, check].outcome for method in methods)} |")
    lines += ["", *(f"- `{check.name}`: {check.about}" for check in CHECKS if check.name in checks), ""]
    lines += [f"- {markdown(_remark(result))}" for result in results if result.reason]
    return "\n".join(lines) + "\n"


def _html(results: Sequence[Result]) -> Html:
    methods, checks, result_of = _grid(results)
    about = {check.name: check.about for check in CHECKS}

    def cell(result: Result) -> Html:
        title = f"{result.outcome}, {result.seconds:.2f} s. {result.reason}"
        colour = COLOURS[result.outcome]
        return html('<td style="background:{}" title="{}">{}</td>', colour, title, result.outcome)

    head = together(html("<th>{}</th>", method) for method in methods)
    rows = together(
        html(
            '<tr><th title="{}">{}</th>{}</tr>\n',
            about[check],
            check,
            together(cell(result_of[method, check]) for method in methods),
        )
        for check in checks
    )
    remarks = together(html("<li>{}</li>\n", _remark(result)) for result in results if result.reason)
    return html(
        '<!doctype html>\n<meta charset="utf-8">\n<title>bench check</title>\n<style>{}</style>\n'
        "<h1>bench check: {}</h1>\n<table>\n<tr><th></th>{}</tr>\n{}</table>\n<ul>\n{}</ul>\n",
        Html("body{font:14px sans-serif}td,th{padding:2px 6px;text-align:left}"),
        verdict(results),
        head,
        rows,
        remarks,
    )


def _remark(result: Result) -> str:
    return f"{result.method}, {result.check}, {result.outcome}: {result.reason}"
