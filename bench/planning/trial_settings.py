"""Settings that an entry's trials try: quasi-random points of learning rate, weight decay and its method's space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.adapters import hyperparameters, registry
from bench.suite.settings import MethodEntry
from bench.suite.suite import Suite
from bench.suite.tune_settings import TuneSettings
from methods.protocol import Log, Space

EDGE_SHARE = 0.1  #: share of a range, at either end and on its scale, that counts as an edge
FLAT_SHARE = (
    0.03  #: share of the best score that a setting away from the edge may lose and the range is still wide enough
)


def space_of(tune: TuneSettings, entry: MethodEntry) -> Space:
    """Return what the trials of an entry vary: the suite's ranges and the method's space, not what the entry sets."""
    ranges: dict[str, tuple[float, float] | None] = {"lr": tune.lr, "weight_decay": tune.weight_decay}
    suite = {name: Log(*bounds) for name, bounds in ranges.items() if bounds and name not in entry.recipe}
    own = registry.find_method(entry.method).space
    return {**suite, **{name: one for name, one in own.items() if name not in entry.config}}


def settings_of(tune: TuneSettings, entry: MethodEntry) -> list[dict[str, Any]]:
    """Return what each setting of an entry changes: nothing, then the first points of Sobol's sequence over its space.

    Unscrambled, it is the same everywhere, and more trials continue fewer. Without a space it is only the entry's own.
    """
    from scipy.stats import qmc

    space = space_of(tune, entry)
    if not space:
        return [{}]
    points = qmc.Sobol(len(space), scramble=False).fast_forward(1).random(tune.trials - 1)  # its first is a corner
    return [{}, *({name: space[name].at(float(x)) for name, x in zip(space, point, strict=True)} for point in points)]


def applied(entry: MethodEntry, changes: Mapping[str, Any]) -> MethodEntry:
    """Return the entry with these settings."""
    config = dict(changes)
    recipe: dict[str, Any] = {name: config.pop(name) for name in ("lr", "weight_decay") if name in config}
    return entry.model_copy(update={**recipe, "config": {**entry.config, **config}})


def settings_at_edge(
    suite: Suite, entry: MethodEntry, finals: Sequence[tuple[Mapping[str, Any], float | None]]
) -> dict[str, dict[str, Any]]:
    """Return which settings of the best of `finals`, settings with scores, lie at an edge of what trials tried.

    Each within `EDGE_SHARE` of an end that could lie further out, where no other of `finals` lies away from that end
    and within `FLAT_SHARE` of the best score. Its value here is the best with this one setting elsewhere, as the entry
    has it or in the middle of its range: if that scores as well, the setting has little effect and is there by chance.
    """
    assert suite.tune is not None
    scored = [(changes, score) for changes, score in finals if score is not None]
    if not scored:
        return {}
    best, top = max(scored, key=lambda final: final[1])
    good = [changes for changes, score in scored if is_as_good(score, top)]
    found: dict[str, dict[str, Any]] = {}
    for name, one in space_of(suite.tune, entry).items():
        end = _end(suite, entry, best, name, one)
        movable = end and end != getattr(one, "limit", "")
        if movable and all(end == _end(suite, entry, changes, name, one) for changes in good):
            elsewhere = {key: value for key, value in best.items() if key != name}
            stays = end == _end(suite, entry, elsewhere, name, one)
            found[name] = {**elsewhere, name: one.at(0.5)} if stays else elsewhere
    return found


def is_as_good(score: float | None, top: float) -> bool:
    """Return whether a score is within `FLAT_SHARE` of the best one."""
    return score is not None and score >= (1 - FLAT_SHARE) * top


def _end(suite: Suite, entry: MethodEntry, changes: Mapping[str, Any], name: str, one: Any) -> str:
    row = applied(entry, changes)
    values = {
        **suite.train.model_dump(),
        **row.recipe,
        **hyperparameters.resolve_config(row.method, row.preset, row.config),
    }
    place = one.place(values[name])
    return "low" if place <= EDGE_SHARE else "high" if place >= 1 - EDGE_SHARE else ""
