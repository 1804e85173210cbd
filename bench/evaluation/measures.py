"""The measures of the task families: functions from features to numbers, named in `bench.catalogue.families`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from bench import data
from bench.arrays import Floats, Ints
from bench.catalogue.families.random_guess import top_ks, with_means
from bench.data import Pairs
from bench.data.evaluation import CLASS, EvaluationPairs
from bench.data.noise.manifest import Noise, NoiseManifest, noisy_mask
from bench.errors import UserError
from bench.evaluation import grouped
from bench.evaluation.bootstrap import mean_interval, percentile_interval, ratio_replicates
from bench.evaluation.features import FeatureKind, Features, evaluation_mode
from bench.evaluation.noise.detection import detection_scores
from bench.evaluation.probe import Labelled, adamw_probe, sweep_probe
from bench.evaluation.puzzles import SIZES, cue_prompt, solve
from bench.evaluation.ranks import AnswerRanks, offsets
from bench.evaluation.retrieval import Retrieval, retrieve_within
from bench.evaluation.tasks import EvaluationPlan, Task, folds_of
from bench.evaluation.zero_shot import (
    class_prompts,
    class_vectors,
    classify,
    inverse_temperature,
    log_likelihoods,
    predictions,
)
from bench.hashing import sha256_order
from methods.base import spans
from methods.protocol import Tensors

OfChunk = Callable[[Features, Tensors, Tensors], Tensors]  #: of features of images and of texts
CHUNK_PAIRS = 1 << 16  #: training pairs whose features are in memory at a time
LEAK = 0.01  #: share of a probe's test images that may be training images too; sets have some duplicates
VALIDATION_SHARE = 0.2  #: share of a probe's training pairs that validates it, if no validation set is named


@dataclass(frozen=True)
class Number:
    """A measured value with its 95 % interval over n examples; `score` is "" if no similarity is involved."""

    metric: str
    score: str
    value: float
    n: int
    interval: tuple[float, float]
    higher_is_better: bool = True

    @classmethod
    def mean(cls, metric: str, score: str, values: np.ndarray, higher_is_better: bool = True) -> Number:
        """Return the mean of values [n] with its interval."""
        shares = values.astype(np.float64)
        return cls(metric, score, float(shares.mean()), len(shares), mean_interval(shares), higher_is_better)


@dataclass(frozen=True)
class MeasureInputs:
    """The input of every measure. A measure raises FloatingPointError if features are not finite."""

    plan: EvaluationPlan
    features: Features
    manifest: NoiseManifest | None
    kept: Ints | None = None  #: rows that a scorer chose to train on; None if no scorer did


Measured = tuple[list[Number], dict[str, np.ndarray]]  #: numbers, and per-example results


def available_scores(*sides: Mapping[str, Tensor]) -> list[str]:
    """Return the scores that can be computed: "csd" needs variances on all sides."""
    return ["cosine", "csd"] if all("logvar" in side for side in sides) else ["cosine"]


def zero_shot(task: Task, bench: MeasureInputs) -> Measured:
    """Measure top-1 and top-5 accuracy among all classes of the data set's label, with a prompt ensemble.

    If the protocol has main metrics, the data set's own is added, once under its name and once as "main".
    """
    pairs = bench.plan.load(task.dataset)
    (images, labels), classes = _labelled_images(pairs, task, bench), class_features(pairs, task, bench)
    numbers, outcomes = [], {"label": pairs.labels[task.label]}
    for score in available_scores(images, classes):
        ranks = classify(images, classes, labels, score)
        outcomes |= ranks.outcomes(f"{score}_")
        for k in top_ks(len(pairs.classes[task.label])):
            numbers.append(Number.mean(f"top{k}", score, ranks.hits(k)))
        if bench.plan.protocol.main:
            metric = bench.plan.metric(task.dataset)
            main = next((one for one in numbers if (one.metric, one.score) == (metric, score)), None)
            if main is None:
                value, around = _MAIN[metric](pairs, ranks, partial(predictions, images, classes, score))
                numbers.append(main := Number(metric, score, value, len(pairs), around))
            numbers.append(replace(main, metric="main"))
    return numbers, outcomes


def class_ranking(task: Task, bench: MeasureInputs) -> Measured:
    """Measure the mean reciprocal rank of the right class, and the geometric mean of its probability.

    They depend less on chance than hits do. A model's scores become probabilities by one temperature, the best on the
    task's validation set; without one, a fifth of the images chooses it and the others are measured.
    """
    pairs = bench.plan.load(task.dataset)
    classes = class_features(pairs, task, bench)
    scored = fitting = _labelled_images(pairs, task, bench)
    if task.validation:
        fitting = _labelled_images(bench.plan.load(task.validation), task, bench)
    else:
        fits = torch.from_numpy(held_back(pairs.keys, VALIDATION_SHARE))
        fitting, scored = ((_rows(scored[0], rows), scored[1][rows]) for rows in (fits, ~fits))
    numbers: list[Number] = []
    outcomes: dict[str, np.ndarray] = {"label": scored[1].numpy()}
    for score in available_scores(scored[0], classes):
        ranks = classify(scored[0], classes, scored[1], score)
        logs = log_likelihoods(*scored, classes, score, inverse_temperature(*fitting, classes, score))
        outcomes |= {**ranks.outcomes(f"{score}_"), f"{score}_log_likelihood": logs.astype(np.float32)}
        low, high = (float(limit) for limit in np.exp(mean_interval(logs)))
        numbers.append(Number.mean("mrr", score, ranks.reciprocal()))
        numbers.append(Number("likelihood", score, float(np.exp(logs.mean())), len(logs), (low, high)))
    return numbers, outcomes


def class_features(pairs: Pairs, task: Task, bench: MeasureInputs) -> Mapping[str, Tensor]:
    """Return the features of the classes of the task's label, each the mean of its prompts."""
    templates = data.prompt_templates(pairs)
    return class_vectors(bench.features.texts(class_prompts(pairs.classes[task.label], templates)), len(templates))


