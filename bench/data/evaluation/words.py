"""Class names and prompt templates that come with clip-benchmark, read without importing it."""

from __future__ import annotations

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.catalogue.evaluation_sets import Entry
from bench.errors import UserError

DEFAULT = "imagenet1k"  #: whose templates serve a data set that has none of its own


def class_names(entry: Entry) -> tuple[str, ...]:
    """Of a data set with all its classes; () where clip-benchmark has none."""
    return tuple(_read("en_classnames.json").get(entry.words or entry.name, ()))


def templates(entry: Entry) -> tuple[str, ...]:
    """Prompts with "{}" for the class name."""
    known = _read("en_zeroshot_classification_templates.json")
    return braces(known.get(entry.words or entry.name) or known[DEFAULT])


def braces(written: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """clip-benchmark's "{c}" as our "{}"."""
    return tuple(text.replace("{c}", "{}") for text in written)


@cache
def _read(name: str) -> dict[str, Any]:
    spec = find_spec("clip_benchmark")
    if spec is None or not spec.submodule_search_locations:
        raise UserError("class names and prompts come with clip-benchmark; install it: pip install clip-benchmark")
    path = Path(next(iter(spec.submodule_search_locations))) / "datasets" / name
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found
