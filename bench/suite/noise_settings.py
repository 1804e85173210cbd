"""The section `noise` of a suite."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from bench.catalogue.noise_kinds import KINDS, NoiseKind, NoiseOptions
from bench.settings_base import Locations, Model, NoDuplicates, NonEmptyList, Rate, entry_of, one_or_several
from bench.yaml_source import fault, faults_of, value_line


def _seed_counts(value: Any) -> Any:
    """A number of seeds from 1, or a list of numbers from 0; a fault for anything else."""
    several = isinstance(value, list | tuple)
    for place, count in enumerate(value) if several else [(None, value)]:
        at, least = ([] if place is None else [place]), int(not several)
        if type(count) is not int:
            raise fault(f"{value_line(count)} should be a valid integer", *at)
        if count < least:
            raise fault(f"{count} should be greater than or equal to {least}", *at)
    return tuple(value) if several else value


class NoiseSettings(Model):
    """Kind and rates of noise; the seed of the noise is the seed of the run."""

    kind: Annotated[str, entry_of(KINDS)] = "shuffled_captions"  #: see the page of the kinds of noise
    rates: Annotated[tuple[Rate, ...], NonEmptyList, NoDuplicates] = (0.0,)  #: shares of corrupted pairs; 0 is clean
    files: Locations = ()  #: of kind `imported`: an index file for each rate above 0, in that order
    options: dict[str, Any] = Field(default_factory=dict)  #: the kind's own settings
    #: for each rate, with how many of the suite's seeds it is trained, the first ones; default: all. With several
    #: budgets also a list of such lists, one for each budget, where 0 omits a rate: `[[10, 10], [0, 5]]`
    seeds: Annotated[
        tuple[Annotated[int | tuple[int, ...], BeforeValidator(_seed_counts)], ...], Field(strict=False)
    ] = ()
    #: nobody knows which pairs are right: at rate 0 tables say "natural noise" instead of "clean", `keep: trusted` is
    #: refused, and `keep: oracle` knows the injected noise alone. No part of a run's id
    natural: bool = False

    @model_validator(mode="after")
    def _files_options_and_seeds_fit(self) -> Self:
        noisy = [rate for rate in self.rates if rate]
        if self.entry.files and len(self.files) != len(noisy):
            raise fault(f"{len(self.files)} files for {len(noisy)} rates above 0; give one for each", "files")
        if self.files and not self.entry.files:
            with_files = " or ".join(repr(entry.name) for entry in KINDS if entry.files)
            raise fault(f"only noise of kind {with_files} has files, this is {self.kind!r}", "files")
        try:
            self.chosen_options()
        except ValidationError as error:
            place, message = faults_of(error, self.entry.options)[0]
            raise fault(message, "options", *place) from error
        by_budget = [counts for counts in self.seeds if isinstance(counts, tuple)]
        if by_budget and len(by_budget) < len(self.seeds):
            raise fault("should hold numbers alone, or a list for each budget", "seeds")
        for given in [len(counts) for counts in by_budget] or [len(self.seeds) or len(self.rates)]:
            if given != len(self.rates):
                raise fault(f"{given} counts for {len(self.rates)} rates; give one for each", "seeds")
        return self

    @model_serializer(mode="wrap")
    def _without_later_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Options, seeds and `natural` came after hashes of suites were given out."""
        values: dict[str, Any] = handler(self)
        return {key: value for key, value in values.items() if value or key not in ("options", "seeds", "natural")}

    @property
    def entry(self) -> NoiseKind:
        """All that is known of the kind."""
        return KINDS[self.kind]

    def chosen_options(self) -> NoiseOptions:
        """The kind's own settings, defaults included. pydantic's ValidationError if they are wrong."""
        return self.entry.options.model_validate(self.options)

    def at(self, rate: float) -> NoiseSettings:
        """The same noise at one of its rates alone."""
        file = self.file(rate)
        return self.model_copy(update={"rates": (rate,), "files": (file,) if file else (), "seeds": ()})

    def counts(self, budget: int = 0) -> tuple[int, ...]:
        """How many seeds each rate has under the budget of that number; () for all."""
        if self.seeds and isinstance(self.seeds[0], tuple):
            return self.seeds[min(budget, len(self.seeds) - 1)]  # type: ignore[return-value]  # one of several lists
        return self.seeds  # type: ignore[return-value]  # numbers alone

    def file(self, rate: float) -> str | None:
        """The index file of a rate; None if the noise is drawn."""
        noisy = [one for one in self.rates if one]
        return self.files[noisy.index(rate)] if rate and self.files else None


def _each_kind_once(noises: tuple[NoiseSettings, ...]) -> tuple[NoiseSettings, ...]:
    kinds = [one.kind for one in noises]
    for number, kind in enumerate(kinds):
        if kind in kinds[:number]:
            raise fault(f"{kind!r} is a duplicate; make a suite of each", number, "kind")
    if not noises:
        raise fault("is empty; name a kind of noise, or omit it")
    return noises


#: of one kind or several
Noises = Annotated[tuple[NoiseSettings, ...], one_or_several, AfterValidator(_each_kind_once)]


def noise_levels(
    noises: Iterable[NoiseSettings], seeds: tuple[int, ...], budget: int = 0
) -> list[tuple[NoiseSettings, tuple[int, ...]]]:
    """Each kind at each of its rates alone, with those of `seeds` that runs have there; clean pairs come once.

    budget: the number of the suite's budget, where it has several.
    """
    levels: dict[tuple[str, float], tuple[NoiseSettings, tuple[int, ...]]] = {}
    for noise in noises:
        counts = dict(zip(noise.rates, noise.counts(budget), strict=False))
        for rate in noise.rates:
            level = (noise.at(rate), seeds[: counts.get(rate)])
            levels.setdefault((noise.kind if rate else "", rate), level)
    return list(levels.values())
