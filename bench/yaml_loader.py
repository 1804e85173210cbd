"""YAML parsed within bounds: YAML 1.2's idea of scalars, the line of every value, one error for whatever is refused.

Whatever the text holds, parsing takes a second at most and memory in proportion to the text: depth, number of values
(aliases written out), length of texts and digits of numbers have limits.
"""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

FieldPath = tuple[str | int, ...]  #: keys and list positions that lead to a value, as in ("methods", 1, "config")

MAX_BYTES = 2**18  #: of a file
MAX_VALUES = 10_000  #: mappings, lists, texts and numbers together
MAX_DEPTH = 20  #: of mappings and lists inside each other
MAX_LETTERS = 4_000  #: characters of one text
MAX_KEY_LETTERS = 100  #: characters of a key
MAX_DIGITS = 18  #: of a whole number, which then fits 64 bits

_TAG = "tag:yaml.org,2002:"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_NUMBER = r"[-+]?(?:[0-9][0-9_]*)"
_WHOLE = re.compile(rf"^{_NUMBER}$")
_REAL = re.compile(
    rf"^(?:{_NUMBER}(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?|[-+]?\.[0-9]+(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan)$"
)
_BOOL = re.compile(r"^(?:true|True|false|False)$")


class InvalidYaml(Exception):
    """The text is not valid YAML, or not within the limits. `line` counts from 1."""

    def __init__(self, line: int, message: str, place: FieldPath | None = None) -> None:
        """place: of the value that `message` is about; None for a mistake of YAML's own syntax."""
        super().__init__(message)
        self.line, self.message, self.place = line, message, place


class _Loader(yaml.SafeLoader):
    """YAML 1.2's idea of scalars: `1e-3` is a number, `no` and `2024-01-01` are words. Stops at the limits."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.values, self.depth = 0, 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """As PyYAML's own; InvalidYaml as soon as the text has too many values, or too deep ones."""
        line = self.peek_event().start_mark.line + 1  # type: ignore[no-untyped-call]
        self.values += 1
        self.depth += 1
        _limit(line, self.values, self.depth)
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _limit(line: int, values: int, depth: int) -> None:
    if values > MAX_VALUES:
        raise InvalidYaml(line, f"more than {MAX_VALUES:,} values, aliases written out; make it smaller")
    if depth > MAX_DEPTH + 1:
        raise InvalidYaml(line, f"nested deeper than {MAX_DEPTH} levels; nest it less deeply")


def _text(loader: yaml.SafeLoader, node: yaml.Node, pattern: re.Pattern[str], what: str) -> str:
    """The text of a scalar that has to match; an explicit tag such as `!!float abc` may say anything."""
    text = str(loader.construct_scalar(node))  # type: ignore[arg-type]
    if not pattern.match(text):
        raise InvalidYaml(node.start_mark.line + 1, f"{text[:60]!r} is not a {what}")
    return text.replace("_", "")


def _whole(loader: yaml.SafeLoader, node: yaml.Node) -> int:
    text = _text(loader, node, _WHOLE, "whole number")
    digits = len(text.lstrip("+-"))
    if digits > MAX_DIGITS:
        raise InvalidYaml(node.start_mark.line + 1, f"a whole number of {digits} digits; at most {MAX_DIGITS}")
    return int(text)  # PyYAML would read 010 as eight


def _real(loader: yaml.SafeLoader, node: yaml.Node) -> float:
    text = _text(loader, node, _REAL, "number")
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


def _bool(loader: yaml.SafeLoader, node: yaml.Node) -> bool:
    return _text(loader, node, _BOOL, "boolean").lower() == "true"


