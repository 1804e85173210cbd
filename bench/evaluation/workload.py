"""Workload of evaluation: images and texts that the towers read, counted in advance."""

from __future__ import annotations

from dataclasses import dataclass

from bench import data
from bench.catalogue.families import FAMILIES
from bench.catalogue.families.random_guess import CAPTIONS_PER_IMAGE, DISTRACTORS, MEMORISATION_SAMPLE
from bench.data import evaluation
from bench.data.evaluation import words
from bench.evaluation.tasks import EvaluationPlan, Task


@dataclass(frozen=True)
class Workload:
    """Inputs that both towers encode; equal texts of several tasks may be counted more than once."""

    images: int = 0
    texts: int = 0

    def __add__(self, other: Workload) -> Workload:
        return Workload(self.images + other.images, self.texts + other.texts)


def evaluation_workload(plan: EvaluationPlan, at: float, noisy_rows: int = 0) -> Workload:
    """Return what tasks after a share `at` of the budget encode. `noisy_rows`: training pairs searched for noise.

    Counts are those of the catalogue, or of the data where it is there; an image has 5 captions, a puzzle one cue. A
    data set is read once for each place that features are taken from, as `bench.evaluation.features` keeps them.
    """
    tasks = [task for task in plan.tasks(at, None) if not FAMILIES[task.family].on_training_pairs]
    read = {
        (name, FAMILIES[task.family].reads)
        for task in tasks
        for name in (task.dataset, task.train, task.validation)
        if name
    }
    images = sum(plan.facts(name).images for name, _ in read)
    texts = dict(_texts(plan, task) for task in tasks if FAMILIES[task.family].texts != "none")
    total = Workload(images, sum(texts.values()))
    of_pairs = [FAMILIES[task.family] for task in plan.chosen if FAMILIES[task.family].on_training_pairs]
    if at == 1.0 and any(family.needs_noise and not family.along for family in of_pairs):
        total += Workload(noisy_rows, noisy_rows)
    if any(family.along for family in of_pairs):
        sample = min(MEMORISATION_SAMPLE, plan.data.rows or MEMORISATION_SAMPLE)
        total += Workload(sample, sample + DISTRACTORS)
    if at == 1.0 and noisy_rows:
        attacked = [task.dataset for task in plan.chosen if FAMILIES[task.family].on_poison]
        total += Workload(2 * sum(plan.facts(name).images for name in attacked))  # without trigger and with
    return total


def _texts(plan: EvaluationPlan, task: Task) -> tuple[object, int]:
    """Return a key, equal if the texts of two tasks are equal, and the number of texts."""
    packed = task.dataset in data.dataset_names()
    if FAMILIES[task.family].texts == "captions":
        puzzles = not packed and evaluation.parse_dataset(task.dataset)[0].kind == "association"
        each = 1 if puzzles else min(CAPTIONS_PER_IMAGE, plan.protocol.captions or CAPTIONS_PER_IMAGE)
        return ("captions", task.dataset), plan.facts(task.dataset).images * each
    stored = plan.data.on_features and plan.source.missing_evaluation(task.dataset) is None
    if stored or packed:
        pairs = plan.load(task.dataset) if stored else data.load_dataset(task.dataset, plan.drawn)
        names, prompts = pairs.classes[task.label], data.prompt_templates(pairs)
        return (names, prompts), len(names) * len(prompts)
    entry, _ = evaluation.parse_dataset(task.dataset)
    prompts = words.published_templates(entry)
    names = words.class_names(entry) or (task.dataset,)
    return (names, prompts), evaluation.evaluation_set_counts(task.dataset)[1] * len(prompts)
