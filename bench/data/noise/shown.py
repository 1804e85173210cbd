"""The noise of a suite at one of its rates and seeds, and its corrupted pairs in words."""

from __future__ import annotations

from collections.abc import Iterator

from bench.catalogue.noise_kinds import KINDS
from bench.data.noise.manifest import NoiseManifest
from bench.data.pairs import Pairs
from bench.data.source import data_source
from bench.errors import UserError, nearest
from bench.suite.noise_settings import NoiseSettings
from bench.suite.suite import Suite


def noise_manifest(
    suite: Suite, rate: float | None = None, seed: int | None = None, kind: str | None = None
) -> tuple[Pairs, NoiseManifest]:
    """Return the training pairs of a suite and its manifest at a rate, a seed and of a kind.

    By default they are the kind's highest rate, the first seed and the first kind. Raises UserError if the noise is
    drawn again in every step, and for a rate, a seed or a kind that the suite does not have.
    """
    kinds = {noise.kind: noise for noise in suite.noise}
    if kind is not None and kind not in kinds:
        raise UserError(f"--kind {kind}: suite {suite.name} has {', '.join(kinds)}{nearest(kind, kinds)}")
    noise = suite.noise[0] if kind is None else kinds[kind]
    if not noise.entry.fixed:
        raise UserError(f"suite {suite.name}: {noise.kind} is drawn again in every step; there is no fixed set to show")
    rate = max(noise.rates) if rate is None else rate
    seed = suite.seeds[0] if seed is None else seed
    for option, value, known in (("--rate", rate, noise.rates), ("--seed", seed, suite.seeds_of(rate, noise.kind))):
        if value not in known:
            raise UserError(f"{option} {value}: suite {suite.name} has {', '.join(map(str, known))}")
    pairs, settings = data_source(suite.data).pairs(), noise if rate else NoiseSettings(rates=(rate,))
    manifest = settings.entry.make(pairs, settings, rate, seed)
    assert isinstance(manifest, NoiseManifest)
    return pairs, manifest


def noise_summary(pairs: Pairs, manifest: NoiseManifest) -> str:
    """Describe in one sentence which pairs are corrupted, with the kind's parameters and measured properties."""
    values = (
        f"{name.replace('_', ' ')} {value:.3g}" if isinstance(value, float) else f"{name.replace('_', ' ')} {value}"
        for name, value in manifest.notes.items()
    )
    return (
        f"{manifest.kind}, rate {manifest.rate:g}, seed {manifest.seed}: {len(manifest.wrong_rows)} of {manifest.n} "
        f"pairs of {pairs.name} {KINDS[manifest.kind].effect}; {manifest.realised_rate:.1%} have no correct caption "
        f"left (manifest {manifest.content_hash[:16]}){'; ' * bool(manifest.notes)}{', '.join(values)}"
    )


def spaced_places(manifest: NoiseManifest, limit: int) -> list[int]:
    """Return at most `limit` indices into the manifest's rows, evenly spaced."""
    count = min(limit, len(manifest.rows))
    return [i * len(manifest.rows) // count for i in range(count)]


def caption_changes(pairs: Pairs, manifest: NoiseManifest, places: list[int]) -> Iterator[tuple[str, str, str]]:
    """Yield own text, given text and the donor's key of the manifest's rows at `places`; "" = no donor but itself.

    The texts are the first ones; without a donor the first two at one place that differ: an edit may leave some.
    """
    for i in places:
        row = manifest.rows[i : i + 1]
        own, given = pairs.captions(int(row[0])), manifest.texts(pairs, row)[0]
        source = manifest.donor_keys[i] if manifest.donors[i] != manifest.rows[i] else ""
        edits = zip(own, given, strict=False) if not source else ()
        yield *next(((one, other) for one, other in edits if one != other), (own[0], given[0])), source


def noise_lines(pairs: Pairs, manifest: NoiseManifest, limit: int) -> list[str]:
    """Return the summary, then for at most `limit` pairs a line: key, own and given caption, donor's key."""
    places = spaced_places(manifest, limit)
    texts = zip(places, caption_changes(pairs, manifest, places), strict=True)
    lines = (
        f"{manifest.keys[i]}  {own!r} -> {given!r}{f'  from {source}' * bool(source)}"
        for i, (own, given, source) in texts
    )
    return [noise_summary(pairs, manifest), *lines]
