"""Two methods of a suite side by side: differences paired by seed, intervals, p-values, costs, and a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.console.text import align_columns, join_lines
from bench.errors import UserError, nearest
from bench.store import Store
from reports.headlines import Named, primary
from reports.measure import cells_under, record_measure
from reports.pages.answer import validity_sentences
from reports.results import Results, load, uses
from reports.statistics.chance import unlearned
from reports.statistics.concepts import MEANING, MEANING_OF_BOTH, Examples, Outcomes, over_examples
from reports.statistics.paired import MINIMUM, Difference, difference, holm, mean
from reports.tables.footnotes import damaged_runs, other_protocols
from reports.tables.suite_tables import relative_cost
from reports.tables.table import Cell, signed, unverified
from reports.tables.vs_baseline import interval, p_text
from reports.vocabulary import family, short

AllOutcomes = Mapping[tuple[str, str], Outcomes]  #: (label, run) -> outcomes; two rows may read one run


@dataclass(frozen=True)
class Line:
    """One metric under one noise."""

    noise: str
    what: str  #: data set, task and metric
    a: Cell
    b: Cell
    higher_is_better: bool
    shared: int  #: seeds that both have
    gap: float | None  #: a minus b over the seeds that both have; None if they share none
    test: Difference | None  #: None if no test is possible
    examples: Examples | None  #: None if examples or concepts are not stored
    primary: bool
    clean: str | None = None  #: the block of clean pairs that corresponds to the noise
    unlearned: tuple[str, ...] = ()  #: of the two, what has not learned under the noise
    comparable: bool = True  #: False if rows were measured on different data


@dataclass(frozen=True)
class Comparison:
    """The answer of `bench compare`."""

    names: tuple[str, str]  #: of a and b, as a reader sees them
    lines: tuple[Line, ...]
    cost: Mapping[str, float | None]  #: noise -> training FLOPs of a in multiples of b's
    verdict: str
    notes: tuple[str, ...]  #: which of the two is not verified or knows more than a method; numbers of other protocols
    damaged: tuple[str, ...]  #: a sentence for each run of the suite, and for all outcomes, with a damaged file
    validity: tuple[str, ...]  #: whether the suite can speak of robustness, a sentence per noise

    def text(self) -> str:
        """Plain text: validity, verdict, a block for each noise, notes."""
        a, b = self.names
        parts = [
            *self.validity,
            *([""] * bool(self.validity)),
            self.verdict,
            "",
            f"{a} against {b}: differences are {a} minus {b}, in points",
        ]
        examples = [line.examples for line in self.lines if line.examples]
        more = 2 if any(one.over_both for one in examples) else int(bool(examples))
        for noise, ratio in self.cost.items():
            cost = "cost unknown" if ratio is None else f"{a} costs {ratio:.2f} times the training FLOPs"
            parts += ["", f"{noise} ({cost})"]
            whole = ("", a, b, "difference", "95 % interval", "p", "seeds", "over concepts", "over both")
            head = whole[: 7 + more]
            rows = [head, *(_row(line)[: len(head)] for line in self.lines if line.noise == noise)]
            parts += [f"  {line}" for line in align_columns(rows, right=True)]
        notes = [f"note: {note}" for note in (*(MEANING, MEANING_OF_BOTH)[:more], *self.notes, *self.damaged)]
        return join_lines([*parts, *([""] * bool(notes)), *notes])


def _row(line: Line) -> tuple[str, ...]:
    shown = [one.state if one.value is None else f"{100 * one.value:.1f}" for one in (line.a, line.b)]
    gap = "" if line.gap is None else signed(line.gap)
    ends = (line.examples.over_concepts, line.examples.over_both) if line.examples else (None, None)
    examples = [" to ".join(map(signed, one or ())) for one in ends]
    if line.test is None:
        return (line.what, *shown, gap, "", "", str(line.shared), *examples)
    p = p_text(line.test.p).removeprefix("p ").removeprefix("= ")
    return (line.what, *shown, gap, interval(line.test), p, str(line.test.n), *examples)


def compare(suite: str, store: Store, a: str, b: str | None = None) -> Comparison:
    """Compare two methods by their labels; without `b`, with the baseline. Raises UserError for an unknown label."""
    results = load(suite, store)
    b = results.baseline if b is None else b
    for label in (a, b):
        if label not in results.methods:
            raise UserError(f"{label!r} is not an entry of suite {suite}{nearest(label, results.methods)}")
    if a == b:
        raise UserError(f"{a!r} against itself: name two methods")
    runs = (run for noise in results.noises for label in (a, b) for run in results.of(label, noise))
    outcomes = {(run.method, run.run): Outcomes(run, results.plan["protocol"]) for run in runs}
    lines = [_line(results, outcomes, noise, named, a, b) for noise in results.noises for named in results.measures]
    costs = {noise: _cost(results, noise, a, b) for noise in results.noises}
    shown = tuple(line for line in lines if {line.a.state, line.b.state} != {"not applicable"})
    main = [line for line in shown if line.primary] or [line for line in lines if line.primary]
    names = results.named(a), results.named(b)
    sentence = verdict(*names, main, costs) if main else _no_verdict(primary(results))
    both = [(name, results.methods[label]) for name, label in zip(names, (a, b), strict=True)]
    notes = [f"{name} is not verified" for name, entry in both if unverified(entry["fidelity"])]
    notes += [f"{name} uses {uses(entry)}, which no method has" for name, entry in both if uses(entry)]
    damaged = (*damaged_runs(results), *(one for of_run in outcomes.values() for one in of_run.damaged))
    said = validity_sentences(results, (a, b))
    return Comparison(names, shown, costs, sentence, (*notes, *other_protocols(results)), damaged, said)


def _line(results: Results, outcomes: AllOutcomes, noise: str, named: Named, a: str, b: str) -> Line:
    measure = record_measure(results, *named)
    cells = cells_under(results, noise, measure, (a, b))
    own, other = cells[a].by_seed, cells[b].by_seed
    shared = sorted(own.keys() & other.keys())
    column, lost = measure.column, tuple(results.named(label) for label in (a, b) if label in unlearned(results)[noise])
    test = None if lost or not measure.comparable else difference(own, other)
    return Line(
        noise=noise,
        what=f"{short(family(named[1])).lower()} {column.group} {column.in_words}",
        a=cells[a],
        b=cells[b],
        higher_is_better=bool(column.higher_is_better),
        shared=len(shared),
        gap=mean([own[seed] - other[seed] for seed in shared]) if shared else None,
        test=test and test.within(column.most),
        examples=_examples(results, outcomes, named, cells) if measure.comparable else None,
        primary=named == primary(results),
        clean=results.clean(noise),
        unlearned=lost,
        comparable=measure.comparable,
    )


def _examples(results: Results, outcomes: AllOutcomes, named: Named, cells: Mapping[str, Cell]) -> Examples | None:
    own, other = ({part.seed: outcomes[label, part.run] for part in one.measured} for label, one in cells.items())
    a, b = (str(results.methods[label]["score"]) for label in cells)
    return over_examples([(own[seed], other[seed]) for seed in sorted(own.keys() & other.keys())], named, (a, b))


def _cost(results: Results, noise: str, a: str, b: str) -> float | None:
    own, other = (one.value for one in cells_under(results, noise, relative_cost(results), (a, b)).values())
    return own / other if own and other else None


def verdict(a: str, b: str, lines: Sequence[Line], costs: Mapping[str, float | None]) -> str:
    """One sentence on the suite's primary metric, with Holm at 5 % over its noises."""
    tests = holm({line.noise: line.test for line in lines if line.test})
    of = {line.noise: line for line in lines}
    parts = [_part(a, b, line, tests.get(line.noise), costs[line.noise], of.get(line.clean or "")) for line in lines]
    family = f" (p adjusted by Holm over {len(tests)} noises)" if len(tests) > 1 else ""
    return f"Verdict on {lines[0].what}{family}: " + "; ".join(parts) + "."


