"""Every augmentation of training images: an entry here is all that suites, loaders, messages and docs need of one.

A new augmentation is one more entry of `AUGMENTATIONS`, here or by `AUGMENTATIONS.add(...)` from Python before the
suite is loaded. Its recipe is a `bench.data.augment.DrawnRecipe` (or None) for drawn art, which lies in memory, and a
`bench.data.photo.PhotoRecipe` for photographs, which are decoded from shards.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from bench.errors import UserError, nearest
from bench.registry import Registry, lazy

Images = Literal["drawn art", "photographs", "stored features"]
DEFAULTS: Mapping[Images, str] = {"drawn art": "emoji", "photographs": "openclip", "stored features": "none"}


@dataclass(frozen=True, eq=False)
class Augmentation:
    """One augmentation."""

    name: str  #: in suites
    summary: str  #: one phrase, for the docs
    build: Mapping[Images, Callable[[], Any]]  #: the images it fits -> a function that makes its recipe for these
    source: str = ""  #: the paper or code it comes from


_drawn, _photograph = lazy("bench.data.augment:DrawnRecipe"), lazy("bench.data.photo:PhotoRecipe")


def _of_photographs(name: str, source: str, summary: str, **options: Any) -> Augmentation:
    """Return an augmentation of photographs alone; `options` are those of its recipe."""
    return Augmentation(name, summary, {"photographs": partial(_photograph, **options)}, source)


AUGMENTATIONS: Registry[Augmentation] = Registry(
    "an augmentation",
    (
        Augmentation(
            "none",
            "no change: the pixels of evaluation",
            {"drawn art": lambda: None, "photographs": _photograph, "stored features": lambda: None},
        ),
        Augmentation(
            "emoji",
            "shift, zoom, turn, mirror image, strength and tint of the ink",
            {"drawn art": partial(_drawn, shift=0.12, zoom=0.15, turn=12.0, flip=True, shade=0.15, tint=0.1)},
        ),
        Augmentation(
            "digits",
            "shift, zoom and turn, for signs that have no mirror image",
            {"drawn art": partial(_drawn, shift=0.1, zoom=0.1, turn=10.0, flip=False, shade=0.0, tint=0.0)},
        ),
        _of_photographs(
            "openclip", "the default of open_clip's trainer", "a crop of 90 to 100 % of the area", scale=(0.9, 1.0)
        ),
        _of_photographs(
            "nuclr",
            "NUCLR, whose RandomAugment is ALBEF's",
            "a crop of 50 to 100 %, mirror image, RandomAugment(2, 7)",
            scale=(0.5, 1.0),
            flip=True,
            after=lazy("bench.data.recolour:rand_augment"),
        ),
        _of_photographs("ncu", "NCU", "a crop of 50 to 100 %", scale=(0.5, 1.0)),
        _of_photographs(
            "cyclip",
            "CyCLIP",
            "the pixels of evaluation; further views by AutoAugment with ImageNet's policies",
            before=lazy("bench.data.recolour:auto_augment"),
            plain_first=True,
        ),
        _of_photographs(
            "prolip",
            "ProLIP",
            "a crop of 80 to 100 %, colour jitter or grey",
            scale=(0.8, 1.0),
            after=lazy("bench.data.recolour:jitter_or_grey"),
        ),
    ),
)


def fitting_augmentations(images: Images) -> tuple[str, ...]:
    """Return the names of the augmentations of such images."""
    return tuple(entry.name for entry in AUGMENTATIONS if images in entry.build)


def augmentation_recipe(name: str, images: Images) -> Any:
    """Return the recipe of an augmentation for such images, made once. UserError if it has none."""
    valid = fitting_augmentations(images)
    if name not in AUGMENTATIONS:
        raise UserError(f"augment is {name!r}{nearest(name, valid)}")
    if name not in valid:
        raise UserError(f"augment is {name!r}, which is not a recipe for {images}{nearest(name, valid)}")
    return _built(AUGMENTATIONS[name], images)


@functools.cache
def _built(entry: Augmentation, images: Images) -> Any:
    return entry.build[images]()
