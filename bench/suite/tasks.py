"""Evaluation tasks of a suite, from its settings. Reads no data and needs no torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from bench.catalogue import families
from bench.catalogue.evaluation_sets import CLASS, parse_dataset
from bench.catalogue.families import FAMILIES, TaskFamily
from bench.catalogue.protocols import PROTOCOLS, Protocol
from bench.errors import UserError
from bench.suite.settings import DataSettings, EvaluateSettings

#: Version of everything that `bench.evaluation` and the evaluation sets decide, under the common protocol. Raise it
#: when any stored number would change.
PROTOCOL = PROTOCOLS["common"].label


@dataclass(frozen=True)
class Task:
    """One evaluation: `name` is "family/label", or the family alone if no label is involved."""

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
        """The key under which its records are stored: a file name, unique within a run."""
        return f"v{self.protocol}.{round(100 * at):03d}.{self.name.replace('/', '-')}.{self.dataset.replace('/', '-')}"


@dataclass(frozen=True)
class SuiteTasks:
    """The tasks of runs that train on `data` and are measured as the suite's section `evaluate` asks."""

    data: DataSettings
    asked: EvaluateSettings

    @property
    def protocol(self) -> Protocol:
        """The protocol that the suite names."""
        return PROTOCOLS[self.asked.protocol]

    @property
    def training(self) -> str:
        """The name of the training pairs. "drawings/train" would be the probe's part of an evaluation set."""
        return f"{self.data.name}/train" if self.data.embedded else f"{self.data.name}/pairs"

    @cached_property
    def chosen(self) -> list[Task]:
        """All tasks, whether there is noise or not, in the order of the registry of families."""
        families = (family for family in FAMILIES if family.name in self.asked.tasks)
        return [replace(task, protocol=self.protocol.label) for family in families for task in self._of_family(family)]

    def headline(self) -> Task | None:
        """The task of the suite's primary metric.

        The first of `evaluate.headline`; without it the first, in the order of the registry of families, whose family
        has a main metric. One on training pairs or on poison comes last, because runs without noise lack it.
        """
        asked = (self.asked.headline,) if self.asked.headline else self.asked.tasks
        compared = (task for task in self.chosen if task.family in asked and FAMILIES[task.family].main)
        return min(compared, key=lambda task: FAMILIES[task.family].needs_noise, default=None)

    def faults(self, noisy: bool) -> Iterator[tuple[int | None, str]]:
        """What cannot be measured as asked: the place in `tasks` (None: all of them) and the reason.

        Every family that is asked for has data sets; if the suite leaves `tasks` at its default, families without any
        are omitted. At least one family has a main metric to compare methods by. `noisy`: whether runs know their
        corrupted pairs.
        """
        for place, name in enumerate(self.asked.tasks):
            if "tasks" in self.asked.model_fields_set and not self._of_family(FAMILIES[name]):
                lacking = f"{self.data.name} has" if self.data.embedded else f"protocol {self.protocol.name!r} names"
                fix = f"name one in evaluate.datasets.{name}, or remove it"
                yield place, f"{name!r}: {lacking} no data set for it; {fix}"
        compared = [one for one in map(FAMILIES.__getitem__, self.asked.tasks) if one.main and self._of_family(one)]
        if not compared:
            others = ", ".join(family.name for family in FAMILIES if family.main)
            yield None, f"methods are not compared by {', '.join(self.asked.tasks)}; add one of {others}"
        elif not noisy and all(one.needs_noise for one in compared):
            fix = "add another, or a rate above 0"
            yield None, f"{compared[0].name!r} needs corrupted pairs, and no run has any; {fix}"

    def _of_family(self, family: TaskFamily) -> list[Task]:
        if family.on_training_pairs:
            return [Task(family.name, self.training)]
        names = self.asked.datasets.get(family.name)
        if names is None:
            own = self.data.name in family.embedded
            names = (self.data.name,) if own else self.protocol.datasets.get(family.name, ())
        return list(dict.fromkeys(task for name in names for task in _tasks(family, name)))


def _tasks(family: TaskFamily, name: str) -> list[Task]:
    """The tasks of a family on sets of the package, or its task on a data set of the catalogue.

    UserError if the family cannot be measured on it.
    """
    if own := family.of_package(name):
        return [Task(_name(family, one.label), one.dataset, one.train, one.validation) for one in own]
    if message := families.why_unmeasurable(family.name, name):
        raise UserError(f"evaluate.datasets.{family.name}: {message}")
    entry, _ = parse_dataset(name)
    train = entry.written("train") if family.learns else ""
    return [Task(_name(family, CLASS if "classification" in family.kinds else ""), entry.written(family.split), train)]


def _name(family: TaskFamily, label: str) -> str:
    return f"{family.name}/{label}" if label else family.name
