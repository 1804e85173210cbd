"""Figures of prompt weights draw the numbers that they are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.patches import StepPatch
from scipy.stats import entropy as entropy_of

from reports.figures.prompt_weights import BINS, MOST, ClassWeights, drawn, entropy, over_classes, single_classes

PROMPTS = [f"photo {number} of {{}}" for number in range(11)]


def weights_of(classes: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).dirichlet(np.full(len(PROMPTS), 0.5), classes)


def test_a_class_has_its_largest_weights_in_order_and_its_images() -> None:
    image = np.full((4, 4, 3), 200, np.uint8)
    made = [ClassWeights(f"class {place}", PROMPTS, own, [image] * 2) for place, own in enumerate(weights_of(2))]
    figure = single_classes(made, "5 labelled images").figure
    assert figure is not None
    panels = [panel for panel in figure.axes if panel.get_title()]
    assert [panel.get_title() for panel in panels] == ["class 0", "class 1"]
    for panel, one in zip(panels, made, strict=True):
        widths = [bar.get_width() for bar in panel.patches]
        assert widths == pytest.approx(sorted(one.weights, reverse=True)[:MOST])
        places = [PROMPTS.index(text.get_text()) for text in panel.get_yticklabels()]
        assert one.weights[places] == pytest.approx(widths)
        (alike,) = panel.lines
        assert alike.get_xdata()[0] == 1 / len(PROMPTS)
        assert [len(inner.images) for inner in panel.child_axes] == [1, 1]
    without = single_classes([ClassWeights("x", PROMPTS, weights_of(1)[0], ())], "5 labelled images")
    assert "images of the class" not in without.caption


def test_the_statistics_count_every_class_once() -> None:
    fitted = {"10 nearest images": weights_of(40, 1), "5 labelled images": weights_of(40, 2)}
    picture = over_classes(fitted)
    assert picture.figure is not None
    largest, spread = picture.figure.axes
    k = len(PROMPTS)
    for panel, measure, limits in (
        (largest, lambda w: w.max(1), (1 / k, 1)),
        (spread, lambda w: entropy_of(w, axis=1), (0, np.log(k))),
    ):
        filled = [patch for patch in panel.patches if isinstance(patch, StepPatch) and patch.get_fill()]
        for patch, weights in zip(filled, fitted.values(), strict=True):
            counts, edges = np.histogram(measure(weights), BINS, limits)
            values, found, _ = patch.get_data()
            np.testing.assert_array_equal(values, counts)
            np.testing.assert_allclose(found, edges)
            assert values.sum() == 40
    assert [line.get_xdata()[0] for panel in (largest, spread) for line in panel.lines] == [1 / k, np.log(k)]
    np.testing.assert_allclose(entropy(fitted["5 labelled images"]), entropy_of(fitted["5 labelled images"], axis=1))
    one_hot, alike = np.eye(3), np.full((1, 3), 1 / 3)
    assert entropy(one_hot).tolist() == [0, 0, 0]
    assert entropy(alike) == pytest.approx(np.log(3))
    assert over_classes({"alike": alike, "one": one_hot}).png, "the ends of both axes are drawn"


def test_the_files_are_the_same_bytes_each_time() -> None:
    classes = [ClassWeights(f"class {n}", PROMPTS, own, ()) for n, own in enumerate(weights_of(3))]
    files = drawn(classes, {"5 labelled images": weights_of(9)})
    kinds = (".png", "-column.pdf", ".pdf")
    assert sorted(files) == sorted(f"prompt_{name}{kind}" for name in ("statistics", "weights") for kind in kinds)
    assert files == drawn(classes, {"5 labelled images": weights_of(9)})
