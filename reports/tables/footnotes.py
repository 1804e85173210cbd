"""The notes below a table: seeds, marks, budget, noise, and differences between runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.store.pack import of_changed_code
from bench.store.selection import LAST
from reports.epochs import baseline_epochs, short
from reports.plan_fields import TEACHERS, TREATMENTS, begins_at
from reports.results import Results, RunResult, once, uses
from reports.statistics.chance import LEARNED
from reports.statistics.paired import MINIMUM
from reports.tables.table import OVER_BUDGET, TOLD, UNLEARNED, UNVERIFIED, Cell, Column, Row, Table, unverified

HASH = 12  #: characters of a hash that are printed
BOLD = (
    "Bold: no method of its column is significantly better under the same noise (paired t-test over the seeds that "
    "both have; Holm at 5 % over all pairs of methods, and over the methods against the baseline)."
)
SAME_SHARE = 0.005  #: shares of pairs that differ by less count as equal
_ENVIRONMENT = ("packages", "hardware", "commit")


def notes_for(rows: Sequence[Row]) -> dict[str, str]:
    """Return the meaning of each mark that occurs in the rows."""
    cells = [cell for row in rows for cell in row.cells]
    notes = {}
    if any(cell.over_budget for cell in cells):
        notes[OVER_BUDGET] = "at least one of its runs spent more than the budget allows"
    if any(unverified(row.fidelity) for row in rows):
        notes[UNVERIFIED] = (
            "not verified: the paper leaves parts of this method open, which our adapter fills in, or its file claims "
            "to equal other code without values that show it"
        )
    knowledge = sorted({row.uses for row in rows if row.uses})
    if knowledge:
        notes[TOLD] = f"uses {' or '.join(knowledge)}, which no method has: never bold, never ranked"
        if any(row.uses and row.compared for row in rows):
            notes[TOLD] += ", unless the baseline uses the same"
    if any(row.unlearned for row in rows):
        notes[UNLEARNED] = f"has not learned: its primary metric is not significantly above {LEARNED:g} times chance"
        notes[UNLEARNED] += " under this noise, so it takes part in no test"
    if any(cell.measured and cell.lacking for cell in cells):
        notes["n="] = "fewer seeds than planned; the list of runs says why"
    if any(cell.state == "not applicable" for cell in cells):
        notes["n/a"] = (
            "not applicable: there is no fixed set of corrupted pairs to find, or the row is told which they are; the "
            "method needs what stored features lack; the metric needs variances that the method does not have; or, for "
            "costs, the baseline takes no step"
        )
    return notes


def method_row(results: Results, label: str, cells: Iterable[Cell], noise: str = "") -> Row:
    """A table row for an entry of the suite, under a noise or for all."""
    entry = results.methods[label]
    return Row(label, tuple(cells), noise, label, label in results.ranked, entry["fidelity"], uses(entry))


def noted(
    results: Results, name: str, title: str, columns: Iterable[Column], rows: Sequence[Row], text: str, *notes: str
) -> Table:
    """A table with these notes, those on all tables of the report, and the meaning of its marks."""
    made = (*notes, *context(results))
    return Table(name, title, tuple(columns), tuple(rows), text, made, notes=notes_for(rows))


def footnotes(results: Results, rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the notes of a table: seeds, bold, and the context."""
    return *_seeds(results, rows), *context(results)


@once
def context(results: Results) -> tuple[str, ...]:
    """Budget, treatments and noise of the data, and whether protocol, data, runner and environment were one."""
    return (
        _budget(results),
        *_starts(results),
        *_treatments(results),
        *_selections(results),
        *_features(results),
        *_manifests(results),
        *damaged_runs(results),
        *other_protocols(results),
        *_mixed(results),
        *_versions(results.runs),
        *_environments(results.runs),
        *_machines(results.runs),
        *_changed_code(results.runs),
        *_added(results.plan.get("added", ())),
    )


