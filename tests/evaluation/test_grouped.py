"""Metrics over classes and groups equal scikit-learn's, and count by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, f1_score, jaccard_score

from bench.data.evaluation.hub import Puzzle
from bench.evaluation.bootstrap import REPLICATES
from bench.evaluation.grouped import macro_f1, mean_per_class, worst_group
from bench.evaluation.puzzles import cue_prompt, solve


def answers(n: int = 300, classes: int = 7) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    labels = generator.choice([0, 1, 2, 4, 5], n, p=[0.5, 0.3, 0.1, 0.05, 0.05])  # 3 and 6 never occur
    predicted = np.where(generator.random(n) < 0.6, labels, generator.integers(0, classes, n))
    return labels, predicted


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true:UserWarning")
def test_values_are_scikit_learns() -> None:
    labels, predicted = answers()
    right = (labels == predicted).astype(np.float64)
    value, (low, high) = mean_per_class(right, labels)
    assert value == pytest.approx(balanced_accuracy_score(labels, predicted))
    assert low < value < high
    value, (low, high) = macro_f1(labels, predicted)
    assert value == pytest.approx(f1_score(labels, predicted, average="macro", labels=np.unique(labels)))
    assert low < value < high


def test_intervals_are_those_of_drawn_images() -> None:
    labels, predicted = answers(60)
    generator, drawn = np.random.default_rng(1), []
    for _ in range(REPLICATES):
        rows = generator.integers(0, len(labels), len(labels))
        kinds = np.unique(labels[rows])
        drawn.append(f1_score(labels[rows], predicted[rows], average="macro", labels=kinds, zero_division=0))
    _, found = macro_f1(labels, predicted)
    assert found == pytest.approx(tuple(np.percentile(drawn, (2.5, 97.5))), abs=0.03)


def test_the_worst_group_counts() -> None:
    hits = np.array([1, 1, 0, 1, 0, 0, 1, 1], np.float64)
    groups = np.array([5, 5, 5, 0, 0, 0, 9, 9])
    value, (low, high) = worst_group(hits, groups)
    assert value == pytest.approx(1 / 3)  # of group 0; groups 1 to 4 have no rows
    assert low == 0.0
    assert high <= 1.0


@pytest.mark.parametrize(("cue", "text"), [("Werewolf", "A werewolf"), ("owl", "An owl")])
def test_a_cue_is_asked_with_its_article(cue: str, text: str) -> None:
    assert cue_prompt(cue) == text


def test_puzzles_are_scored_by_jaccard() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.nn.functional.normalize(torch.randn(12, 5, generator=generator), dim=-1)
    cues = torch.nn.functional.normalize(torch.randn(4, 5, generator=generator), dim=-1)
    candidates = [(0, 3, 5, 7, 9), (11, 2, 4, 6, 8, 10), tuple(range(12)), (1, 2, 3, 4, 5)]
    right = [[number % 3 == 0 for number, _ in enumerate(rows)] for rows in candidates]
    puzzles = [Puzzle("", rows, tuple(chosen)) for rows, chosen in zip(candidates, right, strict=True)]
    found = solve({"embedding": images}, {"embedding": cues}, puzzles, "cosine")
    for number, (rows, chosen) in enumerate(zip(candidates, right, strict=True)):
        best = np.argsort((images[list(rows)] @ cues[number]).numpy())[-sum(chosen) :]
        assert found[number] == pytest.approx(jaccard_score(chosen, np.isin(np.arange(len(rows)), best)))
    assert 0 < found.mean() < 1


def test_an_uncertain_image_is_picked_later_by_csd() -> None:
    images = {"embedding": torch.tensor([[1.0, 0.0], [0.8, 0.6]]), "logvar": torch.tensor([[0.0, 0.0], [-9.0, -9.0]])}
    cues = {"embedding": torch.tensor([[1.0, 0.0]]), "logvar": torch.zeros(1, 2)}
    puzzle = Puzzle("", (0, 1), (True, False))
    assert solve(images, cues, [puzzle], "cosine").tolist() == [1.0]
    assert solve(images, cues, [puzzle], "csd").tolist() == [0.0]
