"""The rule that chooses a point of a run's curve by validation records, against a plain reading of them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bench.store import Record
from bench.store.selection import chosen_point, score_at_selected, validation_scores

POINTS = (0.25, 0.5, 0.75, 1.0)
ONE = Record("r", 1.0, "a", "noisy_validation", "mean_recall", "cosine", 0.0, 9, None, None, True, "10", "c")
values = st.lists(st.integers(0, 4).map(lambda n: n / 4), min_size=4, max_size=4)


def records(task: str, dataset: str, scores: list[float]) -> list[Record]:
    pairs = zip(POINTS, scores, strict=True)
    return [replace(ONE, task=task, dataset=dataset, at=at, value=value) for at, value in pairs]


@given(first=values, second=values, clean=values, order=st.randoms())
def test_the_earliest_of_the_best_means_over_the_sets_is_chosen_whatever_the_order(first, second, clean, order) -> None:
    stored = [*records("noisy_validation", "a", first), *records("noisy_validation", "b", second)]
    stored += records("clean_validation", "a", clean)
    stored += [
        replace(ONE, value=9.0, **other) for other in ({"score": "csd"}, {"metric": "i2t_r1"}, {"protocol": "9"})
    ]
    order.shuffle(stored)
    means = [(a + b) / 2 for a, b in zip(first, second, strict=True)]
    scores = validation_scores(stored, "noisy_validation", "cosine", "10")
    assert scores == dict(zip(POINTS, means, strict=True))
    at = chosen_point("noisy_validation", scores, POINTS)
    assert at == POINTS[means.index(max(means))]
    told = score_at_selected(stored, "noisy_validation", "clean_validation", "cosine", "10", POINTS)
    assert told == clean[POINTS.index(at)]
    assert score_at_selected(stored, "last", "clean_validation", "cosine", "10", POINTS) == clean[-1]


def test_nothing_is_chosen_before_every_point_is_measured_on_every_set() -> None:
    stored = [*records("noisy_validation", "a", [0.9, 0, 0, 0]), *records("noisy_validation", "b", [0.9, 0, 0, 0])]
    for lacking in range(len(stored)):
        some = stored[:lacking] + stored[lacking + 1 :]
        assert (
            chosen_point("noisy_validation", validation_scores(some, "noisy_validation", "cosine", "10"), POINTS)
            is None
        )
        assert score_at_selected(some, "noisy_validation", "noisy_validation", "cosine", "10", POINTS) is None
    assert chosen_point("last", {}, POINTS) == 1.0
