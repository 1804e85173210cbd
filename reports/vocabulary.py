"""Tasks and metrics in the words of the registry of task families."""

from __future__ import annotations

from bench.catalogue.families import FAMILIES, TaskFamily


def kind_of(name: str) -> TaskFamily | None:
    """Return the family of that name; None if this version does not have it, as for records of a later one."""
    return None if FAMILIES.unknown(name) else FAMILIES[name]


def short(name: str) -> str:
    """Return the heading of a family over a column of the overview."""
    kind = kind_of(name)
    return kind.short if kind else name.replace("_", " ")


def main_metric(task: str) -> str:
    """Return the metric by which overviews compare on a task; "" if its family has none."""
    kind = kind_of(family(task))
    return kind.main if kind else ""


def family(task: str) -> str:
    """ "zero_shot/concept" -> "zero_shot"."""
    return task.partition("/")[0]


def family_rank(name: str) -> int:
    """Place in the order of reading; families we do not know come last."""
    names = FAMILIES.names()
    return names.index(name) if name in names else len(names)


def detail(task: str) -> str:
    """ "zero_shot/concept" -> "concept"."""
    return task.partition("/")[2].replace("_", " ")


def metric_label(metric: str) -> str:
    """Return the heading of a metric over a column."""
    return _metrics().get(metric, metric.replace("_", " "))


def metric_rank(metric: str) -> int:
    """Place in the order of reading."""
    metrics = list(_metrics())
    return metrics.index(metric) if metric in metrics else len(metrics)


def _metrics() -> dict[str, str]:
    """Metric -> as printed, of all families in order of reading."""
    return {metric: label for one in FAMILIES for metric, label in one.metrics.items()}


def task_and_metric(key: str) -> tuple[str, str]:
    """ "zero_shot/concept/top1", as plans name a chance, -> ("zero_shot/concept", "top1")."""
    task, _, metric = key.rpartition("/")
    return task, metric
