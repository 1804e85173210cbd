"""Data and weights that a suite needs and this machine lacks, reported before anything starts."""

from __future__ import annotations

import os
from itertools import groupby, product
from pathlib import Path

from bench import data
from bench.catalogue.families import FAMILIES
from bench.data import evaluation
from bench.data.noise.imported import IMPORTED, index_shape
from bench.data.source import data_source
from bench.data_folder import Missing, data_root
from bench.errors import UserError
from bench.evaluation.noise.attack import class_number, same_set
from bench.evaluation.tasks import EvaluationPlan
from bench.hashing import OPEN_CLIP, digest
from bench.suite import tower_files
from bench.suite.suite import Suite
from bench.towers import pretrained, state_dicts
from bench.training import external_scorer
from bench.training.job import available_device


def missing_inputs(suite: Suite) -> list[Missing]:
    """Return the missing training pairs, evaluation data, noise files and weights, each once; validate the others.

    Raises UserError for the first evaluation set or noise file that is there but broken, and for poison that aims at a
    class that a set lacks: before anything trains.
    """
    for file in (file for noise in suite.noise if noise.kind == IMPORTED for file in noise.files):
        if os.path.isfile(file):
            index_shape(Path(file))
    plans = [EvaluationPlan(suite.data, asked) for asked in suite.evaluates]  # of the suite and of its trials
    lacking = []
    for plan in plans:
        for name in plan.wanted():
            plan.source.check(name)
        lacking += plan.missing()
    _check_target(suite)
    if not (pairs := data_source(suite.data).missing()):
        _check_scorers(suite)
    return list(dict.fromkeys([*pairs, *lacking, *_without_ids(suite)]))


def ids_are_known(suite: Suite) -> bool:
    """Return whether everything is here that run ids depend on."""
    return not (data_source(suite.data).missing() or _without_ids(suite))


def _without_ids(suite: Suite) -> list[Missing]:
    towers = [gone for spec in suite.towers for gone in tower_files.missing_tower_files(spec)]
    return [*missing_weights(suite), *missing_noise_files(suite), *towers]


def _check_scorers(suite: Suite) -> None:
    """Raise UserError if external weights that are here cannot score the pairs. Each is built once."""
    checked: set[str] = set()
    for run in suite.cells():
        if run.scorer is None or not os.path.isfile(run.scorer.weights):
            continue
        name = digest([run.scorer.content(), run.data.content()])
        if name not in checked:
            external_scorer.build_external_scorer(run, available_device())
        checked.add(name)


def _check_target(suite: Suite) -> None:
    """Raise UserError if poison aims at a class that a data set, which is there, does not have."""
    plan = EvaluationPlan(suite.data, suite.evaluate)
    attacked = (task for task in plan.chosen if FAMILIES[task.family].on_poison)
    poisons = (noise for noise in suite.noise if noise.entry.poisons)
    for task, noise in product(attacked, poisons):
        if not (task.dataset in data.dataset_names() or evaluation.find_evaluation_set(task.dataset)):
            continue
        options = noise.chosen_options().content()
        if options["attack"] == "targeted":
            same_set(options["images"], task.dataset)
        else:
            class_number(options["target"], plan.load(task.dataset).classes[task.label], task.dataset)


def missing_weights(suite: Suite) -> list[Missing]:
    """Return the missing files of weights that runs start from, or have their pairs scored by.

    Without them these runs have no id.
    """
    labels: dict[tuple[str, str], list[str]] = {}
    for run in suite.cells():
        for field, file in (("start", run.start), ("keep.weights", run.scorer and run.scorer.weights)):
            if file and not file.startswith(OPEN_CLIP) and not os.path.isfile(file):
                labels.setdefault((field, file), []).append(run.label)
    return [
        Missing(
            f"weights to {'start' if field == 'start' else 'score the pairs of'} {', '.join(dict.fromkeys(own))}"
            + " from" * (field == "start"),
            (file,),
            f"the suite's comments say where from; or {field}: {OPEN_CLIP}MODEL/TAG",
            None,
        )
        for (field, file), own in labels.items()
    ]


def missing_noise_files(suite: Suite) -> list[Missing]:
    """Return the missing index files of noise."""
    return [
        Missing("index file of the noise", (file,), noise.entry.files, None)
        for noise in suite.noise
        for file in noise.files
        if not os.path.isfile(file)
    ]


def refuse_missing_inputs(suite: Suite) -> None:
    """Raise UserError that lists everything that is missing. Weights that are given by name are fetched."""
    lacking = missing_inputs(suite)
    if lacking:
        raise UserError(f"suite {suite.name} lacks these inputs:", *listing(lacking))
    _fetch(suite)


def named_weights(suite: Suite) -> list[tuple[str, str]]:
    """Return the weights of open_clip that are given by name, and the field that gives them."""
    cells = suite.cells()
    given = {(run.start, "start") for run in cells}
    given |= {(run.scorer.weights, "keep.weights") for run in cells if run.scorer}
    return sorted((start, field) for start, field in given if start and start.startswith(OPEN_CLIP))


def _fetch(suite: Suite) -> None:
    """Download weights that are given by name, so that no run fails for them later."""
    for start, field in named_weights(suite):
        state_dicts.locate_weights(start, field)
    for spec in suite.towers:
        if spec.image_start == "imagenet" or spec.text_start == "hub":
            pretrained.fetch_pretrained(spec)


def listing(lacking: list[Missing]) -> list[str]:
    """Return lines to print: each missing item, the places that were searched, how to get it, and its size on disk.

    One command that gets several items is printed once, after the last of them.
    """
    lines = []
    for get, group in groupby(lacking, lambda one: one.get):
        together = list(group)
        for one in together:
            size = f", about {one.bytes / 1e9:,.0f} GB" if one.bytes is not None and one.bytes >= 1e9 else ""
            lines.append(f"missing: {one.what}{size}")
            lines.extend(f"    looked in {place}" for place in one.looked)
        lines.append(f"    get {'them' if len(together) > 1 else 'it'}: {get}")
    total = sum(one.bytes or 0 for one in lacking)
    if total >= 1e9:
        lines.append(f"in total about {total / 1e9:,.0f} GB, below {data_root()} (--data DIR or $BENCH_DATA sets it)")
    return lines
