"""Secondary random labels against our derivation, labels given."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from methods.label_secondary import LabelSecondary


def cases() -> Iterator[Case]:
    section = values()["label_augmentation"]
    for name, entries in section["cases"].items():
        for key in (key for key in entries if key.startswith("secondary")):
            _, draw, mixture, _ = key.split("_")  # such as secondary_perm_convex_g0.1
            config = {"draw": {"perm": "permutation", "random": "uniform"}[draw], "mixture": mixture}
            yield Case(f"label_augmentation/cases/{name}/{key}", partial(_loss, config, name, entries[key]))
    for key in ("secondary_convex_g0_3_mean_over_all_24_permutations", "label_smoothing_0_3"):
        expected = section["expectation_identities_A"][key]
        yield Case(f"label_augmentation/expectation_identities_A/{key}", partial(_mean, expected))


def _loss(config: dict[str, Any], name: str, expected: dict[str, Any]) -> Iterator[Comparison]:
    method, z = lab.build(LabelSecondary, gamma=expected["gamma"], **config), lab.inputs(name)
    loss = lab.sum_of_tiles(method, z, {"labels": torch.tensor(expected["labels"])})
    yield Comparison("loss", loss, expected["loss"])
    yield from lab.gradients(loss, z, expected)


def _mean(expected: float) -> Iterator[Comparison]:
    method, z = lab.build(LabelSecondary, gamma=0.3), lab.inputs("A")
    orders = [torch.tensor(order) for order in itertools.permutations(range(4))]
    losses = [lab.sum_of_tiles(method, z, {"labels": order}) for order in orders]
    yield Comparison("mean loss", torch.stack(losses).mean(), expected)
