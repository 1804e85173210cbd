"""What is checked of bundles before their rows stand on the board. Consistent is not proven: only a rerun shows more.

A bundle is an archive that `bench submit` wrote. Files, ids, hashes and the plan are checked as an import checks them;
here are budgets, noise, scores and duplicates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.adapters import registry
from bench.catalogue.budget_kinds import BUDGET_KINDS, Spent
from bench.data.source import source
from bench.errors import UserError, one_line
from bench.evaluation.noise.detection import point_scores
from bench.evaluation.puzzles import SIZES
from bench.evaluation.ranks import SCORES, Ranks
from bench.evaluation.retrieval import Retrieval
from bench.planning import requirements
from bench.store import Damaged, RunStore, Store
from bench.store.incoming import unpacked
from bench.store.pack import SUFFIX
from bench.store.run import SHORT
from bench.suite.run import run_of_settings
from bench.training.inputs import InputsReader
from bench.training.schedule import Resolved

Outcomes = Mapping[str, np.ndarray]
Scores = dict[tuple[str, str], float]  #: (metric, score) -> value
TOLERANCE = 1e-6  #: of a value; sums over examples round differently
DETECTION_TOLERANCE = 1e-4  #: confidences are stored as fp32, so some that differed are tied


def recomputed(outcomes: Outcomes) -> Scores:
    """Return every score that follows from the outcomes of one evaluation.

    Metrics that need more than the outcomes, such as those of groups of images, are not among them. Raises ValueError
    or KeyError if arrays are missing or do not fit together.
    """
    scores: Scores = {}
    for score in SCORES:
        if f"{score}_better" in outcomes:
            scores |= _of_classes(outcomes, score)
        if f"{score}_i2t_better" in outcomes:
            i2t, t2i = (_ranks(outcomes, f"{score}_{side}_") for side in ("i2t", "t2i"))
            metrics = Retrieval(i2t, t2i, outcomes[f"{score}_owner"]).metrics()
            scores |= {(metric, score): value for metric, value in metrics.items()}
        if f"{score}_jaccard" in outcomes:
            scores |= _of_puzzles(outcomes["candidates"], outcomes[f"{score}_jaccard"], score)
    if "correct" in outcomes:
        scores["accuracy", ""] = float(outcomes["correct"].astype(np.float64).mean())
    if "confidence" in outcomes:
        area, precision = point_scores(outcomes["confidence"].astype(np.float64), outcomes["noisy"].astype(np.bool_))
        scores |= {("auroc", ""): area, ("average_precision", ""): precision}
    return scores


def tolerance(metric: str) -> float:
    """Return how far a stored score may lie from the recomputed one."""
    return DETECTION_TOLERANCE if metric in ("auroc", "average_precision") else TOLERANCE


def _ranks(outcomes: Outcomes, prefix: str) -> Ranks:
    return Ranks(*(outcomes[f"{prefix}{name}"].astype(np.int64) for name in ("better", "tied_wrong", "tied_right")))


def _of_classes(outcomes: Outcomes, score: str) -> Scores:
    ranks = _ranks(outcomes, f"{score}_")
    scores = {(f"top{k}", score): float(ranks.hits(k).mean()) for k in (1, 5)}
    if f"{score}_log_likelihood" in outcomes:
        logs = outcomes[f"{score}_log_likelihood"].astype(np.float64)
        scores["likelihood", score] = float(np.exp(logs.mean()))
        scores["mrr", score] = float(ranks.reciprocal().mean())
    return scores


def _of_puzzles(sizes: np.ndarray, jaccard: np.ndarray, score: str) -> Scores:
    groups = {metric: jaccard[np.isin(sizes, among)] for metric, among in SIZES.items()} | {"jaccard": jaccard}
    return {(metric, score): float(values.mean()) for metric, values in groups.items() if len(values)}


class Refused(Exception):
    """What is wrong with a run of a bundle, in words that follow its name."""


@dataclass
class BundleCheck:
    """The outcome for one bundle."""

    path: Path
    runs: int = 0
    shared: int = 0  #: runs that an earlier bundle has with the same records
    scores: int = 0
    recomputed: int = 0  #: of `scores`, computed again from the outcomes of single examples
    noisy: int = 0  #: runs with a noise manifest
    drawn: int = 0  #: of `noisy`, whose manifest was drawn again
    problems: list[str] = field(default_factory=list)  #: a sentence for everything that is wrong

    def text(self) -> list[str]:
        """Return what was checked, in lines."""
        return [
            f"{self.path}: {self.runs} runs, {self.shared} of them in other bundles as well",
            f"  scores: {self.recomputed} of {self.scores} computed again from outcomes of single examples",
            f"  noise: {self.drawn} of {self.noisy} manifests drawn again",
            f"  {len(self.problems)} problems" if self.problems else "  consistent; consistent is not proven",
        ]


@dataclass
class BundleChecker:
    """Checks bundles one after the other, and each against those before it."""

    _records: dict[str, str] = field(default_factory=dict)  #: run -> hash of its final records
    _weights: dict[str, tuple[str, str]] = field(default_factory=dict)  #: hash of weights -> run, and what it is
    _reader: InputsReader = field(default_factory=InputsReader)

    def check(self, path: Path) -> BundleCheck:
        """Check a bundle; what is wrong is in the outcome's `problems`."""
        outcome = BundleCheck(path)
        try:
            with unpacked(path) as store:
                self._bundle(store, outcome)
        except (UserError, Damaged) as error:
            outcome.problems += str(error).split("\n")
        return outcome

    def _bundle(self, store: Store, outcome: BundleCheck) -> None:
        suites = store.plans()
        if len(suites) != 1:
            outcome.problems.append(f"{outcome.path}: holds the plans of {len(suites)} suites, and should hold one")
            return
        plan = store.plan(suites[0]) or {}
        named = _named(plan)
        for run in store.runs():
            outcome.runs += 1
            try:
                self._run(run, plan, named.get(run.id, []), outcome)
            except Refused as reason:
                outcome.problems.append(f"{outcome.path}: run {run.id[:SHORT]}: {reason}")
        if outcome.runs == outcome.shared and not outcome.problems:
            outcome.problems.append(f"{outcome.path}: duplicate: every run of it is in other bundles already")

    def _run(self, run: RunStore, plan: Mapping[str, Any], cells: list[Any], outcome: BundleCheck) -> None:
        """Check one run. Raises Refused for the first thing that is wrong with it."""
        settings = run.settings()
        _refuse_other_cell(settings, plan, cells)
        if run.read_status()["state"] != "done":
            return
        _refuse_over_budget(run.ledger(), settings)
        self._refuse_other_noise(settings, outcome)
        _refuse_other_scores(run, outcome)
        self._refuse_renamed(run, settings, outcome)

    def _refuse_other_noise(self, settings: Mapping[str, Any], outcome: BundleCheck) -> None:
        """Draw the manifest again if the data are here. Raises Refused if pairs or manifest are others."""
        address = settings["address"]
        if address["manifest"] is None:
            return
        outcome.noisy += 1
        # Noise does not depend on the method, which may be a plug-in that is not here.
        run = run_of_settings({**settings, "method": min(registry.names()), "config": {}}, Path("settings.json"))
        if requirements.training(run):
            return
        outcome.drawn += 1
        here = {"pairs": source(run.data).pairs().content_hash}
        here["manifest"] = getattr(self._reader.noise(run), "content_hash", "")
        for name, known in here.items():
            if known != (own := address[name]):
                raise Refused(f"noise: the {name} of its settings have the hash {known[:12]}, and it says {own[:12]}")

    def _refuse_renamed(self, run: RunStore, settings: Mapping[str, Any], outcome: BundleCheck) -> None:
        """Raise Refused if other records of this run, or its weights under another name, were seen before."""
        final = [record for record in run.records() if record.at == 1.0]
        records = hashlib.sha256(repr(sorted(map(repr, final))).encode()).hexdigest()
        outcome.shared += run.id in self._records
        if self._records.setdefault(run.id, records) != records:
            raise Refused("duplicate: another bundle has this run with other scores")
        what = f"{settings['method']}, {settings['noise']}, seed {settings['seed']}"
        first, named = self._weights.setdefault(final[0].checkpoint, (run.id, what)) if final else (run.id, what)
        if first != run.id and named != what and not settings.get("untrained"):
            raise Refused(f"duplicate: has the weights of run {first[:SHORT]} ({named}) under another name")


