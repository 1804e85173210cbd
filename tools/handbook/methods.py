"""One page a method, and a table of all: made from the adapters alone, so that a new file in `methods/` has a page."""

from __future__ import annotations

import dataclasses
import inspect
import math
import typing
from typing import Any

from bench.adapters import hyperparameters, oracle_file, registry
from bench.adapters.describe import EXAMPLE, cost
from methods.base import HyperparameterError
from methods.protocol import Method
from reports.pages.sections import FIDELITY
from tools.handbook.formula import formulas
from tools.handbook.links import SCHEME
from tools.handbook.text import code, comments, prose, table, type_name

_PROBES = (math.nan, -1e30, 1e30, -1, 0, 1, 2, "no word of it")  #: values that show what a field refuses


def pages() -> dict[str, str]:
    """Return by path the pages of all methods that come with the package."""
    names = [name for name in registry.names() if registry.source(name).shipped]
    return {f"methods/{name}.md": page(name) for name in names} | {"methods/index.md": _index(names)}


def _index(names: list[str]) -> str:
    rows = []
    for name in names:
        about = registry.find(name).about
        rows.append([f"[{prose(about.title)}]({name}.md)", code(name), prose(about.paper), _fidelity(name)])
    contents = "\n".join(names)
    classes = "".join(f"- **{fidelity}**: {meaning}\n" for fidelity, meaning in FIDELITY.items())
    return (
        "# The methods\n\nEvery file of `methods/` has a page, made from the file. In a terminal: `bench methods`, "
        f"`bench cite`, `bench check --all`. A class of fidelity says how a method was checked:\n\n{classes}\n"
        "Where a paper and its code disagree there are two presets, `paper` and `official`, so that the difference can "
        "be measured.\n\n"
        + table(["method", "in suites", "paper", "fidelity"], rows)
        + f"\n```{{toctree}}\n:hidden:\n\n{contents}\n```\n"
    )


def _fidelity(name: str) -> str:
    return prose(oracle_file.fidelity(name, registry.find(name).about))


def page(name: str) -> str:
    """Return one method's page as Markdown."""
    kind = registry.find(name)
    about = kind.about
    made = hyperparameters.make(name, None, {}, EXAMPLE)
    lines = {
        "Paper": f"{prose(about.paper)}, {prose(about.equations)}",
        "Fidelity": f"{_fidelity(name)}: {FIDELITY[oracle_file.fidelity(name, about)]}",
        "State": prose(about.state),
        "Cost": prose(cost(made)),
        "Reads": prose(", ".join(sorted(kind.needs))) or "images and texts as they are",
        "Score": code(kind.score),
        "Source": f"[methods/{name}.py]({SCHEME}methods/{name}.py)",
    }
    parts = [
        f"# {prose(about.title)}\n",
        f"`method: {name}` in a suite. {prose(about.summary)}\n",
        *(f"- **{title}**: {text}" for title, text in lines.items()),
        "",
        _formula(kind),
        _options(kind),
        f"## Where our reading departs\n\n{prose(about.note)}\n" if about.note else "",
        _claims(kind),
        f"## Citation\n\n```bibtex\n{about.bibtex.strip()}\n```\n",
    ]
    return "\n".join(part for part in parts if part or part == "")


def _formula(kind: type[Method]) -> str:
    docstring = inspect.cleandoc(kind.__doc__ or "")
    displayed = "".join(f"$$\n{one}\n$$\n\n" for one in formulas(docstring))
    lead = "As the source says it:" if displayed else "The source says it in words:"
    return f"## Formula\n\n{displayed}{lead}\n\n```text\n{docstring}\n```\n"


def _options(kind: type[Method]) -> str:
    config: Any = kind.Config
    hints, meaning, default = typing.get_type_hints(config), comments(config), config()
    presets = {preset: config(**values) for preset, values in kind.presets.items()}
    rows = []
    for field in dataclasses.fields(config):
        own = getattr(default, field.name)
        others = [getattr(preset, field.name) for preset in presets.values()]
        rows.append(
            [
                code(field.name),
                prose(type_name(hints[field.name])),
                code(own),
                prose(_allowed(config, field.name)),
                *("" if other == own else code(other) for other in others),
                prose(meaning.get(field.name, "")),
            ]
        )
    head = ["option", "type", "default", "allowed", *(f"preset `{preset}`" for preset in presets), "meaning"]
    same = [f"`{preset}`" for preset, values in presets.items() if values == default]
    note = f"An empty cell of a preset means the default. Equal to the defaults: {', '.join(same) or 'none'}.\n"
    return f"## Options\n\n{note if presets else ''}\n{table(head, rows)}" if rows else "## Options\n\nNone.\n"


def _allowed(config: Any, field: str) -> str:
    """Return what a Config says of the values that it refuses in a field; "" if it refuses none of ours."""
    messages: dict[str, None] = {}
    for probe in _PROBES:
        try:
            config(**{field: probe})
        except HyperparameterError as error:
            if error.field == field:
                messages[error.allowed] = None
        except (TypeError, ValueError, OverflowError):
            continue
    return "; ".join(messages)


def _claims(kind: type[Method]) -> str:
    claims = [f"- {prose(one.claim)} (equals [`{one.equals}`]({one.equals}.md))" for one in kind.identities]
    failures = [f"- `{check}`: {prose(reason)}" for check, reason in kind.known_failures.items()]
    tested = "## Identities\n\n`bench check` tests them on any batch.\n\n" + "\n".join(claims) + "\n" if claims else ""
    return tested + ("\n## Checks that it cannot pass\n\n" + "\n".join(failures) + "\n" if failures else "")
