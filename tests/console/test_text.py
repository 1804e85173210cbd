"""Lines of the terminal: what is foreign neither acts on it, hides nor fakes another line."""

from __future__ import annotations

import ast
import io
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bench
from bench.cli import main
from bench.console import progress
from bench.console.text import align_columns, echo, join_lines, storable, visible
from bench.errors import UserError

ROOT = Path(bench.__file__).parents[1]
TEXT = st.text(st.characters() | st.sampled_from("\x1b\n\r\u202e\u200b\ud800\u3164\ufe0f\x9b\u2028"), max_size=40)
#: a process that talks to its parent over a pipe, and the one function that prints
MAY_PRINT = {"bench/console/text.py"}


@settings(deadline=None)
@given(TEXT)
def test_what_is_shown_has_nothing_that_acts_or_hides(text: str) -> None:
    shown = visible(text)
    assert shown.isprintable()
    assert not {unicodedata.category(one) for one in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert visible(shown) == shown
    shown.encode()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, 40 % – ± ‡ é 中 😀", "plain, 40 % – ± ‡ é 中 😀"),
        ("\x1b[31mred\x9b0m", r"\x1b[31mred\x9b0m"),
        ("two\r\nrows\t", r"two\r\nrows\t"),
        ("abc\u202edcb\u2066", r"abc\u202edcb\u2066"),
        ("clip\u200b, clip\ufeff", r"clip\u200b, clip\ufeff"),
        ("a\u3164b\ufe0f", r"a\u3164b\ufe0f"),
        ("half \ud800", r"half \ud800"),
    ],
)
def test_what_acts_is_written_out_and_all_else_stays(text: str, shown: str) -> None:
    assert visible(text) == shown


@settings(deadline=None)
@given(TEXT)
def test_what_a_file_holds_keeps_lines_and_letters_of_any_script(text: str) -> None:
    stored = storable(text)
    stored.encode()
    assert not any(unicodedata.category(one) == "Cc" for one in stored if one not in "\t\n\r")
    kept = "".join(one for one in text if unicodedata.category(one) not in ("Cc", "Cs"))
    assert stored == text if kept == text else len(stored) > len(kept)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(TEXT, min_size=3, max_size=3), min_size=1, max_size=5), st.booleans())
def test_a_row_is_a_line_whatever_its_cells_say(rows: list[list[str]], right: bool) -> None:
    lines = align_columns(rows, right)
    assert len(lines) == len(rows)
    assert len(join_lines(lines).split("\n")) == len(rows)
    assert all(line.isprintable() for line in lines)


def test_columns_can_end_at_one_place() -> None:
    assert align_columns([("", "a", "bc"), ("x", "123", "4")], right=True) == ["     a  bc", "x  123   4"]


def test_a_line_that_is_printed_is_one_line_on_any_stream() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    echo("a\nb", "±\u202e", 3, stream=stream)
    assert raw.getvalue() == rb"a\nb" + b"\n" + rb"\xb1\u202e" + b"\n3\n"


def test_errors_show_what_they_quote(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(**_: object) -> None:
        raise UserError("s.yaml:3: label: 'a\x1b[2J\nrun done'", "s.yaml:4: unknown key")

    monkeypatch.setattr("bench.cli.app", fail)
    with pytest.raises(SystemExit) as exit_code:
        main()
    assert exit_code.value.code == 2
    assert capsys.readouterr().err == "s.yaml:3: label: 'a\\x1b[2J\\nrun done'\ns.yaml:4: unknown key\n"


def test_an_error_of_several_lines_is_one_text_in_python() -> None:
    assert str(UserError("first", "second")) == "first\nsecond"
    assert str(UserError("only")) == "only"


def test_progress_shows_one_line_a_stage() -> None:
    given = "clip\x1b[2J, clean\n[2/2] fake: done"

    stream = io.StringIO()
    shown = progress.Progress(stream)
    shown.run_started(given, 0, 1)
    shown.stage("evaluate a\rb")
    shown.run_finished(given, "failed", "lost\u202e\n")
    title = r"[1/1] clip\x1b[2J, clean\n[2/2] fake: done"
    assert stream.getvalue().splitlines() == [
        f"{title}: started",
        f"{title}: evaluate a\\rb",
        rf"{title}: failed: lost\u202e\n",
    ]


def test_bars_show_what_a_run_is_called() -> None:
    stream = io.StringIO()
    bars = progress.Bars(stream)

    given = "clip\x1b[2J\nfake"

    bars.run_started(given, 0, 1)
    bars.stage("a\x1bb")
    bars.run_finished(given, "done", "x\x1b")
    assert "\x1b" not in stream.getvalue()
    assert r"clip\x1b[2J\nfake: done: x\x1b" in stream.getvalue()
    assert {task.description for task in bars._bars.tasks} == {"", "suite", r"clip\x1b[2J\nfake"}
    assert r"a\x1bb" in {task.fields["note"] for task in bars._bars.tasks}


def prints(tree: ast.Module) -> list[int]:
    """Lines that print by themselves: `print`, `typer.echo`, and writing to the streams of the process."""
    spoken = {"print", "typer.echo", "click.echo", "typer.secho", "sys.stdout.write", "sys.stderr.write"}
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) in spoken]


def test_everything_is_printed_by_the_one_function() -> None:
    files = [path for room in ("bench", "reports") for path in (ROOT / room).rglob("*.py")]
    sources = {str(path.relative_to(ROOT)): path.read_text() for path in files if "templates" not in path.parts}
    likely = {name: text for name, text in sources.items() if re.search(r"print\(|echo|std(out|err)", text)}
    assert {name for name, text in likely.items() if prints(ast.parse(text))} == MAY_PRINT
    assert prints(ast.parse("print(1)\nimport typer\ntyper.echo(2)\necho(3)")) == [1, 3]
