"""Ranks in a stream against counting by hand, and what ties are worth."""

from __future__ import annotations

from itertools import permutations
from math import factorial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bench.evaluation.ranks import AnswerRanks, offsets, rank

small = st.integers(-2, 2)


def ranks(better: int, wrong: int, right: int) -> AnswerRanks:
    return AnswerRanks(np.array([better]), np.array([wrong]), np.array([right]))


def by_orders(better: int, wrong: int, right: int, k: int) -> float:
    """Share of all orders of the tied in which a right one is among the first k."""
    tied = [False] * wrong + [True] * right
    hits = sum(any(order[: max(k - better, 0)]) for order in permutations(tied))
    return hits / factorial(len(tied))


@given(better=st.integers(0, 4), wrong=st.integers(0, 3), right=st.integers(1, 3), k=st.integers(1, 6))
def test_a_hit_is_the_share_of_orders_of_the_tied_that_hit(better: int, wrong: int, right: int, k: int) -> None:
    assert ranks(better, wrong, right).hits(k)[0] == pytest.approx(by_orders(better, wrong, right, k), abs=1e-12)


@given(
    queries=st.lists(st.tuples(small, small), min_size=1, max_size=6),
    candidates=st.lists(st.tuples(small, small), min_size=2, max_size=8),
    data=st.data(),
)
def test_rank_counts_what_a_full_comparison_counts(queries, candidates, data) -> None:  # type: ignore[no-untyped-def]
    right = [
        data.draw(st.lists(st.integers(0, len(candidates) - 1), min_size=1, max_size=3, unique=True)) for _ in queries
    ]
    width = max(map(len, right))
    padded = torch.tensor([[*row, *[-1] * (width - len(row))] for row in right])
    found = rank(
        {"embedding": torch.tensor(queries, dtype=torch.float32)},
        {"embedding": torch.tensor(candidates, dtype=torch.float32)},
        padded,
        "cosine",
    )
    for row, (query, own) in enumerate(zip(queries, right, strict=True)):
        scores = [query[0] * c[0] + query[1] * c[1] for c in candidates]
        best = max(scores[c] for c in own)
        assert found.better[row] == sum(score > best for score in scores)
        assert found.tied_right[row] == sum(scores[c] == best for c in own)
        assert found.tied_wrong[row] == sum(score == best for score in scores) - found.tied_right[row]


def test_rank_is_the_same_in_any_number_of_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    queries, candidates = (torch.randn(n, 8, generator=generator) for n in (200, 50))
    right = torch.randint(0, 50, (200, 1), generator=generator)
    once = rank({"embedding": queries}, {"embedding": candidates}, right, "cosine")
    monkeypatch.setattr("bench.evaluation.ranks.TILE_BYTES", 1)  # 64 rows a tile: 4 tiles
    tiled = rank({"embedding": queries}, {"embedding": candidates}, right, "cosine")
    np.testing.assert_array_equal(once.better, tiled.better)


def test_csd_ranks_by_the_closed_form_distance() -> None:
    generator = torch.Generator().manual_seed(1)
    a, b = (
        {
            "embedding": torch.nn.functional.normalize(torch.randn(n, 6, generator=generator, dtype=torch.float64)),
            "logvar": torch.randn(n, 6, generator=generator, dtype=torch.float64) - 1,
        }
        for n in (30, 40)
    )
    difference = (a["embedding"][:, None] - b["embedding"][None]).square().sum(-1)
    csd = difference + a["logvar"].exp().sum(-1)[:, None] + b["logvar"].exp().sum(-1)
    identity = 2 * a["embedding"] @ b["embedding"].T - 2 + 2 * offsets(a, "csd")[:, None] + 2 * offsets(b, "csd")
    torch.testing.assert_close(-csd, identity)
    right = torch.randint(0, 40, (30, 1), generator=generator)
    by_hand = (csd < csd.gather(1, right)).sum(1)
    np.testing.assert_array_equal(rank(a, b, right, "csd").better, by_hand)
    assert (rank(a, b, right, "cosine").better != by_hand.numpy()).any()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_broken_features_are_refused_rather_than_ranked_first(value: float) -> None:
    good, broken = torch.eye(3), torch.eye(3)
    broken[1, 1] = value
    for a, b in ((good, broken), (broken, good)):
        with pytest.raises(FloatingPointError, match="NaN or infinite"):
            rank({"embedding": a}, {"embedding": b}, torch.arange(3)[:, None], "cosine")


def test_right_answers_must_fit() -> None:
    side = {"embedding": torch.eye(3)}
    for right in (torch.tensor([[0], [1]]), torch.tensor([[0], [-1], [2]]), torch.tensor([[0], [1], [3]])):
        with pytest.raises(ValueError, match="do not fit"):
            rank(side, side, right, "cosine")
    with pytest.raises(ValueError, match="'dot'"):
        rank(side, side, torch.arange(3)[:, None], "dot")
