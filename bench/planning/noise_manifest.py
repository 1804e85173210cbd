"""The noise manifest of a suite at one of its rates and seeds, to be looked at."""

from __future__ import annotations

from bench.data import Pairs, training
from bench.data.noise import NoiseManifest
from bench.errors import UserError
from bench.suite.noise_settings import NoiseSettings
from bench.suite.suite import Suite


def noise_manifest(suite: Suite, rate: float | None = None, seed: int | None = None) -> tuple[Pairs, NoiseManifest]:
    """Return the training pairs of a suite and its manifest at `rate` (default: the highest) and `seed` (the first).

    Raises UserError if the suite's noise is drawn anew in every step, and for a rate or a seed that it does not have.
    """
    if not suite.noise.entry.fixed:
        raise UserError(
            f"suite {suite.name}: {suite.noise.kind} draws anew in every step; there is no fixed set to show"
        )
    rate = max(suite.noise.rates) if rate is None else rate
    seed = suite.seeds[0] if seed is None else seed
    for option, value, known in (("--rate", rate, suite.noise.rates), ("--seed", seed, suite.seeds_of(rate))):
        if value not in known:
            raise UserError(f"{option} {value}: suite {suite.name} has {', '.join(map(str, known))}")
    pairs, settings = training(suite.data), suite.noise if rate else NoiseSettings(rates=(rate,))
    manifest = settings.entry.make(pairs, settings, rate, seed)
    assert isinstance(manifest, NoiseManifest)
    return pairs, manifest
