"""The noise manifest of a suite at one of its rates and seeds, to be looked at."""

from __future__ import annotations

from bench.data import Pairs
from bench.data.noise import NoiseManifest
from bench.data.source import source
from bench.errors import UserError, nearest
from bench.suite.noise_settings import NoiseSettings
from bench.suite.suite import Suite


def noise_manifest(
    suite: Suite, rate: float | None = None, seed: int | None = None, kind: str | None = None
) -> tuple[Pairs, NoiseManifest]:
    """Return the training pairs of a suite and its manifest at a rate, a seed and of a kind.

    By default they are the kind's highest rate, the first seed and the first kind. Raises UserError if the noise is
    drawn anew in every step, and for a rate, a seed or a kind that the suite does not have.
    """
    kinds = {noise.kind: noise for noise in suite.noise.kinds}
    if kind is not None and kind not in kinds:
        raise UserError(f"--kind {kind}: suite {suite.name} has {', '.join(kinds)}{nearest(kind, kinds)}")
    noise = suite.noise if kind is None else kinds[kind]
    if not noise.entry.fixed:
        raise UserError(f"suite {suite.name}: {noise.kind} draws anew in every step; there is no fixed set to show")
    rate = max(noise.rates) if rate is None else rate
    seed = suite.seeds[0] if seed is None else seed
    for option, value, known in (("--rate", rate, noise.rates), ("--seed", seed, suite.seeds_of(rate, noise.kind))):
        if value not in known:
            raise UserError(f"{option} {value}: suite {suite.name} has {', '.join(map(str, known))}")
    pairs, settings = source(suite.data).pairs(), noise if rate else NoiseSettings(rates=(rate,))
    manifest = settings.entry.make(pairs, settings, rate, seed)
    assert isinstance(manifest, NoiseManifest)
    return pairs, manifest
