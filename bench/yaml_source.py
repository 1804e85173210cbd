"""YAML whose every value knows its line, so that a mistake can be named with file, line, field and the nearest word."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticCustomError

from bench.errors import UserError, nearest
from bench.yaml_loader import MAX_BYTES, MAX_DEPTH, MAX_LETTERS, FieldPath, InvalidYaml, parse_yaml

FieldFault = tuple[FieldPath, str]  #: where, and what is wrong there
_SHOWN_LETTERS = 200  #: characters of an override in messages
_LISTED_FAULTS = 50  #: mistakes of a file that are listed


def dotted(place: FieldPath) -> str:
    """("methods", 1, "config") -> "methods.1.config", as `--set` takes it."""
    return ".".join(str(part) for part in place)


def fault(message: str, *at: str | int) -> PydanticCustomError:
    """An error for a validator to raise: `message` concerns the value `at` below the validated one."""
    return PydanticCustomError("fault", "{message}", {"message": message, "at": list(at)})


class YamlSource:
    """Parsed YAML with the place of every value.

    `where(("train", "lr"))` is "suite.yaml:7", the nearest known ancestor's place for a value that is not there, or
    the `--set` that put it there.
    """

    def __init__(self, name: str, data: Any, marks: dict[FieldPath, str]) -> None:
        self.name = name
        self.data = data
        self.marks = marks

    @classmethod
    def read(cls, path: Path) -> YamlSource:
        """Parse a file; UserError for what is unreadable, too large, not YAML, empty, or says a key twice."""
        try:
            with path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
            text = content.decode("utf-8")
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error}") from error
        except UnicodeDecodeError as error:
            line = content[: error.start].count(b"\n") + 1
            raise UserError(f"{path}:{line}: is not UTF-8; save the file as UTF-8") from error
        if len(text.encode()) > MAX_BYTES:
            raise UserError(f"{path}: is larger than {MAX_BYTES // 2**10} KiB; a suite is a few lines of YAML")
        try:
            data, lines = parse_yaml(text)
        except InvalidYaml as error:
            what = "not valid YAML" if error.place is None else dotted(error.place) or "the file"
            raise UserError(f"{path}:{error.line}: {what}: {error.message}") from error
        if not isinstance(data, dict):
            raise UserError(f"{path}:1: should be a mapping of keys such as 'name' and 'methods'")
        return cls(str(path), data, {place: f"{path}:{line}" for place, line in lines.items()})

    def where(self, place: FieldPath) -> str:
        """`file:line` of a value, or of the nearest thing around it."""
        for end in range(len(place), -1, -1):
            if place[:end] in self.marks:
                return self.marks[place[:end]]
        return f"{self.name}:1"

    def set(self, assignment: str) -> None:
        """Apply `a.b=c`: c is YAML; a list is entered by position, `methods` also by label or method name."""
        source = f"--set {' '.join(assignment.split())[:_SHOWN_LETTERS]}"
        key, equals, text = assignment.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(parts) or not key.isprintable() or len(parts) > MAX_DEPTH or len(key) > MAX_LETTERS:
            raise UserError(f"{source}: should look like --set train.lr=1e-3")
        try:
            value, _ = parse_yaml(text)
        except InvalidYaml as error:
            raise UserError(f"{source}: {value_line(text)} is not valid YAML: {error.message}") from error
        place: FieldPath = ()
        target = self.data
        for part in parts[:-1]:
            step = _step(target, part, source)
            place += (step,)
            target = _entered(target, step, source, place)
        last = _step(target, parts[-1], source)
        target[last] = value
        place += (last,)
        self.marks = {known: mark for known, mark in self.marks.items() if known[: len(place)] != place}
        self.marks[place] = source

    def spread(self, key: str, apart: Callable[[Any], list[Any]]) -> None:
        """Put in place of each entry of the list below `key` those that `apart` makes of it, with its marks."""
        if not isinstance(entries := self.data.get(key), list):
            return
        parts = [(origin, one) for origin, entry in enumerate(entries) for one in apart(entry)]
        if len(parts) == len(entries):
            return
        marks = {at: mark for at, mark in self.marks.items() if at[:1] != (key,) or len(at) == 1}
        for place, (origin, _) in enumerate(parts):
            marks |= {(key, place, *at[2:]): mark for at, mark in self.marks.items() if at[:2] == (key, origin)}
        self.marks, self.data = marks, {**self.data, key: [one for _, one in parts]}

    def fail(self, faults: Sequence[FieldFault]) -> UserError:
        """One line per fault, in the order of the file."""
        found = [(self._written(place), message) for place, message in faults]
        lines = dict.fromkeys(f"{self.where(place)}: {dotted(place)}: {message}" for place, message in found)
        listed = sorted(lines, key=_by_line)[:_LISTED_FAULTS]
        return UserError(*listed, *["there may be more mistakes"] * (len(lines) > _LISTED_FAULTS))

    def _written(self, place: FieldPath) -> FieldPath:
        """A place as written in the file: a single value may stand without the list that could hold several."""
        target: Any = self.data
        found: FieldPath = ()
        for part in place:
            if isinstance(part, int) and not isinstance(target, list):
                continue
            found += (part,)
            try:
                target = target[part]
            except (KeyError, IndexError, TypeError):
                target = []  # what is not there has its place as it is
        return found


def _by_line(text: str) -> tuple[int, str]:
    match = re.search(r":(\d+): ", text)
    return (int(match[1]) if match else 0, text)


def _entered(target: Any, step: Any, source: str, place: FieldPath) -> Any:
    """The mapping or list at `step`, made from what is there if need be: a bare method name becomes an entry."""
    listed = isinstance(target, list)
    value = target[step] if listed else target.get(step)
    if isinstance(value, dict | list):
        return value
    if listed and not isinstance(value, str):
        raise UserError(f"{source}: {dotted(place)} is {value_line(value)}, which holds no values of its own")
    target[step] = {"method": value} if listed else {}
    return target[step]


def _step(target: Any, part: str, source: str) -> Any:
    """The key or list position that `part` of a `--set` names."""
    if not isinstance(target, list):
        return part
    if part.isascii() and part.isdigit() and len(part) < 10 and int(part) < len(target):
        return int(part)
    names = [str(item.get("label", item.get("method")) if isinstance(item, dict) else item) for item in target]
    if part in names:
        return names.index(part)
    raise UserError(f"{source}: {part!r} is not an entry of the list{nearest(part, names)}")


def faults_of(error: ValidationError, model: type[BaseModel]) -> list[FieldFault]:
    """pydantic's errors in this package's words."""
    faults: list[FieldFault] = []
    for item in error.errors(include_url=False)[: _LISTED_FAULTS + 1]:
        place: FieldPath = tuple(item["loc"])
        context: Mapping[str, Any] = item.get("ctx", {})
        kind = item["type"]
        if kind == "fault":
            faults.append(((*place, *context["at"]), context["message"]))
        elif kind == "extra_forbidden":
            faults.append((place, f"unknown key{nearest(place[-1], _keys(model, place[:-1]))}"))
        elif kind == "missing":
            faults.append((place, "is missing"))
        elif kind == "too_short" and context["actual_length"] < len(item["input"]):
            pass  # entries are missing because they are faults themselves
        elif kind == "string_too_long":
            letters = f"has {len(item['input']):,} characters; at most {context['max_length']:,}"
            faults.append((place, f"{value_line(item['input'])} {letters}"))
        elif kind == "too_long":
            faults.append((place, f"has more than {context['max_length']:,} entries"))
        elif kind in ("too_short", "string_too_short"):
            faults.append((place, f"{value_line(item['input'])} is too short"))
        elif kind == "literal_error":
            words = re.findall(r"'([^']*)'", context["expected"])
            tail = nearest(item["input"], words) if words else ""
            faults.append((place, f"{value_line(item['input'])} should be {context['expected']}{tail}"))
        else:
            message = _SAID.sub(lambda match: _WORDS[match[0]], item["msg"])
            faults.append((place, f"{value_line(item['input'])} {message[0].lower()}{message[1:]}"))
    return faults


_WORDS = {
    "Input should": "should",
    "a valid dictionary or instance of": "a mapping of",
    "a valid dictionary": "a mapping",
    "a valid tuple": "a list",
}
_SAID = re.compile("|".join(_WORDS))


def value_line(value: object) -> str:
    """A value as one short line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


def _keys(model: type[BaseModel], place: FieldPath) -> list[str]:
    """The valid keys of the model that stands at `place` below `model`; [] if none stands there."""
    kinds: list[Any] = [model]
    for part in place:
        kinds = [inner for kind in kinds for inner in _below(kind, part)]
    return [key for kind in kinds if _is_model(kind) for key in kind.model_fields]


def _below(kind: Any, part: str | int) -> list[Any]:
    """The types that may stand at the key or position `part` of a value of this type."""
    if _is_model(kind):
        return _members(kind.model_fields[part].annotation) if part in kind.model_fields else []
    inner = typing.get_args(kind)
    if isinstance(part, int):
        return _members(inner[0]) if typing.get_origin(kind) in (tuple, list) else []
    return _members(inner[1]) if typing.get_origin(kind) is dict else []


def _members(kind: Any) -> list[Any]:
    """X | None -> [X, None], Annotated[X, ...] -> [X], any other type -> [itself]."""
    if typing.get_origin(kind) is typing.Annotated:
        return _members(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return [member for one in typing.get_args(kind) for member in _members(one)]
    return [kind]


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
