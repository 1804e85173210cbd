"""The table of trials: the settings that were tried for every method before it was compared, and their cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.results import Results
from reports.tables.footnotes import notes_for
from reports.tables.table import Cell, Column, Row, Table

_SCORE = "Validation, mean recall"
_TRIALS = Column("trials", "trials", "", "count", None, "settings tried, including the suite's own")
_OWN = Column("own", "suite's own", _SCORE, "percent", None, "score of the suite's own settings")
_BEST = Column("best", "best", _SCORE, "percent", None, "score of the settings that were chosen")
_GAIN = Column("gain", "gain", _SCORE, "percent", None, "best - suite's own, on the pairs and seeds that chose")
_LR = Column("lr", "learning rate", "Chosen", "text", None)
_TEMPERATURE = Column("temperature", "temperature", "Chosen", "text", None, "of methods that keep theirs fixed")
_SETTINGS = Column("settings", "settings", "Chosen", "text", None, "what differs from the suite's own settings")
_EDGE_MEANS = "in the outer tenth of a range, 3 % better than elsewhere: too small a space"
_EDGE = Column("edge", "at an edge", "Chosen", "text", None, _EDGE_MEANS)
_SPENT = (
    Column("flops", "FLOPs", "Spent on trials", "flops", None, "training, reference runs included"),
    Column("train_seconds", "training", "Spent on trials", "seconds", None),
)


def tuning_table(results: Results) -> Table | None:
    """Return one row per method with its trials, its chosen settings and their cost; None if a suite tunes nothing."""
    tuning = results.plan["tuning"]
    if not tuning:
        return None
    chosen = (_GAIN, _SETTINGS, _EDGE) if "rungs" in tuning else (_LR, _TEMPERATURE)
    columns = (_TRIALS, _OWN, _BEST, *chosen, *_SPENT)
    rows = [_row(results, label, tuning["methods"].get(label), columns) for label in results.methods]
    footnotes = _halved(tuning, results) if "rungs" in tuning else _spread(tuning)
    description = "Trials on the validation pairs, whose scores are in no other table."
    return Table("tuning", "Tuning", columns, tuple(rows), description, footnotes, notes=notes_for(rows))


def _row(results: Results, label: str, choice: Mapping[str, Any] | None, columns: tuple[Column, ...]) -> Row:
    entry = results.methods[label]
    if choice is None:
        return Row(label, (Cell("missing"),) * len(columns), "", label, False, entry["fidelity"])
    runs, chosen = tuple(trial["run"] for trial in choice["trials"]), choice["chosen"]
    own, best = choice.get("default", choice["trials"][0]["score"]), choice["score"]
    temperature = chosen.get("temperature")
    cells = {
        _TRIALS: Cell("value", float(choice.get("points", len(runs))), sources=runs),
        _OWN: _score(own),
        _BEST: _score(best),
        _GAIN: _score(None if own is None or best is None else best - own),
        _LR: Cell("value", text=f"{entry['lr']:g}"),
        _TEMPERATURE: Cell("value", text="as given" if temperature is None else _shown(temperature)),
        _SETTINGS: Cell("value", text=", ".join(f"{name} {_shown(value)}" for name, value in chosen.items()) or "own"),
        _EDGE: Cell("value", text=", ".join(choice.get("edge", ())) or "no"),
        _SPENT[0]: Cell("value", choice["ledger"]["flops"]),
        _SPENT[1]: Cell("value", choice["ledger"]["train_seconds"]),
    }
    return Row(label, tuple(cells[column] for column in columns), "", label, False, entry["fidelity"])


def _score(value: float | None) -> Cell:
    return Cell("failed") if value is None else Cell("value", value)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _halved(tuning: Mapping[str, Any], results: Results) -> tuple[str, ...]:
    """Return what the trials of a plan with rungs saw."""
    first, *later = tuning["rungs"]
    rounds = [f"{first['settings']} settings at {results.told(first['budget'])}"]
    rounds += [f"the best {rung['settings']} at {results.told(rung['budget'])}" for rung in later]
    seeds = ", ".join(str(seed) for seed in tuning["rungs"][-1]["seeds"])
    names = {"lr": "learning rates", "weight_decay": "weight decays"}
    ranges = [f"{text} {_range(tuning[name])}" for name, text in names.items() if tuning[name]]
    edges = results.at_edge or {}
    at_edge = ", ".join(results.named(label) for label, names in edges.items() if names) or "none"
    chosen = [one for one in tuning["methods"].values() if "outer" in one]  # plans made before do not say
    inside = [count for one in chosen if (count := len({*one["outer"]} - {*one["edge"]}))]
    excused = (
        " Settings in the outer tenth of their range that are not counted, because a trial away from it scores within "
        f"3 % of the best: {sum(inside)}, in {len(inside)} of {len(chosen)} methods."
    )
    return (
        f"Every method has the same trials: {', then '.join(rounds)}, the suite's own settings always among them. "
        f"Points of a Sobol sequence over {' and '.join([*ranges, 'the space of the method'])}. "
        "Where the best lies at an edge of its space, it is tried again with that setting away from the edge. "
        "The best on the validation pairs is used; its gain is measured on the seeds and pairs that chose it.",
        f"Trials have {100 * tuning['rate']:g} % noise, and seeds {seeds} at the last budget; validation pairs have "
        f"{'captions with the same noise' if tuning.get('by') == 'noisy_validation' else 'clean captions'}. "
        "The cost of trials is listed here and not charged to a run's budget.",
        f"Best at an edge of its space, and worse away from it, so the space should be widened: {at_edge}."
        + (excused if chosen else ""),
    )


def _spread(tuning: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the trials of a plan saw that was made before there were spaces, as committed archives hold it."""
    budget = ", ".join(f"{value:g} {kind.replace('_', ' ')}" for kind, value in tuning["budget"].items())
    return (
        "Every method has the same number of trials: the suite's own settings, then points spread over "
        f"learning rates {_range(tuning['lr'])} and, where a method keeps its temperature fixed and its entry does not "
        f"name it, temperatures {_range(tuning['temperature'])}. The best on the validation pairs is used.",
        f"A trial has seed {tuning['seed']}, {100 * tuning['rate']:g} % noise and a budget of {budget}. "
        "The cost of trials is listed here and not charged to a run's budget.",
    )


def _range(bounds: list[float]) -> str:
    return f"{bounds[0]:g} to {bounds[1]:g}"
