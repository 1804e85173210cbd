"""Diagnostics of any method: similarities of pairs and, if the method has variances, uncertainties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from bench.catalogue.families import FAMILIES
from bench.data import Pairs
from bench.data.noise.manifest import NoiseManifest, noisy_mask
from bench.evaluation.features import Features
from bench.evaluation.measures import pair_confidences
from bench.evaluation.tasks import EvaluationPlan
from bench.store import RunStore, RunWriter
from bench.store.histograms import store_diagnostics
from methods.protocol import Diagnostic

TOP_SHARE = 0.05  #: share of an image's negatives that are its largest (NCU's Figure 5)
MAX_NEGATIVES = 1024  #: most images, evenly spaced, that are used for mismatched pairs
#: labels whose class names are encoded as texts, from general to special
LABEL_LEVELS = ("group", "subgroup", "concept")


def diagnose(features: Features, plan: EvaluationPlan, out: RunStore, manifest: NoiseManifest | None) -> None:
    """Store the diagnostics of final weights in the run, once per protocol, for data sets that the plan's tasks use.

    `out` is a RunWriter, but for the further ranks of the features' group, which measure along. A following
    `evaluate_features` finds what was extracted. No records are written. Raises FloatingPointError and UserError as it
    does.
    """
    protocol = plan.protocol.label
    measured = any(one["source"] == "evaluation" and one.get("protocol") == protocol for one in out.diagnostics())
    if features.group.agree(measured):
        return
    noise = manifest.summary if manifest else None
    tasks = plan.tasks(1.0, noise)
    diagnostics: list[Diagnostic] = []
    if plan.held_out in {task.dataset for task in tasks}:
        diagnostics += _held_out(plan.load(plan.held_out), features, plan)
    if manifest and noise and noise.mixed and any(FAMILIES[task.family].on_training_pairs for task in tasks):
        pairs = plan.load(plan.training)  # as training saw them, with the first text of each
        cosine = pair_confidences(features, pairs, manifest)["cosine"]
        noisy = torch.from_numpy(noisy_mask(manifest, len(pairs)))
        series = {"clean": cosine[~noisy], "corrupted": cosine[noisy]}
        title = f"cosine similarity on {pairs.name}"
        diagnostics.append(Diagnostic("training_similarity", title, "cosine similarity", series))
    if isinstance(out, RunWriter):
        store_diagnostics(out, "evaluation", diagnostics, protocol)


def _held_out(pairs: Pairs, features: Features, plan: EvaluationPlan) -> Iterator[Diagnostic]:
    of_row = plan.captions(pairs)
    captions = [text for texts in of_row for text in texts]
    images, texts = features.images(pairs), features.texts(captions)
    first = np.cumsum([0, *map(len, of_row[:-1])])
    yield Diagnostic(
        name="similarity",
        title=f"cosine similarity on {pairs.name}",
        axis="cosine similarity",
        series=pair_similarities(images["embedding"], texts["embedding"][first], [texts[0] for texts in of_row]),
    )
    if "logvar" in images and "logvar" in texts:
        yield from _uncertainties(pairs, images["logvar"], texts["logvar"], captions, features)


def pair_similarities(images: Tensor, texts: Tensor, captions: list[str]) -> Mapping[str, Tensor]:
    """Return "positive" <v_i, t_i> and "negative" <v_i, t_j> for differing captions, and of each image's negatives
    the "negative mean" and the "negative top", the mean of the largest 5 % (at least one).

    images, texts: n matched unit rows [n, D]; captions: n. At most `MAX_NEGATIVES` rows, evenly spaced, are used.
    Images without a negative have neither mean nor top.
    """
    some = torch.linspace(0, len(images) - 1, min(len(images), MAX_NEGATIVES), device=images.device).round().long()
    numbers = {caption: number for number, caption in enumerate(dict.fromkeys(captions))}
    same = torch.tensor([numbers[caption] for caption in captions], device=images.device)[some]
    cosine = images[some] @ texts[some].T
    others = same[:, None] != same
    count = others.sum(1)
    some_negative, top = count > 0, (TOP_SHARE * count).ceil().long().clamp(min=1)
    ranked = cosine.masked_fill(~others, -torch.inf).sort(1, descending=True).values
    place = torch.arange(len(some), device=cosine.device)
    mean = cosine.masked_fill(~others, 0).sum(1) / count
    largest = ranked.masked_fill(place >= top[:, None], 0).sum(1) / top
    return {
        "positive": cosine.diagonal(),
        "negative": cosine[others],
        "negative mean": mean[some_negative],
        "negative top": largest[some_negative],
    }


def _uncertainties(
    pairs: Pairs, images: Tensor, texts: Tensor, captions: list[str], features: Features
) -> Iterator[Diagnostic]:
    """Yield sums of sigma^2: images, texts, texts by length, class names by level (ProLIP's Figures 5 to 7)."""
    axis, of_texts = "uncertainty, sum of σ²", _total(texts)
    yield Diagnostic("uncertainty", "uncertainty", axis, {"images": _total(images), "texts": of_texts}, log=True)
    words = np.array([len(caption.split()) for caption in captions])
    cuts = np.quantile(words, [0, 1 / 3, 2 / 3, 1], method="inverted_cdf").astype(int).tolist()
    ranges = zip([cuts[0], cuts[1] + 1, cuts[2] + 1], cuts[1:], strict=True)  # about a third of the captions in each
    by_length = {
        f"{low} to {high} words": of_texts[(words >= low) & (words <= high)] for low, high in ranges if low <= high
    }
    yield Diagnostic("uncertainty_by_length", "uncertainty of captions by length", axis, by_length, log=True)
    names = {level: pairs.classes[level] for level in LABEL_LEVELS if level in pairs.classes}
    if names:
        by_level = {level: _total(features.texts(texts)["logvar"]) for level, texts in names.items()}
        yield Diagnostic("uncertainty_by_level", "uncertainty of class names by level", axis, by_level, log=True)


def _total(logvar: Tensor) -> Tensor:
    return logvar.double().exp().sum(1)
