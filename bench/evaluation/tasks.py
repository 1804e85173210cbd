"""What is measured on which data set, and what a random guess would score there. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np

from bench import data
from bench.catalogue import families
from bench.catalogue.channels import Channels
from bench.catalogue.evaluation_sets import parse
from bench.catalogue.families import Facts, TaskFamily
from bench.catalogue.families.random_guess import CAPTIONS
from bench.catalogue.protocols import PROTOCOLS, Protocol
from bench.data import Pairs, evaluation
from bench.data.noise import ManifestSummary, NoiseManifest
from bench.data.photo import CROP, Resize
from bench.data_folder import Missing
from bench.errors import UserError
from bench.suite.settings import DataSettings, EvaluateSettings

#: Of everything this package and the evaluation sets decide, under the common protocol. Raise it when any stored number
#: would change.
PROTOCOL = PROTOCOLS["common"].label


@dataclass(frozen=True)
class Task:
    """One evaluation: `name` is "family/label", or the family alone where no label is involved."""

    name: str
    dataset: str  #: the pairs that are scored
    train: str = ""  #: the pairs a probe learns from
    validation: str = ""  #: the pairs its penalty is chosen on; "" keeps a part of `train` back
    protocol: str = PROTOCOL  #: name and version

    @property
    def family(self) -> str:
        return self.name.split("/")[0]

    @property
    def label(self) -> str:
        return self.name.partition("/")[2]

    def key(self, at: float) -> str:
        """Under which its records are stored: a file name, unique within a run."""
        return f"v{self.protocol}.{round(100 * at):03d}.{self.name.replace('/', '-')}.{self.dataset.replace('/', '-')}"


@dataclass(frozen=True)
class EvaluationPlan:
    """What measures a run that trained on `data`, as the suite asks."""

    data: DataSettings
    asked: EvaluateSettings
    size: int | None = None  #: pixels a side that the model sees; None = `data.size`
    resize: Resize = CROP  #: how a model from elsewhere has its images made square

    @property
    def protocol(self) -> Protocol:
        """How it is done."""
        return PROTOCOLS[self.asked.protocol]

    @property
    def seen(self) -> int:
        """Pixels a side of the images that the model is given."""
        return self.size or self.data.size

    def tasks(self, at: float, manifest: NoiseManifest | ManifestSummary | None) -> tuple[Task, ...]:
        """Tasks after a share `at` of the budget: all at the end, before it only the first data set's zero-shot.

        Where not both corrupted and clean rows are known there is no noise to detect.
        """
        noisy = manifest is not None and manifest.mixed
        chosen = self.chosen()
        if at < 1.0:
            along = [task for task in chosen if families.find(task.family).along]
            chosen = [task for task in along if task.dataset == along[0].dataset]
        return tuple(task for task in chosen if noisy or not families.find(task.family).on_training_pairs)

    def chosen(self) -> list[Task]:
        """All tasks, whether there is noise or not, in the order of the registry of families."""
        found: list[Task] = []
        for family in families.families():
            if family.name in self.asked.tasks:
                found += [replace(task, protocol=self.protocol.label) for task in self._of_family(family)]
        return found

    def _of_family(self, family: TaskFamily) -> list[Task]:
        if family.on_training_pairs:
            return [Task(family.name, self.training)]
        named = self.asked.datasets.get(family.name)
        if named is None and self.data.name in family.embedded:
            return [
                Task(_name(family, one.label), one.dataset, one.train, one.validation)
                for one in family.embedded[self.data.name]
            ]
        names = self.protocol.datasets.get(family.name, ()) if named is None else named
        return [_task(family, name) for name in names]

    def faults(self, noisy: bool) -> Iterator[tuple[int | None, str]]:
        """What cannot be measured as asked: the place in `tasks` (None: all of them) and why.

        A family that is asked for has data sets; where `tasks` is left at its default, those count that have some. At
        least one family has a main metric to compare methods by. `noisy`: whether runs know their corrupted pairs.
        """
        for place, name in enumerate(self.asked.tasks):
            if "tasks" in self.asked.model_fields_set and not self._of_family(families.find(name)):
                lacking = f"{self.data.name} has" if self.data.embedded else f"protocol {self.protocol.name!r} names"
                yield (
                    place,
                    f"{name!r}: {lacking} no data set for it; name one in evaluate.datasets.{name}, or remove it",
                )
        compared = [one for one in map(families.find, self.asked.tasks) if one.main and self._of_family(one)]
        if not compared:
            others = ", ".join(family.name for family in families.families() if family.main)
            yield None, f"no table compares methods by {', '.join(self.asked.tasks)}; add one of {others}"
        elif not noisy and all(one.on_training_pairs for one in compared):
            yield (
                None,
                f"{compared[0].name!r} needs corrupted pairs, and no run has any; add another, or a rate above 0",
            )

    @property
    def training(self) -> str:
        """The name of the training pairs. "drawings/train" would be the probe's part of an evaluation set."""
        return f"{self.data.name}/train" if self.data.embedded else f"{self.data.name}/pairs"

    @property
    def held_out(self) -> str:
        """The pairs of images and captions that diagnostics look at; "" where no task scores any."""
        if any(self.data.name in family.embedded for family in families.families()):
            return f"{self.data.name}/iid"
        found = [task for task in self.chosen() if families.find(task.family).split == "test"]
        named = [task.dataset for task in found if task.dataset != self.training]
        return next((name for name in named if evaluation.parse(name)[0].kind == "retrieval"), "")

    def primary(self) -> dict[str, str]:
        """The headline, by which a suite is read first: data set, task and metric.

        The first task, in the order of the registry of families, whose family has a main metric; one on training pairs
        comes last, because runs without noise lack it. UserError where there is none.
        """
        compared = [task for task in self.chosen() if families.find(task.family).main]
        compared.sort(key=lambda task: families.find(task.family).on_training_pairs)
        if not compared:
            raise UserError(f"evaluate.tasks: {', '.join(self.asked.tasks)}: measures nothing that compares methods")
        first = compared[0]
        family, known = families.find(first.family), first.dataset == self.training or first.dataset in data.names()
        main = family.main if known else family.main_of_kind.get(parse(first.dataset)[0].kind, family.main)
        return {"dataset": first.dataset, "task": first.name, "metric": main}

    def keys(self, curve: Iterable[float], manifest: NoiseManifest | ManifestSummary | None) -> tuple[str, ...]:
        """Under which a run's records are stored once it is evaluated at all points of the curve and at the end."""
        return tuple(task.key(at) for at in (*curve, 1.0) for task in self.tasks(at, manifest))

    def load(self, dataset: str) -> Pairs:
        """A data set of a task. UserError where it is not there, with how to get it."""
        if dataset in data.names():
            return data.load_resized(dataset, self.data.size, self.seen, self.resize)
        if dataset == self.training:
            return data.training(self.data)
        return evaluation.load(dataset, self.seen, self._resize(dataset))

    def content(self, task: Task) -> str:
        """16 digits of the hash of what a task scores, joined with what its probe learns from.

        "" for pairs of the package: the protocol's version fixes those.
        """
        named = [name for name in (task.dataset, task.train, task.validation) if name and name not in data.names()]
        hashes = [self.load(name).content_hash for name in named]
        return (sha256("".join(hashes).encode()).hexdigest() if len(hashes) > 1 else "".join(hashes))[:16]

    def channels(self, dataset: str) -> Channels | None:
        """Channel statistics that the pixels of a data set are normalised with; None = those of the towers."""
        if dataset == self.training or dataset in data.names():
            return None
        entry, _ = evaluation.parse(dataset)
        return self.protocol.channels(entry.name, entry.classes > 0)

    def _resize(self, dataset: str) -> Resize:
        entry, _ = evaluation.parse(dataset)
        asked = None if entry.classes else self.protocol.retrieval_resize
        return replace(self.resize, mode=asked) if asked else self.resize

    def metric(self, dataset: str) -> str:
        """The main metric of a data set: the catalogue's, or top-1 accuracy."""
        return "top1" if dataset in data.names() else evaluation.parse(dataset)[0].metric

    def captions(self, pairs: Pairs) -> list[tuple[str, ...]]:
        """The texts of each row that retrieval looks for; of embedded data exactly `CAPTIONS`."""
        if pairs.name in data.names():
            return data.evaluation_captions(pairs, CAPTIONS)
        return [pairs.captions(row)[: self.protocol.captions] for row in range(len(pairs))]

    def wanted(self) -> dict[str, tuple[str, ...]]:
        """Data sets of the catalogue that tasks need, each split once -> the families of these tasks."""
        found: dict[str, tuple[str, ...]] = {}
        for task in self.chosen():
            for dataset in filter(None, (task.dataset, task.train, task.validation)):
                if dataset != self.training and dataset not in data.names():
                    found[dataset] = tuple(dict.fromkeys((*found.get(dataset, ()), task.family)))
        return found

    def missing(self) -> list[Missing]:
        """Those of the wanted data sets that are not there."""
        found = (evaluation.missing(name, ", ".join(families)) for name, families in self.wanted().items())
        return [one for one in found if one is not None]

    def datasets(self) -> dict[str, dict[str, Any]]:
        """Data set -> description, n and chance ("task/metric" -> expected score of a uniformly random guess).

        Of evaluation data that is not there, as its publishers describe it.
        """
        found: dict[str, dict[str, Any]] = {}
        for task in self.chosen():
            facts = self._facts(task.dataset)
            entry = found.setdefault(task.dataset, {"description": facts.description, "n": facts.images, "chance": {}})
            chance = self._chance(task, facts)
            entry["chance"].update({f"{task.name}/{metric}": value for metric, value in chance.items()})
        return found

    def _facts(self, dataset: str) -> Facts:
        if dataset == self.training:
            return self._training_facts()
        if dataset in data.names():
            return facts_of(self.load(dataset))
        entry, _ = evaluation.parse(dataset)
        images, classes = evaluation.counts(dataset)
        return Facts(entry.description, images, {evaluation.CLASS: classes} if classes else {}, entry.metric)

    def _training_facts(self) -> Facts:
        if not (self.data.embedded or self.data.synthetic):
            from bench.data import shards

            if shards.missing(self.data):
                return Facts("the training pairs", self.data.rows or 0)
        return facts_of(data.training(self.data))

    def _chance(self, task: Task, facts: Facts) -> dict[str, float]:
        if task.train in data.names():  # a class may be in one of the sets alone
            facts = replace(facts, classes={task.label: len(np.unique(self.load(task.train).labels[task.label]))})
        return families.chance(task.family, task.label, facts, main=self.protocol.main)


def facts_of(pairs: Pairs) -> Facts:
    """Of data that is there."""
    return Facts(pairs.description, len(pairs), {label: len(names) for label, names in pairs.classes.items()})


def _task(family: TaskFamily, name: str) -> Task:
    """The task of a family on a data set of the catalogue. UserError where it cannot be."""
    if message := families.unfit(family.name, name):
        raise UserError(f"evaluate.datasets.{family.name}: {message}")
    entry, _ = parse(name)
    train = entry.written("train") if family.learns else ""
    return Task(_name(family, evaluation.CLASS if family.classes else ""), entry.written(family.split), train)


def _name(family: TaskFamily, label: str) -> str:
    return f"{family.name}/{label}" if label else family.name
