"""Every method against every other over data sets: mean differences, data sets won, signed ranks over blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from reports.measure import lead
from reports.results import Results
from reports.statistics.many_sets import blocks_for, mean_over_first, signed_rank
from reports.statistics.paired import adjusted
from reports.tables.footnotes import method_row, noted, planned_seeds
from reports.tables.over_sets import Scored, block_of
from reports.tables.table import Cell, Column, Table, unverified


def pairs_table(results: Results, scores: Mapping[str, Sequence[Scored]]) -> Table:
    """Every method against every other over data sets: mean difference, data sets won, and p where it can be small."""
    labels = list(results.ranked)
    columns = tuple(
        Column(label, label + unverified(entry["fidelity"]), unit="text", higher_is_better=None, description=label)
        for label, entry in results.ranked.items()
    )
    rows, notes = [], []
    for noise in results.noises:
        of_noise = [one for one in scores[noise] if one.values]
        if not of_noise:
            continue
        pairs = PairsOfMethods(labels, of_noise)
        notes.append(f"{noise}: {pairs.about}")
        for label in labels:
            if runs := results.of(label, noise):
                own = lead(runs)
                rows.append(method_row(results, label, (_pair(own, pairs, label, other) for other in labels), noise))
    text = (
        "Mean difference over data sets and tasks in points, line minus column, and on how many of them the line's "
        "method is better."
    )
    bold = f"Means over {planned_seeds(results)}; nothing is bold."
    return replace(noted(results, "pairs", "Pairs", columns, rows, text, *notes, bold), turned=True)


class PairsOfMethods:
    """All pairs of methods under one noise, over data sets and over their independent blocks."""

    def __init__(self, labels: Sequence[str], scores: Sequence[Scored]) -> None:
        gaps, shown = map(np.stack, zip(*(one.gaps(labels) for one in scores), strict=True))
        block_of_each = [block_of(one.dataset) for one in scores]
        blocks = list(dict.fromkeys(block_of_each))
        in_block = [[own == block for own in block_of_each] for block in blocks]
        self.places = {label: place for place, label in enumerate(labels)}
        self.mean, self.of = mean_over_first(gaps), np.isfinite(gaps).sum(0)
        self.better, self.ties = (gaps > 0).sum(0), (gaps == 0).sum(0)
        self.shown = shown.sum(0)  # of `better`: significantly, on their own
        self.needed, self.blocks = blocks_for(max(2, int(self.of.any(0).sum()))), blocks
        self.p: dict[tuple[int, int], float] = {}
        by_block = np.stack([mean_over_first(gaps[chosen]) for chosen in in_block])
        if len(blocks) >= self.needed:
            above = [pair for pair in zip(*np.triu_indices(len(labels), 1), strict=True) if self.of[pair]]
            known = (by_block[:, a, b] for a, b in above)
            steps = adjusted([signed_rank(gaps[np.isfinite(gaps)].tolist()) for gaps in known])
            self.p = {pair: p for (a, b), p in zip(above, steps.tolist(), strict=True) for pair in ((a, b), (b, a))}

    @property
    def about(self) -> str:
        """A sentence on p-values over data sets."""
        count, names = len(self.blocks), ", ".join(self.blocks)
        independent = f"{count} independent block{'s' * (count > 1)} of data sets ({names})"
        if self.p:
            return f"p: Wilcoxon's signed-rank test over {independent}, exact, Holm over all pairs."
        return f"{independent}; a signed-rank test that passes Holm over all pairs takes {self.needed}."


def _pair(own: Cell, pairs: PairsOfMethods, label: str, other: str) -> Cell:
    """Every cell leads to the runs of its line, as `own` does; those of its column have a line of their own."""
    at = pairs.places[label], pairs.places[other]
    of, better = int(pairs.of[at]), int(pairs.better[at])
    if label == other or not of:
        return own
    value, p = float(pairs.mean[at]), pairs.p.get(at)
    also = {"mean difference": value, "better": better, "of": of, **({} if p is None else {"p adjusted": p})}
    shown = "" if p is None else f", p={p:.3f}"
    return replace(own, text=f"{100 * value:+.1f}, {better}/{of}{shown}", also=also)
