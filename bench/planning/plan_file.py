"""plan.json: the comparisons of a suite and their runs, so that reports need neither torch nor adapters."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench import hashing
from bench.adapters import hyperparameters, oracle_file
from bench.catalogue.budget_kinds import BUDGET_KINDS
from bench.catalogue.noise_kinds import KINDS
from bench.store.selection import LAST
from bench.suite.data_settings import in_data_folder
from bench.suite.keep_settings import ALL_PAIRS
from bench.suite.settings import MethodEntry
from bench.suite.suite import Suite
from bench.suite.unfit import omitted_towers

if TYPE_CHECKING:
    from bench.planning.planned import Planned
    from bench.planning.planner import Planner
    from bench.planning.tune import Choice
    from bench.store import Store
    from methods.protocol import Facts

#: what an oracle is trained on where the pairs themselves are as people left them
_LEFT_ALONE = "the pairs that the injected noise leaves alone"


def write_plan(suite: Suite, choices: Mapping[str, Choice], planner: Planner) -> list[Planned]:
    """Write the plan of the whole suite, whose data is all here, and return its selected runs."""
    planned, store = planner.plan(suite.narrowed().runs()), planner.store
    last = store.plan(suite.name)
    if planner.shown is not None:
        planner.shown.preparing("planning", "evaluation sets")
    made = build_plan(suite, planned, choices, last)
    if added := _added(made["cells"], last, store):
        made["added"] = added
    if last is None or hashing.digest({**last, "made": made["made"]}) != hashing.digest(made):
        store.write_plan(suite.name, made)
    if len(choices) == len(suite.applicable):
        store.forget_trials(suite.name)  # the plan names them now
    chosen = {run.key for run in suite.runs()}
    return [one for one in planned if one.run.key in chosen]


def _added(cells: Sequence[Mapping[str, Any]], last: Mapping[str, Any] | None, store: Store) -> list[list[Any]]:
    """Return each noise and seed that was added to the plan after results under that noise existed."""
    if last is None:
        return []
    now = dict.fromkeys((cell["noise"], cell["seed"]) for cell in cells)
    new = now.keys() - {(cell["noise"], cell["seed"]) for cell in last["cells"]}
    seen = {
        noise
        for noise in dict(new)
        if any(cell["noise"] == noise and store.run(cell["run"]).status()["state"] == "done" for cell in last["cells"])
    }
    before = {tuple(place) for place in last.get("added", ())}
    return [list(place) for place in now if place in before or (place in new and place[0] in seen)]


def build_plan(
    suite: Suite, planned: Sequence[Planned], choices: Mapping[str, Choice], last: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the plan of a whole suite, whatever is selected of it, with the results of its trials by label.

    Evaluation sets are read to describe them, so a broken one fails now. Those of the package never change, so their
    description in the `last` plan is used again.
    """
    from bench.data.source import data_source
    from bench.evaluation import EvaluationPlan
    from bench.training.inputs import method_facts

    by_key = {item.run.key: item for item in planned}
    first, pairs = planned[0], planned[0].inputs
    sets = EvaluationPlan(suite.data, suite.evaluate)
    same = last is not None and (last.get("suite_hash"), last.get("protocol")) == (suite.hash, sets.protocol.label)
    known = same and suite.data.embedded and not sets.wanted()
    facts = method_facts(first.run, pairs.seen)
    return {
        **plan_outline(suite),
        "suite_hash": suite.hash,
        "made": time.time(),
        "data": {
            "name": pairs.name,
            "description": pairs.description,
            "size": first.run.data.size,
            "rows": pairs.rows,
            "hash": pairs.data_hash,
            **data_source(first.run.data).about(),
        },
        "primary": sets.primary(),
        "methods": [_method(suite, entry, facts) for entry in suite.methods],
        "baseline": suite.baseline_row,
        "tuning": _tuning(suite, choices),
        "cells": [
            {"method": run.label, "noise": run.block, "seed": run.seed, **_cell(by_key[run.key])}
            for run in suite.cells()
        ],
        "protocol": sets.protocol.label,
        "datasets": last["datasets"] if last and known else sets.datasets(),
        "settings": {
            "towers": [towers.model_dump(mode="json") for towers in suite.towers],
            "train": suite.train.model_dump(mode="json"),
            "evaluate": suite.evaluate.model_dump(mode="json"),
        },
    }


