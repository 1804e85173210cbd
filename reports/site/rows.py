"""The rows of the board: every method of a suite under each of its noises, on the suite's headline number."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from reports.headlines import headlines
from reports.measure import Measure, cell
from reports.reference.index import hardware_text
from reports.results import RunResult, uses
from reports.site.sources import Source
from reports.statistics.contrasts import Contrast, headline_contrasts
from reports.statistics.ratio import Ratio
from reports.tables.table import Cell
from reports.tables.vs_baseline import interval, p_text, signed


@dataclass(frozen=True)
class BoardRow:
    """One row. Numbers are those of the reports; texts are what is printed."""

    source: str
    suite: str
    method: str  #: label
    noise: str
    rate: float
    fidelity: str
    budget: str
    hardware: str
    measure: str
    score: Cell
    gain: float | None  #: difference to the baseline, share
    gain_text: str
    recovered: float | None
    recovered_text: str
    resolution: float | None
    resolution_text: str
    runs: tuple[RunResult, ...]
    rerun: bool  #: whether one of its runs was trained again
    knows: str  #: what no method knows and this row was trained on; "" for most

    @property
    def score_text(self) -> str:
        """The mean in percent with the standard deviation over seeds, or why there is none."""
        if self.score.value is None:
            return self.score.state
        spread = "" if self.score.std is None else f" ± {100 * self.score.std:.1f}"
        return f"{100 * self.score.value:.1f}{spread}"


def slug(label: str) -> str:
    """Return a file name for a label, one to one: its plain characters and the start of its hash."""
    plain = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:40]
    return f"{plain}-{hashlib.sha256(label.encode()).hexdigest()[:8]}"


def board_rows(source: Source) -> list[BoardRow]:
    """Return the rows of a suite in its order. Raises UserError if its plan names no headline number."""
    results = source.results
    measure = headlines(results)[0]
    contrasts = {one.noise: one for one in headline_contrasts(results)}
    return [
        _row(source, measure, contrasts.get(noise), noise, label)
        for noise in results.noises
        for label in results.methods
        if results.of(label, noise)
    ]


def _row(source: Source, measure: Measure, contrast: Contrast | None, noise: str, label: str) -> BoardRow:
    results = source.results
    runs, about, budget = results.of(label, noise), results.methods[label], results.plan["budget"]
    gain = contrast.gains.get(label) if contrast else None
    recovered = contrast.recovered(label) if contrast and label in results.ranked and gain else None
    resolution = contrast.resolution if contrast else None
    return BoardRow(
        source=source.name,
        suite=results.suite,
        method=label,
        noise=noise,
        rate=results.noises[noise]["rate"],
        fidelity=about["fidelity"],
        budget=f"{budget['value']:g} {budget['kind']}",
        hardware=_listed([hardware_text(run.environment) for run in runs]),
        measure=f"{measure.column.group} {measure.column.label}",
        score=cell(runs, measure, about["score"]),
        gain=gain.value if gain else None,
        gain_text=_gain(contrast, label) if contrast and gain else "",
        recovered=recovered.value if recovered else None,
        recovered_text=_ratio(recovered),
        resolution=resolution.value if resolution else None,
        resolution_text=_ratio(resolution),
        runs=tuple(runs),
        rerun=any(run.run == source.rerun for run in runs),
        knows=uses(about),
    )


def _gain(contrast: Contrast, label: str) -> str:
    gain = contrast.gains[label]
    return f"{signed(gain.value)} ({interval(gain)}, {p_text(contrast.p_values[label])})"


def _listed(texts: list[str]) -> str:
    return "; ".join(sorted({text for text in texts if text})) or "not known"


def _ratio(ratio: Ratio | None) -> str:
    return f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})" if ratio else ""
