"""Comparison of a bundle's statements with the run's address, plan and steps, recounted where possible.

A bundle names files of its author's machine. None of them is read here: what lies in them is taken from the address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from bench.adapters import hyperparameters, oracle_file, registry
from bench.adapters.reach import adapter_source_hash
from bench.board.outcomes import Refused
from bench.catalogue.budget_kinds import BUDGET_KINDS
from bench.catalogue.noise_kinds import noise_label
from bench.evaluation import EvaluationPlan
from bench.hashing import Absent, canonical
from bench.planning.planner import counted_steps
from bench.store import RunStore
from bench.suite import tower_files
from bench.suite.run import Run, run_of_settings
from bench.suite.settings import EvaluateSettings, TowerSettings
from bench.training.inputs import InputsReader
from bench.training.ledger import Ledger
from bench.training.schedule import ResolvedSteps

_SETTINGS_PATH = Path("settings.json")
_ADDRESSED = ("untrained", "average", "keep", "data", "noise", "seed", "budget", "towers", "train")


def run_with_method(settings: Mapping[str, Any]) -> Run:
    """Return the run that settings describe, with another method in the place of its own, which may not be here.

    Raises Refused for the first of its settings that is not what the run's address holds, and UserError for settings
    that this version does not understand.
    """
    run = run_of_settings({**settings, "method": min(registry.method_names()), "config": {}}, _SETTINGS_PATH)
    address = settings["address"]
    own = replace(run, towers=_without_files(run.towers)).content()
    own["towers"] = _towers(run.towers, own["towers"], address["towers"])
    if own.get("keep") and run.keep.weights:
        own["keep"] |= {name: address["keep"][name] for name in ("weights", "read")}
    if address["noise"] is None and run.keep.entry.truth_alone:  # whose captions the others have changes nothing
        own["noise"] = None
    for name in _ADDRESSED:
        if canonical(own.get(name)) != canonical(address.get(name)):
            raise Refused(f"{name}: differs from the address, of which the run's id is the digest")
    if bool(settings.get("start")) != ("start" in address):
        raise Refused("start: differs from the address, of which the run's id is the digest")
    return run


def _without_files(towers: TowerSettings) -> TowerSettings:
    starts = {name: None for name in ("image_start", "text_start") if tower_files.is_place(getattr(towers, name))}
    stand_in = {"text": TowerSettings().text} if tower_files.is_folder(towers.text) else {}
    return towers.model_copy(update={**starts, **stand_in})


def _towers(towers: TowerSettings, own: Mapping[str, Any], address: Mapping[str, Any]) -> dict[str, Any]:
    """Return towers as their address has them, with what lies in files from there: hashes, where settings name some."""
    named = [name for name in ("image_start", "text_start") if tower_files.is_place(getattr(towers, name))]
    if tower_files.is_folder(towers.text):
        named += ["text", "tokenizer"]
    named += [name for name, value in own.items() if isinstance(value, Absent)]
    of_files = {name: address.get(name, "a file") for name in named if name != "tokenizer" or name in address}
    return {**{name: value for name, value in own.items() if name not in named}, **of_files}


def refuse_other_cells(
    settings: Mapping[str, Any], run: Run, plan: Mapping[str, Any], cells: Sequence[Mapping[str, Any]]
) -> None:
    """Raise Refused if the rows, the noises or the cells of a plan say something else of a run than its settings do."""
    methods = {entry["label"]: entry for entry in plan["methods"]}
    noises = {entry["label"]: entry for entry in plan["noises"]}
    address, kind, keep = settings["address"], settings["noise"]["kind"], run.keep
    for cell in cells:
        row, block = methods[cell["method"]], noises[cell["noise"]]
        unit = BUDGET_KINDS[run.budget.kind].unit
        budget = f"{block['budget']:g} {unit}" if "budget" in block else ""
        titles = (noise_label(kind or "shuffled_captions", run.rate, natural) for natural in (False, True))
        names = [", ".join(filter(None, (run.towers.label, title, budget))) for title in titles]
        there = {
            "method": (row.get("method", row["label"]), settings["method"]),
            "seed": (cell["seed"], run.seed),
            "towers": (block.get("towers", ""), run.towers.label),
            "config": (row["config"], settings["config"]),
            "lr": (row.get("lr"), run.train.lr),
            "untrained": (row.get("untrained", False), run.untrained),
            "average": (row.get("average"), run.average),
            "start": (bool(row.get("start")), bool(settings.get("start"))),
            "steps": (cell["steps"], ResolvedSteps.from_json(settings["resolved"]).steps),
            "reference": (cell["reference_run"], address["reference"]),
            "budget": (plan["budget"]["kind"], run.budget.kind),
            "pairs": (plan["data"].get("hash") or address["pairs"], address["pairs"]),
        }
        if address["noise"] is not None:  # else the run stands under several noises, as it never sees wrong captions
            there |= {"rate": (block["rate"], run.rate), "noise": (block.get("kind"), kind)}
            there["name of the noise"] = cell["noise"], cell["noise"] if cell["noise"] in names else names[0]
        if run.selects_data:  # else it may be one that would leave rows out under noise
            there["keep"] = (row.get("keep") or {}).get("uses", ""), keep.uses
        if cell.get("manifest") and address["manifest"] is not None:
            there["manifest"] = cell["manifest"]["hash"], address["manifest"]
        for name, (said, known) in there.items():
            if canonical(said) != canonical(known):
                raise Refused(f"{name}: the plan says {said}, and the run's settings say {known}")
        if run.budget.value > block.get("budget", plan["budget"]["value"]):
            raise Refused(f"budget: the plan states less than {run.budget.label}, which the run had")


def refuse_other_headline(plan: Mapping[str, Any], run: Run) -> None:
    """Raise Refused if a plan's protocol, primary metric, sizes or chance are not those of its section `evaluate`.

    Sizes and chance are compared for data of the package. Raises UserError for settings that are not understood.
    """
    sets = EvaluationPlan(run.data, EvaluateSettings.model_validate(plan["settings"]["evaluate"]))
    same = {"protocol": sets.protocol.label, "primary": sets.primary()}
    for name, known in same.items():
        if plan.get(name) != known:
            raise Refused(f"{name}: is {plan.get(name)}, and its settings give {known}")
    for dataset, known in sets.datasets().items() if run.data.embedded else ():
        said = plan["datasets"].get(dataset, known)
        for name, value in known["chance"].items():
            if abs(said.get("chance", {}).get(name, value) - value) > 1e-9:
                raise Refused(f"chance: of {dataset} {name} is {said['chance'][name]:g}, and should be {value:g}")
        if said.get("n", known["n"]) != known["n"]:
            raise Refused(f"datasets: {dataset} has {known['n']:,} examples, and the plan says {said['n']:,}")


def refuse_other_costs(ledger: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise Refused unless a ledger has what its settings pay for, within the budget and its tolerance.

    Seconds and memory are its author's word, but a training takes some.
    """
    budget, resolved = settings["budget"], ResolvedSteps.from_json(settings["resolved"])
    kind, value = BUDGET_KINDS[budget["kind"]], budget["value"]
    own = Ledger(**{field.name: ledger[field.name] for field in fields(Ledger)})
    if (spent := own.spent(budget["kind"], resolved)) > value * (1 + kind.tolerance):
        raise Refused(f"ledger: over budget: {spent:g} {kind.unit} of {value:g} were spent")
    stated = own.statement(budget["kind"], value, resolved, ledger.get("reference"), ledger.get("scoring"))
    for name, known in {**stated, "samples": resolved.steps * resolved.batch, "flops": resolved.flops}.items():
        if canonical(ledger.get(name)) != canonical(known):
            raise Refused(f"ledger: {name}: is {ledger.get(name)}, and its steps take {known}")
    if resolved.steps and not ledger["train_seconds"] > 0:
        raise Refused(f"ledger: train_seconds: is {ledger['train_seconds']:g}, and {resolved.steps} steps take time")


