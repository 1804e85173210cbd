"""Edited captions: words of a corrupted row's texts are dropped, swapped or replaced, once for the whole run."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import pyarrow as pa

from bench import counter
from bench.data.noise.manifest import NoiseManifest, first_rows
from bench.data.pairs import Pairs
from bench.data.strings import TEXT_LISTS

Draw = Callable[..., float]  #: the parts of a key -> a number in [0, 1)


@cache
def boilerplate() -> tuple[str, ...]:
    """Phrases that the web has in place of captions."""
    return tuple(json.loads((files("bench.data.noise") / "boilerplate.json").read_text("utf-8")))


def edited_captions(pairs: Pairs, rate: float, seed: int, op: str, strength: float | None) -> NoiseManifest:
    """Edit every text of the rows that `shuffled_captions` corrupts at the same rate and seed.

    op: one of `EDITS`; strength: share of the words that go ("drop", "truncate"), or words that one moves by ("swap"),
    or None ("boilerplate"). Except for "swap", the words kept at a higher strength are a subset of those kept at a
    lower. Rows whose texts an edit does not change, such as single words, are not counted as corrupted. Raises
    UserError if the rate is not in [0, 1].
    """
    rows = np.sort(first_rows(pairs, rate, seed))
    edit, draw = EDITS[op], counter.uniform_function(seed, op)
    edited, lost = [], 0
    for row in rows.tolist():
        key, own = pairs.keys[row], pairs.captions(row)
        texts = [_edited(edit, draw, strength or 0.0, key, number, text) for number, text in enumerate(own)]
        edited.append(texts if tuple(texts) != own else [])
        lost += set(own).isdisjoint(texts)
    notes: dict[str, Any] = {"op": op} if op == "boilerplate" else {"op": op, "strength": strength}
    texts_of_rows = pa.array(edited, TEXT_LISTS)
    return NoiseManifest.of(pairs, "edited_captions", rate, seed, rows, rows, lost, edited=texts_of_rows, notes=notes)


def _edited(
    edit: Callable[[Draw, float, list[str]], list[str]], draw: Draw, strength: float, key: str, number: int, text: str
) -> str:
    words = text.split()
    changed = edit(lambda i: draw(key, number, i), strength, words) if words else words
    return text if changed == words else " ".join(changed)


def _drop(draw: Draw, strength: float, words: list[str]) -> list[str]:
    drawn = [draw(i) for i in range(len(words))]
    kept = [word for word, u in zip(words, drawn, strict=True) if u >= strength]
    return kept or [words[drawn.index(max(drawn))]]


def _swap(draw: Draw, strength: float, words: list[str]) -> list[str]:
    places = [i + strength * draw(i) for i in range(len(words))]
    return [words[i] for i in sorted(range(len(words)), key=places.__getitem__)]


def _truncate(_draw: Draw, strength: float, words: list[str]) -> list[str]:
    return words[: max(1, math.ceil((1 - strength) * len(words) - 1e-9))]  # 0.1 * 10 words is one, whatever its bits


def _boilerplate(draw: Draw, _strength: float, _words: list[str]) -> list[str]:
    return boilerplate()[int(len(boilerplate()) * draw(0))].split()


EDITS: dict[str, Callable[[Draw, float, list[str]], list[str]]] = {
    "drop": _drop,
    "swap": _swap,
    "truncate": _truncate,
    "boilerplate": _boilerplate,
}
