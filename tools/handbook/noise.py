"""The kinds of noise, made from their catalogue: what each does, its options, and pairs that it changed."""

from __future__ import annotations

import io
import typing
from collections.abc import Iterator

import numpy as np
from PIL import Image
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from bench.catalogue.noise_kinds import KINDS, NoiseKind
from bench.data import Pairs, training
from bench.suite.suite import load_suite
from tools.handbook.text import code, comments, prose, table, type_name

_HEAD = """\
# The kinds of noise

Made from `bench/catalogue/noise_kinds.py`. A suite names one in `noise.kind`, with a share of the pairs in
`noise.rates` and the settings of a kind in `noise.options` ([a suite](../suites.md)).
[Noise: published, drawn, natural](../noise.md) says how published noise differs, and how files come in and go out.
The pictures are pairs of a batch of the emoji pack that seed 0 changes at a rate of 40 %.

"""
_OPTIONS = {"poison": "{target: dog face, trigger: checker}"}  #: of the pictures, for kinds that do not go without
_BATCH, _SHOWN = 256, 4  #: pairs that the pictures are chosen from, and how many are shown


def pages() -> dict[str, str | bytes]:
    """Return the page of all kinds, and the pictures on it, by path."""
    rows = [[f"[`{kind.name}`](#{kind.name})", prose(kind.title), _drawn(kind)] for kind in KINDS]
    written: dict[str, str | bytes] = {}
    text = _HEAD + table(["`noise.kind`", "in tables", "drawn"], rows)
    for kind in KINDS:
        examples: list[list[str]] = []
        for png, own, given in () if kind.files else _examples(kind):
            name = f"noise-{kind.name}-{len(examples) + 1}.png"
            written[name] = png
            examples.append([f"![{prose(own)}]({name})", prose(own), prose(given)])
        text += f"\n{_section(kind)}"
        text += f"\n{table(['picture', 'caption', 'caption under the noise'], examples)}" if examples else ""
    return {"noise_kinds.md": text, **written}


def _examples(kind: NoiseKind) -> Iterator[tuple[bytes, str, str]]:
    """Yield pairs of a batch that the noise changes: the picture that training sees, own and given first caption."""
    options = _OPTIONS.get(kind.name, "{}")
    suite = load_suite("quickstart", ["data.size=64", f"noise={{kind: {kind.name}, rates: [0.4], options: {options}}}"])
    pairs: Pairs = training(suite.data)
    noise = kind.make(pairs, suite.noise, 0.4, 0)
    rows = np.arange(0, len(pairs), len(pairs) // _BATCH)
    given = noise.texts(pairs, rows[noise.donors_in_batch(0, len(rows))])
    seen, unchanged = noise.applied(pairs).images(rows), pairs.images(rows)
    changed = [
        place
        for place, (row, texts) in enumerate(zip(rows.tolist(), given, strict=True))
        if texts != pairs.captions(row) or (seen[place] != unchanged[place]).any()
    ]
    for place in changed[:: max(1, len(changed) // _SHOWN)][:_SHOWN]:
        Image.fromarray(seen[place]).save(png := io.BytesIO(), "PNG")
        yield png.getvalue(), pairs.captions(int(rows[place]))[0], given[place][0]


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
