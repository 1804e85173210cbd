"""The columns of an overview: the suite's primary metric, and one metric for each other task family."""

from __future__ import annotations

from reports.measure import Measure, average_measure, record_measure
from reports.results import Results, once
from reports.vocabulary import family, kind_of, main_metric, metric_label, short

Named = tuple[str, str, str]  #: dataset, task, metric


def by_family(results: Results) -> dict[str, list[Named]]:
    """Return everything measured by task family, in order of reading."""
    families: dict[str, list[Named]] = {}
    for named in results.measures:
        families.setdefault(family(named[1]), []).append(named)
    return families


def primary(results: Results) -> Named:
    """The suite's primary metric."""
    number = results.plan["primary"]
    return number["dataset"], number["task"], number["metric"]


def memorised(results: Results) -> Named | None:
    """The share of wrong captions that were memorised; None if the task was not measured."""
    found = (one for one in results.measures if family(one[1]) == "memorisation" and one[2] == "memorised")
    return next(found, None)


@once
def along(results: Results) -> Named:
    """The metric of the training curves: the primary one, or the first that was measured along the runs."""
    on_the_way = {key[1:4] for run in results.runs for key in run.records if key[0] < 1}
    main = (named for named in results.measures if named[2] == main_metric(named[1]))
    return next((named for named in (primary(results), *main) if named in on_the_way), primary(results))


def headlines(results: Results) -> list[Measure]:
    """The suite's primary metric, then one metric for each other task family."""
    dataset, task, metric = primary(results)
    questions = [
        record_measure(results, dataset, task, metric, f"{dataset} {metric_label(metric)}", short(family(task)))
    ]
    for name, measures in by_family(results).items():
        kind = kind_of(name)
        if kind is None or name == family(task):
            continue
        parts = [record_measure(results, *named) for named in measures if named[2] == kind.main]
        if parts:
            label = metric_label(kind.main) + (f", mean of {len(parts)}" if len(parts) > 1 else "")
            questions.append(average_measure(f"average {name}", label, kind.short, parts))
    return questions
