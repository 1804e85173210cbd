"""The same number of trials for every method: learning rate, and the temperature of methods that keep it fixed.

A trial is an ordinary run under the suite's recipe, with a seed of its own, scored by the mean of the six recalls on
the validation pairs, which no table shows, under the suite's protocol. Of several validation sets the mean counts.
Trials are stored as runs are, so each is made once. Their cost is reported beside the method and is not part of its
budget.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.adapters import hyperparameters, registry
from bench.suite.settings import MethodEntry
from bench.suite.tune_settings import TuneSettings

if TYPE_CHECKING:
    from bench.console.progress import Progress
    from bench.planning.outcomes import Summary
    from bench.planning.planned import Planned
    from bench.store import Store
    from bench.suite.suite import Suite
    from bench.training.inputs import InputsReader

METRIC = "mean_recall"
DIVERGED = ("NotFinite", "FloatingPointError")  #: errors that a repeated run would raise again
SPENT = ("samples", "flops", "train_seconds", "evaluate_seconds")


@dataclass(frozen=True)
class Trial:
    """One setting of a method, the run that tried it, and its score."""

    changes: dict[str, float]
    run: str
    reference_run: str | None  #: the run that it started from
    score: float | None  #: None if its loss, or its reference's, became NaN or infinite


@dataclass(frozen=True)
class Choice:
    """The trials of a method and their cost."""

    trials: tuple[Trial, ...]
    ledger: dict[str, float]  #: of all trials together, their reference runs included once

    @property
    def best(self) -> Trial:
        """The trial with the highest score, the first of equals. Without any score it is the suite's own settings."""
        return max(self.trials, key=lambda trial: -1.0 if trial.score is None else trial.score)

    def to_json(self) -> dict[str, Any]:
        """Return the entry of plan.json."""
        return {
            "chosen": self.best.changes,
            "score": self.best.score,
            "trials": [vars(trial) for trial in self.trials],
            "ledger": self.ledger,
        }


def stages(suite: Suite) -> list[list[MethodEntry]]:
    """Return the rows whose trials can be made together; those that need a run of another row wait for its choice."""
    first = [entry for entry in suite.applicable if not _needs(suite, entry)]
    late = [entry for entry in suite.applicable if entry not in first]
    return [stage for stage in (first, late) if stage]


def _needs(suite: Suite, entry: MethodEntry) -> str | None:
    """Return the label of the row whose run a row starts from or has its pairs scored by."""
    return registry.find(entry.method).reference or suite.scorer_of(entry)


def settings_of(tune: TuneSettings, entry: MethodEntry) -> list[dict[str, float]]:
    """Return the settings that each trial of a row changes: none in the first, the same points for every row later."""
    count = tune.trials - 1
    order = list(range(count))
    random.Random(tune.seed).shuffle(order)  # pairs learning rates with temperatures, each once
    settings: list[dict[str, float]] = [{}]
    for number in range(count):
        changes = {"lr": _between(tune.lr, number, count)}
        if _keeps_its_temperature(entry):
            changes["temperature"] = _between(tune.temperature, order[number], count)
        settings.append(changes)
    return settings


def _between(bounds: tuple[float, float], number: int, count: int) -> float:
    """Return the middle of the `number`-th of `count` equal parts on a logarithmic scale, to three digits."""
    low, high = bounds
    return float(f"{low * (high / low) ** ((number + 0.5) / count):.3g}")


def _keeps_its_temperature(entry: MethodEntry) -> bool:
    config = hyperparameters.resolve(entry.method, entry.preset, entry.config)
    return "temperature" in config and not config.get("learnable_scale", False) and "temperature" not in entry.config


def applied(entry: MethodEntry, changes: Mapping[str, float]) -> MethodEntry:
    """Return the row with these settings."""
    update: dict[str, Any] = {"lr": changes["lr"]} if "lr" in changes else {}
    if "temperature" in changes:
        update["config"] = {**entry.config, "temperature": changes["temperature"]}
    return entry.model_copy(update=update)


