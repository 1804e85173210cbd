"""A suite's plan joined with the store: every planned run with its state, records and costs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, cast

from bench.errors import UserError
from bench.store import Damaged, Record, RunStore, Store
from bench.store.pack import ARCHIVE
from bench.store.run import damaged_status
from bench.store.selection import LAST, chosen_point, validation_scores
from reports.epochs import in_epochs
from reports.tables.table import Row, State
from reports.vocabulary import family, family_rank, metric_rank, task_and_metric

TOLD_BY_CLEAN = "clean validation pairs"  #: what an entry uses whose weights are chosen by them
Key = tuple[float, str, str, str, str]  #: at, dataset, task, metric, score
#: lets a function of results compute once for them, and once for their `longest`; what it returns must not be changed
once = lru_cache(maxsize=2)


@dataclass(frozen=True)
class RunResult:
    """One planned run: a method under one noise with one seed."""

    method: str  #: the plan's label
    noise: str  #: the plan's label
    seed: int
    run: str
    steps: int
    manifest: Mapping[str, Any] | None  #: hash, realised_rate, rows
    status: Mapping[str, Any]
    records: Mapping[Key, Record]
    ledger: Mapping[str, Any]
    environment: Mapping[str, Any]
    stored: RunStore  #: for what a report reads only of some runs
    reference: str | None = None  #: the run it starts from
    kept_rows: int | None = None  #: training rows it may see; None for all
    others: tuple[Record, ...] = ()  #: measured under another protocol than the plan's; never shown as values
    unmeasured: int = 0  #: evaluations of the plan that are not stored
    training_version: int | None = None  #: of the runner that made it; None where nothing is stored
    select: str = LAST  #: the rule that chose the weights which `records` holds as those of 1.0
    at: float | None = 1.0  #: the share of the budget that they were taken at; None while it is not known
    measured: Mapping[Key, Record] = field(default_factory=dict)  #: all records, of the last weights at 1.0

    @property
    def state(self) -> str:
        """The state for this suite: a finished run that lacks evaluations of this suite is `trained`, not `done`."""
        state = str(self.status["state"])
        return "trained" if state == "done" and self.unmeasured else state

    @property
    def lacking(self) -> State:
        """The state to show where this run has no value. A finished run may lack an unrequested evaluation."""
        state = self.status["state"]
        return "missing" if state == "done" else cast("State", state)

    @property
    def of_last(self) -> RunResult:
        """The same run, read at its last weights."""
        return replace(self, records=self.measured, select=LAST, at=1.0)

    @property
    def costs_lost(self) -> bool:
        """Whether a finished run has no ledger: it was damaged and moved aside, and only training makes one."""
        return self.status["state"] == "done" and not self.ledger

    @property
    def over_budget(self) -> bool:
        return bool(self.ledger.get("over_budget"))

    def find(self, dataset: str, task: str, metric: str, score: str, at: float = 1.0) -> Record | None:
        """The record under this score, or the one that needs none; at 1.0 of the weights that the row's rule chose."""
        return self.records.get((at, dataset, task, metric, score)) or self.records.get((at, dataset, task, metric, ""))


