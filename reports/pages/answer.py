"""The answer of a suite: which methods are better than the baseline, under which noise, and at what cost."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from reports.headlines import along, primary
from reports.results import Results
from reports.statistics.chance import unlearned
from reports.statistics.contrasts import Contrast, headline_contrasts, on_clean, tested_contrasts
from reports.statistics.paired import LEVEL, MINIMUM, mean
from reports.statistics.power import MAX_SEEDS, seeds_for
from reports.statistics.regimes import regimes
from reports.statistics.validity import NAMED, QUESTION, validity
from reports.tables.suite_tables import ALIKE, relative_costs, spent
from reports.tables.table import show, signed
from reports.tables.vs_baseline import interval
from reports.vocabulary import metric_label

MANY_SEEDS = 10  #: beyond these, more seeds are not suggested


def question(results: Results) -> str:
    """The question that the suite's primary metric answers."""
    measure = next((one.measure for one in headline_contrasts(results)), None)
    what = measure.column.in_words if measure else " ".join(primary(results))
    lower = "" if measure is None or measure.column.higher_is_better else " (lower is better)"
    return f"Is a method significantly better than {results.named(results.baseline)} on {what}{lower}?"


def verdict(results: Results) -> str:
    """The answer in one sentence: which methods are significantly better, largest gain first, under which noises."""
    base, blocks = results.named(results.baseline), tested_contrasts(results.longest)
    if not blocks:
        return f"No answer yet: a test needs {MINIMUM} seeds that a method shares with {base}."
    where = _under([one.noise for one in blocks])
    better = {label: [one for one in blocks if "better" in one.verdicts(label)] for label in results.ranked}
    largest = {label: max(one.gains[label].value for one in of) for label, of in better.items() if of}
    wins = {label: better[label] for label in sorted(largest, key=largest.__getitem__, reverse=True)}
    parts = []
    for count in range(len(blocks), 0, -1):
        if not (labels := [label for label, won in wins.items() if len(won) == count]):
            continue
        noises = list(dict.fromkeys(one.noise for label in labels for one in wins[label]))
        cleans = {results.clean(noise) for noise in noises}  # several, if noises have different longest budgets
        clean = next((one for one in headline_contrasts(results) if cleans == {one.noise}), None)
        found = [f"{results.named(label)}{on_clean(clean, label, ' (', ')')}" for label in labels]
        more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
        under = f"under {count} of {len(blocks)} noises" if len(noises) > 1 else _under(noises)
        parts.append(f"{under}: {', '.join(found[:NAMED])}{more}")
    if not parts:
        return f"No method is significantly better than {base} {where}."
    won = {label: {one.noise for one in of} for label, of in wins.items()}
    return f"Significantly better than {base} {'; '.join(parts)}.{_over_budgets(results, won)}"


def _over_budgets(results: Results, won: Mapping[str, set[str]]) -> str:
    """Which methods that win under a noise do so if the tests of all its budgets are corrected together."""
    found = regimes(results)
    if not found:
        return ""
    since = {label: [one for one in found if one.contrasts[-1].noise in noises] for label, noises in won.items()}
    left = [label for label, of in since.items() if any(one.since(label, better=True) is not None for one in of)]
    return f" With the tests of all budgets corrected together: {', '.join(map(results.named, left)) or 'none'}."


def _under(noises: Sequence[str]) -> str:
    return (
        f"under {len(noises)} noises"
        if len(noises) > 1
        else f"under {noises[0]}".replace("under clean", "on clean pairs")
    )


def scoreboard(results: Results) -> list[tuple[str, ...]]:
    """A heading, and a row per noise: the baseline's score, methods by verdict, the best one, seeds."""
    base = results.named(results.baseline)
    rows: list[tuple[str, ...]] = [("noise", base, "better", "worse", "inconclusive", "best", "on clean", "seeds")]
    contrasts, lost = {one.noise: one for one in headline_contrasts(results)}, unlearned(results)
    for one in headline_contrasts(results.longest):
        own = one.values.get(results.baseline)
        unit = " %" if one.measure.column.unit == "percent" else ""
        score = "has not learned" if results.baseline in lost[one.noise] else "–"
        if own:
            score = f"{show(abs(mean([*own.values()])), one.measure.column.unit)}{unit}"
        counts = [sum(word in one.verdicts(label) for label in one.gains) for word in ("better", "worse")]
        counts.append(sum(not test.is_significant for test in one.gains.values()))
        best = max(one.gains, key=lambda label: one.gains[label].value, default=None)
        clean = contrasts.get(results.clean(one.noise) or "")
        first = f"{results.named(best)} {_difference(one, best)})" if best else "–"
        gain = clean.gain(best) if clean and best else None
        same = signed(clean.as_difference(gain).value) if clean and gain else "–"
        seeds = one.seeds or len(own or ())
        rows.append((one.noise, score, *(map(str, counts) if one.gains else "–––"), first, same, str(seeds)))
    return rows


