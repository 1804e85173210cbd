"""The entry that describes a family of evaluation tasks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from bench.catalogue.evaluation_sets import DatasetKind, Split


@dataclass(frozen=True)
class DatasetFacts:
    """The facts about a data set that are known without its images."""

    description: str
    images: int
    classes: Mapping[str, int] = field(default_factory=dict)  #: label -> number of classes
    metric: str = ""  #: its main one, of the catalogue's


@dataclass(frozen=True)
class PackageTask:
    """One task of a family on pairs that come with the package."""

    dataset: str  #: the pairs that are scored
    label: str = ""  #: the label whose classes are asked for; "" if no label is involved
    train: str = ""  #: the pairs a probe learns from
    validation: str = ""  #: the pairs its penalty is chosen on; "" keeps a part of `train` back

    def moved(self, family: str, other: str) -> PackageTask:
        """Return the same task on the sets of another family of the package: "emoji/iid" -> "emoji-b/iid"."""
        own = (self.dataset, self.train, self.validation)
        dataset, train, validation = (re.sub(f"^{family}/", f"{other}/", one) for one in own)
        return PackageTask(dataset, self.label, train, validation)


@dataclass(frozen=True, kw_only=True)
class TaskFamily:
    """A family of evaluation tasks: all that suites, evaluation, tables and docs need of it. Needs no torch.

    Its name is part of every record's task and key: it never changes once a number is stored under it.
    """

    name: str  #: in suites and records
    title: str  #: heading of its table
    short: str  #: heading of a column of an overview
    text: str  #: one or two sentences on what is measured
    metrics: Mapping[str, str] = field(hash=False)  #: metric -> as printed over a column, in order of reading
    main: str  #: the primary metric; "" = methods are not compared by it
    #: "module:function" of `(Task, bench.evaluation.measures.MeasureInputs) -> Measured`; imported on first use
    measure: str
    #: (label, facts) -> metric -> score of a random guess, of those for which it has a simple form
    chance: Callable[[str, DatasetFacts], Mapping[str, float]] = lambda _label, _facts: {}
    kinds: tuple[DatasetKind, ...] = ("classification",)  #: of the catalogue's data sets that it can be measured on
    embedded: Mapping[str, tuple[PackageTask, ...]] = field(default_factory=dict, hash=False)  #: `data.name` -> tasks
    #: kind of data set -> its main metric, where that is not `main`
    main_of_kind: Mapping[str, str] = field(default_factory=dict, hash=False)
    split: Split = "test"  #: of a data set of the catalogue, that is scored
    learns: bool = False  #: learns from the data set's training split
    on_training_pairs: bool = False  #: scores the suite's own training pairs
    of_noise: frozenset[str] = frozenset()  #: metrics that only runs with known corrupted pairs have
    on_poison: bool = False  #: needs a run whose noise is poison, and puts its trigger into the images that it scores
    along: bool = False  #: measured at the points of `evaluate.curve` as well, on its first data set
    averaged: bool = False  #: its table ends with an average
    #: place in the image tower that features are taken from: the embedding, the embedding before it is normalised, or
    #: the features before the projection. The images of a data set are encoded once for each place.
    reads: Literal["embedding", "projected", "pooled"] = "embedding"
    #: texts that are encoded: prompts of the classes, captions of the images, or none
    texts: Literal["prompts", "captions", "none"] = "none"
    of_variances: frozenset[str] = frozenset()  #: metrics that only methods with variances have

    def __post_init__(self) -> None:
        """ValueError if the main metric is not one of the metrics."""
        if self.main and self.main not in self.metrics:
            raise ValueError(f"task family {self.name!r}: main metric {self.main!r} is not one of {list(self.metrics)}")

    @property
    def needs_noise(self) -> bool:
        """Return whether its main metric needs noise: runs without noise do not have it."""
        return self.main in self.of_noise or self.on_poison

    def measured(self, noisy: bool, poisoned: bool) -> bool:
        """Return whether a run is measured by it: one with known corrupted and clean pairs, or with poison."""
        return poisoned if self.on_poison else noisy or not self.of_noise.issuperset(self.metrics)

    def of_package(self, name: str) -> tuple[PackageTask, ...]:
        """Return its tasks on a set of the package, "emoji/iid", or on all sets of one name, "emoji"; () for others."""
        every = (on for tasks in self.embedded.values() for on in tasks)
        return self.embedded.get(name) or tuple(dict.fromkeys(on for on in every if on.dataset == name))

    def measures(self) -> Callable[..., Any]:
        """Return the function that `measure` names. Imports torch."""
        module, _, name = self.measure.partition(":")
        function: Callable[..., Any] = getattr(import_module(module), name)
        return function
