"""The same trials for every method: quasi-random points of learning rate, weight decay and its space, halved.

A trial is a run under the suite's recipe and protocol with a seed of its own, scored by the mean of the six recalls on
validation pairs. The best of each budget advance to the next, the entry's own settings always among them (successive
halving: Jamieson and Talwalkar, AISTATS 2016). Their cost is reported apart and is not part of an entry's budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bench.adapters import registry
from bench.hashing import canonical
from bench.planning.outcomes import RunOutcomes, is_complete
from bench.planning.planned import Planned
from bench.planning.planner import Planner
from bench.planning.trial_settings import applied, is_as_good, settings_at_edge, settings_of
from bench.store import Store
from bench.store.selection import LAST, Select, score_at_selected
from bench.store.verify import run_problems
from bench.suite.settings import MethodEntry
from bench.suite.suite import Suite

DIVERGENCE_ERRORS = ("NotFinite", "FloatingPointError")  #: errors that a repeated run would raise again
SPENT_FIELDS = ("samples", "flops", "train_seconds", "evaluate_seconds")


@dataclass(frozen=True)
class Trial:
    """One run of one setting of a method."""

    changes: dict[str, Any]
    rung: int  #: number of the budget, from the shortest on; one more for a trial away from an edge
    seed: int
    run: str
    reference_run: str | None  #: the run that it started from
    score: float | None  #: None if its loss, or its reference's, became NaN or infinite


@dataclass(frozen=True)
class Choice:
    """The trials of a method, those that reached the longest budget, and the cost of all."""

    trials: tuple[Trial, ...]
    finals: tuple[tuple[dict[str, Any], float | None], ...]  #: settings, the entry's own first, with mean scores
    ledger: dict[str, float]  #: of all trials together; reference runs count once
    edge: tuple[str, ...] = ()  #: settings of the best at an edge of their range that are worse away from it
    outer: tuple[str, ...] = ()  #: these, and those in the outer tenth of their range that are as good away from it

    @property
    def best(self) -> tuple[dict[str, Any], float | None]:
        """The settings of the highest score, the first of equals, and that score; without any score the entry's own."""
        return _best(self.finals)

    def to_json(self) -> dict[str, Any]:
        """Return the entry of plan.json."""
        chosen, score = self.best
        return {
            "points": len({canonical(trial.changes) for trial in self.trials}),
            "chosen": chosen,
            "score": score,
            "default": self.finals[0][1],
            "edge": list(self.edge),
            "outer": list(self.outer),
            "trials": [vars(trial) for trial in self.trials],
            "ledger": self.ledger,
        }


def _best(finals: Sequence[tuple[dict[str, Any], float | None]]) -> tuple[dict[str, Any], float | None]:
    return max(finals, key=lambda final: -math.inf if final[1] is None else final[1])


def stages(suite: Suite) -> list[list[MethodEntry]]:
    """Return the entries whose trials can run together; those that need a run of another entry wait for its choice."""
    first = [entry for entry in suite.applicable if not _needs(suite, entry)]
    late = [entry for entry in suite.applicable if entry not in first]
    return [stage for stage in (first, late) if stage]


def _needs(suite: Suite, entry: MethodEntry) -> str | None:
    """Return the label of the entry whose run an entry starts from or has its pairs scored by."""
    start = registry.starting_method(entry.method, entry.start)
    return (entry.reference or start) if start else suite.scorer_of(entry)


def surviving_settings(scores: Mapping[int, float | None], count: int) -> list[int]:
    """Return the numbers of `count` settings: the entry's own (0), and the best others, the first of equals."""
    others = sorted((-math.inf if scores[number] is None else scores[number], -number) for number in scores if number)
    return sorted([0, *(-number for _, number in others[::-1][: count - 1])])


def trial_suite(
    suite: Suite, trials: Mapping[str, Mapping[int, dict[str, Any]]], choices: Mapping[str, Choice], rung: int = 0
) -> Suite:
    """Return a suite whose runs are the trials of a rung: of each entry, by its label, settings by their numbers."""
    tune = suite.tune
    assert tune is not None
    budget, _, seeds = tune.rungs[min(rung, len(tune.rungs) - 1)]
    entries = []
    for entry in suite.methods:
        for number, changes in trials.get(entry.label, {}).items():
            label = {"label": f"{entry.label}, trial {number}"}
            entries.append(applied(entry, changes).model_copy(update=label))
    return suite.changed(
        tune=None,
        methods=tuple(entries),
        seeds=seeds,
        noise=(suite.noise[0].at(trial_noise_rate(suite)),),
        budget=(budget or suite.budget[0],),
        evaluate=suite.evaluate.of_trials(tune.by, [rule for label in trials for rule in _trial_rules(suite, label)]),
    ).with_references(tuned_suite(suite, choices).methods)


def trial_noise_rate(suite: Suite) -> float:
    """Return the noise rate of a suite's trials."""
    assert suite.tune is not None
    return max(suite.noise[0].rates) if suite.tune.rate is None else suite.tune.rate


