"""The answer of a report: sentences and figures about the headline number, against the tests that they tell of."""

from __future__ import annotations

import re

import pytest
from matplotlib.collections import PathCollection

from bench.store import Store
from reports import drawing, figures
from reports.answer import answers, question
from reports.build import build
from reports.contrasts import headline_contrasts
from reports.forest import forest, recovered
from reports.html import page
from reports.results import Results, load
from reports.tables import tables

SUITE = "emoji_noisy"


@pytest.fixture(scope="module")
def results(bounded: Store) -> Results:
    return load(SUITE, bounded)


def test_a_paragraph_counts_and_names_what_the_tests_show(results: Results) -> None:
    assert "better than clip on" in question(results)
    contrasts, paragraphs = headline_contrasts(results), answers(results)
    assert len(contrasts) == len(paragraphs) == len(results.noises) == 2
    for one, text in zip(contrasts, paragraphs, strict=True):
        assert text.startswith(f"{one.noise}: clip has ")
        for word, sign in (("better", 1), ("worse", -1)):
            shown = [label for label in one.gains if one.p_values[label] <= 0.05 and sign * one.gains[label].value > 0]
            assert f"{len(shown)} shown to be {word}: " in text
            widest = max(shown, key=lambda label: abs(one.gains[label].value))
            assert f"shown to be {word}: {widest} {100 * one.gains[widest].value:+.1f} (" in text
        rest = sum(p > 0.05 for p in one.p_values.values())
        assert f"{rest} of {len(one.gains)} not told apart" in text
        same = {label for label in one.same if one.p_values[label] > 0.05}
        assert (f"({len(same)} of them practically the same)" in text) == bool(same)
        (seeds,) = re.findall(r"(\d+) seeds show a difference", text)
        assert int(seeds) == 5
    assert "resolution" in paragraphs[1]


def test_one_seed_answers_nothing(one: Store) -> None:
    results = load(SUITE, one)
    assert all("not known; it takes 3 seeds" in text for text in answers(results))
    assert forest(results) is None
    assert recovered(results) is None


def test_only_what_is_shown_is_filled(results: Results) -> None:
    with drawing.look():
        picture = forest(results)
    assert picture is not None
    assert picture.figure is not None
    labels = [text.get_text() for text in picture.figure.axes[0].get_yticklabels()]
    for panel, one in zip(picture.figure.axes, headline_contrasts(results), strict=True):
        (points,) = [found for found in panel.collections if isinstance(found, PathCollection)]
        assert set(labels) == set(one.gains)
        assert points.get_offsets()[:, 1].tolist() == list(range(len(labels)))
        for place, label in enumerate(labels):
            assert points.get_offsets()[place, 0] == pytest.approx(100 * one.gains[label].value)
            is_filled = points.get_facecolors()[place].tolist() != [1.0, 1.0, 1.0, 1.0]
            assert is_filled == (one.p_values[label] <= 0.05), label


def test_the_recovered_gap_is_drawn_where_it_is_resolved(results: Results) -> None:
    with drawing.look():
        picture = recovered(results)
    assert picture is not None
    assert picture.figure is not None
    (panel,) = picture.figure.axes
    shown = [one for one in headline_contrasts(results) if one.is_resolved]
    assert [text.get_text() for text in panel.get_xticklabels()] == [one.noise for one in shown]
    heights = {
        round(float(y), 9) for line in panel.lines if len(line.get_ydata()) == len(shown) for y in line.get_ydata()
    }
    for label in results.ranked:
        ratio = shown[0].recovered(label) if label != "clip" else None
        assert ratio is None or round(ratio.value, 9) in heights


def test_the_page_begins_with_the_answer(results: Results, bounded: Store) -> None:
    text = page(results, tables(results), figures.pictures(results))
    order = [
        text.index(part) for part in ('id="answer"', 'id="figure-differences"', 'id="overview"', 'id="figure-radar"')
    ]
    assert order == sorted(order)
    assert build(SUITE, bounded).answers == tuple(answers(results))
