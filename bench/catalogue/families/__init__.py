"""Families of evaluation tasks: the registry that suites, evaluation, tables and docs read. Needs no torch.

A new family is one entry in `bench/catalogue/families/shipped.py`, or one call of `FAMILIES.add(...)` before a suite is
loaded.
"""

from __future__ import annotations

from bench.catalogue import evaluation_sets
from bench.catalogue.families.family import DatasetFacts, PackageTask, TaskFamily
from bench.catalogue.families.shipped import SHIPPED
from bench.registry import Registry

__all__ = ["FAMILIES", "DatasetFacts", "PackageTask", "TaskFamily", "chance", "why_unmeasurable"]

FAMILIES: Registry[TaskFamily] = Registry(
    "a family of evaluation tasks", SHIPPED, absent="not a family of evaluation tasks"
)
_SCORED_BY = {
    "classification": "classes to be scored by",
    "retrieval": "captions to be scored by",
    "hierarchy": "captions from general to special",
}


def why_unmeasurable(name: str, dataset: str) -> str:
    """Return why a family cannot be measured on a data set; "" if it can or if that is not known yet."""
    family = FAMILIES[name]
    if family.of_package(dataset):
        return ""
    sets = [on.dataset for on in family.of_package(dataset.partition("/")[0])]
    if sets:
        return f"{dataset!r}: {name} has no task on it, but on {', '.join(dict.fromkeys(sets))}"
    entry = evaluation_sets.expected(dataset)
    if entry is None:
        return evaluation_sets.unknown_set(dataset)
    if family.on_training_pairs:
        return f"{entry.name!r}: is measured on the training pairs alone; omit it"
    if evaluation_sets.known(dataset) is None:
        return ""
    if entry.kind not in family.kinds:
        return f"{entry.name!r} has no {_SCORED_BY[family.kinds[0]]}"
    if family.learns and not entry.train:
        return f"{entry.name!r} has no training split for a probe to learn from"
    return f"{entry.name!r} has no validation split" * (family.split == "validation" and not entry.validation)


def chance(name: str, label: str, facts: DatasetFacts, *, main: bool = False) -> dict[str, float]:
    """Return by metric the expected score of a random guess, if the counts of classes and images tell it.

    With `main` the data set's main metric is added, under its name and as "main". UserError for an unknown family.
    """
    family = FAMILIES[name]
    if label and label not in facts.classes:
        return {}  # a missing data set of the user's own
    scores = dict(family.chance(label, facts))
    if main and facts.metric == "mean_per_class_recall" and "top1" in scores:
        scores[facts.metric] = scores["top1"]
    return {**scores, "main": scores[facts.metric]} if main and facts.metric in scores else scores
