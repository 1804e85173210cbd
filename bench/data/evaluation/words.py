"""Reads the class names and prompts that come with clip-benchmark, without importing it."""

from __future__ import annotations

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.catalogue.evaluation_sets import EvaluationSet
from bench.errors import UserError

DEFAULT_SET = "imagenet1k"  #: its prompts are used for data sets without prompts of their own


def class_names(entry: EvaluationSet) -> tuple[str, ...]:
    """Return the names of all classes of a data set; () if clip-benchmark has none.

    Raises UserError if clip-benchmark is not installed.
    """
    name, known = entry.words or entry.name, _read("en_classnames.json")
    own = f"{name}_vtab" if entry.webdataset.startswith("vtab-") else name  # whose classes have another order
    return tuple(known.get(own) or known.get(name, ()))


def published_templates(entry: EvaluationSet) -> tuple[str, ...]:
    """Return the prompts of a data set with "{}" for the class name; those of ImageNet if it has none.

    Raises UserError if clip-benchmark is not installed.
    """
    known = _read("en_zeroshot_classification_templates.json")
    return single_braces(known.get(entry.words or entry.name) or known[DEFAULT_SET])


def single_braces(written: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """Replace clip-benchmark's "{c}" by "{}"."""
    return tuple(text.replace("{c}", "{}") for text in written)


@cache
def _read(name: str) -> dict[str, Any]:
    spec = find_spec("clip_benchmark")
    if spec is None or not spec.submodule_search_locations:
        raise UserError("class names and prompts come with clip-benchmark; install it: pip install clip-benchmark")
    path = Path(next(iter(spec.submodule_search_locations))) / "datasets" / name
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return content
