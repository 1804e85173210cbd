"""The audit of the data that a stored run trained on, from the confidences that it stored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import ValidationError

from bench.arrays import Floats, Ints
from bench.data import Pairs
from bench.data.noise import NoiseManifest, noisy_mask
from bench.data.source import source
from bench.errors import UserError, one_line
from bench.evaluation.noise.audit import LEAST, Audit, audit
from bench.store import RunStore, Store
from bench.store.lookup import SHORT, find_run
from bench.suite.run import understood
from bench.suite.settings import DataSettings

TASK = "noise_detection"


@dataclass(frozen=True)
class AuditedRun:
    """The audit of a run's training pairs but for those that its noise corrupted."""

    run: str  #: the beginning of its id
    pairs: Pairs
    rows: Ints  #: [k] that were audited, of least confidence first
    confidence: Floats  #: [k]
    wrong: Floats  #: [k] probability of being wrong
    audit: Audit
    injected: int
    #: the share that follows if half of the injected pairs are hidden among the others, and the audit of that; None if
    #: there are too few
    check: tuple[float, Audit] | None

    def lines(self) -> list[str]:
        """Return sentences: the share with its interval, what it rests on, and the check."""
        (low, high), share = self.audit.interval, self.audit.share
        lines = [
            f"{self.pairs.name}: {low:.1%} to {high:.1%} of {len(self.rows):,} pairs are wrong (95 %), most likely "
            f"{share:.1%}, as far as wrong pairs look like the {self.injected:,} that run {self.run} trained with",
            f"  AUROC of injected against other pairs: {self.audit.auroc:.3f}",
        ]
        if self.check is not None:
            expected, again = self.check
            low, high = again.interval
            lines.append(
                f"  check: with half of the injected pairs hidden among the others, {expected:.1%} would be wrong; the "
                f"audit says {low:.1%} to {high:.1%}, most likely {again.share:.1%}"
            )
        return lines

    def table(self) -> list[tuple[str | int | float, ...]]:
        """Return a heading and a line for each audited pair, the one of least confidence first."""
        pairs = zip(self.rows.tolist(), self.confidence.tolist(), self.wrong.tolist(), strict=True)
        lines = ((row, self.pairs.keys[row], c, round(w, 4), self.pairs.captions(row)[0]) for row, c, w in pairs)
        return [("row", "key", "confidence", "wrong", "caption"), *lines]


def audited_run(store: Store, prefix: str) -> AuditedRun:
    """Audit the training data of the run whose id starts with `prefix`.

    Raises UserError if there is no such run, if its noise did not swap captions, if it stored no confidences, and as
    `audit` does.
    """
    out = find_run(store, prefix)
    manifest, confidence = _stored(out)
    try:
        pairs = source(DataSettings.model_validate(understood(out.settings()["data"]))).pairs()
    except (KeyError, ValidationError) as error:
        path = out.path("settings.json")
        raise UserError(f"{path}: data: is not of this version: {one_line(error, 200)}") from error
    manifest.check(pairs)
    noisy = noisy_mask(manifest, len(pairs))
    if len(confidence) != len(pairs):
        raise UserError(f"run {out.id[:SHORT]}: stored {len(confidence)} confidences of {len(pairs)} pairs")
    result = audit(confidence[noisy], confidence[~noisy])
    rows = np.flatnonzero(~noisy)
    order = np.argsort(confidence[rows], kind="stable")
    return AuditedRun(
        out.id[:SHORT],
        pairs,
        rows[order],
        confidence[rows[order]],
        result.wrong[order],
        result,
        int(noisy.sum()),
        _checked(confidence, noisy, result.share),
    )


def _stored(out: RunStore) -> tuple[NoiseManifest, Floats]:
    """Return a run's manifest and confidences. Raises UserError if it lacks one, or its noise is of another sort."""
    name, path = f"run {out.id[:SHORT]}", out.path("noise.parquet")
    fix = "audit a run with shuffled captions: noise: {kind: shuffled_captions, rates: [0.2]}"
    if not path.exists():
        raise UserError(f"{name}: has no injected noise to compare with; {fix}")
    manifest = NoiseManifest.load(path)
    if manifest.edited is not None or (manifest.rows == manifest.donors).any():
        raise UserError(f"{name}: its noise, {manifest.kind}, does not swap captions; {fix}")
    for key in reversed(out.evaluations()):
        at = {record.at for record in out.records_of(key) if record.task == TASK}
        if at == {1.0} and "confidence" in (arrays := out.outcomes(key)):
            return manifest, arrays["confidence"].astype(np.float64)
    raise UserError(
        f"{name}: stored no confidences; add {TASK} to evaluate.tasks of its suite and `bench run` it again"
    )


def _checked(confidence: Floats, noisy: np.ndarray, share: float) -> tuple[float, Audit] | None:
    """Hide half of the injected pairs among the others, and audit again."""
    injected = np.random.default_rng(0).permutation(np.flatnonzero(noisy))
    half = len(injected) // 2
    if half < LEAST:
        return None
    others = np.concatenate((np.flatnonzero(~noisy), injected[:half]))
    expected = (share * (len(others) - half) + half) / len(others)
    try:
        return expected, audit(confidence[injected[half:]], confidence[others])
    except UserError:  # told apart too little once some are hidden
        return None
