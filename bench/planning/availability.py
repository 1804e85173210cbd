"""Lists the data on this machine, for one suite or for the whole catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from bench import data, data_folder
from bench.catalogue.evaluation_sets import SPLITS, Entry, entries, parse
from bench.console.text import columns
from bench.data import evaluation
from bench.data.evaluation import layouts
from bench.data_folder import Missing
from bench.errors import UserError
from bench.evaluation.tasks import EvaluationPlan
from bench.planning import stored_texts
from bench.planning.requirements import absent, listing, plans, training, training_pairs

if TYPE_CHECKING:
    from bench.suite.suite import Suite

Row: TypeAlias = tuple[str, str, str, str]

_HEAD = ("data set", "kind", "images", "where")


def of_suite(suite: Suite) -> list[str]:
    """Return lines to print: the suite's data on this machine, and the missing data with how to get it.

    Evaluation data is validated as before a run; what is broken is a row that says so.
    """
    plan, rows = EvaluationPlan(suite.data, suite.evaluate), []
    if not suite.data.embedded and not training_pairs(suite):
        pairs = data.training(suite.data)
        rows.append((plan.training, "training pairs", f"{len(pairs):,}", pairs.description))
    if suite.data.texts is not None and not training(suite):
        rows.append(_texts(suite))
    present = _stored(plan) if suite.data.on_features else _present(list(plan.wanted()))
    return _lines(rows + present, absent(suite))


def _texts(suite: Suite) -> Row:
    """The stored texts beside pixels."""
    name, place = suite.data.name, str(suite.data.texts)
    try:
        stored_texts.check(suite.data, plans(suite))
    except UserError as error:
        return name, "stored texts", "?", f"broken: {error}"
    return name, "stored texts", "", place


def of_catalogue() -> list[str]:
    """Return lines to print: every evaluation data set on this machine, the user's own too, and the missing ones."""
    known = list(entries().values())
    own, broken = _own()
    rows = _present([entry.written(split) for entry in (*known, *own) for split in SPLITS if entry.count(split)])
    rows += broken
    there = {name for name, *_ in rows}
    tests = [entry for entry in known if entry.name not in there]
    lines = _lines(rows, [])
    if tests:
        size = sum(entry.gb for entry in tests)
        lines.append(f"missing, about {size:,.0f} GB: {', '.join(entry.name for entry in tests)}")
        lines.append("`bench data where SUITE` says where a suite's data is looked for, and how to get it")
    return lines


def _own() -> tuple[list[Entry], list[Row]]:
    """Return an entry for each folder wds_NAME that is not in the catalogue, and a row for each broken one."""
    known = {path.parent for entry in entries().values() for path in layouts.webdatasets(entry, "test")}
    own, broken = [], list[Row]()
    for folder in sorted(data_folder.evaluation().glob("wds_*/")):
        if folder in known:
            continue
        try:
            own.append(parse(folder.name.removeprefix("wds_"))[0])
        except UserError as error:
            broken.append((ascii(folder.name)[1:-1], "evaluation set", "?", f"broken: {error}"))
    return own, broken


def _present(names: list[str]) -> list[Row]:
    rows = list[Row]()
    for name in names:
        try:
            located = evaluation.find(name)
            if located is not None:
                evaluation.check(name)
                rows.append((name, "evaluation set", f"{evaluation.counts(name)[0]:,}", str(located.path)))
        except UserError as error:
            rows.append((name, "evaluation set", "?", f"broken: {error}"))
    return rows


def _stored(plan: EvaluationPlan) -> list[Row]:
    """The evaluation sets that lie with the suite's stored features."""
    rows = list[Row]()
    for name in plan.wanted():
        try:
            pairs = plan.stored(name)
            if pairs is not None:
                rows.append((name, "stored features", f"{len(pairs):,}", pairs.description))
        except UserError as error:
            rows.append((name, "stored features", "?", f"broken: {error}"))
    return rows


def _lines(rows: list[Row], gone: list[Missing]) -> list[str]:
    there = columns([_HEAD, *rows]) if rows else [f"no data below {data_folder.root()}"]
    return [*there, *listing(gone)]
