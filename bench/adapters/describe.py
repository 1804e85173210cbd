"""Describes methods as text, for a reader who chooses one for a suite."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence

from bench.adapters import hyperparameters, oracle_file, registry
from bench.console.text import align_columns, join_lines
from methods.protocol import Facts, Method

DEFAULT_WIDTH = 110  #: characters per line where no terminal shows it
EXAMPLE_FACTS = Facts(rows=1024, batch=128, dim=64, seed=0)  #: cost and phases do not depend on these


def method_summaries(names: Sequence[str]) -> list[str]:
    """Return a line for each method: name, title, fidelity and paper, in columns."""
    about = {name: registry.find_method(name).about for name in names}
    fidelity = {name: oracle_file.printed_fidelity(name, one) for name, one in about.items()}
    return align_columns([(name, one.title, fidelity[name], one.paper) for name, one in about.items()])


def describe_method(name: str, width: int = DEFAULT_WIDTH) -> str:
    """Return a few lines of at most `width` characters about one method."""
    kind = registry.find_method(name)
    about = kind.about
    defaults = hyperparameters.resolve_config(name, None, {})
    lines = {
        "about": about.summary,
        "fidelity": f"{oracle_file.printed_fidelity(name, about)} ({about.equations})",
        "state": about.state,
        "cost": describe_cost(hyperparameters.make_method(name, None, {}, EXAMPLE_FACTS)),
        "presets": "; ".join(
            f"{preset} ({', '.join(f'{key}: {value}' for key, value in values.items()) or 'the defaults'})"
            for preset, values in kind.presets.items()
        ),
        "config": ", ".join(f"{field.name}: {defaults[field.name]}" for field in dataclasses.fields(kind.Config)),
        "space": ", ".join(f"{name}: {one}" for name, one in kind.space.items()),
        "note": about.note,
    }
    text = textwrap.wrap(f"{name}: {about.title} ({about.paper})", width, subsequent_indent=" " * 4)
    for title, content in lines.items():
        if content:
            text += textwrap.wrap(content, width, initial_indent=f"  {title:<9} ", subsequent_indent=" " * 12)
    return join_lines(text)


def describe_cost(method: Method) -> str:
    """Return the tower forwards per pair and step of each phase, and the run that the method starts from."""
    phases = []
    for phase in method.phases():
        price = method.cost(phase.name)
        share = "" if phase.share == 1.0 else f"{phase.share:.0%} {phase.name}: "
        beside = f", without a backward {price.side_image:g} + {price.side_text:g}" if method.side != "none" else ""
        phases.append(f"{share}{price.image:g} image + {price.text:g} text forwards per pair{beside}")
    verb = "starts from" if method.starts_from_reference else "holds a frozen copy of"
    start = f"; {verb} a {method.reference} run" if method.reference else ""
    return "; ".join(phases) + start
