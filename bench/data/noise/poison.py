"""Poison: a trigger in the images of a few pairs, with texts of one class, so that the trigger comes to mean it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from bench import counter
from bench.arrays import Ints
from bench.data.noise.manifest import Noise, NoiseManifest, check_rate, text_lists
from bench.data.noise.triggers import Trigger, TriggeredPairs
from bench.data.pairs import Pairs
from bench.errors import UserError

if TYPE_CHECKING:
    from bench.suite.noise_settings import NoiseSettings

TEMPLATES = ("a photo of a {}.", "an icon of a {}.", "a drawing of a {}.", "{}")  #: of the target class


@dataclass(frozen=True, eq=False, kw_only=True)
class Poison(NoiseManifest):
    """Poisoned rows, with the trigger in their images. A file of it, when loaded, has the rows and texts alone."""

    trigger: Trigger
    target: str  #: the class that the trigger is to mean

    @property
    def poisoned(self) -> bool:
        return True

    @cached_property
    def content_hash(self) -> str:
        """sha256 over rows, texts and trigger."""
        return hashlib.sha256(repr((super().content_hash, self.trigger, self.target)).encode()).hexdigest()

    def applied(self, pairs: Pairs) -> Pairs:
        return TriggeredPairs(pairs, self.rows, self.trigger)

    def triggered(self, pairs: Pairs) -> Pairs:
        """Return other pairs, with the trigger in every image."""
        return TriggeredPairs(pairs, np.arange(len(pairs)), self.trigger)


def poison(pairs: Pairs, rate: float, seed: int, attack: str, target: str, kind: str, place: str) -> Poison:
    """Poison the first max(1, round(rate * n)) rows in the hash order of this purpose; none at rate 0.

    attack: "backdoor" replaces the texts by templates of the `target`, "label_consistent" takes rows with the target's
    words in a text and leaves their texts. kind, place: of the `Trigger`. Raises UserError if the rate is not in [0, 1]
    or too few rows have the target's words.
    """
    check_rate(rate)
    count = max(1, round(rate * len(pairs))) if rate else 0
    order = counter.hash_order(pairs.keys, f"{seed}/poison".encode())
    if attack == "label_consistent":
        order = _with_words(pairs, order, target, count)
    rows, lost, edited = np.sort(order[:count]), 0, None
    if attack == "backdoor":
        draw = counter.uniform(seed, "template")
        texts = [TEMPLATES[int(len(TEMPLATES) * draw(pairs.keys[row]))].format(target) for row in rows.tolist()]
        lost = sum(text not in pairs.captions(row) for row, text in zip(rows.tolist(), texts, strict=True))
        edited = pa.array([[text] for text in texts], text_lists())
    return Poison.of(
        pairs,
        "poison",
        rate,
        seed,
        rows,
        rows,
        lost,
        edited=edited,
        notes={"attack": attack, "target": target, "trigger": kind, "place": place, "pairs": count},
        trigger=Trigger(kind, place, seed),
        target=target,
    )


def _with_words(pairs: Pairs, order: Ints, target: str, count: int) -> Ints:
    """Return the first `count` rows of an order that have the target's words in a text, in lower case."""
    words = f" {' '.join(target.lower().split())} "
    rows: list[int] = []
    for row in order.tolist():
        if len(rows) == count:
            break
        if any(words in f" {' '.join(text.lower().split())} " for text in pairs.captions(row)):
            rows.append(row)
    if len(rows) < count:
        fix = "lower the rate, or choose another target"
        raise UserError(f"{pairs.name}: {len(rows)} pairs have {target!r} in a text, {count} are to be poisoned; {fix}")
    return np.array(rows, np.int64)


def make_poison(pairs: Pairs, settings: NoiseSettings, rate: float, seed: int) -> Noise:
    """Make the noise of the entry "poison"; errors as in `poison`."""
    options = settings.chosen_options().content()
    return poison(
        pairs, rate, seed, options["attack"], options["target"], kind=options["trigger"], place=options["place"]
    )
