"""How much the towers read to evaluate a run: images and texts, counted before anything is there."""

from __future__ import annotations

from dataclasses import dataclass

from bench import data
from bench.catalogue.families.random_guess import CAPTIONS
from bench.data import evaluation
from bench.data.evaluation import words
from bench.evaluation.tasks import EvaluationPlan, Task

#: what a probe learns from is read out elsewhere in the towers, so its images are encoded again
_READ_OUT = {"linear_probe": "pooled", "adamw_probe": "projected"}


@dataclass(frozen=True)
class Workload:
    """What both towers encode; equal texts that stand in several places may be counted more than once."""

    images: int = 0
    texts: int = 0

    def __add__(self, other: Workload) -> Workload:
        return Workload(self.images + other.images, self.texts + other.texts)


def workload(plan: EvaluationPlan, at: float, noisy_rows: int = 0) -> Workload:
    """Of the tasks after a share `at` of the budget. `noisy_rows`: training pairs among which noise is looked for.

    Counts are those of the catalogue, or of the data where it is there; an image has 5 captions, a puzzle one cue. A
    data set is read once for each place that features are taken from, as `bench.evaluation.features` keeps them.
    """
    tasks = plan.tasks(at, None)
    read = {
        (name, _READ_OUT.get(task.family, "embedding"))
        for task in tasks
        for name in (task.dataset, task.train, task.validation)
        if name
    }
    images = sum(_images(plan, name) for name, _ in read)
    texts = dict(_texts(plan, task) for task in tasks if task.family not in _READ_OUT)
    found = Workload(images, sum(texts.values()))
    if at == 1.0 and any(task.family == "noise_detection" for task in plan.chosen()):
        found += Workload(noisy_rows, noisy_rows)
    return found


def _images(plan: EvaluationPlan, name: str) -> int:
    return len(plan.load(name)) if name in data.names() else evaluation.counts(name)[0]


def _texts(plan: EvaluationPlan, task: Task) -> tuple[object, int]:
    """What tells the texts of a task apart from those of others, and how many they are."""
    if task.family in ("retrieval", "validation"):
        return ("captions", task.dataset), _images(plan, task.dataset) * _captions(plan, task.dataset)
    if task.dataset in data.names():
        pairs = plan.load(task.dataset)
        names, prompts = pairs.classes[task.label], data.templates(pairs)
        return (names, prompts), len(names) * len(prompts)
    entry, _ = evaluation.parse(task.dataset)
    prompts = words.templates(entry)
    names = words.class_names(entry) or (task.dataset,)
    return (names, prompts), evaluation.counts(task.dataset)[1] * len(prompts)


def _captions(plan: EvaluationPlan, name: str) -> int:
    if name not in data.names() and evaluation.parse(name)[0].kind == "association":
        return 1
    return min(CAPTIONS, plan.protocol.captions or CAPTIONS)
