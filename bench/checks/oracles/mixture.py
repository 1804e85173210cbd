"""The two-component mixture against scikit-learn's GaussianMixture, as NCR and GSC call it.

official: github.com/XLearning-SCU/2021-NeurIPS-NCR@60256ba NCR/co_train.py (eval_train)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from bench.checks.oracles import Case, Comparison, values
from methods.mixture import fit, posteriors, scaled


def cases() -> Iterator[Case]:
    for number, entry in enumerate(values()["mixture"]["cases"]):
        yield Case(f"mixture/cases/{number}", partial(_case, entry))


def _case(entry: dict[str, Any]) -> Iterator[Comparison]:
    x = torch.tensor(entry["values"], dtype=torch.float64)
    yield Comparison("probability of the smaller mean", posteriors(x, "smaller"), entry["low_probability"])
    mixture = fit(scaled(x), iterations=10, tolerance=1e-2, added_variance=5e-4)
    yield Comparison("iterations", float(mixture.iterations), entry["iterations"])
    for name in ("means", "variances", "weights"):
        yield Comparison(name, getattr(mixture, name), entry[name])
