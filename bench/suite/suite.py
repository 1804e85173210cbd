"""A suite: what is compared. It expands into runs.

`load_suite` reads the YAML and names every mistake in it with file, line and the nearest valid word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from unicodedata import normalize

from pydantic import Field, PrivateAttr, ValidationError, ValidationInfo, field_validator, model_validator

from bench import hashing, resources
from bench.adapters import hyperparameters, registry
from bench.catalogue.augmentations import DEFAULTS
from bench.errors import UserError, nearest
from bench.settings_base import MAX_NAME_LETTERS, Location, Model, NoDuplicates, NonEmptyList, OneLine, Seed
from bench.store.selection import LAST, Select
from bench.suite.keep_settings import ALL_PAIRS, KeepSettings, shares_apart
from bench.suite.launcher_settings import RaySettings, SlurmSettings
from bench.suite.noise_settings import Noises, NoiseSettings, noise_levels
from bench.suite.printed_tables import PrintedTables
from bench.suite.run import Run
from bench.suite.scorers import with_scorer
from bench.suite.settings import Budget, Budgets, DataSettings, EvaluateSettings, MethodEntry, Towers, TowerSettings
from bench.suite.train_settings import TrainSettings
from bench.suite.tune_settings import TuneSettings
from bench.suite.unfit import misfits, omitted_towers, unknown_names, unmeasured_families, why_inapplicable
from bench.yaml_source import YamlSource, fault, faults_of

MAX_RUNS = 10_000  #: most runs of a suite, and of its trials
REFERENCE_SHARE = 0.5  #: of the budget, under `budget_rule: total`, for the run that a method starts from


class Suite(Model):
    """The whole YAML."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=MAX_NAME_LETTERS)]  #: of its folder
    description: str = ""  #: first line of the report
    data: DataSettings = DataSettings()  #: the training pairs
    #: a kind of noise, or a list of several. Clean pairs come once; trials of `tune` have the first kind
    noise: Noises = (NoiseSettings(),)
    seeds: Annotated[tuple[Seed, ...], NonEmptyList, NoDuplicates] = (0,)  #: three or more give intervals and tests
    #: what a run may spend, or a list of budgets in one unit, each with runs and a learning-rate schedule of its own
    budget: Budgets
    #: total: an entry pays for the run that it starts from with half of its budget; additional: it comes on top
    budget_rule: Literal["total", "additional"] = "total"
    #: the two encoders, or a list of several with a `label` each; methods are compared within each
    towers: Towers = (TowerSettings(),)
    train: Annotated[TrainSettings, Field(validate_default=True)] = TrainSettings()  #: the recipe of all entries
    evaluate: EvaluateSettings = EvaluateSettings()  #: what is measured
    tune: TuneSettings | None = None  #: trials that choose each entry's settings; null = no tuning
    slurm: SlurmSettings = SlurmSettings()  #: jobs of `--launcher slurm`
    ray: RaySettings = RaySettings()  #: tasks of `--launcher ray`
    #: printed tables of a paper, or of several, next to whose numbers the report shows this suite's
    tables: PrintedTables = ()
    #: the weights along a run at which its numbers are read: the last, or the best on noisy or clean validation
    select: Select = LAST
    #: label or method of the entry that others are compared with; without such an entry the first one
    baseline: Annotated[str, Field(min_length=1)] = "clip"
    start: Annotated[Location, Field(min_length=1)] | None = None  #: weights of every entry without its own `start`
    start_trained_on: OneLine | None = None  #: what these weights had seen; a note of the tables says it
    methods: Annotated[tuple[MethodEntry, ...], NonEmptyList, Field(max_length=1000)]  #: the suite entries
    _written: str = PrivateAttr(default="")
    _references: tuple[MethodEntry, ...] = PrivateAttr(default=())
    _only: tuple[str, ...] = PrivateAttr(default=())
    _seeds: tuple[int, ...] = PrivateAttr(default=())

    @field_validator("name")
    @classmethod
    def _a_free_name(cls, name: str) -> str:
        if (own := name.lower()) in ("runs", "calibrations", "store.json"):  # as disks may take it
            raise fault(f"{name!r} is where the store keeps {own.removesuffix('.json')}; choose another name")
        return name

    @field_validator("methods")
    @classmethod
    def _own_labels(cls, methods: tuple[MethodEntry, ...]) -> tuple[MethodEntry, ...]:
        labels = [normalize("NFC", entry.label) for entry in methods]  # others look alike
        for position, label in enumerate(labels):
            if label in labels[:position]:
                raise fault(f"duplicate label {label!r}; give one of them a label of its own", position)
        return methods

    @field_validator("methods")
    @classmethod
    def _begun(cls, methods: tuple[MethodEntry, ...], info: ValidationInfo) -> tuple[MethodEntry, ...]:
        start = info.data.get("start")
        return tuple(one if one.start else one.model_copy(update={"start": start}) for one in methods)

    @field_validator("train")
    @classmethod
    def _an_augmentation_that_fits(cls, train: TrainSettings, info: ValidationInfo) -> TrainSettings:
        if "augment" in train.model_fields_set or "data" not in info.data:
            return train
        return train.model_copy(update={"augment": DEFAULTS[info.data["data"].images]})

    @model_validator(mode="after")
    def _sections_fit(self) -> Self:
        runs = sum(len(seeds) for *_, seeds in self._levels()) * len(self.towers) * len(self.methods)
        trials = self.tune.runs * len(self.methods) if self.tune else 0
        for section, count in (("seeds", runs), ("tune", trials)):
            if count > MAX_RUNS:
                raise fault(f"makes {count:,} runs with {len(self.methods)} methods; at most {MAX_RUNS:,}", section)
        for place, message in misfits(self):
            raise fault(message, *place)
        return self

    @property
    def hash(self) -> str:
        """Hash of all that is no default and no description, as written: a setting that is added later leaves it.

        Of several budgets, kinds of noise or papers the first holds the others, as when hashes were first given out.
        """
        content = self.model_dump(exclude={"description", "start_trained_on"}, exclude_defaults=True)
        several = [(content, "noise", self.noise), (content, "budget", self.budget), (content, "tables", self.tables)]
        several += [(content["tune"], "budget", self.tune.budget)] if self.tune and self.tune.budget else []
        for section, name, values in several:
            if first := section.pop(name, ())[:1]:
                others = [one.model_dump() for one in values[1:]]
                section[name] = {**first[0], **({"others": others} if others else {})}
        return self._written or hashing.digest(content)

    @property
    def evaluates(self) -> list[EvaluateSettings]:
        """What its runs measure and, if it has any, its trials."""
        rules = [entry.select or self.select for entry in self.methods]
        return [self.evaluate, *([self.evaluate.of_trials(self.tune.by, rules)] if self.tune else [])]

    def keep_of(self, entry: MethodEntry) -> KeepSettings:
        """Return the data selection of a suite entry: its own, or else the suite's."""
        return self.data.keep if entry.keep is None else entry.keep

    def scorer_of(self, entry: MethodEntry) -> str | None:
        """The entry or method whose run scores the pairs of an entry; None if no run does."""
        given = self._reference(entry, self.keep_of(entry)) if self.keep_of(entry).by_run else None
        return given.label if given else None

    @property
    def baseline_row(self) -> str:
        """Label of the entry that others are compared with; without one of that label or method, the first entry."""
        return self._baseline_among(self.methods).label

    def _baseline_among(self, rows: Sequence[MethodEntry], by: str | None = None) -> MethodEntry:
        named = [row for row in rows if row.label == (by or self.baseline)]
        of_method = [row for row in rows if row.method == self.baseline and not self.keep_of(row).uses]
        return [*named, *of_method, rows[0]][0]

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

    def narrowed(self, only: Sequence[str] | str = (), seeds: Sequence[int] | int = ()) -> Suite:
        """The same suite whose `runs()` are those of some labels and seeds; UserError for one it does not have."""
        chosen, labels = self.model_copy(), [entry.label for entry in self.methods]
        chosen._only = (only,) if isinstance(only, str) else tuple(only)
        chosen._seeds = (seeds,) if isinstance(seeds, int) else tuple(seeds)
        for label in chosen._only:
            if label not in labels:
                raise UserError(f"--only {label}: no entry of suite {self.name}{nearest(label, labels)}")
        for seed in chosen._seeds:
            if seed not in self.seeds:
                own = ", ".join(map(str, self.seeds))
                raise UserError(f"--seeds {seed}: suite {self.name} has {own}; more with --set 'seeds=[{own}, {seed}]'")
        return chosen

    @property
    def selection(self) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """The labels and seeds that `runs()` is narrowed to; () for all."""
        return self._only, self._seeds

    def _levels(self) -> list[tuple[Budget, NoiseSettings, tuple[int, ...]]]:
        """Each budget with each kind of noise at each rate alone, and the seeds that runs have there."""
        return [
            (budget, *level)
            for number, budget in enumerate(self.budget)
            for level in noise_levels(self.noise, self.seeds, number)
        ]

    def cells(self) -> list[Run]:
        """One run per cell, in the suite's order, whatever is selected.

        Seeds, then towers, budgets, noise rates, methods that apply.
        """
        rows = [
            (towers, [entry for entry in self.methods if not why_inapplicable(entry, towers, self.data)])
            for towers in self.towers
        ]
        return [
            self._run(entry, towers, budget, noise, seed)
            for seed in self.seeds
            for towers, entries in rows
            for budget, noise, seeds in self._levels()
            if seed in seeds
            for entry in entries
        ]

    @property
    def applicable(self) -> tuple[MethodEntry, ...]:
        """The entries that have runs on at least one of the suite's towers."""
        return tuple(entry for entry in self.methods if len(omitted_towers(self, entry)) < len(self.towers))

    def seeds_of(self, rate: float, kind: str | None = None) -> tuple[int, ...]:
        """The seeds that runs have at a rate of a kind of noise, by default of the first kind that has the rate."""
        levels = [(one.kind, seeds) for _, one, seeds in self._levels() if one.rates == (rate,)]
        known = [seeds for own, seeds in levels if not rate or kind in (None, own)]  # clean pairs are of every kind
        return max(known, key=len, default=self.seeds)

    def runs(self) -> list[Run]:
        """The runs, each once, a reference before the runs that start from it; selections apply."""
        cells = self.cells()
        own = {run.key: run for run in reversed(cells)}
        ordered: dict[str, Run] = {}
        for run in cells:
            if (not self._only or run.label in self._only) and (not self._seeds or run.seed in self._seeds):
                if run.reference:
                    ordered.setdefault(run.reference.key, own.get(run.reference.key, run.reference))
                ordered.setdefault(run.key, run)
        return list(ordered.values())

    def _run(self, entry: MethodEntry, towers: TowerSettings, budget: Budget, noise: NoiseSettings, seed: int) -> Run:
        """The run of an entry; `noise`: a kind at one rate alone."""
        if not noise.rates[0] and not self._references:  # the rows of trials have no baseline among them
            entry = entry.without_noise(self._baseline_among(self.methods))
        if chain := self.chain(entry):
            raise UserError(chain)
        if entry.average_with_start is not None:
            whole = entry.model_copy(update={"label": f"{entry.label} (trained)", "average_with_start": None})
            return self._one(entry, towers, budget, noise, seed, 1.0, self._run(whole, towers, budget, noise, seed))
        data_selection = self.keep_of(entry).under(noise.rates[0])
        given = self._reference(entry, data_selection)
        paid = given and given.steps and data_selection.is_paid(self.budget_rule)
        share = REFERENCE_SHARE if paid else 1.0
        if not given:
            return self._one(entry, towers, budget, noise, seed, share)
        keep = ALL_PAIRS if data_selection.entry.reference_keeps_all else data_selection
        row = given.model_copy(update={"label": f"{given.method} (reference)", "keep": keep})
        taught = noise.at(0.0) if data_selection.teacher == "given_clean" else noise
        reference = self._one(row, towers, budget, taught, seed, share)
        return self._one(entry, towers, budget, noise, seed, share, reference)

    def _reference(self, entry: MethodEntry, keep: KeepSettings) -> MethodEntry | None:
        """The entry whose run an entry needs: to start from, or to have its pairs scored by. None if it needs none.

        It is the suite's own entry of that name, so that what was chosen for it holds for the start as well. A run that
        the method starts from scores the pairs too; otherwise the baseline does, or the entry that `keep` names.
        """
        rows = self._references or self.methods
        if start := registry.starting_method(entry.method, entry.start):
            label = entry.reference or start
            own = (row for row in rows if row.method == start and row.label == label)
            return next(own, MethodEntry(method=start, start=self.start))
        return self._baseline_among(rows, keep.by) if keep.by_run else None  # a suite of trials has other rows itself

    def chain(self, entry: MethodEntry) -> str:
        """Why the run that an entry needs cannot be made; "" if it can."""
        keep = self.keep_of(entry)
        if (start := registry.starting_method(entry.method, entry.start)) and (keep.by or keep.teacher):
            return f"{entry.method} starts from a run of {start}, which scores its pairs: omit keep.by and keep.teacher"
        given = self._reference(entry, keep)
        if given is not None and entry.average_with_start is not None:
            needed = f"a run that itself needs a run of {given.method}"
            return f"average_with_start: {entry.label} averages weights of {needed}; omit it"
        if given is None or given.start or not (first := registry.find_method(given.method).reference):
            return ""
        verb = "starts from" if registry.find_method(entry.method).reference else "is scored by"
        begun = f"{entry.method} {verb} a run of {given.method}, which itself starts from a run of {first}"
        fix = f"train {given.method} first and give its weights-100.safetensors as start: of {entry.label}"
        return f"{begun}; references are not chained: {fix}"

    def _one(
        self,
        entry: MethodEntry,
        towers: TowerSettings,
        budget: Budget,
        noise: NoiseSettings,
        seed: int,
        share: float,
        reference: Run | None = None,
    ) -> Run:
        (rate,) = noise.rates
        run = Run(
            label=entry.label,
            method=entry.method,
            preset=entry.preset,
            config=hyperparameters.resolve_config(entry.method, entry.preset, entry.config),
            data=self.data.with_all_pairs,
            keep=self.keep_of(entry).under(rate),
            keep_rule=self.data.keep_rule,
            pays_scorer=self.keep_of(entry).is_paid(self.budget_rule),
            noise=noise.kind if rate else None,
            rate=rate,
            noise_file=noise.file(rate),
            noise_options=noise.chosen_options().model_dump(mode="json"),
            natural=any(one.natural for one in self.noise),
            seed=seed,
            budget=budget.scaled(share),
            budget_label=budget.label if len(self.budget) > 1 else "",
            towers=towers,
            train=self.train.model_copy(update=entry.recipe),
            evaluate=self.evaluate,
            reference=reference and replace(reference, measured=False),
            start=entry.start_of(towers),
            untrained=entry.untrained,
            average=entry.average_with_start,
        )
        return with_scorer(run)


def load_suite(suite: str | Path, overrides: Sequence[str] = (), check_methods: bool = True) -> Suite:
    """The suite of a path or a name, with `--set` overrides applied.

    With `check_methods`, methods, hyper-parameters and evaluation tasks are looked up as well, which imports torch.
    Raises UserError with one line for each mistake.
    """
    source = YamlSource.read(resources.suite_path(str(suite)))
    for override in overrides:
        source.set(override)
    return parse_suite(source, check_methods)


def parse_suite(source: YamlSource, check_methods: bool = True) -> Suite:
    """The suite that a source holds. Raises UserError with one line for each mistake."""
    source.spread("methods", shares_apart)
    try:
        loaded = Suite.model_validate(source.data)
    except ValidationError as error:
        raise source.fail(faults_of(error, Suite)) from error
    faults = [*unmeasured_families(loaded), *unknown_names(loaded)] if check_methods else []
    if faults:
        raise source.fail(faults)
    return loaded
