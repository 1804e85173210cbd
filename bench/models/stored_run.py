"""A stored run's final model, rebuilt from its settings and weights."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from bench import resources
from bench.adapters import registry
from bench.errors import UserError, one_line
from bench.evaluation import PROTOCOL
from bench.evaluation.features import Features
from bench.hashing import file_hash
from bench.store import Damaged, RunStore, Store
from bench.store.doctor import refuse_changed
from bench.store.lookup import SHORT, find_run
from bench.suite.keep_settings import KeepSettings
from bench.suite.run import Run
from bench.suite.settings import Budget, DataSettings, EvaluateSettings, TowerSettings, TrainSettings
from bench.training.checkpoint import weights_name
from bench.training.inputs import InputsReader
from bench.training.job import available_device, rebuilt

if TYPE_CHECKING:
    import torch

    from bench.towers.build import OpenClipTowers
    from methods.protocol import Method


@dataclass(frozen=True)
class Stored:
    """A run with the features of its final weights; the features hold the method and the towers."""

    id: str
    run: Run
    features: Features

    @property
    def title(self) -> str:
        return f"{self.id[:SHORT]}  {self.run.title}"


def load(store: Store, prefix: str) -> Stored:
    """Load the run whose id starts with `prefix`, at its final weights, on the first GPU or the CPU.

    Raises UserError if there is no such run, and as `rebuild` does.
    """
    out = find_run(store, prefix)
    run, towers, method = rebuild(out, available_device())
    return Stored(out.id, run, Features(method, towers, file_hash(out.path(weights_name(1.0))), PROTOCOL, None))


def of_suite(store: Store, name: str) -> str:
    """Return the id of the one run that a suite has. Raises UserError if it is not planned here or has several runs."""
    plan = store.plan(name)
    if plan is None:
        raise UserError(f"suite:{name}: is not in {store.root}; train it with: {_command(store, name)}")
    runs = list(dict.fromkeys(cell["run"] for cell in plan["cells"]))
    if len(runs) != 1:
        raise UserError(f"suite:{name}: has {len(runs)} runs; choose one of `bench status {name}` as run:ID")
    return str(runs[0])


def _command(store: Store, name: str, *options: str) -> str:
    suite = name if resources.is_suite(name) else f"{name}.yaml"
    return shlex.join(["bench", "run", suite, *options, "--results", str(store.root)])


def rebuild(out: RunStore, device: torch.device) -> tuple[Run, OpenClipTowers, Method]:
    """Build a stored run's towers and method again and load its final weights into them.

    Raises UserError if the run has no final weights, if they are not those that were stored when it was finished, or if
    they do not fit the method as it is now.
    """
    path = out.path(weights_name(1.0))
    if not path.exists():
        store = Store(out.folder.parents[1])
        raise UserError(
            f"run {out.id[:SHORT]} has no final weights ({out.status()['state']}); {_how_to_train(out, store)}"
        )
    refuse_changed(out, path.name)
    run = run_of_settings(out.settings(), out.path("settings.json"))
    return run, *rebuilt(run, InputsReader().for_model(run), path, device)


def _how_to_train(out: RunStore, store: Store) -> str:
    """Return the command that trains a run, read from the first plan that names it."""
    for name in store.plans():
        for cell in _cells(store, name):
            if out.id in (cell["run"], cell["reference_run"]):
                chosen = _command(store, name, "--only", cell["method"], "--seeds", str(cell["seed"]))
                return f"train it with: {chosen}"
    return f"no suite in {store.root} plans it; run the suite it comes from with: bench run SUITE"


def _cells(store: Store, suite: str) -> list[dict[str, Any]]:
    """Return the cells of a suite's plan; none if it cannot be read, because the others may name the run."""
    try:
        return list((store.plan(suite) or {"cells": []})["cells"])
    except Damaged:
        return []


def _method(name: str, path: Path) -> str:
    """Return the present name of a stored run's method. Raises UserError if its file is not known to this process."""
    now = registry.canonical(name)
    if now not in registry.names():
        raise UserError(f"{path}: was trained with the method {now!r}; give the file that defines it: --plugin FILE")
    return now


def run_of_settings(settings: dict[str, Any], path: Path) -> Run:
    """Return the run that a settings.json describes, without the run it started from.

    Raises UserError, with `path`, for settings that this version does not understand.
    """
    try:
        keep = settings.get("keep", {})
        # Format 1 had null for torch's own choice of threads.
        train = {key: value for key, value in settings["train"].items() if (key, value) != ("threads", None)}
        return Run(
            label=settings["label"],
            method=_method(settings["method"], path),
            preset=settings["preset"],
            config=settings["config"],
            data=DataSettings.model_validate(settings["data"]),
            keep=KeepSettings.model_validate({key: keep[key] for key in keep if key != "rule"}),
            keep_rule=keep.get("rule", "samples"),
            untrained=settings.get("untrained", False),
            noise=settings["noise"]["kind"],
            rate=settings["noise"]["rate"],
            noise_file=settings["noise"].get("file"),
            noise_options=settings["noise"].get("options", {}),
            seed=settings["seed"],
            budget=Budget.model_validate({settings["budget"]["kind"]: settings["budget"]["value"]}),
            towers=TowerSettings.model_validate(settings["towers"]),
            train=TrainSettings.model_validate(train),
            evaluate=EvaluateSettings.model_validate(settings["evaluate"]),
        )
    except (KeyError, TypeError, ValidationError) as error:
        reason = one_line(error)
        raise UserError(f"{path}: is not a run's settings of this version: {type(error).__name__}: {reason}") from error