def _labelled_images(pairs: Pairs, task: Task, bench: MeasureInputs) -> tuple[Mapping[str, Tensor], Tensor]:
    return bench.features.images(pairs), torch.from_numpy(pairs.labels[task.label])


def _rows(images: Mapping[str, Tensor], rows: Tensor) -> Mapping[str, Tensor]:
    return {name: values[rows.to(values.device)] for name, values in images.items()}


#: metric -> its function of pairs, ranks of the right classes and what gives the predicted classes, int64 [n]
_MAIN: Mapping[str, Callable[[Pairs, AnswerRanks, Callable[[], np.ndarray]], grouped.WithInterval]] = {
    "mean_per_class_recall": lambda pairs, ranks, _: grouped.mean_per_class(ranks.hits(1), pairs.labels[CLASS]),
    "f1_macro": lambda pairs, _, predicted: grouped.macro_f1(pairs.labels[CLASS], predicted()),
    "worst_region": lambda pairs, ranks, _: grouped.worst_group(ranks.hits(1), pairs.labels["region"]),
    "top5_worst_income": lambda pairs, ranks, _: grouped.worst_group(ranks.hits(5), pairs.labels["income"]),
}


def retrieval(task: Task, bench: MeasureInputs) -> Measured:
    """Measure recall at 1, 5 and 10 in both directions; for puzzles, the Jaccard index of their solutions."""
    pairs = bench.plan.load(task.dataset)
    if isinstance(pairs, EvaluationPairs) and pairs.puzzles:
        return _puzzles(pairs, bench)
    captions = bench.plan.captions(bench.plan.noisy(pairs) if task.family == "noisy_validation" else pairs)
    owner = np.repeat(np.arange(len(pairs)), [len(texts) for texts in captions])
    images = bench.features.images(pairs)
    texts = bench.features.texts([text for texts in captions for text in texts])
    numbers: list[Number] = []
    outcomes: dict[str, np.ndarray] = {}
    for score in available_scores(images, texts):
        result = retrieve_within(folds_of(task.dataset), images, texts, owner, score)
        outcomes |= {f"{score}_{name}": values for name, values in result.outcomes().items()}
        replicates = _recall_replicates(result)
        for metric, value in result.metrics().items():
            n = len(owner) if metric.startswith("t2i") else len(pairs)
            numbers.append(Number(metric, score, value, n, percentile_interval(replicates[metric])))
        if bench.plan.protocol.main:
            numbers += [replace(one, metric="main") for one in numbers if (one.metric, one.score) == ("mean_r1", score)]
    return numbers, outcomes