def _no_verdict(named: Named) -> str:
    dataset, task, metric = named
    lacking = f"{task} {metric} on {dataset}, the suite's primary metric, is not among what it measures"
    return f"No verdict: {lacking} (evaluate.tasks without {family(task)})."


def _part(a: str, b: str, line: Line, test: Difference | None, cost: float | None, clean: Line | None) -> str:
    under = f"under {line.noise}".replace("under clean", "on clean pairs")
    beside = ""
    if clean and clean.comparable and clean.gap is not None:
        ends = f" ({interval(clean.test)})" if clean.test else ""
        beside = f", on clean pairs {a} - {b} is {signed(clean.gap)}{ends}"
    beside += "" if cost is None else f", {a} at {cost:.2f} times the cost of {b}"
    if line.gap is None:
        return f"{under} they have no seed in common yet"
    if line.unlearned:
        have = "has" if len(line.unlearned) == 1 else "have"
        return f"{under} {' and '.join(line.unlearned)} {have} not learned, so nothing is tested{beside}"
    if not line.comparable:
        return f"{under} they were measured on different data, so nothing is tested{beside}"
    points = f"{100 * abs(line.gap):.1f} points"
    better, worse = (a, b) if (line.gap > 0) == line.higher_is_better else (b, a)
    if test is None:
        seeds = "one seed" if line.shared == 1 else f"{line.shared} seeds"
        why = f"{seeds} cannot tell whether that is more than chance (it takes {MINIMUM})"
        return f"{under} {better} is {points} ahead of {worse}, but {why}{beside}"
    tested = f"{p_text(test.adjusted)}, n = {test.n}"
    if not test.is_significant:
        return f"{under} the difference is not significant ({points} for {better}, {tested}){beside}"
    return f"{under} {better} is significantly better than {worse} by {points} ({tested}){beside}"
