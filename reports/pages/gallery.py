"""The worst retrievals and the most suspicious training pairs of two methods, as pictures."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np

from bench.console.markup import Html, html, together
from bench.store import Damaged
from reports.headlines import primary
from reports.measure import cell, record_measure
from reports.results import Results, RunResult
from reports.statistics.concepts import Arrays, Outcomes, is_list
from reports.vocabulary import family, kind_of

SHOWN = 20  #: pictures of a kind


class Example(Protocol):
    """A pair of a data set."""

    @property
    def captions(self) -> Sequence[str]:
        """Its own, the plainest first."""

    @property
    def webp(self) -> bytes:
        """Its picture."""


@dataclass(frozen=True)
class Pictures:
    """Where pairs come from; reports read no data themselves."""

    examples: Callable[[str], Sequence[Example] | None]  #: of a data set, by row; None if there are no pictures of it
    #: rows of a noise manifest -> the row whose texts they take, or the caption that they train with
    changed: Callable[[Path], Mapping[int, int | str]]


#: its name, the function that draws the worst of one run, and the data sets and tasks that have it
Kind: TypeAlias = tuple[str, Callable[[RunResult, Arrays, str, str, Pictures], Html | None], list[tuple[str, str]]]


def gallery(results: Results, pictures: Pictures) -> Html:
    """The section of the page: baseline and best method under the most noise. Empty if nothing of it is measured."""
    noise = max(results.noises, key=lambda label: float(results.noises[label]["rate"]), default=None)
    measured = list(dict.fromkeys((dataset, task) for dataset, task, _ in results.measures))
    kinds: list[Kind] = [
        ("retrievals", _retrieved, [one for one in measured if family(one[1]) == "retrieval"]),
        ("training pairs", _suspicious, [one for one in measured if _finds_noise(one[1])]),
    ]
    kinds = [kind for kind in kinds if kind[2]]
    if noise is None or not kinds:
        return html("")
    return html(
        '<section id="gallery"><h2>In pictures</h2><p>What {} and the best other method get most wrong under {}, each '
        "in one run: that of the first seed that has it.</p>{}</section>",
        results.baseline,
        noise,
        together(_of_method(results, label, noise, kinds, pictures) for label in baseline_and_best(results, noise)),
    )


def _finds_noise(task: str) -> bool:
    known = kind_of(family(task))
    return known is not None and known.on_training_pairs


def baseline_and_best(results: Results, noise: str) -> list[str]:
    """The baseline, and the best of the other compared methods on the headline number."""
    measure = record_measure(results, *primary(results))
    cells = {label: cell(results.of(label, noise), measure, entry["score"]) for label, entry in results.ranked.items()}
    means = {label: one.value for label, one in cells.items() if one.value is not None and label != results.baseline}
    choose = max if measure.column.higher_is_better is not False else min
    return [results.baseline, *([choose(means, key=means.__getitem__)] if means else [])]


def _of_method(results: Results, label: str, noise: str, kinds: Sequence[Kind], pictures: Pictures) -> Html:
    runs = [(run, Outcomes(run, results.plan["protocol"])) for run in results.of(label, noise)]
    score = results.methods[label]["score"]
    parts = []
    for words, draw, tasks in kinds:
        drawn = (draw(run, arrays.of(*task), score, task[0], pictures) for run, arrays in runs for task in tasks)
        part = next((one for one in drawn if one is not None), None)
        why = "their outcomes are not stored or cannot be read, or the package has no pictures of their data"
        parts.append(part or html('<p class="soft">No pictures of its {}: {}.</p>', words, why))
    return html("<h3>{}</h3>{}", label, together(parts))


def _retrieved(_run: RunResult, arrays: Arrays, score: str, dataset: str, pictures: Pictures) -> Html | None:
    """The images whose right caption is found last. None if this run's outcomes do not say it of pictures we have."""
    better, tied = (arrays.get(f"{score}_i2t_{name}") for name in ("better", "tied_wrong"))
    if not is_list(better, "iu") or not is_list(tied, "iu") or len(better) != len(tied):
        return None
    rows = pictures.examples(dataset)
    if rows is None or len(rows) != len(better):
        return None
    places = better + tied / 2 + 1  # among equally good ones, its expected place
    texts = len(arrays.get(f"{score}_owner", ())) or None
    items = (
        picture_item(rows[row], f"place {places[row]:,.0f}{f' of {texts:,}' if texts else ''}")
        for row in np.argsort(-places, kind="stable")[:SHOWN].tolist()
    )
    return picture_list(f"Images of {dataset} whose right caption is found last", items)


def _suspicious(run: RunResult, arrays: Arrays, _score: str, dataset: str, pictures: Pictures) -> Html | None:
    """The training pairs of least confidence, as training saw them. None as in `_retrieved`."""
    confidence, noisy = arrays.get("confidence"), arrays.get("noisy")
    if not is_list(confidence, "f") or not is_list(noisy, "b") or len(confidence) != len(noisy):
        return None
    rows = pictures.examples(dataset)
    if rows is None or len(rows) != len(noisy):
        return None
    try:
        changed = pictures.changed(run.stored.path("noise.parquet"))
    except Damaged:
        return None
    chosen = np.argsort(confidence, kind="stable")[:SHOWN].tolist()
    sources = {row: changed.get(row, row) for row in chosen}
    if not all(isinstance(source, str) or 0 <= source < len(rows) for source in sources.values()):
        return None
    items = (
        picture_item(
            rows[row],
            "corrupted" if noisy[row] else "clean",
            source if isinstance(source, str) else rows[source].captions[0],
        )
        for row, source in sources.items()
    )
    count = int(noisy[chosen].sum())
    return picture_list(f"Training pairs that it trusts least: {count} of these {len(chosen)} are corrupted", items)


def picture_list(title: str, items: Iterable[Html]) -> Html:
    """Return a heading and the items that `picture_item` returns."""
    return html('<h4>{}</h4><ol class="gallery">{}</ol>', title, together(items))


def picture_item(pair: Example, note: str, seen: str | None = None) -> Html:
    """Return a picture with its caption; or with the one that training saw, its own struck out if it is another."""
    own = pair.captions[0]
    others = html("<del>{}</del> ", own) if seen not in (None, own) else html("")
    return html(
        '<li><img alt="" width="48" height="48" loading="lazy" src="data:image/webp;base64,{}">'
        "<span>{}{}<small>{}</small></span></li>",
        base64.b64encode(pair.webp).decode(),
        others,
        own if seen is None else seen,
        note,
    )
