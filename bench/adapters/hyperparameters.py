"""Checks and resolves a method's hyper-parameters, and gives them the form in which they enter run ids."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.adapters.registry import find_method, method_names, unknown_method
from bench.errors import UserError, nearest, one_line
from bench.hashing import file_hash
from bench.yaml_source import FieldFault, value_line

if TYPE_CHECKING:
    from methods.protocol import Facts, Method

MAX_WHOLE_NUMBER = 10**6  #: of a whole number; a field with `metadata={"most": N}` has another bound


def config_faults(name: str, preset: str | None, config: Mapping[str, Any]) -> list[FieldFault]:
    """Return every mistake in a method's name, preset and hyper-parameters, with its path below the suite's entry."""
    if name not in method_names():
        return [(("method",), unknown_method(name))]
    method = find_method(name)
    if preset is not None and preset not in method.presets:
        return [(("preset",), f"{preset!r} is not a preset of {name}{nearest(preset, method.presets)}")]
    readers = _readers(method.Config)
    mistakes: list[FieldFault] = []
    for key, value in config.items():
        if key not in readers:
            mistakes.append((("config", key), f"unknown hyper-parameter of {name}{nearest(key, readers)}"))
            continue
        try:
            readers[key](value)
        except ValueError as error:
            mistakes.append((("config", key), str(error)))
    if not mistakes:
        from methods.base import HyperparameterError  # here, because it imports torch

        try:
            _config(method, preset, config)
        except (TypeError, ValueError) as error:
            if isinstance(error, HyperparameterError) and error.field in config:
                mistakes.append((("config", error.field), f"{error.value!r}, but it must be {error.allowed}"))
            else:
                mistakes.append((("config",), one_line(error)))
    return mistakes


def _config(method: type[Method], preset: str | None, config: Mapping[str, Any]) -> Any:
    """Make the Config from defaults, then the preset, then the suite's own values."""
    readers = _readers(method.Config)
    values = {**(method.presets[preset] if preset is not None else {}), **config}
    return method.Config(**{key: readers[key](value) for key, value in values.items()})


def has_logit_bias(method: type[Method]) -> bool:
    """Return whether a method adds a bias to its scaled similarities, which fits only its own scale."""
    return "bias" in {field.name for field in dataclasses.fields(method.Config)}


@functools.cache
def _readers(config: type) -> dict[str, Callable[[Any], Any]]:
    """Return for each hyper-parameter a function from a YAML value to its type; ValueError if it does not fit."""
    hints = typing.get_type_hints(config)
    fields = dataclasses.fields(config)
    return {field.name: _reader(hints[field.name], field.metadata.get("most", MAX_WHOLE_NUMBER)) for field in fields}


def _refuse_huge(value: Any, most: int) -> None:
    """Raise ValueError for a whole number beyond `most`, also inside lists: sizes of that order fit in no memory."""
    if isinstance(value, list | tuple):
        for one in value:
            _refuse_huge(one, most)
    elif isinstance(value, int) and abs(value) > most:
        raise ValueError(f"{value_line(value)} should be at most {most:,}")


def _reader(kind: Any, most: int) -> Callable[[Any], Any]:
    from pydantic import TypeAdapter, ValidationError

    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def typed(value: Any) -> Any:
        try:
            text = json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:  # ValueError: nan or an infinity, here or deeper
            what = "numbers, texts and lists of them" if isinstance(error, TypeError) else "a finite number"
            raise ValueError(f"{value_line(value)} should be {what}") from error
        try:
            # As JSON, because only there does strict mode take a list for a tuple.
            read = adapter.validate_json(text, strict=True)
        except ValidationError as error:
            message = error.errors(include_url=False)[0]["msg"].replace("Input should", "should")
            raise ValueError(f"{value_line(value)} {message[0].lower()}{message[1:]}") from error
        _refuse_huge(read, most)
        return read

    return typed


def resolve_config(name: str, preset: str | None, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return all hyper-parameters: defaults, then the preset, then `config`. UserError names every mistake."""
    wrong = config_faults(name, preset, config)
    if wrong:
        raise UserError(*(f"{name}: {'.'.join(map(str, place))}: {message}" for place, message in wrong))
    return dataclasses.asdict(_config(find_method(name), preset, config))


def method_needs(name: str, preset: str | None, config: Mapping[str, Any]) -> frozenset[str]:
    """Return the needs of a method under its resolved hyper-parameters; see `methods.protocol.Need`."""
    method = find_method(name)
    return method.needs_under(_config(method, preset, config))


def config_content(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a resolved `config` as ids hold it: a field with `metadata={"path": True}` stands for the bytes there."""
    paths = [field.name for field in dataclasses.fields(find_method(name).Config) if field.metadata.get("path")]
    return {key: _bytes_at(Path(value)) if key in paths and value else value for key, value in config.items()}


def _bytes_at(path: Path) -> str:
    """Return the sha256 of a file, or of names and bytes of all files in a folder. UserError if nothing is there."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    total = hashlib.sha256()
    for file in files:
        try:
            total.update(repr(file.relative_to(path).as_posix()).encode() + bytes.fromhex(file_hash(file)))
        except OSError as error:
            raise UserError(f"{file}: cannot be read: {error.strerror}") from error
    return total.hexdigest()


def make_method(name: str, preset: str | None, config: Mapping[str, Any], facts: Facts) -> Method:
    """Make a method that is ready for `prepare`. Pass preset None with the resolved `config` of a Run."""
    resolved = resolve_config(name, preset, config)
    method: Any = find_method(name)
    return typing.cast("Method", method(_config(method, None, resolved), facts))