@dataclass
class Followed:
    """Progress of the trials of some entries."""

    choices: dict[str, Choice] = field(default_factory=dict)  #: of entries whose trials are finished
    runs: list[Planned] = field(default_factory=list)  #: of all rungs that are known, those they start from first
    todo: dict[str, Planned] = field(default_factory=dict)  #: by id, of rungs that are not finished; some are complete
    made: dict[str, list[tuple[Trial, Planned]]] = field(default_factory=dict)  #: measured or diverged, by entry


def follow_trials(suite: Suite, planner: Planner) -> Followed:
    """Follow the selected entries and those they need, as far as their trials are known.

    `todo` is what `search_settings` would execute before the first of it is finished; nothing without `tune`.
    """
    found = Followed()
    for stage in stages(suite) if suite.tune else ():
        _follow(suite, _wanted(suite, stage, found.choices), found, planner)
    return found


def search_settings(
    suite: Suite, planner: Planner, work: Callable[[list[Planned]], RunOutcomes]
) -> tuple[dict[str, Choice], RunOutcomes]:
    """Train and measure the trials of the selected entries, and the runs they start from.

    Returns the choices that are known afterwards, also those of other entries, and the outcomes of the trials. A trial
    whose loss became NaN or infinite has no score: it is not repeated and does not count as failed.
    """
    choices, total, store = follow_trials(suite.narrowed(), planner).choices, RunOutcomes(), planner.store
    if suite.tune is None:
        return choices, total
    for stage in stages(suite):
        for _ in (*suite.tune.rungs, "edges", "after the last"):
            if not (rows := _wanted(suite, stage, choices)):
                break
            trials = _follow(suite, rows, Followed(choices), planner)
            store.name_trials(suite.name, [one.id for one in trials.runs])
            todo = [one for one in trials.todo.values() if one.id not in total.failed]
            if not todo:
                break
            summary = work(todo)
            diverged = {one.id for one in todo if _diverged(one, store)}
            failed = [identity for identity in summary.failed if identity not in diverged]
            total.merge(replace(summary, skipped=[], failed=failed))
            if total.busy or total.interrupted or total.queued:
                return choices, total
    return choices, total


def _wanted(suite: Suite, stage: Sequence[MethodEntry], choices: Mapping[str, Choice]) -> list[MethodEntry]:
    """Return entries of a stage without a choice that are selected or that a selected one needs."""
    labels, _ = suite.selection
    starts = {_needs(suite, entry) for entry in suite.methods if entry.label in labels}
    rows = [entry for entry in stage if not labels or entry.label in (*labels, *starts)]
    return [entry for entry in rows if entry.label not in choices]


def _follow(suite: Suite, rows: Sequence[MethodEntry], found: Followed, planner: Planner) -> Followed:
    """Follow entries from rung to rung as far as their trials are measured or diverged; others are to be made (again).

    Where the best lies at an edge, a further trial at the last budget says whether it has to, and is chosen if it is
    better.
    """
    assert suite.tune is not None
    own = {entry.label: entry for entry in rows}
    settings = {label: dict(enumerate(settings_of(suite.tune, entry))) for label, entry in own.items()}
    scores: dict[str, dict[int, float | None]] = {label: dict.fromkeys(ones) for label, ones in settings.items()}
    for rung, (_, count, _) in enumerate(suite.tune.rungs):
        alive = {label: surviving_settings(ones, count) for label, ones in scores.items()}
        trials = {label: {n: settings[label][n] for n in numbers} for label, numbers in alive.items()}
        scores = _measured(suite, trials, rung, found, planner)
    finals = {label: tuple((settings[label][n], score) for n, score in ones.items()) for label, ones in scores.items()}
    at_edges = {label: settings_at_edge(suite, own[label], final) for label, final in finals.items()}
    elsewhere = {label: dict(enumerate(one.values(), len(settings[label]))) for label, one in at_edges.items() if one}
    without = _measured(suite, elsewhere, len(suite.tune.rungs), found, planner)
    for label, final in finals.items():
        if label in elsewhere and label not in without:
            continue
        further = [(elsewhere[label][n], score) for n, score in without.get(label, {}).items()]
        top = max((score for _, score in final if score is not None), default=0.0)
        lost = zip(at_edges[label], (not is_as_good(score, top) for _, score in further), strict=True)
        made, runs = zip(*found.made[label], strict=True)
        edge = tuple(name for name, costs in lost if costs)
        outer = tuple(settings_at_edge(suite, own[label], [_best(final)]))  # as if nothing else had been tried
        found.choices[label] = Choice(made, (*final, *further), _spent(runs, planner.store), edge, outer)
    return found


def _measured(
    suite: Suite, trials: Mapping[str, dict[int, dict[str, Any]]], rung: int, found: Followed, planner: Planner
) -> dict[str, dict[int, float | None]]:
    """Return the scores of entries whose `trials` of a rung are all known; note in `found` what is, and what is not."""
    alike: dict[tuple[Select, ...], dict[str, dict[int, dict[str, Any]]]] = {}
    for label, numbers in trials.items():
        alike.setdefault(_trial_rules(suite, label), {})[label] = numbers
    found_scores = (_measured_alike(suite, ones, rung, found, planner) for ones in alike.values())
    return {label: numbers for scores in found_scores for label, numbers in scores.items()}