def check_folder(paths: Sequence[Path]) -> list[BundleCheck]:
    """Check bundles, or all bundles of a folder; a file is also compared with the others beside it.

    Raises UserError for a path that is neither.
    """
    checker, outcomes = BundleChecker(), []
    asked = [bundle for path in paths for bundle in _bundles(path)]
    beside = sorted({other for path in asked for other in path.parent.glob(f"*{SUFFIX}")} - {*asked})
    for path in beside:
        checker.check(path)
    for path in asked:
        outcomes.append(checker.check(path))
    return outcomes


def _bundles(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.glob(f"*{SUFFIX}"))
    if not path.is_file():
        raise UserError(f"{path}: no such bundle or folder of bundles; `bench submit RESULTS SUITE` writes one")
    return [path]


def _named(plan: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the cells of a plan by the ids of their runs; a trial has none."""
    cells: dict[str, list[Any]] = {}
    for cell in plan["cells"]:
        cells.setdefault(cell["run"], []).append(cell)
    for choice in (plan.get("tuning") or {"methods": {}})["methods"].values():
        for trial in choice["trials"]:
            cells.setdefault(trial["run"], [])
    return cells


def _refuse_other_cell(
    settings: Mapping[str, Any], plan: Mapping[str, Any], cells: Sequence[Mapping[str, Any]]
) -> None:
    """Raise Refused if the plan calls a run another method, seed or noise than its settings do."""
    methods = {entry["label"]: entry.get("method", entry["label"]) for entry in plan.get("methods", ())}
    rates = {entry["label"]: entry["rate"] for entry in plan.get("noises", ())}
    address = settings["address"]
    for cell in cells:
        method = methods.get(cell["method"], cell["method"])
        own = {"method": settings["method"], "seed": settings["seed"]}
        there = {"method": method, "seed": cell["seed"]}
        if address["noise"] is not None:
            own["rate"], there["rate"] = settings["noise"]["rate"], rates.get(cell["noise"])
        if cell.get("manifest") and address["manifest"] is not None:
            own["manifest"], there["manifest"] = address["manifest"], cell["manifest"]["hash"]
        for name, value in own.items():
            if there[name] != value:
                raise Refused(f"{name}: the plan says {there[name]}, and the run's settings say {value}")


def _refuse_over_budget(ledger: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise Refused unless a ledger has what its settings pay for, within the budget and its tolerance."""
    budget, resolved = settings["budget"], Resolved.from_json(settings["resolved"])
    kind, value = BUDGET_KINDS[budget["kind"]], budget["value"]
    if ledger.get("budget") != {"kind": budget["kind"], "value": value}:
        raise Refused(f"ledger: budget: is {ledger.get('budget')}, and the settings say {value:g} {budget['kind']}")
    epoch = (resolved.budget_epoch_steps or resolved.epoch_steps) * resolved.batch
    spent = kind.spent(Spent(ledger["samples"], ledger["flops"], ledger["train_seconds"], epoch))
    if spent > value * (1 + kind.tolerance):
        raise Refused(f"ledger: over budget: {spent:g} {kind.unit} of {value:g} were spent")
    for name, planned in (("samples", resolved.steps * resolved.batch), ("flops", resolved.flops)):
        if ledger[name] != planned:
            raise Refused(f"ledger: {name}: is {ledger[name]:,}, and its steps take {planned:,}")


def _refuse_other_scores(run: RunStore, outcome: BundleCheck) -> None:
    """Raise Refused if a stored score is not what the outcomes of single examples give."""
    for key in run.evaluations():
        path = run.path(f"evaluations/{key}/outcomes.npz")
        if not path.is_file():
            raise Refused(f"evaluations/{key}: has no outcomes of single examples")
        try:
            again = recomputed(run.outcomes(key))
        except (ValueError, KeyError, IndexError, FloatingPointError) as error:
            raise Refused(f"evaluations/{key}/outcomes.npz: {one_line(error)}") from error
        for record in run.records_of(key):
            outcome.scores += 1
            value = again.get((record.metric, record.score))
            if value is None:
                continue
            outcome.recomputed += 1
            if not abs(value - record.value) <= tolerance(record.metric):
                where = f"{record.dataset} {record.task} {record.metric}"
                raise Refused(f"score: {where} is {record.value:.6g}, and its outcomes give {value:.6g}")
