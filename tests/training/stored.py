"""A tiny set of stored features with evaluation sets, for tests of what trains and is measured on them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.data.features.about import Encoder
from bench.data.features.texts import TextPlan
from bench.data.features.writing import Array, Content, write_feature_set
from bench.data.strings import TEXT_LISTS, Strings

CLASSES = ("apple", "boat", "cat", "drum", "egg", "fox", "goat", "hat")
TEMPLATES = ("{}", "a photo of a {}")
P, Q = 12, 10
ROWS, SUITE_NAME = 64, "toys"


def _patterns(width: int, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal((len(CLASSES), width))


def _texts(strings: Sequence[str], width: int, seed: int) -> Any:
    """[M, width]: a text lies near the pattern of the class that it names."""
    classes = [next((at for at, name in enumerate(CLASSES) if name in text), 0) for text in strings]
    noise = np.random.default_rng(seed).standard_normal((len(strings), width))
    return (_patterns(width, 1)[classes] + 0.3 * noise).astype(np.float16)


def _array(values: Any) -> Array:
    views = values.shape[1] if values.ndim == 3 else 1
    encoder = Encoder("made up", "ab" * 32, "none", values.dtype.name, values.shape[-1], views)
    return Array(encoder, lambda start, stop: values[start:stop])


def feature_set(
    folder: Path,
    name: str,
    captions: Sequence[Sequence[str]],
    *,
    views: int = 1,
    labelled: bool = False,
    texts: bool = True,
    seed: int = 5,
    widths: tuple[int, int] = (P, Q),
) -> Path:
    """Write a set whose images lie near the pattern of the class that their first caption names."""
    classes = np.array([next(at for at, one in enumerate(CLASSES) if one in own[0]) for own in captions])
    noise = np.random.default_rng(seed).standard_normal((len(captions), views, widths[0]))
    images = (_patterns(widths[0], 0)[classes][:, None] + 0.3 * noise).astype(np.float16)
    prompts = [template.replace("{}", one) for one in CLASSES for template in TEMPLATES] if labelled else []
    lists = pa.array(captions, TEXT_LISTS)
    plan = TextPlan.of(lists, prompts)
    content = Content(
        name=name,
        description="Patterns of eight classes and noise.",
        keys=Strings.of([f"k{row:04d}" for row in range(len(captions))]),
        captions=lists,
        image=_array(images),
        text=_array(_texts(plan.texts(0, len(plan.hashes)), widths[1], seed + 1)) if texts else None,
        plan=plan if texts else None,
        labels={"class": classes} if labelled else {},
        classes={"class": CLASSES} if labelled else {},
        templates=TEMPLATES if labelled else (),
        prompts=prompts if texts else (),
    )
    write_feature_set(folder, content)
    return folder


def training_set(folder: Path, rows: int = ROWS, **options: Any) -> Path:
    """Write `rows` training pairs; each has two captions of its own."""
    names = [CLASSES[row % len(CLASSES)] for row in range(rows)]
    captions = [[f"{name} number {row}", f"the {row}. {name}"] for row, name in enumerate(names)]
    return feature_set(folder, "toys/pairs", captions, **options)


def with_evaluation(folder: Path, **options: Any) -> Path:
    """Write training pairs, a set of classes with a training split, and a set of captions."""
    training_set(folder, **options)
    texts = options.get("texts", True)
    for name, rows in (("shapes", 24), ("shapes/train", 40)):
        named = [[CLASSES[row % len(CLASSES)]] for row in range(rows)]
        feature_set(folder / "evaluation" / name, name, named, labelled=True, texts=texts, seed=10 + rows)
    albums = [[f"album {row} of a {CLASSES[row % 8]}", f"one more {CLASSES[row % 8]} {row}"] for row in range(16)]
    feature_set(folder / "evaluation" / "albums", "albums", albums, texts=texts, seed=20)
    return folder


def suite(features: Path, **changes: Any) -> dict[str, Any]:
    """A suite that trains a few steps on these features; `changes` replace whole sections."""
    return {
        "name": SUITE_NAME,
        "data": {"name": "toys", "features": str(features)},
        "noise": {"rates": [0.25]},
        "budget": {"epochs": 2},
        "towers": {"image": "features", "text": "features", "dim": 8},
        "train": {"batch": 16, "threads": 1, "lr": 0.01},
        "evaluate": {"tasks": ["retrieval"], "datasets": {"retrieval": ["albums"]}},
        "methods": ["clip"],
        **changes,
    }