def _trial_rules(suite: Suite, label: str) -> tuple[Select, ...]:
    """Return the `select` rules of an entry and of those that share its trials: they differ from it in no setting."""
    shared = {"label": "", "select": None}
    (own,) = (entry.model_copy(update=shared) for entry in suite.methods if entry.label == label)
    return tuple(entry.select or suite.select for entry in suite.methods if entry.model_copy(update=shared) == own)


def _measured_alike(
    suite: Suite, trials: Mapping[str, dict[int, dict[str, Any]]], rung: int, found: Followed, planner: Planner
) -> dict[str, dict[int, float | None]]:
    """`_measured` of entries whose trials measure the same."""
    assert suite.tune is not None
    rules = {entry.label: entry.select or suite.select for entry in suite.methods}
    store, scores = planner.store, dict[str, dict[int, float | None]]()
    asked = trial_suite(suite, trials, found.choices, rung)
    planned = planner.plan(asked.runs())
    found.runs += planned
    by_key = {one.run.key: one for one in planned}
    by_name = {(one.label, one.seed): by_key.get(one.key) for one in asked.cells()}  # two trials may be one run
    for label, numbers in trials.items():
        places = {(n, seed): by_name[f"{label}, trial {n}", seed] for n in numbers for seed in asked.seeds}
        ones = {place: one for place, one in places.items() if one is not None}
        if len(ones) < len(places):  # some have no steps, which a dry run says
            continue
        if not all(_is_known(one, store) for one in ones.values()):
            wanted = {identity for one in ones.values() for identity in (one.id, one.reference)}
            found.todo |= {one.id: one for one in planned if one.id in wanted and not _diverged(one, store)}
            continue
        single = {place: _score(one, store, suite.tune.by, rules[label]) for place, one in ones.items()}
        scores[label] = {n: _mean([single[n, seed] for seed in asked.seeds]) for n in numbers}
        found.made.setdefault(label, []).extend(
            (Trial(numbers[n], rung, seed, one.id, one.reference, single[n, seed]), one)
            for (n, seed), one in ones.items()
        )
    return scores


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of scores, None without any or if one is None."""
    there = [value for value in values if value is not None]
    return sum(there) / len(values) if values and len(there) == len(values) else None


def _is_known(one: Planned, store: Store) -> bool:
    """Return whether a trial is measured or diverged, and what it cost can be read."""
    costs = one.reference is None or not run_problems(store.run(one.reference))
    return costs and (is_complete(one, store) or _diverged(one, store))


def _diverged(one: Planned, store: Store) -> bool:
    """Return whether its loss or features, or its reference's, became NaN or infinite: a repetition would fail too."""
    runs = [store.run(identity) for identity in (one.id, one.reference) if identity]
    failed = [run for run in runs if run.status()["state"] == "failed" and not run_problems(run)]
    return any(run.status().get("error", {}).get("type") in DIVERGENCE_ERRORS for run in failed)


def _score(one: Planned, store: Store, by: str, rule: str) -> float | None:
    """Return the mean recall by all sets of a family of validation, or by a rule's own; None if one has no score."""
    family = by if rule == LAST else rule
    sets = {task.dataset for task in one.evaluation.chosen if task.family == family}
    records = [record for record in store.run(one.id).records() if record.dataset in sets]
    own = (registry.find_method(one.run.method).score, one.evaluation.protocol.label, one.run.points)
    return None if sets - {record.dataset for record in records} else score_at_selected(records, rule, family, *own)


def _spent(ones: Sequence[Planned], store: Store) -> dict[str, float]:
    identities = {one.id for one in ones} | {one.reference for one in ones if one.reference}
    ledgers = [store.run(identity).ledger() or _spent_until(store, identity) for identity in identities]
    return {key: sum(ledger.get(key, 0) for ledger in ledgers) for key in SPENT_FIELDS}


def _spent_until(store: Store, identity: str) -> dict[str, float]:
    """Return samples and FLOPs that a run without a ledger spent before it stopped; its seconds are unknown."""
    resolved = store.run(identity).settings().get("resolved", {"phases": [], "batch": 0})
    left, flops = store.run(identity).status().get("error", {}).get("step", 0), 0.0
    samples = left * resolved["batch"]
    for name, steps in resolved["phases"]:
        flops += min(left, steps) * resolved["step_flops"][name]
        left = max(0, left - steps)
    return {"samples": samples, "flops": flops}


def tuned_suite(suite: Suite, choices: Mapping[str, Choice]) -> Suite:
    """Return the suite with every entry at its chosen settings; entries without a choice stay as they are."""
    best = {label: choice.best[0] for label, choice in choices.items()}
    rows = tuple(applied(entry, best.get(entry.label, {})) for entry in suite.methods)
    return suite.changed(methods=rows).narrowed(*suite.selection)
