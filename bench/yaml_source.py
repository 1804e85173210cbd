"""YAML whose every value knows its line, so that a mistake can be named with file, line, field and the nearest word."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticCustomError

from bench.errors import UserError, nearest, one_line

Place = tuple[str | int, ...]  #: keys and list positions that lead to a value, as in ("methods", 1, "config")
Fault = tuple[Place, str]  #: where, and what is wrong there


class _Loader(yaml.SafeLoader):
    """YAML 1.2's idea of scalars: `1e-3` is a number, `no` and `2024-01-01` are words."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in pairs if tag.rsplit(":", 1)[-1] in ("null", "merge")]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_NUMBER = r"[-+]?(?:[0-9][0-9_]*)"
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|false|False)$"), list("tTfF"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(rf"^{_NUMBER}$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        rf"^(?:{_NUMBER}(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?|[-+]?\.[0-9]+(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan)$"
    ),
    list("-+0123456789."),
)


def _decimal(_: yaml.SafeLoader, node: yaml.Node) -> int:
    return int(node.value.replace("_", ""))  # PyYAML would read 010 as eight


_Loader.add_constructor("tag:yaml.org,2002:int", _decimal)


def dotted(place: Place) -> str:
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

    def __init__(self, name: str, data: Any, marks: dict[Place, str]) -> None:
        self.name = name
        self.data = data
        self.marks = marks

    @classmethod
    def read(cls, path: Path) -> YamlSource:
        """Parse a file; UserError for what is unreadable, not YAML, empty, or says a key twice."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: cannot be read: {error}") from error
        loader = _Loader(text)
        marks: dict[Place, str] = {}
        try:
            node = loader.get_single_node()
            if not isinstance(node, yaml.MappingNode):
                raise UserError(f"{path}:1: should be a mapping of keys such as 'name' and 'methods'")
            _mark(node, (), str(path), marks, ())
            data = loader.construct_document(node)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 1
            raise UserError(f"{path}:{line}: not valid YAML: {error.problem or error.context}") from error
        except (yaml.YAMLError, ValueError) as error:
            raise UserError(f"{path}: not valid YAML: {one_line(error)}") from error
        finally:
            loader.dispose()
        return cls(str(path), data, marks)

    def where(self, place: Place) -> str:
        """`file:line` of a value, or of the nearest thing around it."""
        for end in range(len(place), -1, -1):
            if place[:end] in self.marks:
                return self.marks[place[:end]]
        return f"{self.name}:1"

    def set(self, assignment: str) -> None:
        """Apply `a.b=c`: c is YAML; a list is entered by position, `methods` also by label or method name."""
        source = f"--set {assignment}"
        key, equals, text = assignment.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(parts):
            raise UserError(f"{source}: should look like --set train.lr=1e-3")
        try:
            value = yaml.load(text, _Loader)  # a SafeLoader
        except (yaml.YAMLError, ValueError) as error:
            raise UserError(f"{source}: {text!r} is not valid YAML") from error
        place: Place = ()
        target = self.data
        for part in parts[:-1]:
            step = _step(target, part, source)
            if isinstance(target, dict) and not isinstance(target.get(step), (dict, list)):
                target[step] = {}
            elif isinstance(target, list) and isinstance(target[int(step)], str):
                target[int(step)] = {"method": target[int(step)]}
            target = target[step]
            place += (step,)
        last = _step(target, parts[-1], source)
        target[last] = value
        place += (last,)
        self.marks = {known: mark for known, mark in self.marks.items() if known[: len(place)] != place}
        self.marks[place] = source

    def fail(self, faults: Sequence[Fault]) -> UserError:
        """One line a fault, in the order of the file."""
        found = [(self._written(place), message) for place, message in faults]
        lines = [f"{self.where(place)}: {dotted(place)}: {message}" for place, message in found]
        return UserError(*sorted(dict.fromkeys(lines), key=_by_line))

    def _written(self, place: Place) -> Place:
        """A place as the file has it: one thing may stand there without a list around it, where several could be."""
        target: Any = self.data
        found: Place = ()
        for part in place:
            if isinstance(part, int) and isinstance(target, dict):
                continue
            found += (part,)
            try:
                target = target[part]
            except (KeyError, IndexError, TypeError):
                target = None
        return found


def _by_line(text: str) -> tuple[int, str]:
    match = re.search(r":(\d+): ", text)
    return (int(match[1]) if match else 0, text)


def _step(target: Any, part: str, source: str) -> str | int:
    """The key or list position that `part` of a `--set` names."""
    if not isinstance(target, list):
        return part
    if part.isdigit() and int(part) < len(target):
        return int(part)
    names = [str(item.get("label", item.get("method")) if isinstance(item, dict) else item) for item in target]
    if part in names:
        return names.index(part)
    raise UserError(f"{source}: {part!r} is no entry of the list{nearest(part, names)}")


def _mark(node: yaml.Node, place: Place, name: str, marks: dict[Place, str], above: tuple[int, ...]) -> None:
    """Note the line of every key and list entry; refuse keys said twice and aliases of themselves."""
    marks.setdefault(place, f"{name}:{node.start_mark.line + 1}")
    if id(node) in above:
        raise UserError(f"{name}:{node.start_mark.line + 1}: {dotted(place)}: an alias contains itself")
    above += (id(node),)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*place, key.value)
            if inner in marks:
                raise UserError(f"{name}:{key.start_mark.line + 1}: {dotted(inner)}: stands twice")
            marks[inner] = f"{name}:{key.start_mark.line + 1}"
            _mark(value, inner, name, marks, above)
    elif isinstance(node, yaml.SequenceNode):
        for position, value in enumerate(node.value):
            _mark(value, (*place, position), name, marks, above)


def faults_of(error: ValidationError, model: type[BaseModel]) -> list[Fault]:
    """pydantic's errors in our words."""
    faults: list[Fault] = []
    for item in error.errors(include_url=False):
        place: Place = tuple(item["loc"])
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
        elif kind in ("too_short", "string_too_short"):
            faults.append((place, f"{shown(item['input'])} is too short"))
        elif kind == "literal_error":
            words = re.findall(r"'([^']*)'", context["expected"])
            tail = nearest(item["input"], words) if words else ""
            faults.append((place, f"{shown(item['input'])} should be {context['expected']}{tail}"))
        else:
            message = _SAID.sub(lambda match: _WORDS[match[0]], item["msg"])
            faults.append((place, f"{shown(item['input'])} {message[0].lower()}{message[1:]}"))
    return faults


_WORDS = {
    "Input should": "should",
    "a valid dictionary or instance of": "a mapping of",
    "a valid dictionary": "a mapping",
    "a valid tuple": "a list",
}
_SAID = re.compile("|".join(_WORDS))


def shown(value: object) -> str:
    """A value as one short line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


def _keys(model: type[BaseModel], place: Place) -> list[str]:
    """The valid keys of the model that stands at `place` below `model`."""
    current: Any = model
    for part in place:
        current = _members(current)[0] if isinstance(part, int) else current.model_fields[part].annotation
        current = next((kind for kind in _members(current) if isinstance(kind, type)), current)
    return list(current.model_fields) if isinstance(current, type) and issubclass(current, BaseModel) else []


def _members(kind: Any) -> tuple[Any, ...]:
    """X | None -> (X, None), tuple[X, ...] -> (X, ...), a plain class -> (itself,)."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType, tuple, list):
        return typing.get_args(kind)
    return (kind,)
