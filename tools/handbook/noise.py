"""The kinds of noise, made from their catalogue: what each does, its options, and pairs that it changed."""

from __future__ import annotations

import typing

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from bench.catalogue.noise_kinds import KINDS, NoiseKind
from tools.handbook.text import code, comments, prose, table, type_name

_HEAD = """\
# The kinds of noise

Made from `bench/catalogue/noise_kinds.py`. A suite names one in `noise.kind`, with a share of the pairs in
`noise.rates` and the settings of a kind in `noise.options` ([a suite](../suites.md)).
[Noise: published, drawn, natural](../noise.md) says how published noise differs, and how files come in and go out.

"""


def pages() -> dict[str, str]:
    """Return the page of all kinds by its path."""
    rows = [[f"[`{kind.name}`](#{kind.name})", prose(kind.title), _drawn(kind)] for kind in KINDS]
    sections = "\n".join(map(_section, KINDS))
    return {"noise_kinds.md": _HEAD + table(["`noise.kind`", "in tables", "drawn"], rows) + "\n" + sections}


def _drawn(kind: NoiseKind) -> str:
    if kind.files:
        return "from files"
    return "once, for the whole run" if kind.fixed else "anew in every step"


def _section(kind: NoiseKind) -> str:
    summary = f"{kind.summary[0].upper()}{kind.summary[1:]}."
    text = f"({kind.name})=\n## {kind.name}\n\n{prose(summary)} Corrupted pairs {prose(kind.effect)}.\n"
    rows = _options(kind.options)
    return f"{text}\n{table(['option', 'type', 'default', 'meaning'], rows)}" if rows else text


def _options(settings: type[BaseModel]) -> list[list[str]]:
    hints, meaning = typing.get_type_hints(settings), comments(settings)
    return [
        [
            code(name),
            prose(type_name(hints[name])),
            "" if field.default is PydanticUndefined else code(repr(field.default)),
            prose(meaning.get(name, "")),
        ]
        for name, field in settings.model_fields.items()
    ]
