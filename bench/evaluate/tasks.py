"""What is measured on which data set, and what a random guess would score there. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np

from bench import data
from bench.data import Pairs
from bench.data.noise import NoiseManifest
from bench.errors import UserError

#: Of everything this package and the evaluation sets decide. Raise it when any stored number would change.
PROTOCOL = "1"
CAPTIONS = 5  #: per image, in retrieval
RECALLS = (1, 5, 10)
TOPS = (1, 5)


@dataclass(frozen=True)
class Task:
    """One evaluation: `name` is "family/label", or the family alone where no label is involved."""

    name: str
    dataset: str  #: the pairs that are scored
    train: str = ""  #: the pairs a probe learns from
    validation: str = ""  #: the pairs its penalty is chosen on; "" keeps a part of `train` back

    @property
    def family(self) -> str:
        return self.name.split("/")[0]

    @property
    def label(self) -> str:
        return self.name.partition("/")[2]

    def key(self, at: float) -> str:
        """Under which its records are stored: a file name, unique within a run."""
        return f"v{PROTOCOL}.{round(100 * at):03d}.{self.name.replace('/', '-')}.{self.dataset.replace('/', '-')}"


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
_TASKS: Mapping[str, tuple[Task, ...]] = {"emoji": _EMOJI}
FAMILIES = tuple(dict.fromkeys(task.family for task in _EMOJI))


@dataclass(frozen=True)
class EvaluationPlan:
    """Which families of tasks measure a run. `data` is the family of its pairs ("emoji"), `size` their pixels."""

    data: str
    size: int
    families: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.data not in _TASKS:
            raise UserError(f"data.name: no evaluation is known for {self.data!r}; there is: {', '.join(_TASKS)}")
        unknown = sorted(set(self.families) - set(FAMILIES))
        if unknown:
            raise UserError(f"evaluate.tasks: {unknown[0]!r} is not one of {', '.join(FAMILIES)}")

    def tasks(self, at: float, manifest: NoiseManifest | None) -> tuple[Task, ...]:
        """Tasks after a share `at` of the budget: all at the end, before it only zero-shot on the held-out pairs.

        Where not both corrupted and clean rows are known there is no noise to detect.
        """
        noisy = manifest is not None and 0 < len(manifest.rows) < manifest.n
        chosen = self._chosen()
        if at < 1.0:
            chosen = [task for task in chosen if task.family == "zero_shot" and task.dataset == f"{self.data}/iid"]
        return tuple(task for task in chosen if noisy or task.family != "noise_detection")

    def _chosen(self) -> list[Task]:
        return [task for task in _TASKS[self.data] if task.family in self.families]

    def keys(self, curve: Iterable[float], manifest: NoiseManifest | None) -> tuple[str, ...]:
        """Under which a run's records are stored once it is evaluated at all points of the curve and at the end."""
        return tuple(task.key(at) for at in (*curve, 1.0) for task in self.tasks(at, manifest))

    def load(self, dataset: str) -> Pairs:
        """A data set of a task."""
        return data.load(dataset, self.size)

    def datasets(self) -> dict[str, dict[str, Any]]:
        """Data set -> description, n and chance ("task/metric" -> expected score of a uniformly random guess)."""
        found: dict[str, dict[str, Any]] = {}
        for task in self._chosen():
            pairs = self.load(task.dataset)
            entry = found.setdefault(task.dataset, {"description": pairs.description, "n": len(pairs), "chance": {}})
            entry["chance"].update({f"{task.name}/{metric}": value for metric, value in self._chance(task).items()})
        return found

    def _chance(self, task: Task) -> dict[str, float]:
        pairs = self.load(task.dataset)
        if task.family in ("zero_shot", "shift"):
            classes = len(pairs.classes[task.label])
            return {f"top{k}": min(1.0, k / classes) for k in TOPS}
        if task.train:
            return {"accuracy": 1 / len(np.unique(self.load(task.train).labels[task.label]))}
        if task.family in ("retrieval", "validation"):
            return _retrieval_chance(len(pairs))
        return {"auroc": 0.5}  # average precision: the share of corrupted pairs, which differs from run to run


def _retrieval_chance(images: int) -> dict[str, float]:
    texts = images * CAPTIONS
    recalls = {f"i2t_r{k}": 1 - comb(texts - CAPTIONS, k) / comb(texts, k) for k in RECALLS}
    recalls |= {f"t2i_r{k}": min(1.0, k / images) for k in RECALLS}
    return with_means(recalls)


def with_means(recalls: Mapping[str, Any]) -> dict[str, Any]:
    """The six recalls (numbers or arrays), their mean as papers print it, and the mean of the two R@1."""
    return {
        **recalls,
        "mean_recall": sum(recalls.values()) / len(recalls),
        "mean_r1": (recalls["i2t_r1"] + recalls["t2i_r1"]) / 2,
    }
