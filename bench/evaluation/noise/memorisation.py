"""Memorisation of training pairs: does a model rank the given, wrong caption first?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from bench import counter
from bench.arrays import Ints
from bench.catalogue.families.random_guess import DISTRACTORS, MEMORISATION_SAMPLE
from bench.data import Pairs
from bench.data.noise.manifest import Noise, noisy_mask
from bench.evaluation.features import evaluation_mode
from bench.evaluation.measures import Measured, MeasureInputs, Number, available_scores
from bench.evaluation.noise.detection import detection_scores
from bench.evaluation.ranks import AnswerRanks, offsets, require_finite
from bench.evaluation.tasks import Task
from methods.base import spans

TILE_PAIRS = 256  #: pairs whose scores are in memory at a time


def sampled_rows(pairs: Pairs) -> tuple[Ints, Ints]:
    """Return the rows [n], rising, whose captions are ranked, and the rows [k + 1] whose captions are distractors.

    At most `MEMORISATION_SAMPLE` rows and `DISTRACTORS` others for each: a row skips itself or, if it is none of them,
    the last one, so that all have equally many. They follow from the keys, so they are the same for every run on the
    same pairs.
    """
    rows = np.sort(counter.hash_order(pairs.keys, b"memorisation")[:MEMORISATION_SAMPLE])
    return rows, counter.hash_order(pairs.keys, b"distractors")[: DISTRACTORS + 1]


@torch.inference_mode()
def rank_given(
    images: Mapping[str, Tensor], given: Mapping[str, Tensor], others: Mapping[str, Tensor], skip: Tensor, score: str
) -> AnswerRanks:
    """Rank the given caption of each image before the distractors.

    images, given: n matched rows; others: [k] distractors; skip: bool [n, k], true where a distractor does not count.
    Raises FloatingPointError if features are not finite.
    """
    a, b, c = images["embedding"], given["embedding"], others["embedding"]
    shift, own_shift = offsets(others, score), offsets(given, score)
    require_finite(a, b, c, shift, own_shift)
    counts = []
    for rows in spans(len(a), TILE_PAIRS):
        scores = a[rows] @ torch.cat((c, b[rows])).T + torch.cat((shift, own_shift[rows]))  # one product, for ties
        own = scores[:, len(c) :].diagonal()[:, None]
        among = scores[:, : len(c)].masked_fill(skip[rows].to(a.device), -torch.inf)
        counts.append(torch.stack(((among > own).sum(1), (among == own).sum(1))))
    better, tied = torch.cat(counts, 1).cpu().numpy()
    return AnswerRanks(better, tied, np.ones_like(better))


def memorisation(task: Task, bench: MeasureInputs) -> Measured:
    """Measure how often the given caption of a training pair is ranked first, of corrupted and of clean pairs.

    The first text of each pair represents it, as training saw it. A distractor with the same text as the given one does
    not count. Without known corrupted pairs only "learned" is measured. Raises UserError if the manifest was made for
    other pairs.
    """
    pairs, manifest = bench.plan.load(task.dataset), bench.manifest
    if manifest is not None:
        manifest.check(pairs)
    noise = manifest or Noise()
    rows, among = sampled_rows(pairs)
    given, others = _first(noise, pairs, rows), _first(noise, pairs, among)
    noisy = noisy_mask(manifest, len(pairs))[rows] if manifest else np.zeros(len(rows), bool)
    wrong = np.flatnonzero(noisy)
    skip = torch.from_numpy(_skipped(rows, among, given, others))
    images = bench.features.extracted_images(noise.applied(pairs), rows)
    texts, distractors = bench.features.extracted_texts(given), bench.features.extracted_texts(others)
    numbers: list[Number] = []
    outcomes: dict[str, np.ndarray] = {"row": rows, "noisy": noisy}
    for score in available_scores(images, texts):
        ranks = rank_given(images, texts, distractors, skip, score)
        outcomes |= ranks.outcomes(f"{score}_")
        first = ranks.hits(1)
        numbers += _shares({"memorised": first[noisy], "learned": first[~noisy]}, score)
        if len(wrong):
            outcomes[f"{score}_corrected"] = corrected = _corrected(
                bench, pairs, rows[wrong], wrong, images, texts, score
            )
            numbers += _shares({"corrected": corrected}, score)
    if len(wrong) and not noisy.all():
        with evaluation_mode(bench.features.method):
            confidence = bench.features.method.confidence(images, texts).double().cpu().numpy()
        value, around = detection_scores(confidence, noisy)["auroc"]
        numbers.append(Number("auroc", "", value, len(noisy), around))
    return numbers, outcomes


def _first(noise: Noise, pairs: Pairs, rows: Ints) -> list[str]:
    return [texts[0] for texts in noise.texts(pairs, rows)]


def _skipped(rows: Ints, among: Ints, given: Sequence[str], others: Sequence[str]) -> np.ndarray:
    """Return bool [n, k + 1]: a row's own place among the distractors or else the last one, and equal texts."""
    own = rows[:, None] == among
    own[~own.any(1), -1] = True
    numbers = {text: number for number, text in enumerate(dict.fromkeys([*given, *others]))}
    ours, theirs = (np.array([numbers[text] for text in texts]) for texts in (given, others))
    skipped: np.ndarray = own | (ours[:, None] == theirs)
    return skipped


@torch.inference_mode()
def _corrected(
    bench: MeasureInputs,
    pairs: Pairs,
    rows: Ints,
    places: Ints,
    images: Mapping[str, Tensor],
    texts: Mapping[str, Tensor],
    score: str,
) -> np.ndarray:
    """Return float64 [m]: whether the true caption of corrupted `rows` is ranked before the given one; a tie is 0.5.

    places [m]: where these rows stand in `images` and `texts` [n].
    """
    true = bench.features.extracted_texts([pairs.captions(row)[0] for row in rows.tolist()])
    image, given = images["embedding"][places], texts["embedding"][places]
    gain = (image * (true["embedding"] - given)).sum(1) + offsets(true, score) - offsets(texts, score)[places]
    return (0.5 * (torch.sign(gain) + 1)).double().cpu().numpy()


def _shares(parts: Mapping[str, np.ndarray], score: str) -> list[Number]:
    return [Number.mean(name, score, hits, name != "memorised") for name, hits in parts.items() if len(hits)]
