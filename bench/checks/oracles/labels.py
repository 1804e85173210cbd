"""Label permutation, re-selection and secondary random labels against our derivations, labels given."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import torch
from torch import Tensor

from bench.checks import lab
from bench.checks.oracles import KnownValue, KnownValues, OracleEntry, case
from methods.base import Adapter
from methods.label_permutation import LabelPermutation
from methods.label_reselection import LabelReselection
from methods.label_secondary import LabelSecondary


@case("label_permutation", "label_augmentation/cases/*/permute_*")
def _permutation(name: str, _entries: OracleEntry, _key: str, expected: OracleEntry) -> KnownValues:
    labels = torch.tensor(expected["labels"])
    given = {"image_labels": labels, "text_labels": torch.tensor(expected.get("inverse", expected["labels"]))}
    yield from lab.compare_step(lab.build_adapter(LabelPermutation), lab.oracle_inputs(name), expected, given)


@case("label_reselection", "label_augmentation/cases/*/reselect_*")
def _reselection(name: str, _entries: OracleEntry, _key: str, expected: OracleEntry) -> KnownValues:
    given = {"labels": torch.tensor(expected["labels"])}
    yield from lab.compare_step(lab.build_adapter(LabelReselection), lab.oracle_inputs(name), expected, given)


@case("label_secondary", "label_augmentation/cases/*/secondary_*")
def _secondary(name: str, _entries: OracleEntry, key: str, expected: OracleEntry) -> KnownValues:
    _, draw, mixture, _ = key.split("_")  # such as secondary_perm_convex_g0.1
    config: OracleEntry = {"draw": {"perm": "permutation", "random": "uniform"}[draw], "mixture": mixture}
    given = {"labels": torch.tensor(expected["labels"])}
    yield from lab.compare_step(
        lab.adapter_of(LabelSecondary, expected, **config), lab.oracle_inputs(name), expected, given
    )


MEANS = "label_augmentation/expectation_identities_A"
PAIRS = list(itertools.combinations(range(4), 2))


@case("label_permutation", f"{MEANS}/permutation_*", f"{MEANS}/label_smoothing_eps_*")
def _mean_permutation(_: str, expected: float) -> KnownValues:
    """Compare the mean over all permutations of all pairs of four rows."""
    orders = (_moved(pair, labels) for pair in PAIRS for labels in itertools.permutations(pair))
    yield _mean(lab.build_adapter(LabelPermutation), orders, ("image_labels", "text_labels"), expected)


@case("label_reselection", f"{MEANS}/reselection_*", f"{MEANS}/label_smoothing_0_5")
def _mean_reselection(*given: str | float) -> KnownValues:
    """Compare the mean over all labels of all pairs of four rows."""
    orders = (_moved(pair, labels) for pair in PAIRS for labels in itertools.product(range(4), repeat=2))
    yield _mean(lab.build_adapter(LabelReselection), orders, ("labels",), given[-1])


@case("label_secondary", f"{MEANS}/secondary_*", f"{MEANS}/label_smoothing_0_3")
def _mean_secondary(*given: str | float) -> KnownValues:
    """Compare the mean over all permutations of four rows."""
    orders = map(torch.tensor, itertools.permutations(range(4)))
    yield _mean(lab.build_adapter(LabelSecondary, gamma=0.3), orders, ("labels",), given[-1])


def _moved(rows: tuple[int, ...], values: tuple[int, ...]) -> Tensor:
    labels = torch.arange(4)
    labels[list(rows)] = torch.tensor(values)
    return labels


def _mean(method: Adapter, orders: Iterable[Tensor], names: tuple[str, ...], expected: str | float) -> KnownValue:
    z = lab.oracle_inputs("A")
    losses = [lab.sum_of_tiles(method, z, dict.fromkeys(names, labels)) for labels in orders]
    return KnownValue("mean loss", torch.stack(losses).mean(), expected)
