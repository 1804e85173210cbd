"""Oracle values that a method brings in a JSON file next to its own: my_loss.oracles.json next to my_loss.py.

docs/new_method.md describes the format. `bench check` compares the values; here the file is only read, without torch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from pydantic import Field, ValidationError, field_validator, model_validator

from bench import reading
from bench.adapters import registry
from bench.errors import UserError, one_line
from bench.settings_base import Model, Seed
from bench.yaml_source import dotted, fault, faults_of

if TYPE_CHECKING:
    from methods.protocol import About

CHECKED_FIDELITIES = ("official-checked", "formula-checked")  #: classes of fidelity that rest on values of other code
UNCHECKED = "unchecked"  #: printed in place of such a class where a plug-in brings no values
ORACLE_SUFFIX = ".oracles.json"
MAX_ORACLE_BYTES = 2**22  #: of a file; all shipped values together take an eighth of it

Numbers = Any  #: a number or nested lists of numbers of one shape


class OracleSource(Model):
    """The source of the values."""

    repository: str = ""  #: "github.com/OWNER/REPO", for values of executed official code
    commit: Annotated[str, Field(pattern=r"^([0-9a-f]{7,40})?$")] = ""
    where: Annotated[str, Field(min_length=1)]  #: file, line and function, or how else the values were computed


class OracleStep(Model):
    """One training step: the inputs of `observe` and `loss`, and the results that they should give."""

    inputs: dict[str, Numbers]  #: "image" and "text" [B, D] as `encode` returns them, and what else it returns
    ids: tuple[Annotated[int, Field(ge=0)], ...] = ()  #: training rows of the batch, 0..B-1 by default
    phase: str = ""  #: the method's last one by default
    epoch: Annotated[int, Field(ge=0, le=10**6)] = 0
    progress: Annotated[float, Field(ge=0, lt=1)] = 0.0
    loss: float | None = None
    #: of the loss, in inputs and in the method's own parameters
    gradient: dict[str, Numbers] = Field(default_factory=dict)
    state: dict[str, Numbers] = Field(default_factory=dict)  #: buffers of the method after the step

    @field_validator("inputs", "gradient", "state")
    @classmethod
    def _numbers(cls, values: dict[str, Numbers]) -> dict[str, Numbers]:
        for name, value in values.items():
            try:
                array = np.asarray(value)
            except ValueError:  # lists of several shapes, or too deep
                array = np.empty(0, dtype=object)
            if array.dtype.kind not in "iuf" or not np.isfinite(array).all():
                raise fault("should be a finite number, or nested lists of them that have one shape", name)
        return values

    @model_validator(mode="after")
    def _batch(self) -> Self:
        for name in ("image", "text"):
            if np.ndim(self.inputs.get(name, 0.0)) != 2:
                raise fault("should be a list of B lists of D numbers", "inputs", name)
        rows = len(self.inputs["image"])
        for name, value in self.inputs.items():
            if np.ndim(value) == 0 or len(value) != rows:
                raise fault(f"should have {rows} rows, as image has", "inputs", name)
        if self.ids and len(set(self.ids)) != rows:
            raise fault(f"should be {rows} different rows, one for each of the batch", "ids")
        return self


class OracleCase(Model):
    """Consecutive steps under one configuration."""

    name: Annotated[str, Field(min_length=1)]
    config: dict[str, Any] = Field(default_factory=dict)  #: hyper-parameters that differ from the defaults
    rows: Annotated[int, Field(gt=0, le=10**6)] = 64  #: number of training rows
    seed: Seed = 0
    tolerance: Annotated[float, Field(gt=0, le=1e-3)] = 1e-9  #: relative, in fp64
    steps: Annotated[tuple[OracleStep, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _rows(self) -> Self:
        for number, step in enumerate(self.steps):
            if max(step.ids, default=len(step.inputs["image"]) - 1) >= self.rows:
                raise fault(f"exceeds the {self.rows} training rows; set rows", "steps", number, "ids")
        return self


class OracleFile(Model):
    """The whole file."""

    source: OracleSource
    cases: Annotated[tuple[OracleCase, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _compares(self) -> Self:
        if all(step.loss is None and not step.gradient for case in self.cases for step in case.steps):
            raise fault("no step has a loss or a gradient", "cases")
        return self


def oracle_path(method: Path) -> Path:
    """Return the path at which a method in this file brings its values."""
    return method.with_suffix(ORACLE_SUFFIX)


def read_oracles(path: Path) -> OracleFile | None:
    """Return the values in a file, or None if there is no file. UserError has one line for the first mistake."""
    if not path.is_file():
        return None
    try:
        text = reading.read_file(path, MAX_ORACLE_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    try:
        json.loads(text)
        return OracleFile.model_validate_json(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: not valid JSON: {error.msg}") from error
    except ValidationError as error:
        place, message = faults_of(error, OracleFile)[0]
        raise UserError(f"{path}: {dotted(place) or 'the file'}: {message}") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, or thousands of nested lists
        raise UserError(f"{path}: not valid JSON: {one_line(error)}") from error


def missing_oracles(path: Path, claim: str) -> str:
    """Return why a class of fidelity lacks the values that it rests on; "" if the file has them or it needs none."""
    if claim not in CHECKED_FIDELITIES:
        return ""
    file, demand = read_oracles(path), f"about.fidelity is {claim!r}, which needs"
    if file is None:
        return f"{demand} values of other code in {path.name}; add them, or claim 'derived'"
    if claim == "official-checked" and not (file.source.repository and file.source.commit):
        return f"{demand} source.repository and source.commit in {path.name}; without them say 'formula-checked'"
    return ""


def printed_fidelity(name: str, about: About) -> str:
    """Return how a method was checked, as tables and cards print it.

    A class that rests on values of other code is printed for a plug-in that brings such values; else "unchecked".
    `bench check` demands them of shipped methods too. UserError if the file of values is invalid.
    """
    place = registry.method_source(name)
    if place.shipped or not missing_oracles(oracle_path(place.path), about.fidelity):
        return about.fidelity
    return UNCHECKED
