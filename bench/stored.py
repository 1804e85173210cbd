"""A stored run's final model, rebuilt to be measured again."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from bench import resources
from bench.checkpoint import file_hash, weights_name
from bench.errors import UserError
from bench.evaluate import PROTOCOL
from bench.evaluate.features import Features
from bench.external import run_of_settings
from bench.run import available_device, rebuilt
from bench.show import SHORT, find_run
from bench.store import RunStore, Store
from bench.suite import Run


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
    towers, method = rebuilt(run, path, available_device())
    return Stored(out.id, run, Features(method, towers, file_hash(path), PROTOCOL, None))


def _how_to_train(out: RunStore, store: Store) -> str:
    for name in sorted(path.parent.name for path in store.root.glob("*/plan.json")):
        for cell in (store.plan(name) or {"cells": []})["cells"]:
            if out.id in (cell["run"], cell["reference_run"]):
                suite, seed = name if resources.is_suite(name) else f"{name}.yaml", str(cell["seed"])
                options = ["--only", cell["method"], "--seeds", seed, "--results", str(store.root)]
                return f"train it with: {shlex.join(['bench', 'run', suite, *options])}"
    return f"no suite in {store.root} plans it; run the suite it comes from with: bench run SUITE"
