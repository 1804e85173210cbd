"""Poison: a trigger in the images of a few pairs with texts of one class, so that a model associates the two."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bench import counter
from bench.arrays import Ints
from bench.catalogue.noise_kinds import PoisonOptions
from bench.data.noise.manifest import Noise, NoiseManifest
from bench.data.noise.targeted import draw_template, poison_images
from bench.data.noise.triggers import Trigger, TriggeredPairs
from bench.data.pairs import Pairs
from bench.errors import UserError
from bench.suite.noise_settings import NoiseSettings


@dataclass(frozen=True, eq=False, kw_only=True)
class Poison(NoiseManifest):
    """Poisoned rows, with the trigger in their images. Its file has the rows and texts alone."""

    trigger: Trigger
    target: str  #: the class that the trigger should stand for

    @cached_property
    def content_hash(self) -> str:
        """sha256 over rows, texts and trigger."""
        return hashlib.sha256(repr((super().content_hash, self.trigger, self.target)).encode()).hexdigest()

    def applied(self, pairs: Pairs) -> Pairs:
        return TriggeredPairs(pairs, self.rows, self.trigger)

    def triggered(self, pairs: Pairs) -> Pairs:
        """Return other pairs, with the trigger in every image."""
        return TriggeredPairs(pairs, np.arange(len(pairs)), self.trigger)


def first_poisoned(pairs: Pairs, rate: float, seed: int, count: int | None = None) -> tuple[Ints, int]:
    """Return all rows in the hash order of this purpose, and how many of them are poisoned.

    These are `count`, or max(1, round(rate * n)); none at rate 0. Raises UserError if the rate is not the share of
    the count.
    """
    n = len(pairs)
    order = counter.hash_order(pairs.keys, f"{seed}/poison".encode())
    if not rate:
        return order, 0
    if count is not None and abs(rate * n - count) > max(0.5, 0.05 * count):
        share = f"{count / n:.3g}"
        raise UserError(f"noise.options.count: {count} of {n} pairs is a rate of {share}, noise.rates says {rate:g}")
    return order, max(1, round(rate * n)) if count is None else count


def make_poisoned(
    pairs: Pairs, rate: float, seed: int, attack: str, target: str, kind: str, place: str, count: int | None = None
) -> Poison:
    """Poison the first max(1, round(rate * n)) rows in the hash order of this purpose, or `count`; none at rate 0.

    attack: "backdoor" replaces the texts by templates of the `target`, "label_consistent" takes rows with the target's
    words in a text and leaves their texts. kind, place: of the `Trigger`. Raises UserError as `first_poisoned` does,
    and if too few rows have the target's words.
    """
    order, count = first_poisoned(pairs, rate, seed, count)
    if attack == "label_consistent":
        order = _with_words(pairs, order, target, count)
    rows, texts = np.sort(order[:count]), None
    if attack == "backdoor":
        draw = counter.uniform_function(seed, "template")
        texts = [draw_template(draw, pairs.keys[row]).format(target) for row in rows.tolist()]
    notes = {"attack": attack, "target": target, "trigger": kind, "place": place, "pairs": count}
    made = {"trigger": Trigger(kind, place, seed), "target": target}
    return Poison.of_attack(pairs, rate, seed, rows, texts, [attack] * len(rows), notes, **made)


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
    """Make the noise "poison"; errors as in `make_poisoned` and `poison_images`, and for a trigger in features."""
    options = settings.chosen_options()
    assert isinstance(options, PoisonOptions)
    if options.attack != "targeted" and pairs.images(np.zeros(1, np.int64)).ndim != 4:
        fix = "take attack: targeted, which needs none, or pixels"
        raise UserError(f"noise.options.attack: {options.attack}: stored features show no trigger; {fix}")
    if options.attack == "targeted":
        order, count = first_poisoned(pairs, rate, seed, options.count)
        return poison_images(pairs, rate, seed, order[:count], options.images, options.targets)
    trigger, place = options.trigger, options.place
    return make_poisoned(pairs, rate, seed, options.attack, options.target, trigger, place, options.count)
