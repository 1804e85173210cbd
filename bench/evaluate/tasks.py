"""What is measured on which data set, and what a random guess would score there. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np

from bench import data
from bench.channels import Channels
from bench.data import Pairs, evaluation
from bench.data.noise import NoiseManifest
from bench.data.place import Missing
from bench.errors import UserError
from bench.evaluate.chance import CAPTIONS, Facts, chance, facts_of
from bench.evaluate.protocols import PROTOCOLS, Protocol
from bench.evaluation_sets import parse, unfit
from bench.settings import DataSettings, EvaluateSettings

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


def _probes(family: str) -> tuple[Task, ...]:
    return (
        Task(f"{family}/subgroup", "emoji/iid", "emoji/train", "emoji/validation"),
        Task(f"{family}/style", "emoji/iid", "emoji/train", "emoji/validation"),
        Task(f"{family}/digit", "digits/test", "digits/train"),
    )


_EMOJI = (
    Task("zero_shot/concept", "emoji/iid"),
    Task("zero_shot/subgroup", "emoji/iid"),
    Task("zero_shot/concept", "emoji/novel"),
    Task("zero_shot/subgroup", "emoji/novel"),
    Task("shift/concept", "emoji/openmoji"),
    Task("shift/concept", "emoji/openmoji-black"),
    Task("shift/concept", "emoji/fluent-high-contrast"),
    Task("shift/concept", "emoji/emojione-monotone"),
    Task("shift/concept", "emoji/near"),
    *_probes("linear_probe"),
    *_probes("adamw_probe"),
    Task("retrieval", "emoji/iid"),
    Task("retrieval", "emoji/openmoji"),
    Task("noise_detection", "emoji/train"),
    Task("validation", "emoji/validation"),
)
_EMBEDDED: Mapping[str, tuple[Task, ...]] = {"emoji": _EMOJI}
FAMILIES = tuple(dict.fromkeys(task.family for task in _EMOJI))


@dataclass(frozen=True)
class EvaluationPlan:
    """What measures a run that trained on `data`, as the suite asks."""

    data: DataSettings
    asked: EvaluateSettings

    @property
    def protocol(self) -> Protocol:
        """How it is done."""
        return PROTOCOLS[self.asked.protocol]

    def tasks(self, at: float, manifest: NoiseManifest | None) -> tuple[Task, ...]:
        """Tasks after a share `at` of the budget: all at the end, before it only the first data set's zero-shot.

        Where not both corrupted and clean rows are known there is no noise to detect.
        """
        noisy = manifest is not None and 0 < len(manifest.rows) < manifest.n
        chosen = self.chosen()
        if at < 1.0:
            zero_shot = [task for task in chosen if task.family == "zero_shot"]
            chosen = [task for task in zero_shot if task.dataset == zero_shot[0].dataset]
        return tuple(task for task in chosen if noisy or task.family != "noise_detection")

    def chosen(self) -> list[Task]:
        """All tasks, whether there is noise or not."""
        found: list[Task] = []
        for family in FAMILIES:
            if family in self.asked.tasks:
                found += [replace(task, protocol=self.protocol.label) for task in self._of_family(family)]
        return found

    def _of_family(self, family: str) -> list[Task]:
        if family not in self.asked.datasets and self.data.name in _EMBEDDED:
            return [task for task in _EMBEDDED[self.data.name] if task.family == family]
        if family == "noise_detection":
            return [Task(family, self.training)]
        names = self.asked.datasets.get(family, self.protocol.datasets.get(family, ()))  # type: ignore[call-overload]
        return [_task(family, name) for name in names]

    @property
    def training(self) -> str:
        """The name of the training pairs. "drawings/train" would be the probe's part of an evaluation set."""
        return f"{self.data.name}/train" if self.data.embedded else f"{self.data.name}/pairs"

    @property
    def held_out(self) -> str:
        """The pairs of images and captions that diagnostics look at; "" where no task scores any."""
        if self.data.name in _EMBEDDED:
            return f"{self.data.name}/iid"
        found = [task.dataset for task in self.chosen() if task.family == "retrieval"]
        return next((name for name in found if evaluation.parse(name)[0].kind == "retrieval"), "")

    def primary(self) -> dict[str, str]:
        """What a suite is read by first: data set, task and metric."""
        zero_shot = [task for task in self.chosen() if task.family == "zero_shot"]
        if zero_shot:
            return {"dataset": zero_shot[0].dataset, "task": zero_shot[0].name, "metric": "top1"}
        return {"dataset": f"{self.data.name}/iid", "task": "zero_shot/concept", "metric": "top1"}

    def keys(self, curve: Iterable[float], manifest: NoiseManifest | None) -> tuple[str, ...]:
        """Under which a run's records are stored once it is evaluated at all points of the curve and at the end."""
        return tuple(task.key(at) for at in (*curve, 1.0) for task in self.tasks(at, manifest))

    def load(self, dataset: str) -> Pairs:
        """A data set of a task. UserError where it is not there, with how to get it."""
        if dataset == self.training:
            return data.training(self.data)
        if dataset in data.names():
            return data.load(dataset, self.data.size)
        return evaluation.load(dataset, self.data.size, self._resize(dataset))

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

    def _resize(self, dataset: str) -> evaluation.Resize:
        entry, _ = evaluation.parse(dataset)
        return "crop" if entry.classes else self.protocol.retrieval_resize

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
            return {"accuracy": 1 / len(np.unique(self.load(task.train).labels[task.label]))}
        return chance(task.family, task.label, facts, main=self.protocol.main)


def _task(family: str, name: str) -> Task:
    """The task of a family on a data set of the catalogue. UserError where it cannot be."""
    if message := unfit(family, name):
        raise UserError(f"evaluate.datasets.{family}: {message}")
    entry, _ = parse(name)
    if family == "validation":
        return Task(family, entry.written("validation"))
    if family == "retrieval":
        return Task(family, name)
    train = entry.written("train") if family.endswith("probe") else ""
    return Task(f"{family}/{evaluation.CLASS}", name, train)