def _puzzles(pairs: EvaluationPairs, bench: MeasureInputs) -> Measured:
    """Measure the mean Jaccard index of the puzzles with 10 to 12 candidates, with 5 or 6, and of all."""
    puzzles = pairs.puzzles
    images, cues = bench.features.images(pairs), bench.features.texts([cue_prompt(one.cue) for one in puzzles])
    sizes = np.array([len(one.candidates) for one in puzzles])
    numbers: list[Number] = []
    outcomes: dict[str, np.ndarray] = {"candidates": sizes}
    for score in available_scores(images, cues):
        jaccard = outcomes[f"{score}_jaccard"] = solve(images, cues, puzzles, score)
        for metric, among in {**SIZES, "jaccard": range(sizes.max() + 1)}.items():
            some = jaccard[np.isin(sizes, among)]
            if len(some):
                numbers.append(Number.mean(metric, score, some))
        if bench.plan.protocol.main:
            main = ("jaccard_10_12", score)
            numbers += [replace(one, metric="main") for one in numbers if (one.metric, one.score) == main]
    return numbers, outcomes


def _recall_replicates(result: Retrieval) -> dict[str, Floats]:
    """Bootstrap the recalls by images with all their captions, because outcomes of one image depend on each other."""
    images = len(result.i2t.better)
    captions = np.bincount(result.owner, minlength=images).astype(np.float64)
    totals: dict[str, Floats] = {}
    weights: dict[str, Floats] = {}
    for name, hits in result.hits().items():
        of_image = name.startswith("i2t")
        totals[name] = hits if of_image else np.bincount(result.owner, hits, images).astype(np.float64)
        weights[name] = np.ones(images) if of_image else captions
    return with_means(ratio_replicates(totals, weights))


def linear_probe(task: Task, bench: MeasureInputs) -> Measured:
    """Measure the accuracy of CLIP's linear probe: features before the projection, penalty chosen on validation."""
    train, validation, classes = _probe_training(task, bench, "pooled")
    test = _labelled(bench.plan.load(task.dataset), task, bench, "pooled")
    probe = sweep_probe(train, validation, classes, bench.features.device)
    numbers, outcomes = _accuracy(probe.correct(test))
    return numbers, {**outcomes, "strength": np.array([probe.strength])}


def adamw_accuracy(task: Task, bench: MeasureInputs) -> Measured:
    """Measure the accuracy of CyCLIP's linear probe: projected features, no validation."""
    train, validation, classes = _probe_training(task, bench, "projected")
    test = _labelled(bench.plan.load(task.dataset), task, bench, "projected")
    both = train if task.validation else train + validation
    return _accuracy(adamw_probe(both, test, classes, device=bench.features.device))


def _accuracy(correct: np.ndarray) -> Measured:
    return [Number.mean("accuracy", "", correct)], {"correct": correct}


def _probe_training(task: Task, bench: MeasureInputs, kind: FeatureKind) -> tuple[Labelled, Labelled, int]:
    """Return training rows, validation rows and the number of classes. UserError if the test images are among them."""
    pairs, test = bench.plan.load(task.train), bench.plan.load(task.dataset)
    if isinstance(pairs, EvaluationPairs) and isinstance(test, EvaluationPairs):
        known = set(pairs.image_digests)
        seen = sum(digest in known for digest in test.image_digests)
        if seen > LEAK * len(test):
            fault = f"{seen:,} of {len(test):,} test images are in {task.train} too"
            raise UserError(f"{task.name} of {task.dataset}: {fault}; omit it from evaluate.datasets.{task.family}")
    train, classes = _labelled(pairs, task, bench, kind), len(pairs.classes[task.label])
    if task.validation:
        return train, _labelled(bench.plan.load(task.validation), task, bench, kind), classes
    validates = torch.from_numpy(held_back(pairs.keys, VALIDATION_SHARE)).to(train.labels.device)
    return train.select(~validates), train.select(validates), classes


