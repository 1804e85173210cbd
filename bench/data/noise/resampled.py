"""Resampled positives: captions that are drawn anew within the batch in every step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench import counter
from bench.arrays import Ints
from bench.data.noise.manifest import Noise, check_rate


@dataclass(frozen=True)
class Resampled(Noise):
    """Resampled positives: in every step floor(rate * B) rows take the caption of a row drawn from the batch.

    Raises UserError if the rate is not in [0, 1].
    """

    rate: float
    seed: int
    kind: str = "resampled_positives"

    def __post_init__(self) -> None:
        check_rate(self.rate)

    def donors_in_batch(self, step: int, batch: int) -> Ints:
        """Return int64 [batch]: the position whose caption each row takes, drawn uniformly from all of the batch."""
        positions = np.arange(batch, dtype=np.int64)
        drawn = counter.words(counter.word(self.seed, "resampled", step), positions, 2)
        count = int(self.rate * batch + 1e-9)  # 0.29 * 100 is 28.999... in binary and means 29
        chosen = np.argsort(drawn[:, 0], kind="stable")[:count]
        positions[chosen] = counter.below(np.full(len(chosen), batch), drawn[chosen, 1])
        return positions
