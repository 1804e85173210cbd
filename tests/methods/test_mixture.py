"""The two-component mixture: scikit-learn's numbers, and what it gives where there is nothing to fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sklearn.mixture import GaussianMixture
from torch import Tensor

from methods.mixture import fit, posteriors, scaled

SETTINGS = {
    "NCR and GSC": {"iterations": 10, "tolerance": 1e-2, "added_variance": 5e-4},
    "100 iterations": {"iterations": 100, "tolerance": 1e-3, "added_variance": 1e-6},
}


def bimodal(seed: int, low: int = 70, high: int = 30) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    parts = [
        0.2 + 0.05 * torch.randn(low, generator=draws, dtype=torch.float64),
        1.1 + 0.2 * torch.randn(high, generator=draws, dtype=torch.float64),
    ]
    return torch.cat(parts)[torch.randperm(low + high, generator=draws)]


def peer(x: Tensor, settings: dict[str, Any]) -> GaussianMixture:
    model = GaussianMixture(
        2,
        max_iter=settings["iterations"],
        tol=settings["tolerance"],
        reg_covar=settings["added_variance"],
        n_init=5,
        random_state=0,
    )
    return model.fit(x[:, None].numpy())


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=list(SETTINGS))
@pytest.mark.parametrize("rescaled", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_equals_scikit_learn_where_its_random_start_is_the_best_cut(
    settings: dict[str, Any], rescaled: bool, seed: int
) -> None:
    x = bimodal(seed)
    z = scaled(x) if rescaled else x
    model = peer(z, settings)
    expected = torch.from_numpy(model.predict_proba(z[:, None].numpy()))
    order = model.means_[:, 0].argsort()
    for place, component in enumerate(("smaller", "larger")):
        actual = posteriors(x, component, **settings, rescaled=rescaled)
        torch.testing.assert_close(actual, expected[:, order[place]], rtol=1e-9, atol=1e-12)
    mixture = fit(z, **settings)
    assert mixture.iterations == model.n_iter_
    torch.testing.assert_close(mixture.means, torch.from_numpy(model.means_[order, 0]), rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    ("total", "apart", "seed", "other"), [(40, 0.5, 4, {"tolerance": 1.1e-2}), (200, 2.0, 27, {"iterations": 11})]
)
def test_its_defaults_are_those_of_ncr_and_gsc(total: int, apart: float, seed: int, other: dict[str, Any]) -> None:
    draws = torch.Generator().manual_seed(seed)
    wide, narrow = (torch.randn(count, generator=draws, dtype=torch.float64) for count in (total, total // 2))
    x = torch.cat([wide, apart + narrow * 0.5])
    x = x.exp() if seed % 3 == 0 else x
    settings = SETTINGS["NCR and GSC"]
    torch.testing.assert_close(posteriors(x, "smaller"), posteriors(x, "smaller", **settings), rtol=0, atol=0)
    assert not torch.equal(posteriors(x, "smaller"), posteriors(x, "smaller", **settings | other))


def test_the_fit_neither_depends_on_the_order_nor_on_the_scale_of_rescaled_values() -> None:
    x, order = bimodal(3), torch.randperm(100, generator=torch.Generator().manual_seed(0))
    p = posteriors(x, "larger")
    torch.testing.assert_close(posteriors(x[order], "larger"), p[order], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(posteriors(7 * x - 3, "larger"), p, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(posteriors(x, "smaller"), 1 - p, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("x", [[], [0.3], [0.3, 0.3, 0.3], [0.0, 0.0], [1.0, 1 + 1e-6], [-0.3, -0.3 - 3e-7]], ids=str)
def test_without_two_values_that_differ_by_more_than_rounding_every_probability_is_one(x: list[float]) -> None:
    assert torch.equal(posteriors(torch.tensor(x), "smaller"), torch.ones(len(x)))
    assert torch.equal(posteriors(torch.tensor(x), "larger"), torch.ones(len(x)))


def test_what_is_rounding_in_single_precision_is_a_difference_in_double() -> None:
    x = torch.tensor([1.0, 1 + 1e-6], dtype=torch.float64)
    assert posteriors(x, "smaller").tolist() == pytest.approx([1, 0], abs=1e-6)


@pytest.mark.parametrize("x", [[0.0, 1.0], [0.0, 0.0, 1.0], [5.0, 5.0, 5.0, 5.1], [-1e30, 0.0, 1e30]], ids=str)
def test_few_values_that_differ_are_told_apart(x: list[float]) -> None:
    values = torch.tensor(x, dtype=torch.float64)
    p = posteriors(values, "smaller")
    assert bool(((p >= 0) & (p <= 1)).all())
    assert p[values.argmin()] > 0.9
    assert p[values.argmax()] < 0.1


def test_equal_values_stay_together() -> None:
    """The best cut of sorted values never parts equal ones, so that rows with equal scores are treated alike."""
    p = posteriors(torch.tensor([0.0, 0.5, 1.0, 0.5, 0.5, 0.5, 0.1, 0.9]), "larger")
    assert len(p[[1, 3, 4, 5]].unique()) == 1


def test_probabilities_have_the_type_of_the_values() -> None:
    for dtype in (torch.float32, torch.float64):
        assert posteriors(bimodal(0).to(dtype), "smaller").dtype == dtype
    single = posteriors(bimodal(0).float(), "smaller")
    assert torch.equal(single, posteriors(bimodal(0).float().double(), "smaller").float())