def has_same_method(settings: Mapping[str, Any]) -> bool:
    """Return whether a run's method is here as it was when the run was made."""
    name = settings["method"]
    return name in registry.method_names() and adapter_source_hash(name) == settings["address"]["adapter"]


def refuse_other_inputs(settings: Mapping[str, Any], run: Run, reader: InputsReader) -> bool:
    """Draw noise and kept rows again if the data come with the package; return whether they do.

    Raises Refused if pairs, manifest or kept rows are others.
    """
    if not run.data.embedded or run.noise_file is not None:
        return False
    summary, address = reader.inputs(run).summary(), settings["address"]
    here = {"pairs": summary.data_hash, "manifest": summary.manifest_hash, "kept": summary.kept_hash}
    if address["noise"] is None or not run.rate:
        del here["manifest"]
    for name, known in here.items():
        if known != (own := address.get(name)):
            raise Refused(f"noise: the {name} of its settings have the hash {known!s:.12}, and it says {own!s:.12}")
    return True


def refuse_other_steps(run: RunStore, settings: Mapping[str, Any], reader: InputsReader) -> bool:
    """Count a run's steps and passes of towers again if its method is here as it was; return whether it is.

    FLOPs are counted by torch, so the version has to be the same. Raises Refused for other counts.
    """
    if not has_same_method(settings) or (run.environment().get("packages") or {}).get("torch") != torch.__version__:
        return False
    own = run_of_settings(dict(settings), _SETTINGS_PATH)
    paths = [field.name for field in fields(registry.find_method(own.method).Config) if field.metadata.get("path")]
    of_files = own.towers != _without_files(own.towers) or any(own.config.get(name) for name in paths)
    if of_files or settings.get("start") or BUDGET_KINDS[own.budget.kind].timed or own.keep.entry.scored:
        return False
    inputs = reader.for_model(own)
    resolved, ledger = counted_steps(own, inputs), run.ledger()
    if canonical(resolved.to_json()) != canonical(ResolvedSteps.from_json(settings["resolved"]).to_json()):
        raise Refused("resolved: a recount gives other steps or other costs")
    method = hyperparameters.make_method(own.method, None, own.config, inputs.facts)
    costs = [(steps * resolved.batch, method.cost(phase)) for phase, steps in resolved.phases]
    for side, other in (("image", "side_image"), ("text", "side_text")):
        forwards = sum(count * (getattr(cost, side) + getattr(cost, other)) for count, cost in costs)
        if abs((said := ledger[f"{side}_forwards"]) - forwards) > 1e-6 * forwards:
            raise Refused(f"ledger: {side}_forwards: is {said:,.0f}, and its steps take {forwards:,.0f}")
        if ledger[f"{side}_backwards"] > forwards:
            raise Refused(f"ledger: {side}_backwards: are more than its forwards")
    return True


def stored_fidelity(settings: Mapping[str, Any]) -> str | None:
    """Return how a run's method was checked; None if it is not here as it was, so that only its author can say."""
    name = settings["method"]
    return oracle_file.printed_fidelity(name, registry.find_method(name).about) if has_same_method(settings) else None
