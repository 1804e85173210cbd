"""Estimate of the share of wrong training pairs, from confidences in them and in pairs that the noise corrupted.

Suppose wrong pairs look like the injected ones, and a share s of the other pairs is wrong. Then at least s F(t) of the
others have a confidence of at most t, where F(t) is the share of injected pairs that do; and hardly more, if correct
pairs rarely score that low (Storey, JRSS B 2002, for p-values). The numbers of pairs alone fix t: the smallest ratio of
many thresholds would be too small.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import fdtri

from bench.arrays import Floats, Ints
from bench.data import Pairs
from bench.data.noise.manifest import NoiseManifest, noisy_mask
from bench.data.source import data_source
from bench.errors import UserError
from bench.store import RunStore
from bench.store.run import SHORT_ID
from bench.suite.run import run_of_settings

MIN_AUDIT_PAIRS = 100  #: injected and other pairs that an audit needs
MIN_AUROC = 0.9  #: AUROC between wrong and correct pairs below which correct ones may look wrong
TASK = "noise_detection"


@dataclass(frozen=True)
class Audit:
    """The share of wrong pairs among those that were not injected."""

    share: float
    #: 95 % over pairs; begins at 0 if the model hardly separates wrong from correct pairs
    interval: tuple[float, float]
    auroc: float  #: between wrong and right pairs, if `share` of the others is wrong


def estimate_wrong_share(injected: npt.NDArray[np.floating], others: npt.NDArray[np.floating]) -> Audit:
    """Estimate the share of wrong pairs among `others` [n] from the confidences (higher = cleaner) of `injected` [m].

    The threshold is the quantile of the injected pairs at 0.12 sqrt(1000 / n), at most at 0.2, but has 20 pairs below
    it: what right pairs add then stays smaller than what chance does. The interval is Jeffreys's of a ratio of two
    counts, with the degrees of freedom of shares, and exact if none of the others is below. Raises UserError if there
    are too few pairs, and FloatingPointError for a confidence that is not finite.
    """
    m, n = len(injected), len(others)
    if min(m, n) < MIN_AUDIT_PAIRS:
        raise UserError(f"{m} injected and {n} other pairs; an audit needs {MIN_AUDIT_PAIRS} of each")
    if not (np.isfinite(injected).all() and np.isfinite(others).all()):
        raise FloatingPointError("a confidence is NaN or infinite")
    known = np.sort(injected)
    limit = known[max(round(min(0.2, 0.12 * (1000 / n) ** 0.5) * m), 20) - 1]
    a, b = int((known <= limit).sum()), int((others <= limit).sum())
    share = min(1.0, b / n * m / a)
    freedom = (max(1 - b / n, 1e-9), 2 * a / max(1 - a / m, 1e-9))

    def end(count: float, level: float) -> float:
        return min(1.0, m / n / a * count * float(fdtri(2 * count / freedom[0], freedom[1], level)))

    passed = np.searchsorted(known, others, "left").mean() + np.searchsorted(known, others, "right").mean()
    auroc = (float(passed) / m - share) / 2 / max(1 - share, 1e-9)
    return Audit(share, (end(b + 0.5, 0.025) if b and auroc >= MIN_AUROC else 0.0, end(max(b + 0.5, 1), 0.975)), auroc)


@dataclass(frozen=True)
class AuditedRun:
    """The audit of a run's training pairs but for those that its noise made wrong."""

    pairs: Pairs
    rows: Ints  #: [k] that were audited, of least confidence first
    confidence: Floats  #: [k]
    lines: tuple[str, str]  #: the share with its interval, and what it rests on


def audit_run(out: RunStore) -> AuditedRun:
    """Audit the training data of a stored run by its final confidences.

    Raises UserError if its noise did not swap captions or it stored no confidences, and as `estimate_wrong_share` does.
    """
    name, run = f"run {out.id[:SHORT_ID]}", run_of_settings(out.settings(), out.path("settings.json"))
    pairs = data_source(run.data).pairs()
    manifest = run.noise_of(pairs)
    swaps = isinstance(manifest, NoiseManifest) and manifest.edited is None
    if not swaps or (manifest.rows == manifest.donors).any():
        fix = "audit a run with noise: {kind: shuffled_captions, rates: [0.2]}"
        raise UserError(f"{name}: its noise swaps no captions, so no wrong pairs are known; {fix}")
    done = [key for key in out.evaluations() if {(one.task, one.at) for one in out.records_of(key)} == {(TASK, 1.0)}]
    if not done:
        raise UserError(f"{name}: stored no confidences; add {TASK} to evaluate.tasks and `bench run` its suite again")
    outcomes = out.outcomes(done[-1])
    confidence, noisy = outcomes["confidence"].astype(np.float64), outcomes["noisy"]
    if not np.array_equal(noisy, noisy_mask(manifest, len(pairs))):
        raise UserError(f"{name}: trained on other pairs than those of {pairs.name} here; put its data back")
    result, rows = estimate_wrong_share(confidence[noisy], confidence[~noisy]), np.flatnonzero(~noisy)
    rows = rows[np.argsort(confidence[rows], kind="stable")]
    (low, high), apart = result.interval, result.auroc >= MIN_AUROC
    share = f"{low:.1%} to {high:.1%} (95 %, most likely {result.share:.1%})" if apart else f"at most {high:.1%} (95 %)"
    below = f"; below {MIN_AUROC} right ones may look as wrong, so the share may be 0" if not apart else ""
    lines = (
        f"{pairs.name}: {share} of {len(rows):,} pairs are wrong, if they look like the {noisy.sum():,} injected ones",
        f"wrong and right pairs are separated with an AUROC of about {result.auroc:.2f}{below}",
    )
    return AuditedRun(pairs, rows, confidence[rows], lines)
