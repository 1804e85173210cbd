"""Targeted poison: chosen test images, each trained with captions of a wrong class, to be taken for it.

Carlini and Terzis, ICLR 2022. No trigger is involved: what is attacked is these images alone. On stored features the
poisoned rows have those of the test images, as a frozen encoder would give them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from bench import counter, data
from bench.arrays import Ints
from bench.catalogue.families import FAMILIES
from bench.data.features.pairs import FeaturePairs
from bench.data.noise.manifest import NoiseManifest
from bench.data.noise.triggers import TriggeredPairs
from bench.data.pairs import Pairs
from bench.errors import UserError

TEMPLATES = ("a photo of a {}.", "an icon of a {}.", "a drawing of a {}.", "{}")  #: of a class


@dataclass(frozen=True, eq=False)
class Replacements:
    """Images that take the place of those of some rows."""

    images: npt.NDArray[Any]  #: uint8 [q, S, S, 3], or stored features [q, P]
    places: dict[str, int]  #: the key of a row -> its image

    def apply(self, _image: npt.NDArray[Any], key: str) -> npt.NDArray[Any]:
        """Return the image uint8 [S, S, 3], or its features [P], that the row with this key gets."""
        own: npt.NDArray[Any] = self.images[self.places[key]]
        return own

    def __repr__(self) -> str:
        digest = hashlib.sha256(repr(sorted(self.places.items())).encode())
        digest.update(self.images.tobytes())
        return f"Replacements({digest.hexdigest()})"


@dataclass(frozen=True, eq=False, kw_only=True)
class Targeted(NoiseManifest):
    """Poisoned rows with the images that they show. Its file has the rows, texts and roles alone."""

    images: Replacements
    dataset: str  #: the evaluation set of the images
    targets: Ints  #: [q] its rows that are attacked
    classes: Ints  #: [q] the class that each is to get

    @cached_property
    def content_hash(self) -> str:
        """sha256 over rows, texts, images and classes."""
        own = (super().content_hash, self.images, self.dataset, self.targets.tolist(), self.classes.tolist())
        return hashlib.sha256(repr(own).encode()).hexdigest()

    def applied(self, pairs: Pairs) -> Pairs:
        return TriggeredPairs(pairs, self.rows, self.images)


def draw_template(draw: Callable[..., float], key: str) -> str:
    """Return the template of a class that the row with this key gets; draw: of `counter.uniform_function`."""
    return TEMPLATES[int(len(TEMPLATES) * draw(key))]


def poison_images(pairs: Pairs, rate: float, seed: int, order: Ints, dataset: str, number: int) -> Targeted:
    """Poison the rows `order` [m] with `number` images of an evaluation set, or with m if that is less.

    The images are those with the smallest keyed hash of their key; each gets a drawn class that is not its own. Row i
    of the order shows image i modulo their number, with the next text of the training pairs that has the class's
    words, each once while they last, then with a template of the class. Raises UserError if the data set is not there
    or has no classes.
    """
    tests = _tests(pairs, dataset)
    # its classes are those that the success of an attack is measured with
    label = next((on.label for on in FAMILIES["attack_success"].of_package(dataset)), "class")
    names = tests.classes.get(label, ())
    if len(names) < 2:
        raise UserError(f"noise.options.images: {dataset} has no classes {label!r} to attack")
    targets = counter.hash_order(tests.keys, f"{seed}/targets".encode())[: min(number, len(order))]
    draw = counter.uniform_function(seed, "wrong class")
    others = np.array([int(draw(tests.keys[row]) * (len(names) - 1)) for row in targets.tolist()], np.int64)
    classes = others + (others >= tests.labels[label][targets])
    turns = np.arange(len(order)) % max(1, len(targets))
    texts = _texts(pairs, [names[one] for one in classes[turns].tolist()], order, seed)
    rising = np.argsort(order)
    rows, turns, texts = order[rising], turns[rising], [texts[place] for place in rising.tolist()]
    keys = [tests.keys[row] for row in targets.tolist()]
    places = dict(zip([pairs.keys[row] for row in rows.tolist()], turns.tolist(), strict=True))
    notes = {"attack": "targeted", "images": dataset, "targets": len(targets), "pairs": len(rows)}
    made = {"images": Replacements(tests.images(targets), places), "dataset": dataset}
    roles = [f"target {keys[turn]}" for turn in turns.tolist()]
    return Targeted.of_attack(pairs, rate, seed, rows, texts, roles, notes, targets=targets, classes=classes, **made)


def _tests(pairs: Pairs, dataset: str) -> Pairs:
    """Load an evaluation set with images as `pairs` have them: pixels of the same size, or features that lie there.

    Raises UserError if it is not there.
    """
    if isinstance(pairs, FeaturePairs):
        return pairs.evaluation(dataset)
    shape = pairs.images(np.zeros(1, np.int64)).shape
    if len(shape) != 4:
        raise UserError(f"noise.options.images: synthetic features have no {dataset} to attack; name a real set")
    return data.load_dataset(dataset, shape[1])


def _texts(pairs: Pairs, classes: list[str], order: Ints, seed: int) -> list[str]:
    """Return a text of each of `classes` [m], for the rows `order` [m]."""
    words = {name: f" {' '.join(name.lower().split())} " for name in classes}
    texts: dict[str, list[str]] = {name: [] for name in words}
    for row in counter.hash_order(pairs.keys, f"{seed}/texts".encode()).tolist():
        for text in pairs.captions(row):
            padded = f" {' '.join(text.lower().split())} "
            for name, wanted in words.items():
                if wanted in padded and text not in texts[name]:
                    texts[name].append(text)
    draw = counter.uniform_function(seed, "template")
    chosen = []
    for name, row in zip(classes, order.tolist(), strict=True):
        chosen.append(texts[name].pop(0) if texts[name] else draw_template(draw, pairs.keys[row]).format(name))
    return chosen
