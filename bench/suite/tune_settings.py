"""The section `tune` of a suite."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from bench.settings_base import Model, NoDuplicates, Range, Rate, Seed
from bench.suite.settings import Budget, Budgets
from bench.yaml_source import fault


class TuneSettings(Model):
    """The same number of trials for every entry; the best on the validation pairs sets the entry.

    The first settings are the entry's own. The others spread over the suite's ranges and the method's `space`. With
    several budgets the best advance from each to the next, the entry's own always among them.
    """

    trials: Annotated[int, Field(ge=2, le=1000)]  #: settings of every entry that are tried, its own among them
    #: of one run, or a rising list: all settings run at the first, the best advance; null = the suite's first
    budget: Budgets | None = None
    keep: Annotated[float, Field(gt=0, lt=1)] = 0.25  #: share of the settings that advances to the next budget
    #: at the last budget, the first alone before; none of the suite's
    seeds: Annotated[tuple[Seed, ...], Field(min_length=3, strict=False), NoDuplicates] = (1000, 1001, 1002)
    #: validation pairs that score trials: clean, with the run's noise, or clean and held out by concept; an entry with
    #: a `select` rule is scored by that rule
    by: Literal["validation", "noisy_validation", "clean_validation"] = "validation"
    rate: Rate | None = None  #: noise of the trials; null = the suite's highest
    lr: Range | None = None  #: range of learning rates, searched on a logarithmic scale; null = the entry's own
    weight_decay: Range | None = None  #: range of weight decays, on a logarithmic scale; null = the entry's own

    @field_validator("budget")
    @classmethod
    def _rising(cls, budget: tuple[Budget, ...] | None) -> tuple[Budget, ...] | None:
        values = [one.value for one in budget or ()]
        if values != sorted(values):
            raise fault("should rise: the best of a shorter budget advance to a longer one")
        return budget

    @field_validator("lr", "weight_decay")
    @classmethod
    def _ordered(cls, value: tuple[float, float] | None) -> tuple[float, float] | None:
        if value and not value[0] < value[1]:
            raise fault(f"{list(value)} should be [low, high]")
        return value

    @property
    def rungs(self) -> list[tuple[Budget | None, int, tuple[int, ...]]]:
        """Budget, number of settings and seeds of each round, from the shortest budget on."""
        budgets, count = self.budget or (None,), self.trials
        rungs: list[tuple[Budget | None, int, tuple[int, ...]]] = []
        for budget in budgets[:-1]:
            rungs.append((budget, count, self.seeds[:1]))
            count = max(2, round(self.keep * count))
        return [*rungs, (budgets[-1], count, self.seeds)]

    @property
    def runs(self) -> int:
        """How many runs each entry has."""
        return sum(count * len(seeds) for _, count, seeds in self.rungs)
