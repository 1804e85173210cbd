"""The section `noise` of a suite."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from bench.catalogue.noise_kinds import KINDS, NoiseKind, Options
from bench.settings_base import Locations, Model, NonEmptyList, Rate, entry_of, once
from bench.yaml_source import fault, faults_of


class NoiseSettings(Model):
    """One kind of noise at several rates; the seed of the noise is the seed of the run."""

    kind: Annotated[str, entry_of(KINDS)] = "shuffled_captions"
    rates: Annotated[tuple[Rate, ...], NonEmptyList] = (0.0,)
    files: Locations = ()  #: of a kind that has them, one for each rate above 0, in that order
    options: dict[str, Any] = Field(default_factory=dict)  #: the kind's own settings, part of the identity
    #: for each rate, in that order, how many of the suite's seeds it has, the first ones; none given: all
    seeds: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False)] = ()

    @field_validator("rates")
    @classmethod
    def _once(cls, rates: tuple[float, ...]) -> tuple[float, ...]:
        return once(rates)

    @model_validator(mode="after")
    def _a_file_for_each_rate(self) -> Self:
        noisy = [rate for rate in self.rates if rate]
        if self.entry.files and len(self.files) != len(noisy):
            raise fault(f"{len(self.files)} files for {len(noisy)} rates above 0; give one for each", "files")
        if self.files and not self.entry.files:
            with_files = " or ".join(repr(entry.name) for entry in KINDS if entry.files)
            raise fault(f"only noise of kind {with_files} has files, this is {self.kind!r}", "files")
        return self

    @model_validator(mode="after")
    def _options_of_the_kind(self) -> Self:
        try:
            self.chosen_options()
        except ValidationError as error:
            place, message = faults_of(error, self.entry.options)[0]
            raise fault(message, "options", *place) from error
        return self

    @model_validator(mode="after")
    def _a_count_for_each_rate(self) -> Self:
        if self.seeds and len(self.seeds) != len(self.rates):
            raise fault(f"{len(self.seeds)} counts for {len(self.rates)} rates; give one for each", "seeds")
        return self

    @model_serializer(mode="wrap")
    def _without_later_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Options and seeds came after hashes of suites were given out."""
        values: dict[str, Any] = handler(self)
        return {key: value for key, value in values.items() if value or key not in ("options", "seeds")}

    @property
    def entry(self) -> NoiseKind:
        """All that is known of the kind."""
        return KINDS[self.kind]

    def chosen_options(self) -> Options:
        """The kind's own settings, defaults included. pydantic's ValidationError if they are wrong."""
        return self.entry.options.model_validate(self.options)

    def at(self, rate: float) -> NoiseSettings:
        """The same noise at one of its rates alone."""
        file = self.file(rate)
        return self.model_copy(update={"rates": (rate,), "files": (file,) if file else (), "seeds": ()})

    def file(self, rate: float) -> str | None:
        """The index file of a rate; None if the noise is drawn."""
        noisy = [one for one in self.rates if one]
        return self.files[noisy.index(rate)] if rate and self.files else None
