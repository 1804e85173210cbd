"""The section `tune` of a suite."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from bench.settings_base import Model, Range, Rate, Seed
from bench.suite.settings import Budget
from bench.yaml_source import fault


class TuneSettings(Model):
    """Trials that every method gets alike before it is compared; the best on the validation pairs sets its row.

    The first trial is the suite's own settings. The others spread over the ranges, evenly on a logarithmic scale.
    """

    trials: Annotated[int, Field(ge=2, le=1000)]  #: of every method
    budget: Budget | None = None  #: of one trial; null = the suite's
    rate: Rate | None = None  #: noise of the trials; null = the suite's highest
    seed: Seed = 1000  #: of the trials; best none of the suite's
    lr: Range = (5e-4, 8e-3)
    temperature: Range = (0.01, 0.2)  #: of methods that keep it fixed and whose entry does not name it

    @field_validator("lr", "temperature")
    @classmethod
    def _ordered(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not value[0] < value[1]:
            raise fault(f"{list(value)} should be [low, high]")
        return value
