"""Linear probes on frozen image features.

`sweep_probe` is the main one and follows CLIP (Radford et al. 2021, A.3): features before the projection, logistic
regression by L-BFGS, an L2 strength out of 96 steps between 1e-6 and 1e6 found on validation rows from coarse to fine,
then a refit on training and validation rows together. `adamw_probe` is that of CyCLIP's code (Goel et al., NeurIPS
2022).

official: github.com/goel-shashank/CyCLIP@707e7c7 src/evaluate.py
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.evaluation.logistic import Labelled, ProbeRows, Problem, Solution, StreamedProblem
from bench.evaluation.logistic.streamed import chunk_rows, working_bytes

__all__ = ["STRENGTHS", "Labelled", "Probe", "adamw_probe", "fits_in_memory", "sweep_probe"]

STRENGTHS = tuple(float(10.0 ** (step / 8 - 6)) for step in range(97))
MAX_SWEEP_BYTES = 2 << 30  #: bytes that a sweep may take for copies of its features and for logits
_FREE_SHARE = 0.8  #: usable share of the free bytes
_COARSE, _SPANS = 16, (8, 4, 2, 1)  # every second decade first, then halving the interval around the best
#: distance from the optimum, in nats a row, at which a fit of the sweep stops; the final fit goes further. On
#: ill-conditioned features scikit-learn's L-BFGS is much further from it after CLIP's 1,000 iterations.
_SWEEP_GAP = 1e-3


@dataclass(frozen=True)
class Probe:
    """The final classifier of a sweep, and the strengths that it tried."""

    solution: Solution
    strength: float
    validation: dict[float, float]  #: strength tried -> validation accuracy

    def correct(self, test: Labelled) -> np.ndarray:
        """Return bool [n]: whether the largest logit is that of the true class."""
        return _correct(self.solution, test).cpu().numpy()


def sweep_probe(train: Labelled, validation: Labelled, classes: int, device: torch.device | None = None) -> Probe:
    """Choose the strength on `validation` (the strongest of equally good ones), refit on both. Deterministic.

    Runs on `device`, by default the features' own, if its memory suffices, otherwise on the CPU. Rows whose copies and
    logits take more than `MAX_SWEEP_BYTES` bytes are read in chunks, from where they are.
    """
    device = device or train.table.device
    streamed, on_gpu = sweep_memory(len(train) + len(validation), train.table.shape[1], classes, _free(device))
    if not on_gpu:
        device = torch.device("cpu")
    if not streamed:
        train, validation = train.to(device), validation.to(device)

    def problem(*splits: Labelled) -> ProbeRows:
        if streamed:
            return StreamedProblem(splits, classes, device)
        rows = reduce(add, splits)
        return Problem(rows.features, rows.labels, classes)

    fits, accuracy, peak = _sweep(problem(train), validation)  # frees its memory before the next problem is made
    solution = problem(train, validation).fit(STRENGTHS[peak], fits[peak])
    return Probe(solution, STRENGTHS[peak], {STRENGTHS[step]: accuracy[step] for step in sorted(accuracy)})


def _sweep(problem: ProbeRows, validation: Labelled) -> tuple[dict[int, Solution], dict[int, float], int]:
    """Return fits and validation accuracies by step, and the best step; steps are indices into STRENGTHS."""
    fits: dict[int, Solution] = {}
    accuracy: dict[int, float] = {}

    def best_of(steps: list[int]) -> int:
        for step in sorted(set(steps) - set(fits), reverse=True):  # strong to weak, each near the one before
            fits[step] = problem.fit(STRENGTHS[step], _start(fits, step), _SWEEP_GAP)
            accuracy[step] = float(_correct(fits[step], validation).double().mean())
        return max(steps, key=lambda step: (accuracy[step], step))

    peak = best_of(list(range(0, len(STRENGTHS), _COARSE)))
    for span in _SPANS:
        peak = best_of([step for step in (peak - span, peak, peak + span) if 0 <= step < len(STRENGTHS)])
    return fits, accuracy, peak


def sweep_memory(rows: int, width: int, classes: int, free: int | None) -> tuple[bool, bool]:
    """Return whether a sweep over features [rows, width] in float32 reads them in chunks, and whether on the GPU.

    free: bytes of the GPU, None without one. Rows that are not read in chunks are copied and rotated.
    """
    streamed = not fits_in_memory(MAX_SWEEP_BYTES, rows, width, classes)
    if free is None:
        return streamed, False
    if streamed:
        return True, working_bytes(width, classes) <= _FREE_SHARE * free
    return False, fits_in_memory(free, rows, width, classes)


def fits_in_memory(free: int, rows: int, width: int, classes: int) -> bool:
    """Return whether a sweep that holds features [rows, width] in memory takes at most 0.8 of `free` bytes."""
    # float32 arrays that exist at the same time: features split, joined, centred and rotated; in a line search, logits,
    # their change along the direction, log-softmax, softmax before and here, and one product
    return 4 * rows * (4 * width + 6 * classes) <= _FREE_SHARE * free


def _free(device: torch.device) -> int | None:
    """Return the bytes that a GPU has left for tensors; None if the device is none."""
    if device.type != "cuda":
        return None
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + unused


def _start(fits: dict[int, Solution], step: int) -> Solution | None:
    """Guess the solution of a step on the line through the two nearest fits; None if there is no fit."""
    nearest = sorted(fits, key=lambda done: (abs(done - step), -done))[:2]
    if len(nearest) < 2:
        return fits[nearest[0]] if nearest else None
    a, b = nearest
    return fits[a].towards(fits[b], (step - a) / (b - a))


def _correct(solution: Solution, split: Labelled) -> Tensor:
    """Return bool [n]: whether the largest logit is that of the true class. Many rows are read in chunks."""
    width, classes = solution.weight.shape
    size = len(split) if 4 * len(split) * (width + 2 * classes) <= MAX_SWEEP_BYTES / 3 else chunk_rows(width, classes)
    chunks = split.chunks(max(1, size), solution.weight.device)
    return torch.cat([solution.logits(features).argmax(1) == labels for features, labels in chunks])


def adamw_probe(
    train: Labelled,
    test: Labelled,
    classes: int,
    seed: int = 0,
    epochs: int = 32,
    device: torch.device | None = None,
) -> np.ndarray:
    """Return bool [n]: whether CyCLIP's probe, trained without validation, is correct on `test` after the last epoch.

    Learning rate 0.005 falling as a cosine over the steps, weight decay 0.01 on the weights only, batches of 16; the
    features are projected image embeddings, not L2-normalised. Runs on `device`, by default the features' own, if it
    has room for them, otherwise on the CPU.
    """
    batch, device = 16, device or train.table.device
    free = _free(device)
    if free is not None and 4 * len(train) * train.table.shape[1] <= _FREE_SHARE * free:
        train = train.to(device)
    generator = torch.Generator().manual_seed(seed)
    width = train.table.shape[1]
    bound = 1 / math.sqrt(width)  # torch.nn.Linear's initial values
    weight = torch.empty(classes, width).uniform_(-bound, bound, generator=generator).to(train.table)
    bias = torch.empty(classes).uniform_(-bound, bound, generator=generator).to(train.table)
    weight.requires_grad_()
    bias.requires_grad_()
    optimizer = torch.optim.AdamW(
        [{"params": [weight], "weight_decay": 0.01}, {"params": [bias], "weight_decay": 0.0}], lr=0.005
    )
    steps = epochs * math.ceil(len(train.labels) / batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / steps)))
    for _ in range(epochs):
        order = torch.randperm(len(train.labels), generator=generator).to(train.labels.device)
        for rows in order.split(batch):
            features, labels = train.take(rows)
            loss = F.cross_entropy(F.linear(features, weight, bias), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return _correct(Solution(weight.detach().T, bias.detach(), steps), test).cpu().numpy()
