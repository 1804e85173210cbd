"""How many seeds a wanted difference takes, from stored runs: the answer of `bench stats power`."""

from __future__ import annotations

from bench.console.text import align_columns, join_lines
from bench.errors import UserError
from bench.store import Store
from reports.results import load
from reports.statistics.contrasts import Contrast, Detectable, contrasts
from reports.statistics.paired import LEVEL, MINIMUM
from reports.statistics.power import MAX_SEEDS, POWER, seeds_for
from reports.tables.footnotes import damaged_runs
from reports.tables.vs_baseline import detectable_text, gap_text, resolution_text


def seed_needs(suite: str, store: Store, points: float = 1.0) -> tuple[str, tuple[str, ...]]:
    """Return as text what the stored runs of a suite can detect, and the seeds that a difference of `points` takes.

    It has a block for each noise, and a legend. Also a sentence for each run that a damaged file keeps out.
    Raises UserError for a difference outside (0, 100], and where no method has `MINIMUM` seeds in common
    with the baseline.
    """
    if not 0 < points <= 100:
        raise UserError(f"--difference {points:g}: should be above 0 and at most 100 points")
    results = load(suite, store)
    known = [(one, detectable) for one in contrasts(results) if (detectable := one.detectable)]
    if not known:
        raise UserError(
            f"suite {suite}: no method that scores above chance has {MINIMUM} seeds in common with {results.baseline}, "
            f"so the spread is unknown; `bench run {suite} --set 'seeds=[0, 1, 2]'` gives such runs"
        )
    parts = [f"{suite}: differences from {results.baseline} in points, at 5 % with {100 * POWER:.0f} % power"]
    wanted = (f"seeds for {points:g}", "of one")
    head = ("", "seeds", "sd", "detectable", "of one", "oracle's", "resolution", *wanted)
    for noise in dict.fromkeys(contrast.noise for contrast, _ in known):
        rows = [head, *(_row(*one, points / 100) for one in known if one[0].noise == noise)]
        parts += ["", noise, *(f"  {line}" for line in align_columns(rows, right=True))]
    notes = [
        "sd: of (method - baseline) over seeds, median over methods; those near chance are omitted",
        "detectable, seeds: if all methods are tested against the baseline, at 5 % divided by their number",
        "of one: if only one method is tested, at 5 %",
    ]
    if results.oracle:
        notes.append(f"resolution: the difference of {results.oracle} over the detectable difference of one method")
    else:
        notes.append("resolution is unknown: no entry of the suite is the baseline with `keep: oracle`")
    damaged = damaged_runs(results)
    return join_lines([*parts, "", *(f"note: {note}" for note in (*notes, *damaged))]), damaged


def _row(contrast: Contrast, detectable: Detectable, wanted: float) -> tuple[str, ...]:
    """A column of the overview under one noise. wanted: a share."""
    column, gap, ratio = contrast.measure.column, contrast.gap, contrast.resolution
    levels = (LEVEL / detectable.rows, LEVEL)  # if all rows are tested, and if one is
    seeds = [seeds_for(wanted / detectable.std, level) for level in levels]
    return (
        f"{column.group} {column.label}",
        str(detectable.n),
        f"{100 * detectable.std:.2f}",
        *map(detectable_text, (detectable.adjusted, detectable.value)),
        gap_text(contrast, gap) if gap else "",
        resolution_text(ratio) if ratio else "",
        *(f"over {MAX_SEEDS}" if n is None else str(n) for n in seeds),
    )
