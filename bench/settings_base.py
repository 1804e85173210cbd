"""What all settings share: the strict model, types of fields, words that a registry knows."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from bench.registry import Registry
from bench.yaml_source import fault, shown

Rate = Annotated[float, Field(ge=0.0, lt=1.0)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Range = Annotated[tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]], Field(strict=False)]
Strings = Annotated[tuple[str, ...], Field(strict=False)]
NonEmptyList = Field(min_length=1, strict=False)  # a YAML list is no tuple, strictly


class Model(BaseModel):
    """Frozen, no unknown keys, no silent conversion ("3" is not 3), no infinities."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    later: ClassVar[frozenset[str]] = frozenset()  #: fields that came after ids were given out
    outside: ClassVar[frozenset[str]] = frozenset()  #: fields that cannot change a result, such as paths

    def content(self) -> dict[str, Any]:
        """What identities see: nothing from `outside`, and of `later` only what differs from its default."""
        fields = type(self).model_fields
        return {
            name: value
            for name, value in self.model_dump().items()
            if name not in self.outside and not (name in self.later and value == fields[name].get_default())
        }


def entry_of(registry: Registry[Any]) -> AfterValidator:
    """A text that names an entry of the registry."""

    def check(name: str) -> str:
        if message := registry.wrong(name):
            raise fault(message)
        return name

    return AfterValidator(check)


def once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values as they are; a fault at the first that stands twice."""
    for position, value in enumerate(values):
        if value in values[:position]:
            raise fault(f"{shown(value)} stands twice", position)
    return values