def _labelled(pairs: Pairs, task: Task, bench: MeasureInputs, kind: FeatureKind) -> Labelled:
    features = bench.features.images(pairs, kind)[kind]
    return Labelled(features, torch.from_numpy(pairs.labels[task.label]).to(features.device))


def held_back(keys: Sequence[str], share: float) -> np.ndarray:
    """Return bool [n], true for the round(share * n) keys with the smallest sha256, independent of their order."""
    mask = np.zeros(len(keys), dtype=bool)
    mask[sha256_order(keys)[: round(share * len(keys))]] = True
    return mask


def noise_detection(task: Task, bench: MeasureInputs) -> Measured:
    """Measure how the method's confidence finds corrupted pairs, as training saw them, with the first text of each.

    Where a scorer chose the rows to train on, precision and recall of its choice are added: a kept pair should be
    clean. Raises UserError if the manifest was made for other pairs.
    """
    assert bench.manifest is not None
    pairs = bench.plan.load(task.dataset)
    bench.manifest.check(pairs)
    confidence = pair_confidences(bench.features, pairs, bench.manifest)["confidence"].double().numpy()
    noisy = noisy_mask(bench.manifest, len(pairs))
    found = detection_scores(confidence, noisy).items()
    numbers = [Number(name, "", value, len(pairs), around) for name, (value, around) in found]
    if bench.kept is not None:
        kept = np.isin(np.arange(len(pairs)), bench.kept)
        numbers += [Number.mean("kept_precision", "", ~noisy[kept]), Number.mean("kept_recall", "", kept[~noisy])]
    return numbers, {"confidence": confidence.astype(np.float32), "noisy": noisy}


def pair_confidences(features: Features, pairs: Pairs, noise: Noise | None) -> Tensors:
    """Return the method's "confidence" [n] and the "cosine" [n], on the CPU, of training pairs as training saw them.

    With variances also "csd" [n], which is larger the smaller CSD is (see `offsets`).
    They are computed in chunks, because features of millions of pairs do not fit in memory; stored chunks survive a
    kill.
    """
    return _in_chunks("agreement", _agreement, features, pairs, noise)


def pair_embeddings(features: Features, pairs: Pairs, noise: Noise | None) -> tuple[Tensor, Tensor]:
    """Return unit embeddings [n, D] of images and texts of training pairs, on the CPU, as `pair_confidences` does."""
    found = _in_chunks("embeddings", _embeddings, features, pairs, noise)
    return found["image"], found["text"]


def _embeddings(_: Features, images: Tensors, texts: Tensors) -> Tensors:
    return {"image": images["embedding"], "text": texts["embedding"]}


def _in_chunks(what: str, of: OfChunk, features: Features, pairs: Pairs, noise: Noise | None) -> Tensors:
    fixed = noise.content_hash if isinstance(noise, NoiseManifest) else ""
    parts = []
    for part in spans(len(pairs), CHUNK_PAIRS):
        key = (what, pairs.content_hash, fixed, str(part.start))
        rows = np.arange(part.start, part.stop)
        chunk = features.kept(key, partial(_chunk, of, features, pairs, noise or Noise(), rows))
        parts.append({name: values.cpu() for name, values in chunk.items()})
    return {name: torch.cat([chunk[name] for chunk in parts]) for name in parts[0]}


def _chunk(of: OfChunk, features: Features, pairs: Pairs, noise: Noise, rows: np.ndarray) -> Tensors:
    texts = features.extracted_texts([texts[0] for texts in noise.texts(pairs, rows)])
    return of(features, features.extracted_images(noise.applied(pairs), rows), texts)


def _agreement(features: Features, images: Tensors, texts: Tensors) -> Tensors:
    with evaluation_mode(features.method):
        confidence = features.method.confidence(images, texts)
    cosine = (images["embedding"] * texts["embedding"]).sum(1)
    found = {"confidence": confidence, "cosine": cosine}
    if "csd" in available_scores(images, texts):
        found["csd"] = cosine + offsets(images, "csd") + offsets(texts, "csd")
    return found
