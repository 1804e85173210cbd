"""A stored run's final model, rebuilt to be measured again."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bench import resources
from bench.adapters import registry
from bench.errors import UserError, one_line
from bench.evaluation import PROTOCOL
from bench.evaluation.features import Features
from bench.store import RunStore, Store
from bench.store.lookup import SHORT, find_run
from bench.suite.keep_settings import KeepSettings
from bench.suite.run import Run
from bench.suite.settings import Budget, DataSettings, EvaluateSettings, TowerSettings, TrainSettings
from bench.training.checkpoint import file_hash, weights_name
from bench.training.inputs import InputsReader
from bench.training.job import available_device, rebuilt


@dataclass(frozen=True)
class Stored:
    """A run and the features of its final weights, method and towers within."""

    id: str
    run: Run
    features: Features

    @property
    def title(self) -> str:
        return f"{self.id[:SHORT]}  {self.run.title}"


def load(store: Store, prefix: str) -> Stored:
    """The run whose id starts with `prefix`, at its final weights, on the first GPU or the CPU.

    UserError where there is no such run, it has no final weights, or they do not fit the method as it is now.
    """
    out = find_run(store, prefix)
    path = out.path(weights_name(1.0))
    if not path.exists():
        raise UserError(
            f"run {out.id[:SHORT]} has no final weights ({out.status()['state']}); {_how_to_train(out, store)}"
        )
    run = run_of_settings(out.settings(), out.path("settings.json"))
    towers, method = rebuilt(run, InputsReader().for_model(run), path, available_device())
    return Stored(out.id, run, Features(method, towers, file_hash(path), PROTOCOL, None))


def _how_to_train(out: RunStore, store: Store) -> str:
    for name in sorted(path.parent.name for path in store.root.glob("*/plan.json")):
        for cell in (store.plan(name) or {"cells": []})["cells"]:
            if out.id in (cell["run"], cell["reference_run"]):
                suite, seed = name if resources.is_suite(name) else f"{name}.yaml", str(cell["seed"])
                options = ["--only", cell["method"], "--seeds", seed, "--results", str(store.root)]
                return f"train it with: {shlex.join(['bench', 'run', suite, *options])}"
    return f"no suite in {store.root} plans it; run the suite it comes from with: bench run SUITE"


def _method(name: str, path: Path) -> str:
    """The name that a stored run's method has now. UserError where its file is not known to this process."""
    now = registry.canonical(name)
    if now not in registry.names():
        raise UserError(f"{path}: was trained with the method {now!r}; give the file that defines it: --plugin FILE")
    return now


def run_of_settings(settings: dict[str, Any], path: Path) -> Run:
    """A run as its settings.json describes it, without the run it started from."""
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
