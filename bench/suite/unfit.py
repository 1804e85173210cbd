"""What a suite asks for that its methods, data sets and towers cannot give; looked up where methods are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bench.adapters import hyperparameters, registry
from bench.catalogue.families import FAMILIES
from bench.catalogue.noise_kinds import KINDS
from bench.errors import nearest
from bench.suite import needs
from bench.suite.tasks import SuiteTasks
from bench.yaml_source import Fault

if TYPE_CHECKING:
    from bench.suite.settings import MethodEntry
    from bench.suite.suite import Suite


def unmeasured(suite: Suite) -> Iterator[Fault]:
    """Families of tasks without data sets, and suites that compare nothing."""
    noisy = any(noise.entry.fixed and any(noise.rates) for noise in suite.noise.kinds)
    for place, message in SuiteTasks(suite.data, suite.evaluate).faults(noisy):
        yield ("evaluate", "tasks", *([] if place is None else [place])), message
    for place, name in enumerate(suite.evaluate.tasks):
        if FAMILIES[name].on_poison and not any(noise.entry.poisons for noise in suite.noise.kinds):
            kinds = " or ".join(kind.name for kind in KINDS if kind.poisons)
            own = ", ".join(noise.kind for noise in suite.noise.kinds)
            yield ("evaluate", "tasks", place), f"{name!r} needs noise of kind {kinds}, this is {own}"


def unknown_names(suite: Suite) -> Iterator[Fault]:
    """Mistakes that only adapters know: unknown methods, hyper-parameters and needs."""
    labels = [entry.label for entry in suite.methods]
    if suite.baseline not in labels and suite.baseline not in registry.names():
        known = nearest(suite.baseline, {*labels, *registry.names()})
        yield ("baseline",), f"{suite.baseline!r} is neither a label of this suite nor a method{known}"
    for position, entry in enumerate(suite.methods):
        faults = hyperparameters.faults(entry.method, entry.preset, entry.config)
        for place, message in faults:
            yield ("methods", position, *place), message
        if faults:
            continue
        if chain := suite.chain(entry):
            yield ("methods", position, "method"), chain
        yield from ((("methods", position), message) for message in _cannot_work(suite, entry))


def _cannot_work(suite: Suite, entry: MethodEntry) -> Iterator[str]:
    """Reasons why a row cannot be trained on the suite's towers."""
    wanted = hyperparameters.needs(entry.method, entry.preset, entry.config)
    for towers in suite.towers:
        for word, reason in needs.unmet(wanted, towers):
            yield f"{entry.method} needs {word} ({needs.NEEDS[word].about}), but {reason}"
