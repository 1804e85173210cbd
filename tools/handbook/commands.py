"""The command reference, made from the command line itself: every verb with its arguments and options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from bench.cli import app
from tools.handbook.text import code, prose, table

_HEAD = """\
# The commands

Made from the command line itself; `bench VERB --help` prints the same. Options before a verb: `--version`, `--help`.

"""


def page() -> str:
    """Return the page as Markdown."""
    verbs = list(_verbs(get_command(app), "bench"))
    summary = table(["verb", "does"], [[f"[`{name}`](#{_anchor(name)})", prose(_first(verb))] for name, verb in verbs])
    return _HEAD + summary + "\n" + "\n".join(_section(name, verb) for name, verb in verbs)


def _verbs(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield every verb with its whole name; typer's classes differ between its versions, so they are not named."""
    if not hasattr(command, "commands"):
        yield name, command
        return
    for inner, verb in sorted(command.commands.items()):
        yield from _verbs(verb, f"{name} {inner}")


def _anchor(name: str) -> str:
    return name.replace(" ", "-")


def _first(verb: Any) -> str:
    return str(verb.help or "").split("\n\n")[0]


def _section(name: str, verb: Any) -> str:
    shown = [parameter for parameter in verb.params if not getattr(parameter, "hidden", False)]
    arguments = [one for one in shown if one.param_type_name == "argument"]
    options = [one for one in shown if one.param_type_name == "option"]
    usage = " ".join([name, *(["[OPTIONS]"] if options else []), *map(_metavar, arguments)])
    rows = [[code(_metavar(one)), prose(one.help or ""), ""] for one in arguments]
    rows += [[_option(one), prose(one.help or ""), _default(one)] for one in options]
    help_text = "\n\n".join(prose(part) for part in str(verb.help or "").split("\n\n"))
    listed = table(["", "meaning", "default"], rows) if rows else ""
    return f"({_anchor(name)})=\n## {name}\n\n```text\n{usage}\n```\n\n{help_text}\n\n{listed}"


def _metavar(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _option(option: Any) -> str:
    words = ", ".join(code(word) for word in (*option.opts, *option.secondary_opts))
    value = "" if option.is_flag else f" {code(option.metavar or option.name.upper())}"
    return words + value + (" (repeated)" if option.multiple else "")


def _default(option: Any) -> str:
    silent = option.default is None or option.default in ("", (), [], False) or option.is_flag
    return "" if silent or callable(option.default) else code(getattr(option.default, "value", option.default))
