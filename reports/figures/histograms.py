"""Histograms of what methods learned, as a report reads them from the store. Does not import matplotlib."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bench.store.selection import LAST
from reports.figures.pictures import COLOURS
from reports.results import Results

Entry = Mapping[str, Any]  #: a diagnostic as bench/store/histograms.py stores it
Learned = Mapping[tuple[str, str], Mapping[str, Entry]]  #: (method, noise) -> diagnostics by name
#: of all methods, in one figure: diagnostic -> its series, each upwards (1) or downwards with a colour and a legend
SIMILARITIES: Mapping[str, tuple[tuple[str, int, str, str], ...]] = {
    "similarity": (
        ("positive", 1, COLOURS[0], "held-out pairs"),
        ("negative", 1, COLOURS[7], "held-out images with texts of others"),
    ),
    "training_similarity": (
        ("clean", -1, COLOURS[2], "clean training pairs"),
        ("corrupted", -1, COLOURS[3], "corrupted training pairs"),
    ),
}
SIMILAR = "similarities"  #: name of the figure of all methods


def read(results: Results, methods: Sequence[str] = ()) -> Learned:
    """Return the diagnostics of these methods (none: of all) under every noise, of the first seed that has any."""
    chosen = methods or list(results.methods)
    return {(method, noise): _first(results, method, noise) for method in chosen for noise in results.noises}


def names_of_own(results: Results, diagnostics: Learned) -> dict[str, str]:
    """Return for each method with diagnostics of its own the name of their figure."""
    if not diagnostics:
        return {}
    own = (method for method in results.methods if own_names(results, method, diagnostics))
    return {method: name_of(results, method) for method in own}


def name_of(results: Results, method: str) -> str:
    """The name of the figure of a method's own diagnostics."""
    number, slug = list(results.methods).index(method) + 1, re.sub("[^A-Za-z0-9]+", "-", method).strip("-")
    return f"diagnostics-{number:02}-{slug}"


def own_names(results: Results, method: str, diagnostics: Learned) -> list[str]:
    """The names of a method's own diagnostics under any noise."""
    own = (name for noise in results.noises for name in diagnostics[method, noise] if name not in SIMILARITIES)
    return list(dict.fromkeys(own))


def _first(results: Results, method: str, noise: str) -> dict[str, Entry]:
    """Diagnostics of training, and those of evaluation under the plan's protocol, by name; {} where no run has any.

    Those without numbers are omitted.
    """
    for run in results.of(method, noise):
        known = run.select == LAST and run.state not in ("missing", "damaged")
        entries = run.stored.diagnostics() if known else []
        own = [one for one in entries if one["source"] == "training" or one.get("protocol") == results.plan["protocol"]]
        if own:
            return {entry["name"]: {**entry, "seed": run.seed} for entry in own if entry["edges"]}
    return {}
