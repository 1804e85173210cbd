"""A method's hyper-parameters: checked, resolved, as identities see them."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.errors import UserError, nearest, one_line
from bench.yaml_source import Fault, shown

if TYPE_CHECKING:
    from methods.protocol import Facts, Method

from bench.adapters.registry import _sources, canonical, find, unknown


def faults(name: str, preset: str | None, config: Mapping[str, Any]) -> list[Fault]:
    """Every mistake in a method's name, preset and hyper-parameters, with the place below the suite's entry."""
    name = canonical(name)
    if name not in _sources():
        return [(("method",), unknown(name))]
    method = find(name)
    if preset is not None and preset not in method.presets:
        return [(("preset",), f"{preset!r} is not a preset of {name}{nearest(preset, method.presets)}")]
    readers = _readers(method.Config)
    found: list[Fault] = []
    for key, value in config.items():
        if key not in readers:
            found.append((("config", key), f"unknown hyper-parameter of {name}{nearest(key, readers)}"))
            continue
        try:
            readers[key](value)
        except ValueError as error:
            found.append((("config", key), str(error)))
    if not found:
        from methods.base import HyperparameterError  # here, because it imports torch

        try:
            _config(method, preset, config)
        except (TypeError, ValueError) as error:
            if isinstance(error, HyperparameterError) and error.field in config:
                found.append((("config", error.field), f"{error.value!r}, but it must be {error.allowed}"))
            else:
                found.append((("config",), one_line(error)))
    return found


def _config(method: type[Method], preset: str | None, config: Mapping[str, Any]) -> Any:
    """The Config made from defaults, then the preset, then the suite's own values."""
    readers = _readers(method.Config)
    values = {**(method.presets[preset] if preset is not None else {}), **config}
    return method.Config(**{key: readers[key](value) for key, value in values.items()})


@functools.cache
def _readers(config: type) -> dict[str, Callable[[Any], Any]]:
    """For each hyper-parameter a function from a YAML value to its type; ValueError if it does not fit."""
    hints = typing.get_type_hints(config)
    return {field.name: _reader(hints[field.name]) for field in dataclasses.fields(config)}


def _reader(kind: Any) -> Callable[[Any], Any]:
    from pydantic import TypeAdapter, ValidationError

    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def read(value: Any) -> Any:
        try:
            text = json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:  # ValueError: nan or an infinity, here or deeper
            what = "numbers, texts and lists of them" if isinstance(error, TypeError) else "a finite number"
            raise ValueError(f"{shown(value)} should be {what}") from error
        try:
            # As JSON, because only there does strict mode take a list for a tuple.
            return adapter.validate_json(text, strict=True)
        except ValidationError as error:
            message = error.errors(include_url=False)[0]["msg"].replace("Input should", "should")
            raise ValueError(f"{shown(value)} {message[0].lower()}{message[1:]}") from error

    return read


def resolve(name: str, preset: str | None, config: Mapping[str, Any]) -> dict[str, Any]:
    """All hyper-parameters of a method: defaults, then the preset, then `config`. UserError names every mistake."""
    wrong = faults(name, preset, config)
    if wrong:
        raise UserError("\n".join(f"{name}: {'.'.join(map(str, place))}: {message}" for place, message in wrong))
    return dataclasses.asdict(_config(find(name), preset, config))


def needs(name: str, preset: str | None, config: Mapping[str, Any]) -> frozenset[str]:
    """What a method needs under its resolved hyper-parameters; see `methods.protocol.Need`."""
    method = find(name)
    return method.needs_under(_config(method, preset, config))


def content(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """A resolved `config` as identities see it: a field marked `metadata={"path": True}` stands for the bytes there."""
    paths = [field.name for field in dataclasses.fields(find(name).Config) if field.metadata.get("path")]
    return {key: _bytes_at(Path(value)) if key in paths and value else value for key, value in config.items()}


def _bytes_at(path: Path) -> str:
    """sha256 over a file, or over names and bytes of all files below a folder. UserError if nothing is there."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    total = hashlib.sha256()
    for file in files:
        try:
            total.update(repr(file.relative_to(path).as_posix()).encode() + hashlib.sha256(file.read_bytes()).digest())
        except OSError as error:
            raise UserError(f"{file}: cannot be read: {error.strerror}") from error
    return total.hexdigest()


def make(name: str, preset: str | None, config: Mapping[str, Any], facts: Facts) -> Method:
    """A method ready for `prepare`. A Run's resolved `config` is taken with preset None."""
    resolved = resolve(name, preset, config)
    method: Any = find(name)
    return typing.cast("Method", method(_config(method, None, resolved), facts))
