"""The check of single precision, in which trainings compute losses and keep state, against double precision."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from bench.checks.subject import (
    BATCH,
    WHOLE,
    Failed,
    Subject,
    Variant,
    constants,
    loss_and_gradients,
    moment_name,
    moments,
    same,
    total_of,
)
from methods.base import LogitScale
from methods.protocol import Clock, Tensors

TEMPERATURE = 0.01
VISITS = 2  #: steps on the same rows; the second one starts from the state that the first one left
#: In fp32 a similarity is off by about 1e-7 and a logit of 100 by 1e-5, and an exponential makes that its relative
#: error; sums with terms of both signs lose another digit. The shipped methods are within 2e-4. A share that
#: rounded to 1, an overflow, or a product in half precision are off by 1e-2 and more.
RTOL = 1e-3
FLOOR = 1e-3  #: size below which a loss or gradient counts as this size; with RTOL an absolute tolerance of 1e-6


def fp32(subject: Subject) -> None:
    """In fp32 a step makes the same choices as in fp64, with the same loss and gradients, at temperature 0.01.

    Constants of `observe` and `draw` that are integers or booleans are equal; floating ones, the loss and its gradients
    agree within RTOL. Most pairs have a cosine near 0.97, at which their softmax shares round to 1 in fp32.
    """
    for variant in subject.variants:
        method, z = subject.embedded(_sharp(subject, variant))
        for when in moments(method):
            _compare(f"{variant.label}, {moment_name(when)}", copy.deepcopy(method), z, when)


def _sharp(subject: Subject, variant: Variant) -> Variant:
    """Return the variant at temperature TEMPERATURE, or unchanged if the method has none or does not allow it."""
    config = {**variant.config, "temperature": TEMPERATURE}
    try:
        subject.kind.Config(**config)
    except (TypeError, ValueError):
        return variant
    return Variant(f"{variant.label} at temperature {TEMPERATURE}", config)


def _compare(where: str, exact: Any, z: Tensors, when: Clock) -> None:
    for module in exact.modules():
        if isinstance(module, LogitScale):
            module.rho.data.fill_(float(torch.tensor(1 / TEMPERATURE).log()))
    single = copy.deepcopy(exact).float()
    aligned = _aligned(z)
    for visit in range(VISITS):
        rows = {name: x.roll(visit, 0) for name, x in aligned.items()}
        expected = _step(exact, rows, when, torch.float64)
        for what, x in _step(single, rows, when, torch.float32).items():
            at = f"{where}, visit {visit}: {what} in fp32"
            if x.is_floating_point():
                same(at, x, expected[what], RTOL, FLOOR)
            elif not torch.equal(x, expected[what]):
                raise Failed(f"{at} is another choice than in fp64; compare log-odds, not shares that round to 1")


def _aligned(z: Tensors) -> Tensors:
    """[TOTAL, D] unit rows become aligned rows, others stay, all in fp32.

    In every tensor but the first, two other rows are exchanged. So few mismatches leave a choice of a tenth of the rows
    to those that are aligned.
    """
    shape = (BATCH, z["image"].shape[1])
    draws = torch.Generator().manual_seed(4)
    meaning, aligned = torch.randn(shape, generator=draws), {}
    for number, (name, x) in enumerate(z.items()):
        noisy = meaning + 0.2 * torch.randn(shape, generator=draws)
        if number:
            noisy[[number, BATCH // 2 + number]] = noisy[[BATCH // 2 + number, number]]
        if x.is_floating_point() and x.shape == shape and "logvar" not in name:
            filled = (x.detach() != 0).any(1, keepdim=True)  # `encode` leaves empty what it does not encode twice
            aligned[name] = normalize(noisy, dim=1) * filled
        else:
            aligned[name] = x.detach().float() if x.is_floating_point() else x
    return aligned


def _step(method: Any, rows: Tensors, when: Clock, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return constants, loss and gradients of one step."""
    z = {name: x.to(dtype).requires_grad_() if x.is_floating_point() else x for name, x in rows.items()}
    observed, drawn = constants(method, z, when)
    loss = total_of(method.loss(z, drawn, WHOLE))
    return {
        **{f"constant {name}": x for name, x in {**observed, **drawn}.items()},
        **loss_and_gradients(method, loss, z),
    }
