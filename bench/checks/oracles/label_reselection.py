"""Label re-selection against our derivation, labels given."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from methods.label_reselection import LabelReselection


def cases() -> Iterator[Case]:
    section = values()["label_augmentation"]
    for name, entries in section["cases"].items():
        key = "reselect_same_labels"
        yield Case(f"label_augmentation/cases/{name}/{key}", partial(_loss, name, entries[key]))
    for key in ("reselection_subset2_of_4_mean", "label_smoothing_0_5"):
        expected = section["expectation_identities_A"][key]
        yield Case(f"label_augmentation/expectation_identities_A/{key}", partial(_mean, expected))


def _loss(name: str, expected: dict[str, Any]) -> Iterator[Comparison]:
    z = lab.inputs(name)
    loss = lab.sum_of_tiles(lab.build(LabelReselection), z, {"labels": torch.tensor(expected["labels"])})
    yield Comparison("loss", loss, expected["loss"])
    yield from lab.gradients(loss, z, expected)


def _mean(expected: float) -> Iterator[Comparison]:
    """Compare the mean over all labels of all pairs of four rows."""
    method, z, losses = lab.build(LabelReselection), lab.inputs("A"), []
    for chosen in itertools.combinations(range(4), 2):
        for drawn in itertools.product(range(4), repeat=2):
            labels = torch.arange(4)
            labels[list(chosen)] = torch.tensor(drawn)
            losses.append(lab.sum_of_tiles(method, z, {"labels": labels}))
    yield Comparison("mean loss", torch.stack(losses).mean(), expected)
