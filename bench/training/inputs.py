"""What a training reads: pairs, noise, and the facts its method may know."""

from __future__ import annotations

import json
from functools import lru_cache

import numpy as np

from bench import data
from bench.catalogue.keep import Asked
from bench.catalogue.noise_kinds import KINDS
from bench.data.kept import KeptPairs
from bench.data.noise import Noise, NoiseManifest
from bench.data.pairs import Pairs
from bench.errors import UserError
from bench.suite.keep_settings import KeepSettings
from bench.suite.noise_settings import NoiseSettings
from bench.suite.run import Run
from bench.suite.settings import DataSettings
from methods.protocol import Facts


def training_pairs(run: Run) -> Pairs:
    """All pairs of the run's data, whatever it may see of them."""
    return data.training(run.data)


def kept_pairs(run: Run) -> KeptPairs | None:
    """The rows that a treated run trains on, with the captions its noise gives them; None for all rows.

    UserError where there are no such rows.
    """
    if not run.treated:
        return None
    options = json.dumps(run.noise_options, sort_keys=True)
    return _kept(run.data, run.keep, run.noise, options, run.noise_file, run.rate, run.seed)


@lru_cache(maxsize=16)
def _kept(
    settings: DataSettings, keep: KeepSettings, kind: str | None, options: str, file: str | None, rate: float, seed: int
) -> KeptPairs:
    pairs = data.training(settings)
    noise, corrupted = Noise(), None if kind is not None and not KINDS[kind].fixed else np.zeros(0, np.int64)
    if kind is not None and KINDS[kind].fixed:
        noise = _manifest(settings, kind, options, file, rate, seed)
        corrupted = noise.rows if isinstance(noise, NoiseManifest) else corrupted
    try:
        rows = keep.entry.choose(Asked(pairs.keys, corrupted, seed, keep.share, keep.rows))
    except ValueError as error:
        raise UserError(f"keep: {keep.label}: {error} at rate {rate:g}, seed {seed} of {pairs.name}") from error
    return KeptPairs(pairs, rows, noise)


def rows_seen(run: Run) -> int:
    """Number of training rows that the run may see."""
    kept = kept_pairs(run)
    return len(training_pairs(run)) if kept is None else len(kept)


def hashes(run: Run) -> tuple[str, str | None, str | None]:
    """Of its training pairs, of its noise manifest and of the keys it may see, as `Run.id` takes them."""
    noise, kept = noise_of(run), kept_pairs(run)
    manifest = noise.content_hash if isinstance(noise, NoiseManifest) else None
    return training_pairs(run).content_hash, manifest, kept.keys_hash if kept else None


def noise_of(run: Run) -> Noise | None:
    """The run's noise, the same for every method of a suite. Its seed is the run's."""
    if run.noise is None:
        return None
    options = json.dumps(run.noise_options, sort_keys=True)
    return _manifest(run.data, run.noise, options, run.noise_file, run.rate, run.seed)


@lru_cache(maxsize=64)
def _manifest(settings: DataSettings, kind: str, options: str, file: str | None, rate: float, seed: int) -> Noise:
    files = () if file is None else (file,)
    noise = NoiseSettings(kind=kind, rates=(rate,), files=files, options=json.loads(options))
    made: Noise = noise.entry.make(data.training(settings), noise, rate, seed)
    return made


def facts_of(run: Run) -> Facts:
    """What the run's method may know of it."""
    return Facts(rows_seen(run), run.train.batch, run.towers.dim, run.seed, data.synonyms(run.data.name))
