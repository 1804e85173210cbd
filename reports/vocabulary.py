"""Tasks and metrics in words a reader knows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """A kind of task, which gets a table of its own."""

    title: str
    short: str  #: over a column of an overview
    text: str  #: what is measured
    metrics: tuple[str, ...]  #: in order of reading
    main: str  #: the one metric for an overview


FAMILIES = {
    "zero_shot": Family(
        "Zero-shot classification",
        "Zero-shot",
        "An image gets the class whose text embedding, averaged over prompts, is nearest. No training on labels.",
        ("top1", "top5"),
        "top1",
    ),
    "shift": Family(
        "Zero-shot classification under distribution shift",
        "Shift",
        "The same classes and prompts, but images that were made in another way than any training image.",
        ("top1", "top5"),
        "top1",
    ),
    "linear_probe": Family(
        "Linear probe",
        "Linear probe",
        "A logistic regression on frozen image features before the projection; regularisation chosen on validation.",
        ("accuracy",),
        "accuracy",
    ),
    "adamw_probe": Family(
        "Linear probe trained with AdamW",
        "AdamW probe",
        "One linear layer on frozen image embeddings, trained as CyCLIP's code does: another protocol, other numbers.",
        ("accuracy",),
        "accuracy",
    ),
    "retrieval": Family(
        "Image-text retrieval",
        "Retrieval",
        "Share of queries with a right answer among the first 1, 5 or 10. I→T: find a caption of an image; T→I: find "
        "the image of a caption.",
        ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "mean_recall", "mean_r1"),
        "mean_recall",
    ),
    "noise_detection": Family(
        "Finding the corrupted training pairs",
        "Noise found",
        "Every training pair is scored by the method's own confidence; corrupted pairs should get the lower scores.",
        ("auroc", "average_precision"),
        "auroc",
    ),
}

METRICS = {
    "top1": "top-1",
    "top5": "top-5",
    "accuracy": "accuracy",
    "i2t_r1": "I→T R@1",
    "i2t_r5": "I→T R@5",
    "i2t_r10": "I→T R@10",
    "t2i_r1": "T→I R@1",
    "t2i_r5": "T→I R@5",
    "t2i_r10": "T→I R@10",
    "mean_recall": "mean of six",
    "mean_r1": "mean R@1",
    "auroc": "AUROC",
    "average_precision": "AP",
}


def family(task: str) -> str:
    """ "zero_shot/concept" -> "zero_shot"."""
    return task.partition("/")[0]


def family_rank(name: str) -> int:
    """Place in the order of reading; families we do not know come last."""
    return list(FAMILIES).index(name) if name in FAMILIES else len(FAMILIES)


def detail(task: str) -> str:
    """ "zero_shot/concept" -> "concept"."""
    return task.partition("/")[2].replace("_", " ")


def metric_label(metric: str) -> str:
    """As printed over a column."""
    return METRICS.get(metric, metric.replace("_", " "))


def metric_rank(metric: str) -> int:
    """Place in the order of reading."""
    return list(METRICS).index(metric) if metric in METRICS else len(METRICS)


def task_and_metric(key: str) -> tuple[str, str]:
    """ "zero_shot/concept/top1", as plans name a chance, -> ("zero_shot/concept", "top1")."""
    task, _, metric = key.rpartition("/")
    return task, metric
