"""Label permutation against our derivation, labels given."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from methods.label_permutation import LabelPermutation

SMOOTHING = "label_smoothing_eps_equals_B_over_Bminus1_times_gamma_times_1_minus_1_over_n"


def cases() -> Iterator[Case]:
    section = values()["label_augmentation"]
    for name, entries in section["cases"].items():
        for key in ("permute_same_labels", "permute_inverse_labels_for_text"):
            yield Case(f"label_augmentation/cases/{name}/{key}", partial(_loss, name, entries[key]))
    for key in ("permutation_subset2_of_4_mean", SMOOTHING):
        expected = section["expectation_identities_A"][key]
        yield Case(f"label_augmentation/expectation_identities_A/{key}", partial(_mean, expected))


def _loss(name: str, expected: dict[str, Any]) -> Iterator[Comparison]:
    z, labels = lab.inputs(name), expected["labels"]
    given = {"image_labels": labels, "text_labels": expected.get("inverse", labels)}
    observed = {key: torch.tensor(row) for key, row in given.items()}
    loss = lab.sum_of_tiles(lab.build(LabelPermutation), z, observed)
    yield Comparison("loss", loss, expected["loss"])
    yield from lab.gradients(loss, z, expected)


def _mean(expected: float) -> Iterator[Comparison]:
    """Compare the mean over all permutations of all pairs of four rows."""
    method, z, losses = lab.build(LabelPermutation), lab.inputs("A"), []
    for first, second in itertools.combinations(range(4), 2):
        for moved in ((first, second), (second, first)):
            labels = torch.arange(4)
            labels[[first, second]] = torch.tensor(moved)
            losses.append(lab.sum_of_tiles(method, z, {"image_labels": labels, "text_labels": labels}))
    yield Comparison("mean loss", torch.stack(losses).mean(), expected)