def trial_suite(suite: Suite, rows: Sequence[MethodEntry], choices: Mapping[str, Choice]) -> Suite:
    """Return a suite whose runs are the trials of these rows."""
    tune = suite.tune
    assert tune is not None
    entries = [
        applied(entry, changes).model_copy(update={"label": _trial_label(entry, number)})
        for entry in rows
        for number, changes in enumerate(settings_of(tune, entry))
    ]
    rate = max(suite.noise.rates) if tune.rate is None else tune.rate
    return suite.changed(
        tune=None,
        methods=tuple(entries),
        seeds=(tune.seed,),
        noise=suite.noise.at(rate),
        budget=tune.budget or suite.budget.scaled(1.0),
        evaluate=suite.evaluate.of_trials(),
    ).with_references(tuned(suite, choices).methods)


def _trial_label(entry: MethodEntry, number: int) -> str:
    return f"{entry.label}, trial {number}"


def known(
    suite: Suite,
    store: Store,
    reader: InputsReader | None = None,
    shown: Progress | None = None,
    labels: Sequence[str] = (),
) -> dict[str, Choice]:
    """Return the choice of every row whose trials are all finished: of rows with these labels (none: of all rows).

    Rows that these need are looked at too. `reader`, `shown`: see `planner.plan`.
    """
    choices: dict[str, Choice] = {}
    for stage in stages(suite):
        rows = _wanted(suite, stage, labels, choices)
        choices |= _plan(suite, rows, choices, store, reader, shown).choices(store)
    return choices


def missing(
    suite: Suite,
    store: Store,
    labels: Sequence[str],
    choices: Mapping[str, Choice],
    reader: InputsReader | None = None,
    shown: Progress | None = None,
) -> list[Planned]:
    """Return the trials that `search` would make, as far as they are known before the first of them are finished."""
    rows = [_wanted(suite, stage, labels, choices) for stage in stages(suite)]
    trials = [_plan(suite, stage_rows, choices, store, reader, shown) for stage_rows in rows]
    return list({one.id: one for stage_trials in trials for one in stage_trials.todo(store)}.values())


def search(
    suite: Suite,
    store: Store,
    labels: Sequence[str],
    work: Callable[[list[Planned]], Summary],
    reader: InputsReader | None = None,
    shown: Progress | None = None,
) -> tuple[dict[str, Choice], Summary]:
    """Train and measure the trials of the rows with these labels (none: of all rows), and the runs they start from.

    Returns the choices that are known afterwards, also those of other rows, and the outcomes of the trials. A trial
    whose loss became NaN or infinite has no score: it is not repeated and does not count as failed.
    """
    from bench.planning.outcomes import Summary

    choices, total = known(suite, store, reader, shown), Summary()
    for stage in stages(suite):
        trials = _plan(suite, _wanted(suite, stage, labels, choices), choices, store, reader, shown)
        store.name_trials(suite.name, [one.id for one in trials.runs])
        summary = work(trials.todo(store))
        total.done += summary.done
        total.busy += summary.busy
        total.interrupted += summary.interrupted
        total.queued += summary.queued
        diverged = {one.id for one in trials.runs if _diverged(one, store)}
        total.failed += [identity for identity in summary.failed if identity not in diverged]
        choices |= trials.choices(store)
        if total.busy or total.interrupted or total.queued:
            break
    return choices, total


def _wanted(
    suite: Suite, stage: Sequence[MethodEntry], labels: Sequence[str], choices: Mapping[str, Choice]
) -> list[MethodEntry]:
    """Return rows of a stage without a choice that have these labels (none: all) or that one of them needs."""
    starts = {_needs(suite, entry) for entry in suite.methods if entry.label in labels}
    rows = [entry for entry in stage if not labels or entry.label in (*labels, *starts)]
    return [entry for entry in rows if entry.label not in choices]


