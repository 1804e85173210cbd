"""Makes cases of `bench check` from the values that a method brings in a file beside its own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.adapters import hyperparameters, oracle_file
from bench.adapters.oracle_file import Numbers, OracleCase, OracleStep
from bench.checks import lab
from bench.checks.oracles import Case, Comparison
from bench.checks.subject import Failed, graded
from bench.errors import UserError, nearest, one_line
from methods.protocol import Batch, Clock, Facts


def cases(method: str, path: Path) -> Iterator[Case]:
    """Yield one case for each case of the file, none if there is no file. Raises UserError for an invalid file."""
    file = oracle_file.read(path)
    for case in file.cases if file else ():
        yield Case(f"{path.name}, case {case.name!r}", partial(_compare, method, path, case))


def _compare(name: str, path: Path, case: OracleCase) -> Iterator[Comparison]:
    image = case.steps[0].inputs["image"]
    facts = Facts(rows=case.rows, batch=len(image), dim=len(image[0]), seed=case.seed)
    try:
        method = lab.exact(lambda: hyperparameters.make(name, None, case.config, facts))
    except UserError as error:
        raise UserError(f"{path}: case {case.name!r}: {one_line(error)}") from error
    for number, step in enumerate(case.steps):
        after = case.steps[number + 1].epoch if number + 1 < len(case.steps) else step.epoch
        yield from _step(method, number, step, after, case.tolerance)


def _step(method: Any, number: int, step: OracleStep, next_epoch: int, tolerance: float) -> Iterator[Comparison]:
    z = {key: torch.tensor(value, dtype=torch.float64, requires_grad=True) for key, value in step.inputs.items()}
    total = len(z["image"])
    clock = Clock(number, step.phase or method.phases()[-1].name, step.progress, step.epoch)
    with torch.no_grad():
        observed = method.observe(z, Batch(torch.tensor(step.ids or range(total)), clock))
    loss = lab.sum_of_tiles(method, z, observed)
    values = graded(method, loss, z)
    if step.loss is not None:
        yield _close(f"loss of step {number}", values["loss"], step.loss, tolerance)
    for key, value in step.gradient.items():
        what = f"gradient of {key}"
        yield _close(f"{what} of step {number}", _known(values, what), value, tolerance)
    method.after_step(clock)
    state = method.state_dict()
    for key, value in step.state.items():
        yield _close(f"{key} after step {number}", _known(state, key), value, tolerance)
    if next_epoch > step.epoch:
        method.end_epoch(step.epoch)


def _known(values: dict[str, Tensor], name: str) -> Tensor:
    if name not in values:
        raise Failed(f"there is no {name}{nearest(name, values)}")
    return values[name]


def _close(what: str, actual: Tensor, expected: Numbers, tolerance: float) -> Comparison:
    largest = float(torch.as_tensor(expected, dtype=torch.float64).abs().max())
    return Comparison(what, actual.double(), expected, tolerance, 1e-3 * tolerance * largest)