@dataclass(frozen=True, eq=False)
class Results:
    """A suite's plan with its runs, in the plan's order."""

    plan: Mapping[str, Any]
    runs: tuple[RunResult, ...]

    @property
    def suite(self) -> str:
        return str(self.plan["suite"])

    @cached_property
    def methods(self) -> dict[str, Mapping[str, Any]]:
        """Methods by label, in the suite's order."""
        return {entry["label"]: entry for entry in self.plan["methods"]}

    @cached_property
    def ranked(self) -> dict[str, Mapping[str, Any]]:
        """The entries that are compared: not those that use what no method knows.

        If the baseline's weights are chosen by clean pairs, those of others may be as well.
        """
        alike = ("", TOLD_BY_CLEAN) if uses(self.methods[self.baseline]) == TOLD_BY_CLEAN else ("",)
        return {label: entry for label, entry in self.methods.items() if uses(entry) in alike}

    @property
    def baseline(self) -> str:
        """Label of the entry that others are compared with."""
        return str(self.plan["baseline"])

    def named(self, label: str) -> str:
        """The display name of an entry: "clip" is "CLIP", "clip filtered" is "CLIP filtered", other labels stay."""
        entry = self.methods[label]
        added = label.removeprefix(entry["method"])
        return f"{entry['title']}{added}" if added != label and added[:1] in ("", " ", ",") else label

    def titled(self, row: Row) -> str:
        """The display name of a table row."""
        known = row.method in self.methods
        return self.named(row.method) + row.label.removeprefix(row.method) if known else row.label

    @property
    def oracle(self) -> str | None:
        """Label of the baseline's method trained on the pairs that are known to be clean; None without such a row."""
        method = self.methods[self.baseline]["method"]
        others = (label for label, entry in self.methods.items() if entry["method"] == method)
        return next((one for one in others if one != self.baseline and uses(self.methods[one]) == "the truth"), None)

    @property
    def at_edge(self) -> dict[str, list[str]] | None:
        """Settings whose tuned value lies at an edge of its range, for each row with trials; None if it is unknown.

        Then a suite has no trials yet, or its plan was made before trials had spaces.
        """
        choices = (self.plan["tuning"] or {"methods": {}})["methods"]
        known = {label: list(choice["edge"]) for label, choice in choices.items() if "edge" in choice}
        return known if len(known) == len(choices) > 0 else None

    @cached_property
    def noises(self) -> dict[str, Mapping[str, Any]]:
        """Noises by label, in the suite's order."""
        return {entry["label"]: entry for entry in self.plan["noises"]}

    @cached_property
    def _cells(self) -> dict[tuple[str, str], list[RunResult]]:
        cells: dict[tuple[str, str], list[RunResult]] = {}
        for run in self.runs:
            cells.setdefault((run.method, run.noise), []).append(run)
        return cells

    def of(self, method: str, noise: str) -> list[RunResult]:
        """The runs of one cell, one a seed."""
        return self._cells.get((method, noise), [])

    def budget(self, noise: str) -> float:
        """The budget of the runs of a block, in the unit of the suite's."""
        return float(self.noises[noise].get("budget", self.plan["budget"]["value"]))

    def told(self, budget: float | str) -> str:
        """A budget, or its text, as the labels of noises have it: "40 epochs", "146 epochs of CLIP"."""
        text = budget if isinstance(budget, str) else f"{budget:g} {self.plan['budget']['unit']}"
        return str(self.plan["budget"].get("told", {}).get(text, text))

    def clean(self, noise: str) -> str | None:
        """The block of clean pairs with the towers and the budget of a noise; None without one, and for itself."""
        block = self.noises[noise]
        same = (
            label
            for label, other in self.noises.items()
            if not other["kind"] and (other["towers"], other.get("budget")) == (block["towers"], block.get("budget"))
        )
        return next(same, None) if block["kind"] else None

    @cached_property
    def longest(self) -> Results:
        """The same at the longest budget of each noise, with its clean pairs; these results if there is one budget."""
        ends: dict[str, str] = {}  # keyed by what the blocks of one noise have in common
        for label in sorted(self.noises, key=self.budget):
            same = {name: one for name, one in self.noises[label].items() if name not in ("label", "budget", "seeds")}
            ends[json.dumps(same, sort_keys=True)] = label
        shown = {*ends.values(), *map(self.clean, ends.values())}
        if shown >= set(self.noises) or not any("budget" in block for block in self.noises.values()):
            return self
        blocks = [block for label, block in self.noises.items() if label in shown]
        return Results({**self.plan, "noises": blocks}, tuple(run for run in self.runs if run.noise in shown))

    def inapplicable(self, method: str, noise: str) -> str:
        """Why a method has no runs on the towers of a block; "" if it has."""
        reasons: Mapping[str, str] = self.methods[method].get("inapplicable", {})
        return reasons.get(self.noises[noise]["towers"], "")

    @cached_property
    def scores(self) -> dict[str, set[tuple[str, str, str, str]]]:
        """For each method, (dataset, task, metric, score) of everything measured on final weights."""
        found: dict[str, set[tuple[str, str, str, str]]] = {label: set() for label in self.methods}
        for run in self.runs:
            found[run.method].update(key[1:] for key in run.records if key[0] == 1.0)
        return found

    @cached_property
    def directions(self) -> dict[tuple[str, str, str], bool]:
        """Whether higher is better, for each (dataset, task, metric) measured on final weights."""
        final = (one for run in self.runs for (at, *_), one in run.records.items() if at == 1.0)
        return {(record.dataset, record.task, record.metric): record.higher_is_better for record in final}

    @cached_property
    def mixed(self) -> dict[tuple[str, str], Counter[str]]:
        """(dataset, task) that runs were measured for on different data -> hash of the data -> number of runs."""
        towers = {block["label"]: block["towers"] for block in self.plan["noises"]}
        found: dict[tuple[str, str, str], Counter[str]] = {}  # runs are compared under the same towers alone
        for run in self.runs:
            final = {
                (one.dataset, one.task, one.data) for (at, *_), one in run.records.items() if at == 1.0 and one.data
            }
            for dataset, task, data in sorted(final):
                found.setdefault((dataset, task, towers.get(run.noise, "")), Counter())[data] += 1
        return {(dataset, task): counts for (dataset, task, _), counts in found.items() if len(counts) > 1}

    @cached_property
    def elsewhere(self) -> dict[str, dict[tuple[str, str], int]]:
        """Protocol -> (dataset, task) that this suite measures -> number of runs that have it under that one alone."""
        found: dict[str, dict[tuple[str, str], set[str]]] = {}
        measures = set(self.measures)
        for run in self.runs:
            for one in run.others:
                key = (one.at, one.dataset, one.task, one.metric, one.score)
                if one.at == 1.0 and key[1:4] in measures and key not in run.records:
                    tasks = found.setdefault(one.protocol, {})
                    tasks.setdefault((one.dataset, one.task), set()).add(run.run)
        return {name: {task: len(runs) for task, runs in sorted(found[name].items())} for name in sorted(found)}

    @cached_property
    def measures(self) -> list[tuple[str, str, str]]:
        """(dataset, task, metric) of everything measured on final weights or known to the plan, in order of reading."""
        datasets = {name: place for place, name in enumerate(self.plan["datasets"])}
        found = set(self.directions)
        for name, entry in self.plan["datasets"].items():
            found.update((name, *task_and_metric(key)) for key in entry["chance"])

        def place(measure: tuple[str, str, str]) -> tuple[Any, ...]:
            dataset, task, metric = measure
            known = datasets.get(dataset, len(datasets))
            return family_rank(family(task)), family(task), known, dataset, task, metric_rank(metric), metric

        return sorted(found, key=place)

    def states(self) -> dict[str, int]:
        """How many runs are in which state; one that several rows share counts once."""
        counts = Counter({run.run: run.state for run in self.runs}.values())
        order = ("done", "trained", "running", "interrupted", "failed", "damaged", "missing")
        return {state: counts[state] for state in order}


