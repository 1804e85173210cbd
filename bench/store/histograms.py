"""Histograms of what a method learned, stored next to its run: small, without times, the same bytes after a resume."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bench.arrays import Floats

if TYPE_CHECKING:
    from bench.store import RunWriter
    from methods.protocol import Diagnostic

BINS = 40
STORED_DIGITS = 6  #: of stored numbers, which are only plotted; more digits made up a quarter of an archive
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
#: the last step's batch and the state; features of the final weights
DiagnosticSource = Literal["training", "evaluation"]


def store_diagnostics(
    out: RunWriter, source: DiagnosticSource, diagnostics: Iterable[Diagnostic], protocol: str = ""
) -> None:
    """Store histograms of these diagnostics in the run's diagnostics.json; they replace those of the same source.

    `protocol` is the label of an evaluation's protocol; those of several protocols are kept side by side.
    Raises ValueError for a diagnostic that is not as `methods.protocol.Diagnostic` describes it.
    """
    origin = {"source": source, **({"protocol": protocol} if protocol else {})}
    entries = [{**origin, **histogram(diagnostic)} for diagnostic in diagnostics]
    names = [entry["name"] for entry in entries]
    if len(set(names)) < len(names):
        raise ValueError(f"diagnostics should have names of their own, not {', '.join(names)}")
    # older entries of an evaluation have no protocol, so they are replaced
    staying = [one for one in out.diagnostics() if one["source"] != source or one.get("protocol", protocol) != protocol]
    if entries or staying:
        out.write_diagnostics(staying, entries)


def histogram(diagnostic: Diagnostic) -> dict[str, Any]:
    """Return a diagnostic as JSON: common bin edges, and for each series counts, n, dropped, mean and quantiles.

    Bins are equally wide, in the logarithm if the diagnostic says `log`. Numbers that are NaN or infinite, and with
    `log` those that are not positive, are dropped and counted. Numbers have `STORED_DIGITS` digits.
    """
    series, dropped = {}, {}
    for legend, values in diagnostic.series.items():
        if values.ndim != 1:
            raise ValueError(
                f"diagnostic {diagnostic.name!r}: {legend!r} should be 1-D, not of shape {[*values.shape]}"
            )
        numbers = values.detach().double().cpu().numpy()
        good = np.isfinite(numbers) & ((numbers > 0) | (not diagnostic.log))
        series[legend], dropped[legend] = numbers[good], int((~good).sum())
    edges = _edges(np.concatenate([*series.values(), np.empty(0)]), diagnostic.log)
    short = [_short(edge) for edge in edges]
    return {
        "name": diagnostic.name,
        "title": diagnostic.title,
        "axis": diagnostic.axis,
        "log": diagnostic.log,
        "edges": short if (np.diff(short) > 0).all() else edges.tolist(),  # of a narrow range
        "series": {legend: _summary(values, dropped[legend], edges) for legend, values in series.items()},
    }


def _edges(values: Floats, log: bool) -> Floats:
    """Return BINS + 1 rising edges from the smallest to the largest value.

    Equal values get one bin around them; without values there are no edges.
    """
    if not len(values):
        return np.empty(0)
    low, high = float(values.min()), float(values.max())
    edges = np.geomspace(low, high, BINS + 1) if log else np.linspace(low, high, BINS + 1)
    if not (np.diff(edges) > 0).all():  # equal values, or neighbours with no float between them
        room = max(0.5, abs(high) / 2)
        return np.array([low / 2, high * 2]) if log else np.array([low - room, high + room])
    return edges


def _summary(values: Floats, dropped: int, edges: Floats) -> dict[str, Any]:
    some = len(values) > 0
    return {
        "n": len(values),
        "dropped": dropped,
        "mean": _short(values.mean()) if some else None,
        "quantiles": {f"{q:g}": _short(np.quantile(values, q)) for q in QUANTILES} if some else {},
        "counts": np.histogram(values, edges)[0].tolist() if some else [],
    }


def _short(x: Any) -> float:
    return float(f"{x:.{STORED_DIGITS}g}")
