"""Data that a suite's tasks score, and the expected score of a random guess."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import numpy as np

from bench import data
from bench.catalogue import families
from bench.catalogue.architectures import Channels
from bench.catalogue.evaluation_sets import expected, parse_dataset
from bench.catalogue.families import FAMILIES, DatasetFacts
from bench.catalogue.families.random_guess import CAPTIONS_PER_IMAGE
from bench.catalogue.training_sets import TRAINING_SETS
from bench.data import Pairs
from bench.data.kept import KeptPairs
from bench.data.noise.manifest import ManifestSummary, Noise
from bench.data.photo import CROP, Resize
from bench.data.source import DataSource, data_source, dataset_facts
from bench.data_folder import Missing
from bench.errors import UserError
from bench.suite.tasks import PROTOCOL, SuiteTasks, Task

__all__ = ["PROTOCOL", "EvaluationPlan", "Task"]


def folds_of(dataset: str) -> int:
    """Return the number of parts of a data set that retrieval is measured within."""
    entry = expected(dataset.partition("/")[0])
    return entry.folds if entry else 1


@dataclass(frozen=True)
class EvaluationPlan(SuiteTasks):
    """The tasks of a suite with the data that they score."""

    size: int | None = None  #: pixels a side that the model sees; None = `data.size`
    resize: Resize = CROP  #: how an external model has its images made square
    #: makes the noise that pairs held out from training have, as the run's own have it; None = they are as they are
    noise_of: Callable[[Pairs], Noise | None] | None = field(default=None, compare=False)

    @property
    def source(self) -> DataSource:
        """Where its data comes from."""
        return data_source(self.data)

    @property
    def seen(self) -> int:
        """Pixels a side of the images that the model is given."""
        return self.size or self.data.size

    @property
    def drawn(self) -> int:
        """Pixels a side at which sets of the package are loaded, before they are resized to `seen`."""
        sizes = TRAINING_SETS["emoji"].sizes
        return self.data.size if self.data.size in sizes else max(sizes)

    def tasks(self, at: float, manifest: ManifestSummary | None) -> tuple[Task, ...]:
        """Tasks after a share `at` of the budget: all at the end, before it those of `evaluate.along`.

        If the suite names none there, they are those of zero-shot and memorisation, each on its first data set.

        Noise is detected only if the manifest names some rows, but not all; an attack is measured only after poison.
        """
        noisy = manifest is not None and manifest.mixed
        chosen = self.chosen
        if at < 1.0 and self.asked.along:
            chosen = [task for task in chosen if task.family in self.asked.along]
        elif at < 1.0:
            first = {task.family: task.dataset for task in reversed(chosen) if FAMILIES[task.family].along}
            chosen = [task for task in chosen if task.dataset == first.get(task.family)]
        poisoned = manifest is not None and manifest.poisoned
        return tuple(task for task in chosen if FAMILIES[task.family].measured(noisy, poisoned))

    @property
    def held_out(self) -> str:
        """The pairs of images and captions that diagnostics look at; "" if no task scores any."""
        own = f"{self.data.name}/iid"
        if own in {task.dataset for task in self.chosen} and any(self.data.name in one.embedded for one in FAMILIES):
            return own
        tests = [task for task in self.chosen if FAMILIES[task.family].split == "test"]
        named = [task.dataset for task in tests if task.dataset != self.training]
        named.sort(key=self.source.of_package)  # which are of another kind than the training pairs
        return next((name for name in named if self.source.has_captions(name)), "")

    def primary(self) -> dict[str, str]:
        """Data set, task and metric of `headline`. UserError if there is none."""
        if (first := self.headline()) is None:
            raise UserError(f"evaluate.tasks: {', '.join(self.asked.tasks)}: has no task by which methods are compared")
        family, known = FAMILIES[first.family], first.dataset == self.training or first.dataset in data.dataset_names()
        main = family.main if known else family.main_of_kind.get(parse_dataset(first.dataset)[0].kind, family.main)
        return {"dataset": first.dataset, "task": first.name, "metric": main}

    def keys(self, points: Iterable[float], manifest: ManifestSummary | None) -> tuple[str, ...]:
        """The keys of a run's records once it is evaluated at these shares of its budget."""
        return tuple(task.key(at) for at in points for task in self.tasks(at, manifest))

    def load(self, dataset: str) -> Pairs:
        """A data set of a task. UserError if it is not there, with how to get it."""
        if dataset == self.training:
            return self.source.pairs()
        resize = self.resize
        if not (self.source.of_package(dataset) or self.data.on_features):
            entry, _ = parse_dataset(dataset)
            asked = None if entry.classes else self.protocol.retrieval_resize
            resize = replace(resize, mode=asked) if asked else resize
        return self.source.evaluation(dataset, self.drawn, self.seen, resize)

    def content(self, task: Task) -> str:
        """16 digits of the hash of what a task scores, joined with what its probe learns from.

        "" for pairs of the package: the protocol's version fixes those.
        """
        parts = (task.dataset, task.train, task.validation)
        named = [name for name in parts if name and not self.source.of_package(name)]
        hashes = [self.load(name).content_hash for name in named]
        return (sha256("".join(hashes).encode()).hexdigest() if len(hashes) > 1 else "".join(hashes))[:16]

    def channels(self, dataset: str) -> Channels | None:
        """Channel statistics that the pixels of a data set are normalised with; None = those of the towers."""
        if dataset == self.training or self.data.on_features or dataset in data.dataset_names():
            return None
        entry, _ = parse_dataset(dataset)
        return self.protocol.channels(entry.name, entry.classes > 0)

    def metric(self, dataset: str) -> str:
        """The main metric of a data set: the catalogue's, or top-1 accuracy."""
        return "top1" if dataset in data.dataset_names() else parse_dataset(dataset)[0].metric

    def captions(self, pairs: Pairs) -> list[tuple[str, ...]]:
        """The texts of each row that retrieval looks for; of embedded data exactly `CAPTIONS_PER_IMAGE`."""
        if pairs.name in data.dataset_names():
            return data.evaluation_captions(pairs, CAPTIONS_PER_IMAGE)
        return [pairs.captions(row)[: self.protocol.captions] for row in range(len(pairs))]

    def noisy(self, pairs: Pairs) -> Pairs:
        """The same held-out pairs with the captions that the run's noise gives them."""
        noise = self.noise_of(pairs) if self.noise_of else None
        return pairs if noise is None else KeptPairs(pairs, np.arange(len(pairs)), noise)

    def wanted(self) -> dict[str, tuple[str, ...]]:
        """Data sets of the catalogue that tasks need, each split once -> the families of these tasks."""
        wanted: dict[str, tuple[str, ...]] = {}
        for task in self.chosen:
            for dataset in filter(None, (task.dataset, task.train, task.validation)):
                if dataset != self.training and not self.source.of_package(dataset):
                    wanted[dataset] = tuple(dict.fromkeys((*wanted.get(dataset, ()), task.family)))
        return wanted

    def missing(self) -> list[Missing]:
        """The wanted data sets that are not there. UserError for one that is there but broken."""
        wanted = self.wanted().items()
        missing = (self.source.missing_evaluation(name, ", ".join(families)) for name, families in wanted)
        return [one for one in missing if one is not None]

    def datasets(self) -> dict[str, dict[str, Any]]:
        """Data set -> description, n and chance ("task/metric" -> expected score of a uniformly random guess).

        Evaluation data that is not there is described as its publishers describe it.
        """
        described: dict[str, dict[str, Any]] = {}
        for task in self.chosen:
            facts = self.facts(task.dataset)
            known = {"description": facts.description, "n": facts.images, "chance": {}}
            entry = described.setdefault(task.dataset, known)
            facts = replace(facts, images=facts.images // folds_of(task.dataset))
            if self.source.of_package(task.train):  # a class may be in one of the sets alone
                facts = replace(facts, classes={task.label: len(np.unique(self.load(task.train).labels[task.label]))})
            chance = families.chance(task.family, task.label, facts, main=self.protocol.main)
            entry["chance"].update({f"{task.name}/{metric}": value for metric, value in chance.items()})
        return described

    def facts(self, dataset: str) -> DatasetFacts:
        """Return what is known of a data set without its images; of one that is not here, what its publishers state."""
        if dataset != self.training:
            return self.source.facts(dataset, self.drawn)
        if self.source.missing():
            return DatasetFacts("the training pairs", self.data.rows or 0)
        return dataset_facts(self.source.pairs())
