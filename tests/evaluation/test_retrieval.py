"""Retrieval: the same values as clip-benchmark on the same features, ties included honestly."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from clip_benchmark.metrics import zeroshot_retrieval as peer
from hypothesis import given
from hypothesis import strategies as st

from bench.evaluation.ranks import rank
from bench.evaluation.retrieval import retrieve, retrieve_within


def features(images: int, captions: int, width: int = 32, noise: float = 2.0, seed: int = 0):  # type: ignore[no-untyped-def]
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(images, width, generator=generator)
    b = a.repeat_interleave(captions, 0)
    b = b + noise * torch.randn(b.shape, generator=generator)
    return F.normalize(a, dim=-1), F.normalize(b, dim=-1), np.repeat(np.arange(images), captions)


def peers_values(images: torch.Tensor, texts: torch.Tensor, owner: np.ndarray) -> dict[str, float]:
    batches = [
        (images[start : start + 64], [np.flatnonzero(owner == row).tolist() for row in range(start, end)])
        for start in range(0, len(images), 64)
        for end in [min(start + 64, len(images))]
    ]
    flat = [text for _, lists in batches for texts_of in lists for text in texts_of]
    assert flat == list(range(len(texts)))  # they number texts in this order
    model = SimpleNamespace(encode_image=lambda images: images, encode_text=lambda tokens: texts[tokens])
    found = peer.evaluate(model, batches, torch.tensor, "cpu", amp=False, recall_k_list=[1, 5, 10])
    ways = {"i2t": "text", "t2i": "image"}
    return {f"{way}_r{k}": found[f"{name}_retrieval_recall@{k}"] for way, name in ways.items() for k in (1, 5, 10)}


@pytest.mark.parametrize("captions", [1, 5])
def test_values_equal_clip_benchmarks(captions: int) -> None:
    images, texts, owner = features(300, captions)
    theirs = peers_values(images, texts, owner)
    ours = retrieve({"embedding": images}, {"embedding": texts}, owner).metrics()
    assert {name: ours[name] for name in theirs} == pytest.approx(theirs, abs=1e-7)  # theirs are float32 means
    assert 0.05 < ours["t2i_r1"] < ours["i2t_r10"] < 1.0
    assert ours["mean_recall"] == pytest.approx(sum(theirs.values()) / 6, abs=1e-7)
    assert ours["mean_r1"] == pytest.approx((theirs["i2t_r1"] + theirs["t2i_r1"]) / 2, abs=1e-7)
    assert ours["rsum"] == pytest.approx(sum(theirs.values()), abs=1e-6)


@given(
    owner=st.lists(st.integers(0, 5), min_size=6, max_size=40).map(lambda xs: np.array([*range(6), *xs])),
    score=st.sampled_from(["cosine", "csd"]),
    seed=st.integers(0, 2**16),
)
def test_one_pass_equals_ranking_each_way_even_among_ties(owner: np.ndarray, score: str, seed: int) -> None:
    """Few whole values make many exact ties; owners come in any order and number."""
    generator = torch.Generator().manual_seed(seed)
    images, texts = (
        {
            "embedding": torch.randint(-1, 2, (n, 3), generator=generator).float(),
            "logvar": torch.zeros(n, 1).masked_fill(torch.rand(n, 1, generator=generator) < 0.5, -torch.inf),
        }
        for n in (6, len(owner))
    )
    found = retrieve(images, texts, owner, score)
    width = int(np.bincount(owner).max())
    captions = [np.flatnonzero(owner == row).tolist() for row in range(6)]
    padded = torch.tensor([[*own, *[-1] * (width - len(own))] for own in captions])
    i2t, t2i = rank(images, texts, padded, score), rank(texts, images, torch.from_numpy(owner)[:, None], score)
    for k in (1, 5, 10):
        np.testing.assert_allclose(found.i2t.hits(k), i2t.hits(k), atol=1e-12)
        np.testing.assert_allclose(found.t2i.hits(k), t2i.hits(k), atol=1e-12)


def test_hardly_any_image_is_ranked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def counted(queries, *rest):  # type: ignore[no-untyped-def]
        seen.append(len(queries["embedding"]))
        return rank(queries, *rest)

    monkeypatch.setattr("bench.evaluation.retrieval.rank", counted)
    images, texts, owner = features(1000, 5)
    retrieve({"embedding": images}, {"embedding": texts}, owner)
    assert 0 < sum(seen) < 15


def test_a_collapsed_model_scores_chance() -> None:
    one = F.normalize(torch.randn(1, 512, generator=torch.Generator().manual_seed(0)), dim=-1)
    owner = np.repeat(np.arange(1000), 5)
    found = retrieve({"embedding": one.repeat(1000, 1)}, {"embedding": one.repeat(5000, 1)}, owner).metrics()
    assert found["i2t_r1"] == pytest.approx(1 / 1000, rel=0.2)
    assert found["t2i_r1"] == pytest.approx(1 / 1000, rel=0.2)
    assert found["i2t_r10"] == pytest.approx(10 / 1000, rel=0.2)
    assert found["t2i_r10"] == pytest.approx(10 / 1000, rel=0.2)


def test_a_caption_shared_with_another_image_is_half_a_hit() -> None:
    """Image 0 and image 1 have the same only caption; nothing else is near."""
    images = F.normalize(torch.tensor([[1.0, 0.1, 0.0], [1.0, -0.1, 0.0], [0.0, 0.0, 1.0]]), dim=-1)
    texts = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    found = retrieve({"embedding": images}, {"embedding": texts}, [0, 1, 2])
    np.testing.assert_allclose(found.i2t.hits(1), [0.5, 0.5, 1.0])
    np.testing.assert_allclose(found.i2t.hits(5), [1.0, 1.0, 1.0])


def test_the_order_of_texts_does_not_matter() -> None:
    images, texts, owner = features(100, 3)
    order = np.random.default_rng(0).permutation(len(texts))
    straight = retrieve({"embedding": images}, {"embedding": texts}, owner)
    shuffled = retrieve({"embedding": images}, {"embedding": texts[order]}, owner[order])
    np.testing.assert_array_equal(straight.i2t.better, shuffled.i2t.better)
    np.testing.assert_array_equal(straight.t2i.better[order], shuffled.t2i.better)


def test_outcomes_give_the_recalls_again() -> None:
    images, texts, owner = features(60, 2)
    found = retrieve({"embedding": images}, {"embedding": texts}, owner)
    kept = found.outcomes()
    assert kept["i2t_better"].shape == (60,)
    assert np.mean(kept["t2i_better"] < 5) == pytest.approx(found.metrics()["t2i_r5"])
    np.testing.assert_array_equal(kept["owner"], owner)


def test_owners_must_cover_every_image_and_text() -> None:
    side = {"embedding": torch.eye(3)}
    for owner in ([0, 1], [0, 1, 1], [0, 1, 3], [0, -1, 2]):
        with pytest.raises(ValueError, match="owners do not give"):
            retrieve(side, side, owner)
    with pytest.raises(FloatingPointError):
        retrieve(side, {"embedding": torch.full((3, 3), torch.nan)}, [0, 1, 2])


@pytest.mark.parametrize("images", [50, 52])
def test_within_folds_recalls_are_the_means_of_the_folds(images: int) -> None:
    a, b, owner = features(images, 3, noise=4.0)
    whole = retrieve_within(5, {"embedding": a}, {"embedding": b}, owner)
    parts = np.array_split(np.arange(images), 5)
    alone = []
    for part in parts:
        inside = np.isin(owner, part)
        alone.append(retrieve({"embedding": a[part]}, {"embedding": b[inside]}, owner[inside] - part[0]).metrics())
    weights = [len(part) for part in parts]
    for name, value in whole.metrics().items():
        assert value == pytest.approx(np.average([one[name] for one in alone], weights=weights)), name
    harder = retrieve_within(1, {"embedding": a}, {"embedding": b}, owner).metrics()
    assert harder["t2i_r1"] < whole.metrics()["t2i_r1"], "there are fewer candidates in a fold"