def next_step(results: Results) -> str:
    """The next command: more seeds where they decide, with their minutes, or a comparison; "" before any number."""
    tests = [
        (abs(test.value) / test.std, one, label)
        for one in headline_contrasts(results.longest)
        for label, test in one.gains.items()
        if test.std and not test.is_significant
    ]
    rest = [label for label in results.ranked if label != results.baseline]
    seeds, wanted, what = list(results.plan["seeds"]), MINIMUM, "a verdict"
    if tests:
        effect, one, label = max(tests, key=lambda test: test[0])
        wanted, what = seeds_for(effect, LEVEL / len(one.gains)) or MAX_SEEDS, f"a verdict on {results.named(label)}"
    elif len(seeds) >= MINIMUM:
        wanted = len(seeds)
    if not (rest and any(run.ledger for run in results.runs)):
        return ""
    if not len(seeds) < wanted <= MANY_SEEDS:
        gains = [one.gains for one in headline_contrasts(results.longest)]
        best = max(rest, key=lambda label: sum(own[label].value for own in gains if label in own))
        return f"All metrics of one method: bench compare {results.suite} {shlex.quote(best)}"
    more = [*seeds, *(seed for seed in range(wanted) if seed not in seeds)][:wanted]
    minutes = _seconds(results) * (len(more) - len(seeds)) / len(seeds) / 60
    duration = f"about {max(1, round(minutes))} min at the pace of the stored runs"
    return f"For {what}: bench run {results.suite} --set 'seeds={more}', {duration}"


def _seconds(results: Results) -> float:
    """Wall time of all runs of a suite side by side on the cores of their machine."""
    seconds = 0.0
    for run in {run.run: run for run in results.runs if run.ledger}.values():  # several rows may show one run
        hardware = run.environment.get("hardware") or {}
        beside = max(1, hardware.get("cores", 1) // (hardware.get("threads") or 1))
        seconds += sum(spent(run.ledger, key) for key in ("train_seconds", "evaluate_seconds")) / beside
    return seconds


def validity_sentences(results: Results, rows: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Whether the comparison, and these rows in particular, can speak of robustness: a sentence per noise."""
    shown = (one for one in validity(results, rows) if one.noise in results.longest.noises)
    return tuple(f"{QUESTION} {one.sentence}" for one in shown)


def paragraphs(results: Results) -> tuple[str, ...]:
    """From which budget on a method is better or worse; how good the last weights are; what the methods cost."""
    over_budgets = [one.sentence(results) for one in regimes(results)]
    return (*over_budgets, *filter(None, [last_answer(results), cost_answer(results)]))


def last_answer(results: Results) -> str:
    """How far the last weights are behind the best along the runs; "" where only the last were measured."""
    named, lost = along(results), dict[tuple[str, str], list[float]]()
    sign = 1 if results.directions.get(named, True) else -1
    for run in results.runs:
        points, score = sorted({key[0] for key in run.records}), results.methods[run.method]["score"]
        found = [sign * one.value for at in points if (one := run.find(*named, score, at))]
        if len(found) > 1:
            lost.setdefault((run.method, run.noise), []).append(max(found) - found[-1])
    if not lost:
        return ""
    means = {place: mean(own) for place, own in lost.items()}
    label, noise = max(means, key=means.__getitem__)
    most = f"{100 * means[label, noise]:.1f} points behind the best ({results.named(label)}, {noise})"
    return f"Last and best: averaged over seeds, the last weights are at most {most} on {metric_label(named[2])}."


def cost_answer(results: Results) -> str:
    """What the methods cost compared with the baseline, in training FLOPs; "" if it is not known."""
    costs = relative_costs(results)
    if not costs:
        return ""
    least, most = min(costs, key=costs.__getitem__), max(costs, key=costs.__getitem__)
    unit = f"times {results.named(results.baseline)}'s training FLOPs"
    if max(abs(cost - 1) for cost in costs.values()) <= ALIKE:
        ends = dict.fromkeys(f"{costs[one]:.2f}" for one in (least, most))
        return f"Cost: about the same for all methods, {' to '.join(ends)} {unit}."
    ends = dict.fromkeys(f"{costs[one]:.2f} ({results.named(one)})" for one in (least, most))
    return f"Cost: from {' to '.join(ends)} {unit}."


def _difference(contrast: Contrast, label: str) -> str:
    """ "+2.1 (0.4 to 3.8"; where lower is better "54.4 % → 28.2 %, -26.2 (-30.0 to -22.4"."""
    test, change = contrast.as_difference(contrast.gains[label]), ""
    if not contrast.measure.column.higher_is_better:
        own, base = contrast.values[label], contrast.values[contrast.baseline]
        ends = (mean([-side[seed] for seed in own.keys() & base.keys()]) for side in (base, own))
        change = f"{' → '.join(f'{100 * end:.1f} %' for end in ends)}, "
    return f"{change}{signed(test.value)} ({interval(test)}"
