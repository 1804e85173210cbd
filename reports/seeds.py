"""How many seeds a wanted difference takes, from stored runs: the answer of `bench stats power`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bench.console.text import align_columns, join_lines
from bench.errors import UserError
from bench.store import Store
from reports.results import load
from reports.statistics.contrasts import Contrast, Detectable, contrasts
from reports.statistics.paired import LEVEL, MINIMUM
from reports.statistics.power import MAX_SEEDS, POWER, seeds_for
from reports.tables.footnotes import damaged_runs
from reports.tables.vs_baseline import detectable_text, gap_text, resolution_text


@dataclass(frozen=True)
class SeedLine:
    """A column of the overview under one noise."""

    contrast: Contrast
    detectable: Detectable
    seeds: int | None  #: that detect the wanted difference of one method; None beyond `MAX_SEEDS`
    seeds_adjusted: int | None  #: if all rows are tested


@dataclass(frozen=True)
class SeedNeeds:
    """What the seeds of a suite can detect, and how many a wanted difference takes."""

    suite: str
    baseline: str
    oracle: str | None
    wanted: float  #: a share
    lines: tuple[SeedLine, ...]
    damaged: tuple[str, ...] = ()  #: a sentence for each run of the suite that a damaged file keeps out

    def text(self) -> str:
        """Plain text: a block for each noise, and a legend."""
        parts = [f"{self.suite}: differences from {self.baseline} in points, at 5 % with {100 * POWER:.0f} % power"]
        points = f"{100 * self.wanted:g}"
        wanted = (f"seeds for {points}", "of one")
        head = ("", "seeds", "sd", "detectable", "of one", "oracle's", "resolution", *wanted)
        for noise in dict.fromkeys(line.contrast.noise for line in self.lines):
            rows = [head, *(_row(line) for line in self.lines if line.contrast.noise == noise)]
            parts += ["", noise, *(f"  {line}" for line in align_columns(rows, right=True))]
        notes = [
            "sd: of (method - baseline) over seeds, median over methods; those near chance are omitted",
            "detectable, seeds: if all methods are tested against the baseline, at 5 % divided by their number",
            "of one: if only one method is tested, at 5 %",
        ]
        if self.oracle:
            notes.append(f"resolution: the difference of {self.oracle} over the detectable difference of one method")
        else:
            notes.append("resolution is unknown: no entry of the suite is the baseline with `keep: oracle`")
        return join_lines([*parts, "", *(f"note: {note}" for note in (*notes, *self.damaged))])


def seed_needs(suite: str, store: Store, points: float = 1.0) -> SeedNeeds:
    """Return what the stored runs of a suite can detect, and the seeds that a difference of `points` takes.

    Raises UserError for a difference outside (0, 100], and where no method has `MINIMUM` seeds in common
    with the baseline.
    """
    if not 0 < points <= 100:
        raise UserError(f"--difference {points:g}: should be above 0 and at most 100 points")
    results = load(suite, store)
    wanted = points / 100
    known = [(one, one.detectable) for one in contrasts(results)]
    lines = tuple(_line(one, detectable, wanted) for one, detectable in known if detectable)
    if not lines:
        raise UserError(
            f"suite {suite}: no method that scores above chance has {MINIMUM} seeds in common with {results.baseline}, "
            f"so the spread is unknown; `bench run {suite} --set 'seeds=[0, 1, 2]'` gives such runs"
        )
    return SeedNeeds(suite, results.baseline, results.oracle, wanted, lines, damaged_runs(results))


def _line(contrast: Contrast, detectable: Detectable, wanted: float) -> SeedLine:
    if not detectable.std:  # the sign test decides, p = 2^(1 - n)
        one, all_rows = (1 - math.floor(math.log2(LEVEL / rows)) for rows in (1, detectable.rows))
        return SeedLine(contrast, detectable, one, all_rows)
    effect = wanted / detectable.std
    return SeedLine(contrast, detectable, seeds_for(effect), seeds_for(effect, LEVEL / detectable.rows))


def _row(line: SeedLine) -> Sequence[str]:
    column, gap, ratio = line.contrast.measure.column, line.contrast.gap, line.contrast.resolution
    return (
        f"{column.group} {column.label}",
        str(line.detectable.n),
        f"{100 * line.detectable.std:.2f}",
        *map(detectable_text, (line.detectable.adjusted, line.detectable.value)),
        gap_text(line.contrast, gap) if gap else "",
        resolution_text(ratio) if ratio else "",
        *(f"over {MAX_SEEDS}" if n is None else str(n) for n in (line.seeds_adjusted, line.seeds)),
    )
