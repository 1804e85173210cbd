"""Every `bench ...` command of README and docs is one that the command line takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import bench
from bench.cli import app

ROOT = Path(bench.__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / ".github").rglob("*.md"))]
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.S | re.M)
INLINE = re.compile(r"`bench ([^`;]+)[`;]")


def commands(text: str) -> list[str]:
    """The commands of a page's shell blocks, a line each, without comments and what follows in the shell."""
    lines = "\n".join(BLOCK.findall(text)).replace("\\\n", " ").splitlines()
    parts = [part.strip() for line in lines for part in re.split(r"&&|\|(?!\w)|;", line.split(" # ")[0])]
    return [re.sub(r"^(?:[A-Z_]+=\S+ )+", "", part) for part in parts if re.match(r"(?:[A-Z_]+=\S+ )*bench ", part)]


def parse(words: list[str]) -> tuple[Any, Any]:
    """The verb that a command names, and its context once all of its arguments were parsed; nothing runs."""
    command: Any = get_command(app)
    context: Any = None
    while hasattr(command, "commands"):
        if words[0] in ("--version", "--help", "-h"):
            return command, context
        assert words[0] in command.commands, f"no verb {words[0]!r}"
        command = command.commands[words[0]]
        words = words[1:]
    context = command.make_context(command.name, list(words))
    return command, context


@pytest.mark.promise("every command of README and docs is one that the command line takes")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_in_a_shell_block_is_parsed(page: Path) -> None:
    for line in commands(page.read_text()):
        try:
            parse(shlex.split(line)[1:])
        except (Exception, SystemExit) as error:  # typer's own errors have no public common class
            raise AssertionError(f"{page.name}: {line}: {error!r}") from error


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_verbs_and_options_that_a_sentence_names_are_there(page: Path) -> None:
    for written in INLINE.findall(page.read_text()):
        words = written.split()
        command: Any = get_command(app)
        while hasattr(command, "commands") and words and re.fullmatch(r"[a-z-]+", words[0]) and words[0][0] != "-":
            assert words[0] in command.commands, f"{page.name}: `bench {written}`"
            command = command.commands[words.pop(0)]
        options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        named = [word.split("=")[0] for word in words if word.startswith("--")]
        assert set(named) <= {*options, "--help", "--version"}, f"{page.name}: `bench {written}`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_commands_of_python_and_pytest_name_are_there(page: Path) -> None:
    named = re.findall(r"\b(?:pytest|python3?)\b[^`\n]*? ((?:tests|tools)/[\w./]+)", page.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []
    if page.name == "measurements.md":
        assert len(named) > 10


def test_a_command_that_is_wrong_is_noticed() -> None:
    assert commands("```sh\nA=1 bench run x --jobs 2  # why\nls && bench store gc\n```") == [
        "bench run x --jobs 2",
        "bench store gc",
    ]
    for wrong in ("runs x", "run", "run x --job 2", "noise shw x"):
        with pytest.raises((Exception, SystemExit)):
            parse(wrong.split())