def plan_outline(suite: Suite) -> dict[str, Any]:
    """Return the part of a plan that follows from the suite's settings alone, without runs. Needs no torch."""
    values = [budget.value for budget in suite.budget]
    several = {"values": values} if len(values) > 1 else {}
    tables = [paper.model_dump(mode="json") for paper in suite.tables]
    budget = {"kind": suite.budget[0].kind, "value": max(values), **several}
    budget |= {"unit": BUDGET_KINDS[suite.budget[0].kind].unit, "rule": suite.budget_rule}
    return {
        "suite": suite.name,
        "description": suite.description,
        **({"trained_on": {suite.start: suite.start_trained_on}} if suite.start and suite.start_trained_on else {}),
        "budget": budget,
        "data": {"name": suite.data.name, "rows": suite.data.rows or 0},
        "methods": [],
        "noises": _blocks(suite),
        "seeds": list(suite.seeds),
        "cells": [],
        "datasets": {},
        "settings": {"train": suite.train.model_dump(mode="json")},
        "tables": {**tables[0], **({"others": tables[1:]} if tables[1:] else {})} if tables else None,
    }


def _blocks(suite: Suite) -> list[dict[str, Any]]:
    """The blocks of the comparison: each noise under each of the suite's towers. Runs are compared within a block."""
    counted = any(noise.seeds for noise in suite.noise)
    budgets = {budget.label: budget.value for budget in suite.budget}
    blocks: dict[str, dict[str, Any]] = {}
    for run in suite.cells():
        block = blocks.setdefault(run.block, {"label": run.block, "kind": run.noise})
        block |= {"title": KINDS[run.noise].title if run.noise else "", "rate": run.rate, "towers": run.towers.label}
        if run.budget_label:
            block["budget"] = budgets[run.budget_label]
        if counted:
            block["seeds"] = list(dict.fromkeys((*block.get("seeds", ()), run.seed)))
    return list(blocks.values())


def _tuning(suite: Suite, choices: Mapping[str, Choice]) -> dict[str, Any] | None:
    """The settings of the search and its choices. Returns None if the suite tunes nothing."""
    if suite.tune is None:
        return None
    from bench.planning import tune

    rungs = [
        {"budget": (budget or suite.budget[0]).label, "settings": count, "seeds": list(seeds)}
        for budget, count, seeds in suite.tune.rungs
    ]
    methods = {entry.label: choices[entry.label].to_json() for entry in suite.methods if entry.label in choices}
    own = {"lr": suite.tune.lr, "weight_decay": suite.tune.weight_decay, "by": suite.tune.by}
    return {"rungs": rungs, "rate": tune.trial_noise_rate(suite), **own, "methods": methods}


def _method(suite: Suite, entry: MethodEntry, facts: Facts) -> dict[str, Any]:
    method = hyperparameters.make_method(entry.method, entry.preset, entry.config, facts)
    about = method.about  # the instance's: what it lacks here, such as synonyms, stands in its note
    return {
        "label": entry.label,
        "method": entry.method,
        "title": about.title,
        "summary": about.summary,
        "paper": about.paper,
        "equations": about.equations,
        "fidelity": oracle_file.printed_fidelity(entry.method, about),
        "bibtex": about.bibtex,
        "note": about.note,
        "state": about.state,
        "score": method.score,
        "config": hyperparameters.resolve_config(entry.method, entry.preset, entry.config),
        "preset": entry.preset,
        "lr": entry.lr or suite.train.lr,
        "reference": None if entry.start and method.side != "reference" else method.reference,
        "start": entry.start,
        **({"untrained": True} if entry.untrained else {}),
        **({"average": entry.average_with_start} if entry.average_with_start is not None else {}),
        **({"select": rule} if (rule := entry.select or suite.select) != LAST else {}),
        "budget_rule": suite.budget_rule,
        "keep": _keep(suite, entry),
        **({"inapplicable": reasons} if (reasons := omitted_towers(suite, entry)) else {}),
    }


def _keep(suite: Suite, entry: MethodEntry) -> dict[str, Any] | None:
    """Return the data selection of a suite entry; None if it has none."""
    keep = suite.keep_of(entry)
    if keep == ALL_PAIRS:
        return None
    place = in_data_folder(keep.weights or "")
    known = hashing.weights_identity(place) if keep.weights else ""
    sha256 = "" if known == place or not isinstance(known, str) else known  # a tag of open_clip has none
    return {
        "label": keep.label,
        "about": _LEFT_ALONE if keep.entry.truth_alone and any(one.natural for one in suite.noise) else keep.about,
        "uses": keep.uses,
        "rule": suite.data.keep_rule,
        **({"scorer": suite.scorer_of(entry)} if keep.by_run else {}),
        **({"teacher": keep.teacher} if keep.teacher else {}),
        **({"external": {"name": place.rpartition("/")[2], "hash": sha256}} if keep.weights else {}),
    }


def _cell(planned: Planned) -> dict[str, Any]:
    noise = planned.manifest
    return {
        "run": planned.id,
        "reference_run": planned.reference,
        "steps": planned.resolved.steps,
        "phases": [{"name": name, "steps": steps} for name, steps in planned.resolved.phases],
        "manifest": noise and {"hash": noise.hash, "realised_rate": noise.realised_rate, "rows": noise.corrupted},
        "kept_rows": planned.inputs.seen if planned.run.selects_data else None,
        "evaluations": list(planned.evaluation_keys()),
    }
