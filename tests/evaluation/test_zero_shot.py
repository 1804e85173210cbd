"""Zero-shot classification: the same values as clip-benchmark on the same features."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from clip_benchmark.metrics import zeroshot_classification as peer

from bench.evaluation.zero_shot import class_prompts, class_vectors, classify

CLASSES, TEMPLATES, WIDTH = 12, ("{}", "a photo of a {}.", "{} again"), 16


class Tower:
    """What clip-benchmark calls a model: texts are looked up in a table by their index."""

    def __init__(self, table: torch.Tensor) -> None:
        self.table = table

    def encode_text(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.table[tokens]


@pytest.fixture
def features() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, CLASSES, (300,), generator=generator)
    texts = torch.randn(CLASSES * len(TEMPLATES), WIDTH, generator=generator)
    images = texts[labels * len(TEMPLATES)] + 2 * torch.randn(300, WIDTH, generator=generator)
    return F.normalize(images, dim=-1), texts, labels


@pytest.mark.filterwarnings("ignore:Conversion of an array with ndim:DeprecationWarning")  # in clip-benchmark
def test_values_equal_clip_benchmarks(features: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> None:
    images, texts, labels = features
    names = [f"class {i}" for i in range(CLASSES)]
    all_texts = class_prompts(names, TEMPLATES)
    classifier = peer.zero_shot_classifier(
        Tower(texts),
        lambda batch: torch.tensor([all_texts.index(text) for text in batch]),
        names,
        [template.replace("{}", "{c}") for template in TEMPLATES],
        "cpu",
        amp=False,
    )
    classes = class_vectors({"embedding": texts}, len(TEMPLATES))
    torch.testing.assert_close(classes["embedding"], classifier.T)
    theirs = peer.accuracy(100.0 * images @ classifier, labels, topk=(1, 5))
    ranks = classify({"embedding": images}, classes, labels, "cosine")
    assert [float(ranks.hits(k).mean()) for k in (1, 5)] == theirs
    assert 0.2 < theirs[0] < theirs[1] < 0.95  # neither trivial


def test_a_collapsed_model_scores_chance() -> None:
    one = F.normalize(torch.randn(1, WIDTH, generator=torch.Generator().manual_seed(0)), dim=-1)
    images, classes = {"embedding": one.expand(40, -1)}, {"embedding": one.expand(CLASSES, -1)}
    ranks = classify(images, classes, torch.arange(40) % CLASSES, "cosine")
    assert ranks.hits(1).mean() == pytest.approx(1 / CLASSES)
    assert ranks.hits(5).mean() == pytest.approx(5 / CLASSES)


def test_a_class_is_the_unit_mean_of_unit_prompts_and_the_mean_of_variances() -> None:
    means = torch.tensor([[3.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    logvar = torch.tensor([[1.0, 2.0], [3.0, 8.0]], dtype=torch.float64).log()
    found = class_vectors({"embedding": means, "logvar": logvar}, 2)
    torch.testing.assert_close(found["embedding"], torch.full((1, 2), 0.5**0.5, dtype=torch.float64))
    torch.testing.assert_close(found["logvar"].exp(), torch.tensor([[2.0, 5.0]], dtype=torch.float64))


def test_csd_prefers_the_surer_of_two_equally_near_classes() -> None:
    means = torch.tensor([[0.6, 0.8], [0.6, -0.8]])
    classes = {"embedding": means, "logvar": torch.tensor([[0.0, 0.0], [-9.0, -9.0]])}
    images = {"embedding": torch.tensor([[1.0, 0.0]]), "logvar": torch.zeros(1, 2)}
    wrong, right = (classify(images, classes, torch.tensor([label]), "csd").hits(1) for label in (0, 1))
    np.testing.assert_array_equal((wrong, right), ([0.0], [1.0]))
    assert classify(images, classes, torch.tensor([0]), "cosine").hits(1) == 0.5


def test_prompts_keep_a_classs_templates_together_and_leave_braces_alone() -> None:
    assert class_prompts(["a{b}", "c"], ["{}", "an {}"]) == ["a{b}", "an a{b}", "c", "an c"]