def _features(results: Results) -> Iterable[str]:
    """Which encoders made the stored features, where second views come from, and which entries have no runs."""
    features = results.plan["data"].get("features")
    if features is not None:
        sides = {kind: features[kind] for kind in ("image", "text") if kind in features}
        encoders = [f"{kind}s by {one['name']} ({one['width']} dimensions)" for kind, one in sides.items()]
        views = features.get("image", {}).get("views", 1)
        stored = f"{views} stored views" if views > 1 else ""
        dropped = f"{100 * features['dropout']:g} % of an image's dimensions dropped" if features["dropout"] else ""
        second = " with ".join(filter(None, (stored, dropped))) or "none"
        made = ", ".join(encoders) or "not there yet"
        yield f"Trained on stored features: {made}; further views of an image: {second}."
    for entry in results.methods.values():
        for reason in dict.fromkeys(entry.get("inapplicable", {}).values()):
            yield f"Not applicable: {reason}."


def damaged_runs(results: Results) -> tuple[str, ...]:
    """For each run that a damaged file keeps out, which run and which file."""
    return tuple(
        f"{results.named(run.method)}, {run.noise}, seed {run.seed}, is damaged: {run.status['error']['message']}."
        for run in results.runs
        if run.state == "damaged"
    )


def other_protocols(results: Results) -> Iterable[str]:
    """For each other protocol, the tasks of this suite that runs were measured on under that protocol alone."""
    for label, tasks in results.elsewhere.items():
        own, other = protocol_name(results.plan["protocol"]), protocol_name(label)
        named = ", ".join(f"{dataset} {task} ({count})" for (dataset, task), count in tasks.items())
        yield (
            f"Missing under this suite's evaluation protocol, {own}, but stored under {other} (number of runs in "
            f"parentheses): {named}. `bench run {results.suite}` measures them under {own}."
        )


def protocol_name(label: str) -> str:
    """A protocol's label in records as words: "nuclr-1" -> "nuclr 1"; the common one's is its version alone."""
    name, _, version = label.rpartition("-")
    return f"{name or 'common'} {version}"


def _seeds(results: Results, rows: Sequence[Row]) -> Iterable[str]:
    seeds = results.plan["seeds"]
    if len(seeds) == 1:
        yield (
            f"One seed ({seeds[0]}), n = 1: there is no standard deviation, and nothing is bold, because one seed "
            "cannot distinguish a better method from a lucky one."
        )
        return
    yield f"Mean ± standard deviation over {planned_seeds(results)}."
    if any(cell.bold for row in rows for cell in row.cells):
        yield BOLD
    elif len(seeds) < MINIMUM:
        yield f"Nothing is bold: fewer than {MINIMUM} seeds."
    else:
        yield f"Nothing is bold: no column has two methods with {MINIMUM} seeds in common, or none can be ranked."


