"""A suite: what is compared. It expands into runs.

`load_suite` reads the YAML and names every mistake in it with file, line and the nearest valid word.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, ValidationError, ValidationInfo, field_validator, model_validator

from bench import discovery, identity, needs, resources, tower_configs
from bench.augmentations import DEFAULTS, fitting
from bench.errors import UserError, nearest
from bench.keep_settings import UNTREATED, KeepSettings
from bench.located import Fault, Located, fault, faults_of
from bench.noise_kinds import KINDS, noise_label
from bench.noise_settings import NoiseSettings
from bench.paper_settings import PaperTables
from bench.settings import (
    Budget,
    DataSettings,
    EvaluateSettings,
    MethodEntry,
    SlurmSettings,
    TowerSettings,
    TrainSettings,
    TuneSettings,
)
from bench.settings_base import Model, Seed, Several, once

REFERENCE_SHARE = 0.5  #: of the budget, under `budget_rule: total`, for the run a method starts from


@dataclass(frozen=True)
class Run:
    """One method x noise x seed under one budget. Two runs with equal `content()` are the same run."""

    label: str
    method: str
    preset: str | None
    config: dict[str, Any]  #: all hyper-parameters, resolved
    data: DataSettings
    noise: str | None  #: a kind; None at rate 0
    rate: float
    seed: int
    budget: Budget  #: what this run itself may spend, its reference run not counted
    towers: TowerSettings
    train: TrainSettings
    evaluate: EvaluateSettings
    reference: Run | None = None  #: the run it starts from
    start: str | None = None  #: the weights it starts from instead
    keep: KeepSettings = UNTREATED  #: which rows it may see
    keep_rule: str = "samples"
    noise_file: str | None = None  #: an index file that says which pairs are wrong
    noise_options: dict[str, Any] = dataclasses.field(
        default_factory=dict
    )  #: the kind's own settings, defaults included

    @property
    def treated(self) -> bool:
        """Whether rows may be left out."""
        return self.keep != UNTREATED

    @property
    def block(self) -> str:
        """Which runs it is compared with: its towers, where a suite has several, and its noise."""
        noise = noise_label(self.noise or "shuffled_captions", self.rate)
        return f"{self.towers.label}, {noise}" if self.towers.label else noise

    @property
    def title(self) -> str:
        """One line for progress and messages."""
        return f"{self.label}, {self.block}, seed {self.seed}"

    def content(self) -> dict[str, Any]:
        """Everything of the settings that its result depends on; no labels, no performance-only keys."""
        options = KINDS[self.noise].options.model_validate(self.noise_options).content() if self.noise else {}
        return {
            **({"start": identity.weights(self.start)} if self.start else {}),
            **({"keep": {**self.keep.content(), "rule": self.keep_rule}} if self.treated else {}),
            "method": self.method,
            "config": discovery.content(self.method, self.config),
            "data": self.data.content(),
            "noise": {"kind": self.noise, "rate": self.rate, **({"options": options} if options else {})},
            "seed": self.seed,
            "budget": {"kind": self.budget.kind, "value": self.budget.value},
            "towers": tower_configs.content(self.towers),
            "train": self.train.content(),
            "reference": self.reference.content() if self.reference else None,
        }

    @cached_property
    def key(self) -> str:
        """Hash of `content()`: equal for equal runs, known before any data is read."""
        return identity.digest(self.content())

    def id(
        self,
        data_hash: str,
        manifest_hash: str | None,
        reference_id: str | None = None,
        calibration_hash: str | None = None,
        kept_hash: str | None = None,
    ) -> str:
        """The content address; see `bench.identity.run_id`."""
        return identity.run_id(self, data_hash, manifest_hash, reference_id, calibration_hash, kept_hash)

    def settings(self) -> dict[str, Any]:
        """Everything, for settings.json."""
        options = {"options": self.noise_options} if self.noise and self.noise_options else {}
        return {
            **self.content(),
            "config": self.config,
            "start": self.start,
            "label": self.label,
            "preset": self.preset,
            "data": self.data.model_dump(mode="json"),
            "noise": {"kind": self.noise, "rate": self.rate, "file": self.noise_file, **options},
            "towers": self.towers.model_dump(mode="json"),
            "train": self.train.model_dump(mode="json"),
            "evaluate": self.evaluate.model_dump(mode="json"),
        }


class Suite(Model):
    """The whole YAML."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    description: str = ""
    data: DataSettings = DataSettings()
    noise: NoiseSettings = NoiseSettings()
    seeds: Annotated[tuple[Seed, ...], Several] = (0,)
    budget: Budget
    budget_rule: Literal["total", "additional"] = "total"  #: is a reference run paid from the budget, or on top?
    towers: Annotated[tuple[TowerSettings, ...], Several] = (TowerSettings(),)
    train: Annotated[TrainSettings, Field(validate_default=True)] = TrainSettings()
    evaluate: EvaluateSettings = EvaluateSettings()
    tune: TuneSettings | None = None
    slurm: SlurmSettings = SlurmSettings()
    tables: PaperTables | None = None
    baseline: Annotated[str, Field(min_length=1)] = (
        "clip"  #: the row that others are compared with: a label or a method
    )
    methods: Annotated[tuple[MethodEntry, ...], Several]
    _written: str = PrivateAttr(default="")
    _references: tuple[MethodEntry, ...] = PrivateAttr(default=())
    _only: tuple[str, ...] = PrivateAttr(default=())
    _seeds: tuple[int, ...] = PrivateAttr(default=())

    @field_validator("name")
    @classmethod
    def _a_free_name(cls, name: str) -> str:
        if name == "runs":
            raise fault("'runs' is where the store keeps runs; choose another name")
        return name

    @field_validator("towers", mode="before")
    @classmethod
    def _one_or_several(cls, towers: Any) -> Any:
        return [towers] if isinstance(towers, Mapping) else towers

    @field_validator("towers")
    @classmethod
    def _told_apart(cls, towers: tuple[TowerSettings, ...]) -> tuple[TowerSettings, ...]:
        labels = [one.label for one in towers]
        for position, label in enumerate(labels):
            if len(towers) > 1 and (not label or label in labels[:position]):
                raise fault("each of several towers needs a label of its own", position, "label")
        return towers

    @field_validator("seeds")
    @classmethod
    def _once(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        return once(seeds)

    @field_validator("methods")
    @classmethod
    def _own_labels(cls, methods: tuple[MethodEntry, ...]) -> tuple[MethodEntry, ...]:
        labels = [entry.label for entry in methods]
        for position, label in enumerate(labels):
            if label in labels[:position]:
                raise fault(f"the label {label!r} stands twice; give one of them a label of its own", position)
        return methods

    @model_validator(mode="after")
    def _own_rows(self) -> Self:
        """What stands beside a paper's rows is a row of this suite."""
        labels, towers = [entry.label for entry in self.methods], [one.label for one in self.towers]
        for field, known in (("rows", labels), ("towers", towers)):
            for name in getattr(self.tables, field, ()):
                if name not in known:
                    raise fault(f"{name!r} is no label of this suite{nearest(name, known)}", "tables", field, name)
        return self

    @model_validator(mode="after")
    def _learning_rates_fall(self) -> Self:
        for position, entry in enumerate(self.methods):
            if entry.lr is not None and entry.lr < self.train.final_lr:
                raise fault(f"{entry.lr:g} is below train.final_lr {self.train.final_lr:g}", "methods", position, "lr")
        return self

    @model_validator(mode="after")
    def _clean_pairs_are_fixed(self) -> Self:
        """What is kept for being clean takes noise that stays where it is."""
        if self.noise.kind != "resampled_positives" or not any(self.noise.rates):
            return self
        asked: list[tuple[tuple[str | int, ...], KeepSettings | None]] = [(("data", "keep"), self.data.keep)]
        asked += [(("methods", position, "keep"), entry.keep) for position, entry in enumerate(self.methods)]
        for place, keep in asked:
            if keep is not None and keep.entry.uses:
                raise fault(
                    f"{keep.kind} needs a fixed set of clean pairs, which {self.noise.kind} leaves none", *place
                )
        return self

    @model_validator(mode="after")
    def _can_be_tuned(self) -> Self:
        """A trial has one pair of towers, noise of a rate that there is a file for, and a set to be scored on."""
        if self.tune is None:
            return self
        if self.evaluate.datasets.get("validation") == ():
            raise fault("trials are scored on it; name one set at least", "evaluate", "datasets", "validation")
        if len(self.towers) > 1:
            raise fault("trials need one pair of towers; make a suite of each", "towers")
        if self.tune.rate is not None and self.noise.files and self.tune.rate not in self.noise.rates:
            raise fault(f"{self.tune.rate:g} is none of the suite's rates, which have files", "tune", "rate")
        return self

    @field_validator("train")
    @classmethod
    def _an_augmentation_that_fits(cls, train: TrainSettings, info: ValidationInfo) -> TrainSettings:
        if "augment" in train.model_fields_set or "data" not in info.data:
            return train
        return train.model_copy(update={"augment": DEFAULTS[info.data["data"].images]})

    @model_validator(mode="after")
    def _a_recipe_of_such_images(self) -> Self:
        kind, given = self.data.images, self.train.augment
        if given not in fitting(kind):
            message = f"{given!r} is no recipe for {kind}, which {self.data.name} is{nearest(given, fitting(kind))}"
            raise fault(message, "train", "augment")
        return self

    @property
    def hash(self) -> str:
        """Of everything but the description, as written: tells a plan made from other settings."""
        return self._written or identity.digest(self.model_dump(exclude={"description"}))

    def keep_of(self, entry: MethodEntry) -> KeepSettings:
        """Which rows a row of the tables is trained on: its own word, or the suite's."""
        return self.data.keep if entry.keep is None else entry.keep

    @property
    def baseline_row(self) -> str:
        """Label of the row that others are compared with; without one of that label or method, the first row."""
        named = [entry.label for entry in self.methods if entry.label == self.baseline]
        rows = [entry for entry in self.methods if not self.keep_of(entry).entry.uses]
        of_method = [entry.label for entry in rows if entry.method == self.baseline]
        return [*named, *of_method, self.methods[0].label][0]

    def changed(self, **sections: Any) -> Suite:
        """The same suite with other sections, its references and its hash as they were; no selection."""
        copy = self.model_copy(update=sections)
        copy._written, copy._only, copy._seeds = self.hash, (), ()
        return copy

    def with_references(self, entries: Sequence[MethodEntry]) -> Suite:
        """The same suite, whose pretrained starts are the entries among these that have their method's name."""
        copy = self.model_copy()
        copy._references = tuple(entries)
        return copy

    def select(self, only: Sequence[str] = (), seeds: Sequence[int] = ()) -> Suite:
        """The same suite whose `runs()` are those of some labels and seeds; UserError for one it does not have."""
        labels = [entry.label for entry in self.methods]
        only = [label if label in labels else discovery.canonical(label) for label in only]
        for label in only:
            if label not in labels:
                raise UserError(f"--only {label}: no method of suite {self.name}{nearest(label, labels)}")
        for seed in seeds:
            if seed not in self.seeds:
                own = ", ".join(map(str, self.seeds))
                raise UserError(f"--seeds {seed}: suite {self.name} has {own}; more with --set 'seeds=[{own}, {seed}]'")
        chosen = self.model_copy()
        chosen._only, chosen._seeds = tuple(only), tuple(seeds)
        return chosen

    def cells(self) -> list[Run]:
        """One run a cell: seeds, then towers, noise rates, methods, each in suite order. Selections do not matter."""
        return [
            self._run(entry, towers, rate, seed)
            for seed in self.seeds
            for towers in self.towers
            for rate in self.noise.rates
            for entry in self.methods
        ]

    def runs(self) -> list[Run]:
        """What there is to run, each once, a reference before those that start from it; selections apply."""
        cells = self.cells()
        own = {run.key: run for run in reversed(cells)}
        ordered: dict[str, Run] = {}
        for run in cells:
            if (not self._only or run.label in self._only) and (not self._seeds or run.seed in self._seeds):
                if run.reference:
                    ordered.setdefault(run.reference.key, own.get(run.reference.key, run.reference))
                ordered.setdefault(run.key, run)
        return list(ordered.values())

    def _run(self, entry: MethodEntry, towers: TowerSettings, rate: float, seed: int) -> Run:
        given = self._reference(entry)
        share = REFERENCE_SHARE if given and self.budget_rule == "total" else 1.0
        if not given:
            return self._one(entry, towers, rate, seed, share)
        if chain := self.chain(entry):
            raise UserError(chain)
        keep = UNTREATED if self.keep_of(entry).entry.reference_keeps_all else self.keep_of(entry)
        row = given.model_copy(update={"label": f"{given.method} (reference)", "keep": keep})
        return self._one(entry, towers, rate, seed, share, self._one(row, towers, rate, seed, share))

    def _reference(self, entry: MethodEntry) -> MethodEntry | None:
        """The row whose run an entry starts from; None for fresh towers and for given weights.

        It is the suite's own row of that name, so that what was chosen for it holds for the start as well.
        """
        method = discovery.find(entry.method)
        start = None if entry.start and method.side != "reference" else method.reference
        if not start:
            return None
        own = [row for row in self._references or self.methods if row.label == row.method == start]
        return own[0] if own else MethodEntry(method=start)

    def chain(self, entry: MethodEntry) -> str:
        """Why an entry cannot start where its method does: that start needs a start of its own. "" where it can."""
        given = self._reference(entry)
        if given is None or given.start or not (first := discovery.find(given.method).reference):
            return ""
        begun = f"{entry.method} starts from a run of {given.method}, which itself starts from a run of {first}"
        fix = f"train {given.method} first and give its weights-100.safetensors as start: of {entry.label}"
        return f"{begun}; references are not chained: {fix}"

    def _one(
        self,
        entry: MethodEntry,
        towers: TowerSettings,
        rate: float,
        seed: int,
        share: float,
        reference: Run | None = None,
    ) -> Run:
        return Run(
            label=entry.label,
            method=entry.method,
            preset=entry.preset,
            config=discovery.resolve(entry.method, entry.preset, entry.config),
            data=self.data.untreated,
            keep=self.keep_of(entry).under(rate),
            keep_rule=self.data.keep_rule,
            noise=self.noise.kind if rate else None,
            rate=rate,
            noise_file=self.noise.file(rate),
            noise_options=self.noise.chosen_options().model_dump(mode="json"),
            seed=seed,
            budget=self.budget.scaled(share),
            towers=towers,
            train=self.train if entry.lr is None else self.train.model_copy(update={"lr": entry.lr}),
            evaluate=self.evaluate,
            reference=reference,
            start=entry.start_of(towers),
        )


def load_suite(suite: str | Path, overrides: Sequence[str] = (), check_methods: bool = True) -> Suite:
    """The suite of a path or a name, with `--set` overrides applied.

    With `check_methods`, methods, hyper-parameters and what is measured are looked up as well, which imports torch.
    Raises UserError with one line a mistake.
    """
    located = Located.read(resources.suite_path(str(suite)))
    for override in overrides:
        located.set(override)
    try:
        loaded = Suite.model_validate(located.data)
    except ValidationError as error:
        raise located.fail(faults_of(error, Suite)) from error
    faults = [*_unmeasured(loaded), *_unknown_names(loaded)] if check_methods else []
    if faults:
        raise located.fail(faults)
    return loaded


def _unmeasured(suite: Suite) -> Iterator[Fault]:
    """Families of tasks without data sets, and suites that compare nothing."""
    from bench.evaluate.tasks import EvaluationPlan  # here, because it reads settings itself, and loads torch

    noisy = suite.noise.kind != "resampled_positives" and any(suite.noise.rates)
    for place, message in EvaluationPlan(suite.data, suite.evaluate).faults(noisy):
        yield ("evaluate", "tasks", *([] if place is None else [place])), message


def _unknown_names(suite: Suite) -> Iterator[Fault]:
    """What only adapters can say."""
    labels = [entry.label for entry in suite.methods]
    if suite.baseline not in labels and suite.baseline not in discovery.names():
        known = nearest(suite.baseline, {*labels, *discovery.names()})
        yield ("baseline",), f"{suite.baseline!r} is neither a label of this suite nor a method{known}"
    for position, entry in enumerate(suite.methods):
        found = discovery.faults(entry.method, entry.preset, entry.config)
        for place, message in found:
            yield ("methods", position, *place), message
        if found:
            continue
        if chain := suite.chain(entry):
            yield ("methods", position, "method"), chain
        yield from ((("methods", position), message) for message in _cannot_work(suite, entry))


def _cannot_work(suite: Suite, entry: MethodEntry) -> Iterator[str]:
    """Reasons why a row cannot be trained on the suite's towers."""
    wanted = discovery.needs(entry.method, entry.preset, entry.config)
    for towers in suite.towers:
        for word, reason in needs.unmet(wanted, towers):
            yield f"{entry.method} needs {word} ({needs.NEEDS[word].about}), but {reason}"