def uses(entry: Mapping[str, Any]) -> str:
    """What an entry of the plan uses that no method knows: "the truth", "trusted pairs"; "" for most."""
    told = TOLD_BY_CLEAN if entry.get("select") == "clean_validation" else ""
    return str((entry["keep"] or {}).get("uses") or told)


def load(suite: str, store: Store) -> Results:
    """Read a suite's plan and everything the store has of its runs under the plan's protocol.

    UserError where there is no plan, and Damaged where it cannot be read. A run of which a
    file is damaged has no records, and the file as its error.
    """
    own, path = store.plan(suite), store.suite(suite) / "plan.json"
    if own is None:
        archive, plans = path.with_name(ARCHIVE), "`bench run` writes one: run the suite, by its name or file, first"
        brings = f"`bench store import {archive} --results DIR` brings it with its runs to another folder"
        raise UserError(f"{path}: no plan; {brings if archive.is_file() else plans}")
    plan = in_epochs(own, Results(own, ()).named(own["baseline"]))
    stored: dict[str, dict[str, Any]] = {}
    methods = {entry["label"]: entry for entry in plan["methods"]}
    points = (*plan["settings"]["evaluate"]["curve"], 1.0)
    runs = []
    for cell in plan["cells"]:
        identity = cell["run"]
        if identity not in stored:
            stored[identity] = _read(store, cell, plan["protocol"])
        selected = _selected(stored[identity]["records"], methods[cell["method"]], plan["protocol"], points)
        runs.append(
            RunResult(
                **{name: cell[name] for name in ("method", "noise", "seed", "run", "steps", "manifest")},
                stored=store.run(identity),
                reference=cell["reference_run"],
                kept_rows=cell["kept_rows"],
                **{**stored[identity], **selected},
            )
        )
    return Results(plan, tuple(runs))


def _selected(
    records: Mapping[Key, Record], entry: Mapping[str, Any], protocol: str, points: Sequence[float]
) -> dict[str, Any]:
    """What an entry reads of a run: what is measured at every point is taken at the chosen weights, not at the last."""
    select = entry.get("select", LAST)
    if select == LAST:
        return {"records": records, "measured": records}
    scores = validation_scores(records.values(), select, entry["score"], protocol)
    at = chosen_point(select, scores, points)
    everywhere = (key[1:] for key in records if key[0] == at and all((one, *key[1:]) in records for one in points))
    chosen: dict[Key, Record] = {(1.0, *key): records[at, *key] for key in everywhere} if at is not None else {}
    return {"records": chosen, "measured": records, "select": select, "at": at}


def _read(store: Store, cell: Mapping[str, Any], protocol: str) -> dict[str, Any]:
    run = store.run(cell["run"])
    status = run.status()
    if status["state"] in ("missing", "damaged"):
        return {"status": status, "records": {}, "ledger": {}, "environment": {}}
    try:
        stored = {"ledger": run.ledger(), "environment": run.environment()}
        version = run.settings().get("training_version")
        evaluations = {key: run.records_of(key) for key in run.evaluations()}
        run.diagnostics()  # which figures read
    except Damaged as error:
        reached = {key: value for key, value in status.items() if key == "step"}
        return {"status": {**damaged_status(error), **reached}, "records": {}, "ledger": {}, "environment": {}}
    records: dict[Key, Record] = {}
    others = []
    for one in chain.from_iterable(evaluations.values()):
        if one.protocol == protocol:
            records[one.at, one.dataset, one.task, one.metric, one.score] = one
        else:
            others.append(one)
    _add_sums(records)
    return {
        **stored,
        "status": status,
        "records": records,
        "others": tuple(others),
        "unmeasured": sum(key not in evaluations for key in cell["evaluations"]),
        "training_version": version,
    }


def _add_sums(records: dict[Key, Record]) -> None:
    """Add rSum, six times the mean of the six recalls, to records of retrieval from before it was stored."""
    for (*place, metric, score), one in list(records.items()):
        if metric == "mean_recall":
            low, high = (None if bound is None else 6 * bound for bound in (one.low, one.high))
            key: Any = (*place, "rsum", score)
            records.setdefault(key, replace(one, metric="rsum", value=6 * one.value, low=low, high=high))