def brief(results: Results, rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the notes of a table in a paper: how many seeds, and what bold means."""
    seeds = results.plan["seeds"]
    if len(seeds) == 1:
        return ("One seed.",)
    bold = " Bold: no method is significantly better (paired t-test, Holm, 5 %)."
    known = any(cell.bold for row in rows for cell in row.cells)
    return (f"Mean ± standard deviation over {len(seeds)} seeds.{bold if known else ''}",)


def planned_seeds(results: Results) -> str:
    """ "n = 3 seeds (0, 1, 2)", and the noises that have fewer."""
    seeds = results.plan["seeds"]
    fewer: dict[int, list[str]] = {}
    for noise in results.plan["noises"]:
        if (count := len(noise.get("seeds", seeds))) < len(seeds):
            fewer.setdefault(count, []).append(noise["label"])
    less = "".join(f"; the first {count} for {', '.join(labels)}" for count, labels in fewer.items())
    return f"n = {len(seeds)} seed{'s' * (len(seeds) > 1)} ({', '.join(map(str, seeds))}{less})"


def _budget(results: Results) -> str:
    plan, budget = results.plan, results.plan["budget"]
    values = ", ".join(f"{value:g}" for value in budget.get("values", [budget["value"]]))
    one = "Budgets" if "values" in budget else "Budget of every run"
    text = f"{one}: {values} {budget['unit']}"
    if "told" in budget:
        text += f" ({', '.join(map(results.told, budget['values']))})"
    elif budget["kind"] == "flops" and len(epochs := {*baseline_epochs(plan).values()}) == 1:
        text += f" ({short(epochs.pop())} epochs of {results.named(results.baseline)})"
    rules = {
        "total": "; a method that starts from a reference run pays for it out of the same budget",
        "additional": "; a reference run that a method starts from is paid on top, and counted in its costs",
    }
    return text + rules.get(budget.get("rule", ""), "") + "."


def _treatments(results: Results) -> Iterable[str]:
    """Which rows of the tables trained on only some of the pairs, on how many, and how often."""
    rows = results.plan["data"]["rows"]
    for label, entry in results.methods.items():
        keep, name = entry["keep"], results.named(label)
        if keep:
            seen = sorted({run.kept_rows for run in results.runs if run.method == label and run.kept_rows})
            counts = ", ".join(f"{n:,}" for n in seen)
            share = f" ({counts} of {rows:,})" if seen else ""
            scorer = f", a shared run of {keep['scorer']} that is charged to it" if keep.get("scorer") else ""
            scorer += f", {TEACHERS[keep['teacher']]}" if keep.get("teacher") in TEACHERS else ""
            external = ""
            if elsewhere := keep.get("external"):  # weights whose training is not charged
                known = f", sha256 {elsewhere['hash'][:HASH]}" if elsewhere["hash"] else ""
                external = f" ({elsewhere['name']}{known}), whose training is in no budget and no cost here"
            known = _true_share(results, label) if scorer or external else ""
            yield f"{name}: trained on {keep['about']}{scorer}{external}{share}; {TREATMENTS[keep['rule']]}{known}."
        if entry.get("untrained"):
            begun = f"its start, {begins_at(entry)}," if begins_at(entry) else "its initial weights"
            yield f"{name}: not trained here: the row measures {begun} and spends nothing."
        if average := entry.get("average"):
            share = f"{average:g} of the weights that it starts from and {1 - average:g} of those that it trains"
            yield f"{name}: averaged weights, {share}; no further step."


def _true_share(results: Results, label: str) -> str:
    """The noises under which a row keeps exactly the share of pairs that is clean, as text to append."""
    rows, noises = results.plan["data"]["rows"], results.noises
    at = dict.fromkeys(
        run.noise
        for run in results.runs
        if run.method == label
        and run.kept_rows
        and (rate := noises[run.noise]["rate"])
        and abs(run.kept_rows / rows + rate - 1) < SAME_SHARE
    )
    return (
        f"; the share kept is the true share of clean pairs under {', '.join(at)}, which no method knows" if at else ""
    )


def _starts(results: Results) -> Iterable[str]:
    """Which given weights entries start from, and what these were trained on: test images may be among it."""
    known = results.plan.get("trained_on", {})
    for start in dict.fromkeys(entry["start"] for entry in results.methods.values() if entry["start"]):
        yield f"Start of training: {start}, trained on {known.get(start, 'data that the suite does not name')}."


def _selections(results: Results) -> Iterable[str]:
    """By which pairs the weights were chosen at which a row reads its runs."""
    rows: dict[str, list[str]] = {}
    for label, entry in results.methods.items():
        rows.setdefault(entry.get("select", LAST), []).append(label)
    whose = {"noisy_validation": "as noisy as the training pairs", "clean_validation": "clean"}
    for select, labels in rows.items():
        if select != LAST:
            yield (
                f"{', '.join(map(results.named, labels))}: of each run, the weights with the highest mean recall on "
                f"held-out pairs ({whose.get(select, select)}), among those along the run and the last. The whole run "
                "is charged; what is measured only on the last weights is n/a."
            )


def _manifests(results: Results) -> Iterable[str]:
    for label in results.noises:
        seeds: dict[str, list[int]] = {}
        rates = set()
        for run in results.runs:
            if run.noise == label and run.manifest and run.manifest["rows"]:
                where = seeds.setdefault(run.manifest["hash"][:HASH], [])
                if run.seed not in where:
                    where.append(run.seed)
                rates.add(f"{100 * run.manifest['realised_rate']:.1f} %")
        if seeds:
            hashes = ", ".join(f"{digest} (seed {', '.join(map(str, who))})" for digest, who in seeds.items())
            yield f"{label}: noise manifest {hashes}; realised rate {', '.join(sorted(rates))}."


def _mixed(results: Results) -> Iterable[str]:
    for (dataset, task), counts in sorted(results.mixed.items()):
        runs = ", ".join(f"{data[:HASH]} in {count} runs" for data, count in sorted(counts.items()))
        yield (
            f"{dataset} {task}: runs were measured on different data ({runs}), so nothing there is bold or tested. "
            "`bench run` measures again what is removed from a run's folder evaluations/."
        )


def _versions(runs: Sequence[RunResult]) -> Iterable[str]:
    counts = Counter(run.training_version for run in runs if run.training_version is not None)
    if len(counts) > 1:
        listed = ", ".join(f"{count} runs of training version {version}" for version, count in sorted(counts.items()))
        yield f"Mixed versions of the runner ({listed}), so differences may not be due to the methods."


def _environments(runs: Sequence[RunResult]) -> Iterable[str]:
    parts: dict[str, set[str]] = {}
    for environment in (run.environment for run in runs if run.environment):
        for name, value in _flat({key: environment.get(key) for key in _ENVIRONMENT}):
            parts.setdefault(name, set()).add(str(value))
    if differing := [f"{name} {' / '.join(sorted(values))}" for name, values in parts.items() if len(values) > 1]:
        yield f"Mixed environments, so small differences may not be due to the methods: {'; '.join(differing)}."


def _machines(runs: Sequence[RunResult]) -> Iterable[str]:
    """For each noise, the seeds whose runs were made on several types of machine."""
    devices: dict[tuple[str, int], set[str]] = {}
    for run in runs:
        if device := (run.environment.get("hardware") or {}).get("device"):
            devices.setdefault((run.noise, run.seed), set()).add(str(device))
    mixed = [place for place, names in devices.items() if len(names) > 1]
    if mixed:
        names = " and ".join(sorted(set[str]().union(*(devices[place] for place in mixed))))
        yield (
            f"Machines mixed within a seed ({names}), so paired differences there are partly due to the machines: "
            f"{_places(mixed)}."
        )


def _changed_code(runs: Sequence[RunResult]) -> Iterable[str]:
    changed = [run for run in runs if of_changed_code(run.environment)]
    if changed:
        places = _places((run.noise, run.seed) for run in changed)
        yield f"{len(changed)} of {len(runs)} runs were made by code with uncommitted changes: {places}."


def _added(added: Iterable[tuple[str, int]]) -> Iterable[str]:
    if places := _places(added):
        yield f"Added after results existed, so p-values and intervals are not those of one planned analysis: {places}."


def _places(places: Iterable[tuple[str, int]]) -> str:
    """ "40 % shuffled captions, seeds 3, 4; clean, seeds 0": each noise with its seeds."""
    seeds: dict[str, list[str]] = {}
    for noise, seed in dict.fromkeys((noise, seed) for noise, seed in places):
        seeds.setdefault(noise, []).append(str(seed))
    return "; ".join(f"{noise}, seed{'s' * (len(own) > 1)} {', '.join(own)}" for noise, own in seeds.items())


def _flat(content: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from value.items()
        else:
            yield name, value[:HASH] + "+" * value.endswith("+") if isinstance(value, str) else value