@dataclass(frozen=True)
class _Trials:
    """The trials of some rows as planned runs."""

    runs: list[Planned]  #: each once, those they start from first
    of: dict[str, list[tuple[dict[str, float], Planned]]]  #: label -> (what it changes, its run)

    def todo(self, store: Store) -> list[Planned]:
        """Return the runs to make; those that are complete will be skipped."""
        return [one for one in self.runs if not _diverged(one, store)]

    def choices(self, store: Store) -> dict[str, Choice]:
        """Return choices of rows whose trials are all measured or diverged; one that failed otherwise is made again."""

        choices = {}
        for label, own in self.of.items():
            if all(_is_known(one, store) for _, one in own):
                trials = tuple(Trial(changes, one.id, one.reference, _score(one, store)) for changes, one in own)
                choices[label] = Choice(trials, _spent([one for _, one in own], store))
        return choices


def _plan(
    suite: Suite,
    rows: Sequence[MethodEntry],
    choices: Mapping[str, Choice],
    store: Store,
    reader: InputsReader | None,
    shown: Progress | None,
) -> _Trials:
    from bench.planning import planner

    if not rows:
        return _Trials([], {})
    assert suite.tune is not None
    trials = trial_suite(suite, rows, choices)
    planned = planner.plan(trials.runs(), store, reader, shown)
    by_key = {one.run.key: one for one in planned}
    by_label = {run.label: by_key[run.key] for run in trials.cells()}  # two trials may be one run
    of = {
        entry.label: [
            (changes, by_label[_trial_label(entry, number)])
            for number, changes in enumerate(settings_of(suite.tune, entry))
        ]
        for entry in rows
    }
    return _Trials(planned, of)


def _is_known(one: Planned, store: Store) -> bool:
    """Whether a trial is measured or diverged, and what it cost can be read."""
    from bench.planning.outcomes import is_complete
    from bench.store.doctor import problems

    costs = one.reference is None or not problems(store.run(one.reference))
    return costs and (is_complete(one, store) or _diverged(one, store))


def _diverged(one: Planned, store: Store) -> bool:
    """Return whether its loss or features, or its reference's, became NaN or infinite: a repetition would fail too."""
    from bench.store.doctor import problems

    runs = [store.run(identity) for identity in (one.id, one.reference) if identity]
    failed = [run for run in runs if run.status()["state"] == "failed" and not problems(run)]
    return any(run.status().get("error", {}).get("type") in DIVERGED for run in failed)


def _score(one: Planned, store: Store) -> float | None:
    """Return the mean over the validation sets, each with equal weight, or None if one of them has no score."""
    wanted = ("validation", METRIC, registry.find(one.run.method).score, one.evaluation.protocol.label)
    records = store.run(one.id).records()
    scores = {r.dataset: r.value for r in records if (r.task, r.metric, r.score, r.protocol) == wanted and r.at == 1.0}
    values = [scores.get(task.dataset) for task in one.evaluation.chosen()]
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there and len(there) == len(values) else None


def _spent(ones: Sequence[Planned], store: Store) -> dict[str, float]:
    identities = {one.id for one in ones} | {one.reference for one in ones if one.reference}
    ledgers = [store.run(identity).ledger() or _spent_until(store, identity) for identity in identities]
    return {key: sum(ledger.get(key, 0) for ledger in ledgers) for key in SPENT}


def _spent_until(store: Store, identity: str) -> dict[str, float]:
    """Return samples and FLOPs that a run without a ledger spent before it stopped; its seconds are not known."""
    resolved = store.run(identity).settings().get("resolved", {"phases": [], "batch": 0})
    left, flops = store.run(identity).status().get("error", {}).get("step", 0), 0.0
    samples = left * resolved["batch"]
    for name, steps in resolved["phases"]:
        flops += min(left, steps) * resolved["step_flops"][name]
        left = max(0, left - steps)
    return {"samples": samples, "flops": flops}


def tuned(suite: Suite, choices: Mapping[str, Choice]) -> Suite:
    """Return the suite with every row at its chosen settings; rows without a choice stay as they are."""
    best = {label: choice.best.changes for label, choice in choices.items()}
    return suite.changed(methods=tuple(applied(entry, best.get(entry.label, {})) for entry in suite.methods))
