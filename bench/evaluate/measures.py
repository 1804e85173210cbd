"""From features to numbers: one function for each family of tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bench.data import TEMPLATES, Pairs, evaluation_captions
from bench.data.noise import NoiseManifest, noisy_mask
from bench.evaluate.bootstrap import Floats, interval, mean_interval, ratio_replicates
from bench.evaluate.detection import detect
from bench.evaluate.features import Features, Kind, evaluation_mode
from bench.evaluate.probe import Labelled, adamw_probe, sweep_probe
from bench.evaluate.retrieval import Retrieval, retrieve
from bench.evaluate.tasks import CAPTIONS, TOPS, EvaluationPlan, Task, with_means
from bench.evaluate.zero_shot import class_vectors, classify, prompts

VALIDATION_SHARE = 0.2  #: of a probe's training pairs, where no validation set is named


@dataclass(frozen=True)
class Number:
    """A measured value with its 95 % interval over n examples; `score` is "" where no similarity is involved."""

    metric: str
    score: str
    value: float
    n: int
    interval: tuple[float, float]


@dataclass(frozen=True)
class Bench:
    """What every measure works on."""

    plan: EvaluationPlan
    features: Features
    manifest: NoiseManifest | None


Measured = tuple[list[Number], dict[str, np.ndarray]]  #: numbers, and outcomes per example


def scores_of(*sides: Mapping[str, Tensor]) -> list[str]:
    """The scores that can be computed from these features."""
    return ["cosine", "csd"] if all("logvar" in side for side in sides) else ["cosine"]


def zero_shot(task: Task, bench: Bench) -> Measured:
    """Top-1 and top-5 accuracy among all classes of the data set's label, by a prompt ensemble."""
    pairs = bench.plan.load(task.dataset)
    templates = TEMPLATES[task.dataset.split("/")[0]]
    images = bench.features.images(pairs)
    classes = class_vectors(bench.features.texts(prompts(pairs.classes[task.label], templates)), len(templates))
    labels = torch.from_numpy(pairs.labels[task.label])
    numbers, outcomes = [], {"label": pairs.labels[task.label]}
    for score in scores_of(images, classes):
        ranks = classify(images, classes, labels, score)
        outcomes |= ranks.outcomes(f"{score}_")
        for k in TOPS:
            hits = ranks.hits(k)
            numbers.append(Number(f"top{k}", score, float(hits.mean()), len(hits), mean_interval(hits)))
    return numbers, outcomes


def retrieval(task: Task, bench: Bench) -> Measured:
    """Recall at 1, 5 and 10 both ways with five captions per image."""
    pairs = bench.plan.load(task.dataset)
    captions = evaluation_captions(pairs, CAPTIONS)
    owner = np.repeat(np.arange(len(pairs)), [len(texts) for texts in captions])
    images = bench.features.images(pairs)
    texts = bench.features.texts([text for texts in captions for text in texts])
    numbers: list[Number] = []
    outcomes: dict[str, np.ndarray] = {}
    for score in scores_of(images, texts):
        found = retrieve(images, texts, owner, score)
        outcomes |= {f"{score}_{name}": values for name, values in found.outcomes().items()}
        replicates = _recall_replicates(found)
        for metric, value in found.metrics().items():
            n = len(owner) if metric.startswith("t2i") else len(pairs)
            numbers.append(Number(metric, score, value, n, interval(replicates[metric])))
    return numbers, outcomes


def _recall_replicates(found: Retrieval) -> dict[str, Floats]:
    """Images are drawn with all their captions, whose outcomes hang together."""
    images = len(found.i2t.better)
    captions = np.bincount(found.owner, minlength=images).astype(np.float64)
    totals: dict[str, Floats] = {}
    weights: dict[str, Floats] = {}
    for name, hits in found.hits().items():
        of_image = name.startswith("i2t")
        totals[name] = hits if of_image else np.bincount(found.owner, hits, images).astype(np.float64)
        weights[name] = np.ones(images) if of_image else captions
    return with_means(ratio_replicates(totals, weights))


def linear_probe(task: Task, bench: Bench) -> Measured:
    """Accuracy of CLIP's linear probe: features before the projection, penalty chosen on validation."""
    train, validation, classes = _probe_training(task, bench, "pooled")
    test = _labelled(bench.plan.load(task.dataset), task, bench, "pooled")
    probe = sweep_probe(train, validation, classes)
    numbers, outcomes = _accuracy(probe.correct(test))
    return numbers, {**outcomes, "strength": np.array([probe.strength])}


def adamw(task: Task, bench: Bench) -> Measured:
    """Accuracy of CyCLIP's linear probe: projected features, no validation."""
    train, validation, classes = _probe_training(task, bench, "projected")
    test = _labelled(bench.plan.load(task.dataset), task, bench, "projected")
    return _accuracy(adamw_probe(train if task.validation else train + validation, test, classes))


def _accuracy(correct: np.ndarray) -> Measured:
    hits = correct.astype(np.float64)
    return [Number("accuracy", "", float(hits.mean()), len(hits), mean_interval(hits))], {"correct": correct}


def _probe_training(task: Task, bench: Bench, kind: Kind) -> tuple[Labelled, Labelled, int]:
    """Training and validation rows and the number of classes."""
    pairs = bench.plan.load(task.train)
    train, classes = _labelled(pairs, task, bench, kind), len(pairs.classes[task.label])
    if task.validation:
        return train, _labelled(bench.plan.load(task.validation), task, bench, kind), classes
    held = torch.from_numpy(held_back(pairs.keys, VALIDATION_SHARE)).to(train.labels.device)
    return train.select(~held), train.select(held), classes


def _labelled(pairs: Pairs, task: Task, bench: Bench, kind: Kind) -> Labelled:
    features = bench.features.images(pairs, kind)[kind]
    return Labelled(features, torch.from_numpy(pairs.labels[task.label]).to(features.device))


def held_back(keys: Sequence[str], share: float) -> np.ndarray:
    """bool [n]: the round(share * n) keys with the smallest hash, whatever their order."""
    digests = [hashlib.sha256(key.encode()).digest() for key in keys]
    chosen = sorted(range(len(keys)), key=digests.__getitem__)[: round(share * len(keys))]
    mask = np.zeros(len(keys), dtype=bool)
    mask[chosen] = True
    return mask


def noise_detection(task: Task, bench: Bench) -> Measured:
    """AUROC and average precision of the method's confidence in the pairs as training saw them, first text of each."""
    assert bench.manifest is not None
    pairs = bench.plan.load(task.dataset)
    bench.manifest.check(pairs)
    source = bench.manifest.donors_of(np.arange(len(pairs)))
    texts = bench.features.texts([pairs.captions(row)[0] for row in source.tolist()])
    images, method = bench.features.images(pairs), bench.features.method
    with evaluation_mode(method):
        confidence = method.confidence(images, texts).double().cpu().numpy()
    noisy = noisy_mask(bench.manifest, len(pairs))
    found = detect(confidence, noisy)
    numbers = [
        Number("auroc", "", found.auroc, len(pairs), found.auroc_interval),
        Number("average_precision", "", found.average_precision, len(pairs), found.average_precision_interval),
    ]
    return numbers, {"confidence": confidence.astype(np.float32), "noisy": noisy}


MEASURES: Mapping[str, Callable[[Task, Bench], Measured]] = {
    "zero_shot": zero_shot,
    "shift": zero_shot,
    "linear_probe": linear_probe,
    "adamw_probe": adamw,
    "retrieval": retrieval,
    "validation": retrieval,
    "noise_detection": noise_detection,
}
