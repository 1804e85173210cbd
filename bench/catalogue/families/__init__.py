"""Families of evaluation tasks: the registry that suites, evaluation, tables and docs read. Needs no torch.

A new family is one entry in `bench/catalogue/families/shipped.py`, or one call of `register` before a suite is loaded.
"""

from __future__ import annotations

from bench.catalogue import evaluation_sets
from bench.catalogue.families.family import Facts, On, TaskFamily
from bench.catalogue.families.shipped import SHIPPED
from bench.errors import UserError, nearest

__all__ = ["Facts", "On", "TaskFamily", "chance", "families", "find", "markdown", "names", "register", "unfit"]

_known: dict[str, TaskFamily] = {family.name: family for family in SHIPPED}


def register(family: TaskFamily) -> TaskFamily:
    """Add a family, in this process alone, after those that are there. ValueError where its name is taken."""
    if family.name in _known:
        raise ValueError(f"task family {family.name!r} is there already")
    if family.main and family.main not in family.metrics:
        raise ValueError(f"task family {family.name!r}: main metric {family.main!r} is none of {list(family.metrics)}")
    _known[family.name] = family
    return family


def families() -> tuple[TaskFamily, ...]:
    """All, in order of reading."""
    return tuple(_known.values())


def names() -> tuple[str, ...]:
    """Of all, in order of reading."""
    return tuple(_known)


def find(name: str) -> TaskFamily:
    """A family by its name. UserError with the nearest one where there is none."""
    if name not in _known:
        raise UserError(f"{name!r} is no family of evaluation tasks{nearest(name, _known)}")
    return _known[name]


def unfit(name: str, dataset: str) -> str:
    """Why a family cannot be measured on a data set; "" where it can, or where that is not known yet."""
    family, entry = find(name), evaluation_sets.expected(dataset)
    if entry is None:
        return evaluation_sets.unknown(dataset)
    if not family.on_training_pairs and evaluation_sets.known(dataset) is None:
        return ""
    return family.fits(entry)


def chance(name: str, label: str, facts: Facts, *, main: bool = False) -> dict[str, float]:
    """Metric -> expected score of a random guess, for those where the counts of classes and images tell it.

    `main`: also of the data set's main metric, and under the name "main". UserError for an unknown family.
    """
    family = find(name)
    if label and label not in facts.classes:
        return {}  # of a data set of the user's own that is not there
    found = dict(family.chance(label, facts))
    if main and facts.metric == "mean_per_class_recall" and "top1" in found:
        found[facts.metric] = found["top1"]
    return {**found, "main": found[facts.metric]} if main and facts.metric in found else found


def markdown() -> str:
    """The table of docs/suites.md: one line a family."""
    lines = ["| `evaluate.tasks` | title | measures | metrics, the main one first |", "|---|---|---|---|"]
    for family in families():
        metrics = sorted(family.metrics, key=lambda metric: metric != family.main)
        codes = ", ".join(f"`{metric}`" for metric in metrics)
        lines.append(f"| `{family.name}` | {family.title} | {family.text} | {codes} |")
    return "\n".join(lines) + "\n"
