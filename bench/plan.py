"""plan.json: what a suite compares and which runs that takes, so that reports need neither torch nor adapters."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench import discovery
from bench.settings import MethodEntry
from bench.suite import Suite, noise_label

if TYPE_CHECKING:
    from bench.data.noise import NoiseManifest
    from bench.run import Planned
    from bench.tune import Choice
    from methods.protocol import Facts

PRIMARY = {"dataset": "{family}/iid", "task": "zero_shot/concept", "metric": "top1"}


def build(
    suite: Suite, planned: Sequence[Planned], choices: Mapping[str, Choice], last: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The plan of a whole suite from all its runs, selections aside, with what its trials came to by label.

    Evaluation sets are loaded to be described, unless the `last` plan describes the same ones.
    """
    from bench.evaluate import PROTOCOL, EvaluationPlan
    from bench.run import facts_of, training_pairs

    pairs = training_pairs(planned[0].run)
    by_key = {item.run.key: item for item in planned}
    family = suite.data.name
    sets = EvaluationPlan(family, suite.data.size, suite.evaluate.tasks)
    known = last is not None and (last.get("suite_hash"), last.get("protocol")) == (suite.hash, PROTOCOL)
    facts = facts_of(planned[0].run)
    return {
        "suite": suite.name,
        "description": suite.description,
        "suite_hash": suite.hash,
        "made": time.time(),
        "budget": {"kind": suite.budget.kind, "value": suite.budget.value, "rule": suite.budget_rule},
        "data": {
            "name": pairs.name,
            "description": pairs.description,
            "size": suite.data.size,
            "rows": len(pairs),
            "hash": pairs.content_hash,
        },
        "primary": {key: value.format(family=family) for key, value in PRIMARY.items()},
        "methods": [_method(suite, entry, facts) for entry in suite.methods],
        "noises": [
            {"label": noise_label(suite.noise.kind, rate), "kind": suite.noise.kind if rate else None, "rate": rate}
            for rate in suite.noise.rates
        ],
        "seeds": list(suite.seeds),
        "tuning": _tuning(suite, choices),
        "cells": [
            {"method": run.label, "noise": run.noise_label, "seed": run.seed, **_cell(by_key[run.key])}
            for run in suite.cells()
        ],
        "protocol": PROTOCOL,
        "datasets": last["datasets"] if last and known else sets.datasets(),
        "settings": {
            "towers": suite.towers.model_dump(mode="json"),
            "train": suite.train.model_dump(mode="json"),
            "evaluate": suite.evaluate.model_dump(mode="json"),
        },
    }


def _tuning(suite: Suite, choices: Mapping[str, Choice]) -> dict[str, Any] | None:
    """None where a suite tunes nothing."""
    if suite.tune is None:
        return None
    found = {entry.label: choices[entry.label].to_json() for entry in suite.methods if entry.label in choices}
    return {**suite.tune.model_dump(mode="json"), "methods": found}


def _method(suite: Suite, entry: MethodEntry, facts: Facts) -> dict[str, Any]:
    method = discovery.make(entry.method, entry.preset, entry.config, facts)
    about = method.about  # the instance's: what it lacks here, such as synonyms, stands in its note
    return {
        "label": entry.label,
        "method": entry.method,
        "title": about.title,
        "summary": about.summary,
        "paper": about.paper,
        "equations": about.equations,
        "fidelity": about.fidelity,
        "bibtex": about.bibtex,
        "note": about.note,
        "state": about.state,
        "score": method.score,
        "config": discovery.resolve(entry.method, entry.preset, entry.config),
        "preset": entry.preset,
        "lr": entry.lr or suite.train.lr,
        "reference": None if entry.start else method.reference,
        "start": entry.start,
        "budget_rule": suite.budget_rule,
    }


def _cell(planned: Planned) -> dict[str, Any]:
    return {
        "run": planned.id,
        "reference_run": planned.reference,
        "steps": planned.resolved.steps,
        "phases": [{"name": name, "steps": steps} for name, steps in planned.resolved.phases],
        "manifest": _manifest(planned.manifest),
    }


def _manifest(manifest: NoiseManifest | None) -> dict[str, Any] | None:
    if manifest is None:
        return None
    return {
        "hash": manifest.content_hash,
        "realised_rate": manifest.realised_rate,
        "rows": len(manifest.rows),
    }
