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

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.evaluation.logistic import Problem, Solution
from bench.evaluation.ranks import require_finite

STRENGTHS = tuple(float(10.0 ** (step / 8 - 6)) for step in range(97))
_COARSE, _SPANS = 16, (8, 4, 2, 1)  # every second decade first, then halving the interval around the best
#: distance from the optimum, in nats a row, at which a fit of the sweep stops; the final fit goes further. On
#: ill-conditioned features scikit-learn's L-BFGS is much farther away after CLIP's 1,000 iterations.
_SWEEP_GAP = 1e-3


@dataclass(frozen=True)
class Labelled:
    """Features [n, P] and labels [n] int64 of one split.

    Raises ValueError if the shapes do not fit and FloatingPointError if a feature is not finite.
    """

    features: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or len(self.features) != len(self.labels):
            raise ValueError(f"features {tuple(self.features.shape)} and {len(self.labels)} labels do not fit")
        require_finite(self.features)

    def __add__(self, other: Labelled) -> Labelled:
        return Labelled(torch.cat((self.features, other.features)), torch.cat((self.labels, other.labels)))

    def to(self, device: torch.device) -> Labelled:
        """Return the same split on another device."""
        return Labelled(self.features.to(device), self.labels.to(device))

    def select(self, mask: Tensor) -> Labelled:
        """Return the rows whose entry of `mask` [n] is true."""
        return Labelled(self.features[mask], self.labels[mask])


@dataclass(frozen=True)
class Probe:
    """The final classifier of a sweep, and the strengths that it tried."""

    solution: Solution
    strength: float
    validation: dict[float, float]  #: strength tried -> validation accuracy

    def correct(self, test: Labelled) -> np.ndarray:
        """Return bool [n]: whether the largest logit is that of the true class."""
        return _correct(self.solution, test).cpu().numpy()


def sweep_probe(train: Labelled, validation: Labelled, classes: int) -> Probe:
    """Choose the strength on `validation` (the strongest of equally good ones), refit on both. Deterministic.

    Runs on the features' GPU if its memory suffices, otherwise on the CPU: the 1.28 million rows and 1,000 classes of
    ImageNet take tens of GB.
    """
    place = _place(train.features, len(train.labels) + len(validation.labels), classes)
    train, validation = train.to(place), validation.to(place)
    fits, accuracy, peak = _sweep(train, validation, classes)  # frees its memory before the next problem is made
    both = train + validation
    solution = Problem(both.features, both.labels, classes).fit(STRENGTHS[peak], fits[peak])
    return Probe(solution, STRENGTHS[peak], {STRENGTHS[step]: accuracy[step] for step in sorted(accuracy)})


def _sweep(train: Labelled, validation: Labelled, classes: int) -> tuple[dict[int, Solution], dict[int, float], int]:
    """Return fits and validation accuracies by step, and the best step; steps are indices into STRENGTHS."""
    problem = Problem(train.features, train.labels, classes)
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


def within(free: int, rows: int, width: int, classes: int) -> bool:
    """Return whether a sweep over features [rows, width] takes at most 0.8 of `free` bytes."""
    # float32 arrays that exist at the same time: features split, joined, centred and rotated; in a line search, logits,
    # their change along the direction, log-softmax, softmax before and here, and one product
    return 4 * rows * (4 * width + 6 * classes) <= 0.8 * free


def _place(features: Tensor, rows: int, classes: int) -> torch.device:
    """Return the device of a sweep: that of the features, or the CPU if their GPU has too little free memory."""
    device = features.device
    if device.type != "cuda":
        return device
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    free = torch.cuda.mem_get_info(device)[0] + unused
    return device if within(free, rows, features.shape[1], classes) else torch.device("cpu")


def _start(fits: dict[int, Solution], step: int) -> Solution | None:
    """Guess the solution of a step on the line through the two nearest fits; None if there is no fit."""
    nearest = sorted(fits, key=lambda done: (abs(done - step), -done))[:2]
    if len(nearest) < 2:
        return fits[nearest[0]] if nearest else None
    a, b = nearest
    return fits[a].towards(fits[b], (step - a) / (b - a))


def _correct(solution: Solution, split: Labelled) -> Tensor:
    moved = split.to(solution.weight.device)
    return solution.logits(moved.features).argmax(1) == moved.labels


def adamw_probe(train: Labelled, test: Labelled, classes: int, seed: int = 0, epochs: int = 32) -> np.ndarray:
    """Return bool [n]: whether CyCLIP's probe, trained without validation, is correct on `test` after the last epoch.

    Learning rate 0.005 falling as a cosine over the steps, weight decay 0.01 on the weights only, batches of 16; the
    features are projected image embeddings, not made unit.
    """
    batch = 16
    generator = torch.Generator().manual_seed(seed)
    width = train.features.shape[1]
    bound = 1 / math.sqrt(width)  # torch.nn.Linear's initial values
    weight = torch.empty(classes, width).uniform_(-bound, bound, generator=generator).to(train.features)
    bias = torch.empty(classes).uniform_(-bound, bound, generator=generator).to(train.features)
    weight.requires_grad_()
    bias.requires_grad_()
    optimizer = torch.optim.AdamW(
        [{"params": [weight], "weight_decay": 0.01}, {"params": [bias], "weight_decay": 0.0}], lr=0.005
    )
    steps = epochs * math.ceil(len(train.labels) / batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / steps)))
    for _ in range(epochs):
        order = torch.randperm(len(train.labels), generator=generator).to(train.labels.device)
        for rows in (order[start : start + batch] for start in range(0, len(order), batch)):
            loss = F.cross_entropy(F.linear(train.features[rows], weight, bias), train.labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return _correct(Solution(weight.detach().T, bias.detach(), steps), test).cpu().numpy()
