"""Base of all settings: the strict model, types of fields, words that a registry knows."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from bench.registry import Registry
from bench.yaml_source import fault, value_line

Rate = Annotated[float, Field(ge=0.0, lt=1.0)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Positive = Annotated[float, Field(gt=0, le=1e9)]
Range = Annotated[tuple[Positive, Positive], Field(strict=False)]
Strings = Annotated[tuple[str, ...], Field(strict=False)]
NonEmptyList = Field(min_length=1, strict=False)  # a YAML list is not a tuple, strictly
MAX_NAME_LETTERS = 100  #: most characters of names and labels, which become parts of file names
_MAX_PART_BYTES = 255  #: of one part of a path, on all usual file systems


def printable_line(text: str) -> str:
    """The text unchanged; a fault if it has line ends, control characters or marks of direction."""
    if not text.isprintable():
        raise fault(f"{value_line(text)} should be one line of printable characters")
    return text


def possible_path(text: str) -> str:
    """The text unchanged; a fault if no file can have this path."""
    longest = max((part.encode() for part in printable_line(text).split("/")), key=len)
    if len(longest) > _MAX_PART_BYTES:
        most = f"names of files have at most {_MAX_PART_BYTES}"
        raise fault(f"{value_line(text)} has a part of {len(longest):,} bytes; {most}")
    return text


Word = Annotated[str, Field(max_length=MAX_NAME_LETTERS), AfterValidator(printable_line)]
OneLine = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(printable_line)]
Words = Annotated[tuple[Word, ...], Field(strict=False, max_length=1000)]
Location = Annotated[str, AfterValidator(possible_path)]  #: a path or an address
Locations = Annotated[tuple[Location, ...], Field(strict=False)]


class Model(BaseModel):
    """Frozen, no unknown keys, no silent conversion ("3" is not 3), no infinities."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    later: ClassVar[frozenset[str]] = frozenset()  #: fields that were added after ids existed
    outside: ClassVar[frozenset[str]] = frozenset()  #: fields that cannot change a result, such as paths

    def content(self) -> dict[str, Any]:
        """What ids depend on: nothing from `outside`, and of `later` only what differs from its default."""
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


def no_duplicates(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values unchanged; a fault at the first duplicate."""
    seen = set()
    for position, value in enumerate(values):
        if value in seen:
            raise fault(f"{value_line(value)} is a duplicate", position)
        seen.add(value)
    return values


NoDuplicates = AfterValidator(no_duplicates)


#: of a tuple that a file may write as one value, without a list around it
one_or_several = BeforeValidator(lambda value: tuple(value) if isinstance(value, list | tuple) else (value,))
