"""Looks for every text that a suite reads beside pixels among its stored texts, before anything trains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from bench import data
from bench.catalogue.families import FAMILIES
from bench.data import evaluation
from bench.data.evaluation import EvaluationPairs
from bench.data.features.training import texts_beside
from bench.data.text_sets import caption_lists
from bench.errors import UserError
from bench.evaluation.puzzles import prompt
from bench.evaluation.tasks import EvaluationPlan, Task
from bench.evaluation.zero_shot import prompts
from bench.suite.settings import DataSettings

ROWS = 1 << 16  #: whose captions are looked up at a time


def check(settings: DataSettings, plans: Iterable[EvaluationPlan]) -> None:
    """Raise UserError that quotes the first caption or prompt that `data.texts` lacks; nothing if it is not set.

    The training pairs and the folder must be here. Evaluation sets that are not here are passed over.
    """
    if settings.texts is None:
        return
    lookup, pairs = texts_beside(settings), data.training(settings)
    try:
        for start in range(0, len(pairs), ROWS):
            lists = caption_lists(pairs, np.arange(start, min(start + ROWS, len(pairs))))
            lookup.check_training(lists.flatten().to_pylist())
    except UserError as error:
        raise UserError(f"data.texts: {pairs.name}: {error}") from error
    for plan in plans:
        for task in plan.chosen():
            if task.dataset == plan.training or not _is_here(task.dataset):
                continue
            try:
                lookup.check(list(dict.fromkeys(_encoded(plan, task))))
            except UserError as error:
                fix = f"`--evaluation {task.dataset}` of the extraction adds those of this set"
                raise UserError(f"data.texts: {task.dataset}, {task.family}: {error}; {fix}") from error


def _is_here(dataset: str) -> bool:
    return dataset in data.names() or evaluation.find(dataset) is not None


def _encoded(plan: EvaluationPlan, task: Task) -> Iterator[str]:
    """Yield the texts that a task and the diagnostics of its data set encode, some of them more than once."""
    pairs, texts = plan.load(task.dataset), FAMILIES[task.family].texts
    if texts == "prompts":
        yield from prompts(pairs.classes[task.label], data.templates(pairs))
    elif texts == "captions" and isinstance(pairs, EvaluationPairs) and pairs.puzzles:
        yield from (prompt(one.cue) for one in pairs.puzzles)
    if texts == "captions" or task.dataset == plan.held_out:
        yield from (text for own in plan.captions(pairs) for text in own)
    if task.family == "hierarchy":
        yield ""
        yield from (text for names in pairs.classes.values() for text in names)
