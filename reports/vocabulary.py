"""Tasks and metrics in words a reader knows: those of the registry of task families."""

from __future__ import annotations

from bench.catalogue.families import FAMILIES, TaskFamily


def kind_of(name: str) -> TaskFamily | None:
    """The family of that name; None of stored records of a family that this version does not have."""
    return None if FAMILIES.unknown(name) else FAMILIES[name]


def short(name: str) -> str:
    """As over a column of an overview."""
    found = kind_of(name)
    return found.short if found else name.replace("_", " ")


def main_metric(task: str) -> str:
    """By which overviews compare on a task; "" of families without one."""
    found = kind_of(family(task))
    return found.main if found else ""


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
    """As printed over a column."""
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