def _unknown(_: yaml.SafeLoader, node: yaml.Node) -> None:
    raise InvalidYaml(node.start_mark.line + 1, f"the tag {node.tag.replace(_TAG, '!!')[:60]!r} is unknown; remove it")


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in pairs if tag.removeprefix(_TAG) in ("null", "merge")]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(f"{_TAG}bool", _BOOL, list("tTfF"))
_Loader.add_implicit_resolver(f"{_TAG}int", _WHOLE, list("-+0123456789"))
_Loader.add_implicit_resolver(f"{_TAG}float", _REAL, list("-+0123456789."))
_Loader.yaml_constructors = {
    tag: constructor
    for tag, constructor in yaml.SafeLoader.yaml_constructors.items()
    if tag is not None and tag.removeprefix(_TAG) in ("null", "str", "seq", "map")
}
_Loader.add_constructor(None, _unknown)
for _name, _constructor in (("int", _whole), ("float", _real), ("bool", _bool)):
    _Loader.add_constructor(f"{_TAG}{_name}", _constructor)


def parse_yaml(text: str) -> tuple[Any, dict[FieldPath, int]]:
    """The value of a text, None for an empty one, and the line of every value. InvalidYaml for what is refused.

    Values are dicts, lists, texts, numbers, booleans and None. No two places share one of them.
    """
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise InvalidYaml(line, f"the character U+{ord(text[error.position]):04X} is not allowed; remove it") from error
    try:
        node = loader.get_single_node()
        walk = _Walk()
        if node is not None:
            walk.visit(node, (), ())
        value = loader.construct_document(node) if node is not None else None
        return json.loads(json.dumps(value)), walk.lines  # without aliases: a change at one place changes no other
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise InvalidYaml(mark.line + 1 if mark else 1, str(error.problem or error.context)) from error
    finally:
        loader.dispose()


class _Walk:
    """A visit of all values, those of aliases at each of their places."""

    def __init__(self) -> None:
        self.lines: dict[FieldPath, int] = {}
        self.values = 0

    def visit(self, node: yaml.Node, place: FieldPath, above: tuple[int, ...]) -> None:
        """Note the line of every key and list entry; InvalidYaml for keys and texts that cannot be."""
        line = node.start_mark.line + 1
        self.lines.setdefault(place, line)
        if id(node) in above:
            raise InvalidYaml(line, "an alias contains itself", place)
        above += (id(node),)
        self.values += 1
        _limit(line, self.values, len(above))
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                inner = (*place, _key(key, place))
                if inner in self.lines:
                    raise InvalidYaml(key.start_mark.line + 1, "duplicate key", inner)
                self.lines[inner] = key.start_mark.line + 1
                if ":" in key.value and key.style is None and not value.value:
                    spaced = ": ".join(key.value.split(":", 1))
                    raise InvalidYaml(key.start_mark.line + 1, f"needs a space after the colon: {{{spaced}}}", inner)
                self.visit(value, inner, above)
        elif isinstance(node, yaml.SequenceNode):
            for position, value in enumerate(node.value):
                self.visit(value, (*place, position), above)
        else:
            node.value = _paired(node.value)
        if isinstance(node, yaml.ScalarNode) and (wrong := _wrong(node.value, MAX_LETTERS)):
            raise InvalidYaml(line, wrong, place)


def _paired(text: str) -> str:
    """Return a text in which JSON's escapes of one character beyond U+FFFF, which PyYAML reads as two, are that one."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:  # one of the two stands alone
        return text


def _key(node: yaml.Node, place: FieldPath) -> str:
    """The word of a key."""
    line = node.start_mark.line + 1
    if not isinstance(node, yaml.ScalarNode) or node.tag.removeprefix(_TAG) not in ("str", "merge"):
        shown = f"{node.value[:60]!r}" if isinstance(node, yaml.ScalarNode) else "a list or mapping"
        raise InvalidYaml(line, f"the key {shown} should be a word; put it in quotes", place)
    wrong = _wrong(node.value, MAX_KEY_LETTERS)
    if wrong or not node.value.isprintable():
        raise InvalidYaml(line, f"the key {node.value[:60]!r} {wrong or 'should be one line'}", place)
    return str(node.value)


def _wrong(text: str, letters: int) -> str:
    """Return what is wrong with a text; "" for a good one."""
    if match := _CONTROL.search(text):
        return f"holds the control character U+{ord(match[0]):04X}; remove it"
    return f"has {len(text):,} characters; at most {letters:,}" if len(text) > letters else ""
