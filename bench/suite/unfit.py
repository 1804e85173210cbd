"""Checks of a suite against its methods, data sets and towers: requests that these cannot meet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from bench.adapters import hyperparameters, registry
from bench.catalogue.augmentations import fitting_augmentations
from bench.catalogue.families import FAMILIES
from bench.catalogue.noise_kinds import KINDS
from bench.catalogue.tower_families import FEATURES
from bench.errors import nearest
from bench.store.selection import LAST, Select
from bench.suite import needs
from bench.suite.keep_settings import KeepSettings
from bench.suite.noise_settings import NoiseSettings
from bench.suite.printed_tables import PaperTables
from bench.suite.settings import Budget, DataSettings, EvaluateSettings, MethodEntry, TowerSettings, TrainSettings
from bench.suite.tasks import SuiteTasks
from bench.suite.tune_settings import TuneSettings
from bench.yaml_loader import FieldPath
from bench.yaml_source import FieldFault


class SuiteSections(Protocol):
    """Sections of a suite that are read here; `bench.suite.suite` has the whole, and imports this module."""

    data: DataSettings
    noise: tuple[NoiseSettings, ...]
    seeds: tuple[int, ...]
    budget: tuple[Budget, ...]
    towers: tuple[TowerSettings, ...]
    train: TrainSettings
    evaluate: EvaluateSettings
    tune: TuneSettings | None
    select: Select
    baseline: str
    tables: tuple[PaperTables, ...]
    methods: tuple[MethodEntry, ...]

    @property
    def baseline_row(self) -> str: ...

    def keep_of(self, entry: MethodEntry) -> KeepSettings: ...

    def chain(self, entry: MethodEntry) -> str: ...


def misfits(suite: SuiteSections) -> Iterator[FieldFault]:
    """Sections that do not fit each other, whatever the methods."""
    kind, given = suite.data.images, suite.train.augment
    if given not in fitting_augmentations(kind):
        advice = nearest(given, fitting_augmentations(kind))
        message = f"no augmentation {given!r} for {kind} ({suite.data.name}){advice}"
        yield ("train", "augment"), message
    yield from _unknown_rows(suite)
    yield from _untrainable(suite)
    yield from _unfit_starts(suite)
    yield from _unfit_trials(suite)
    yield from _unfit_features(suite.data, suite.towers)
    yield from _too_many_seeds(suite)
    yield from _unfit_selections(suite)
    yield from _nothing_to_spend(suite)
    yield from _unselectable(suite)


def _unknown_rows(suite: SuiteSections) -> Iterator[FieldFault]:
    """Entries and towers that `tables` and other entries name, but this suite does not have."""
    labels, towers = [entry.label for entry in suite.methods], [one.label for one in suite.towers]
    named: list[tuple[FieldPath, str, list[str]]] = [
        (("tables", *([number] if len(suite.tables) > 1 else []), field, name), name, known)
        for number, tables in enumerate(suite.tables)
        for field, known in (("rows", labels), ("towers", towers))
        for name in getattr(tables, field)
    ]
    for at, one in enumerate(suite.methods):
        named += [(("methods", at, "reference"), one.reference, labels)] if one.reference else []
    for place, name, known in named:
        if name not in known:
            yield place, f"unknown label {name!r}{nearest(name, known)}"


def _untrainable(suite: SuiteSections) -> Iterator[FieldFault]:
    """Learning rates that cannot fall, and entries that use what nobody knows about natural noise.

    Which pairs injected noise corrupted is known, of natural pairs too.
    """
    natural, injected = any(one.natural for one in suite.noise), any(any(one.rates) for one in suite.noise)
    for position, entry in enumerate(suite.methods):
        if entry.lr is not None and entry.lr < suite.train.final_lr:
            yield ("methods", position, "lr"), f"{entry.lr:g} is below train.final_lr {suite.train.final_lr:g}"
        keep = suite.keep_of(entry)
        if natural and keep.uses and not (keep.entry.truth_alone and injected):
            place = ("methods", position, "keep") if entry.keep else ("data", "keep")
            yield place, f"uses {keep.uses}, which is unknown for natural noise"


def _unfit_starts(suite: SuiteSections) -> Iterator[FieldFault]:
    """Entries that average weights without a start or without steps, and frozen towers without weights."""
    for position, entry in enumerate(suite.methods):
        place: FieldPath = ("methods", position, "average_with_start")
        if entry.average_with_start is not None and not entry.start:
            yield place, "averages with the initial weights; give start: to the entry or to the suite"
        elif entry.average_with_start is not None and entry.untrained:
            yield place, "an untrained entry has nothing to average; omit one of the two"
    kind = suite.train.freeze
    for number, one in enumerate(suite.towers):
        for field in ("image_start", "text_start"):
            if getattr(one, field) and all(entry.start for entry in suite.methods):
                place = ("towers", *([number] if len(suite.towers) > 1 else []), field)
                yield place, "every entry begins at start, which has both towers; omit one of the two"
        if one.stored and suite.train.layer_decay != 1:
            yield ("train", "layer_decay"), f"towers.{one.stored[0]} is a head on stored features; omit it"
        if kind in one.stored:
            yield ("train", "freeze"), f"towers.{kind} is a head on stored features, which nothing else trains; omit it"
        elif kind and not getattr(one, f"{kind}_start") and not all(entry.start for entry in suite.methods):
            yield ("train", "freeze"), f"the {kind} tower would stay random; give start, or towers.{kind}_start"


def _unfit_trials(suite: SuiteSections) -> Iterator[FieldFault]:
    """A trial has one pair of towers, a seed of its own, noise whose file there is, and a set to be scored on."""
    if suite.tune is None:
        return
    if suite.evaluate.datasets.get(suite.tune.by) == ():
        yield ("evaluate", "datasets", suite.tune.by), "trials are scored on it; name one set at least"
    noise = suite.noise[0]
    if suite.tune.by == "noisy_validation" and not noise.entry.for_held_out:
        yield ("tune", "by"), f"held-out pairs cannot have noise of kind {noise.kind}; name clean_validation"
    if suite.tune.lr is not None and suite.tune.lr[0] < suite.train.final_lr:
        yield ("tune", "lr", 0), f"{suite.tune.lr[0]:g} is below train.final_lr {suite.train.final_lr:g}"
    if len(suite.towers) > 1:
        yield ("towers",), "trials need one pair of towers; make a suite of each"
    for place, seed in enumerate(suite.tune.seeds):
        if seed in suite.seeds:
            yield ("tune", "seeds", place), f"{seed} is a seed of the suite; trials need seeds of their own"
    if suite.tune.rate is not None and noise.files and suite.tune.rate not in noise.rates:
        yield ("tune", "rate"), f"{suite.tune.rate:g} is not among the suite's rates, which have files"


def _nothing_to_spend(suite: SuiteSections) -> Iterator[FieldFault]:
    """Entries without a step have no step to time, and nothing that trials could choose."""
    for position, entry in enumerate(suite.methods):
        if not entry.steps and (suite.budget[0].timed or suite.tune is not None):
            timed = f"a budget of {suite.budget[0].kind} times steps"
            why = "tune has nothing to choose for it" if suite.tune else timed
            field = "untrained" if entry.untrained else "average_with_start"
            yield ("methods", position, field), f"the entry takes no training step, but {why}; omit one of the two"


def _unselectable(suite: SuiteSections) -> Iterator[FieldFault]:
    """A rule chooses among points at which its validation pairs and the primary metric are measured."""
    asked: list[tuple[FieldPath, str | None]] = [(("select",), suite.select)]
    asked += [(("methods", position, "select"), entry.select) for position, entry in enumerate(suite.methods)]
    for place, rule in asked:
        if rule in (None, LAST):
            continue
        headline = SuiteTasks(suite.data, suite.evaluate).headline()
        needed = dict.fromkeys([rule, *([headline.family] if headline else [])])
        lacking = [name for name in needed if name not in suite.evaluate.along]
        if not suite.evaluate.curve:
            yield place, "chooses among the points of evaluate.curve, which has none; add some"
        elif lacking:
            yield place, f"{rule} needs {' and '.join(map(repr, lacking))} in evaluate.tasks and evaluate.along"


def _too_many_seeds(suite: SuiteSections) -> Iterator[FieldFault]:
    for number, noise in enumerate(suite.noise):
        above: FieldPath = ("noise", number, "seeds")
        by_budget = [counts for counts in noise.seeds if isinstance(counts, tuple)]
        if by_budget and len(by_budget) != len(suite.budget):
            yield above, f"{len(by_budget)} lists for {len(suite.budget)} budgets; give one for each"
        for place, counts in enumerate(by_budget or noise.seeds):
            for count in counts if isinstance(counts, tuple) else (counts,):
                if count > len(suite.seeds):
                    yield (*above, place), f"{count} should be at most {len(suite.seeds)}, the suite's seeds"


def _unfit_selections(suite: SuiteSections) -> Iterator[FieldFault]:
    """Entries that `keep.by` names and that do not exist, or select pairs themselves; clean rows of changing noise."""
    plain = [one.label for one in suite.methods if one.keep is None]
    moving = next((one.kind for one in suite.noise if not one.entry.fixed and any(one.rates)), None)
    selections: list[tuple[FieldPath, KeepSettings]] = [(("data", "keep"), suite.data.keep)]
    selections += [(("methods", at, "keep"), entry.keep) for at, entry in enumerate(suite.methods) if entry.keep]
    for place, keep in selections:
        if keep.by and keep.by not in plain:
            yield (*place, "by"), f"{keep.by!r} is not an entry without keep{nearest(keep.by, plain)}"
        if keep.entry.uses and moving is not None:
            yield place, f"{keep.kind} needs a fixed set of clean pairs, which {moving} leaves none"


def _unfit_features(data: DataSettings, towers: tuple[TowerSettings, ...]) -> Iterator[FieldFault]:
    """Towers whose input the data does not have: stored features, or pixels."""
    for position, one in enumerate(towers):
        if "image" in one.stored and not data.on_features:
            message = "towers.image reads stored features; name their folder, as `bench features` makes it"
            yield ("data", "features"), message
        elif data.on_features and "image" not in one.stored:
            message = f"{one.image!r} reads pixels, but data.features has none; set {FEATURES}"
            yield ("towers", position, "image"), message
        elif "text" in one.stored and not data.on_features:
            message = "reads stored features together with pixels; name a tower that reads tokens"
            yield ("towers", position, "text"), message
    if data.on_features and data.shards is not None and not data.synthetic:
        yield ("data", "shards"), "images are the stored features of data.features; omit one of the two"


def unmeasured_families(suite: SuiteSections) -> Iterator[FieldFault]:
    """Families of tasks without data sets, and suites that compare nothing."""
    noisy = any(noise.entry.fixed and any(noise.rates) for noise in suite.noise)
    for place, message in SuiteTasks(suite.data, suite.evaluate).faults(noisy):
        yield ("evaluate", "tasks", *([] if place is None else [place])), message
    for place, name in enumerate(suite.evaluate.tasks):
        if FAMILIES[name].on_poison and not any(noise.entry.poisons for noise in suite.noise):
            kinds = " or ".join(kind.name for kind in KINDS if kind.poisons)
            own = ", ".join(noise.kind for noise in suite.noise)
            yield ("evaluate", "tasks", place), f"{name!r} needs noise of kind {kinds}, this is {own}"
        for noise in suite.noise:
            if name == "noisy_validation" and any(noise.rates) and not noise.entry.for_held_out:
                yield ("evaluate", "tasks", place), f"{name!r}: held-out pairs cannot have noise of kind {noise.kind}"


def unknown_names(suite: SuiteSections) -> Iterator[FieldFault]:
    """Mistakes that only adapters know: unknown methods, hyper-parameters and needs."""
    labels = [entry.label for entry in suite.methods]
    if suite.baseline not in labels and suite.baseline not in registry.method_names():
        known = nearest(suite.baseline, {*labels, *registry.method_names()})
        yield ("baseline",), f"{suite.baseline!r} is neither a label of this suite nor a method{known}"
    broken = False
    for position, entry in enumerate(suite.methods):
        faults = hyperparameters.config_faults(entry.method, entry.preset, entry.config)
        for place, message in faults:
            yield ("methods", position, *place), message
        if faults:
            broken = True
            continue
        if chain := suite.chain(entry):
            yield ("methods", position, "method"), chain
        needed, given = registry.starting_method(entry.method, entry.start), entry.reference
        of = next((row.method for row in suite.methods if row.label == given), None)
        if given and of != needed:
            what = f"starts from, or holds a copy of, a run of {needed}" if needed else "needs no run of another entry"
            yield ("methods", position, "reference"), f"{entry.method} {what}, and {given} is an entry of {of}"
        wanted = hyperparameters.method_needs(entry.method, entry.preset, entry.config)
        for towers in suite.towers:
            if not towers.stored:
                for unmet in needs.unmet(wanted, towers, suite.data):
                    yield ("methods", position), _sentence(entry, *unmet)
    if not broken:
        yield from _nothing_applies(suite)


def why_inapplicable(entry: MethodEntry, towers: TowerSettings, data: DataSettings) -> str:
    """Return why an entry has no runs on towers that read stored features; "" if it has.

    On other towers an unmet need is a mistake in the suite, which `unknown_names` finds.
    """
    if not towers.stored:
        return ""
    wanted = hyperparameters.method_needs(entry.method, entry.preset, entry.config)
    return "; ".join(_sentence(entry, *unmet) for unmet in needs.unmet(wanted, towers, data))


def omitted_towers(suite: SuiteSections, entry: MethodEntry) -> dict[str, str]:
    """Return the towers, by their label, on which an entry has no runs, each with the reason."""
    reasons = {one.label: why_inapplicable(entry, one, suite.data) for one in suite.towers}
    return {label: reason for label, reason in reasons.items() if reason}


def _nothing_applies(suite: SuiteSections) -> Iterator[FieldFault]:
    """The baseline, or all entries, if they have no runs on one of the suite's towers."""
    for towers in suite.towers:
        reasons = {entry.label: why_inapplicable(entry, towers, suite.data) for entry in suite.methods}
        if all(reasons.values()):
            yield ("methods",), f"no method can be trained on these features: {next(iter(reasons.values()))}"
        elif reason := reasons[suite.baseline_row]:
            yield ("baseline",), f"{suite.baseline_row} is not applicable: {reason}; name another entry"


def _sentence(entry: MethodEntry, word: str, reason: str) -> str:
    return f"{entry.method} needs {word} ({needs.NEEDS[word].about}), but {reason}"
